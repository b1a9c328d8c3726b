//! `peer remove`.

use utipc_manage::Request;

use super::call::{Call, Ended, needed};
use super::{identity, node};

pub(super) fn remove_address(call: &mut Call) -> Ended {
    // A plain number is accepted too.
    let word = needed(call.words.peek().map(str::to_owned), "the address")?;
    let address = match word.parse().ok().filter(|number| *number != 0) {
        Some(number) if identity::address(&word).is_none() => number,
        _ => node::address(call)?,
    };
    call.order(&Request::PeerRemove { address: Some(address), identity: None })
}

pub(super) fn remove_identity(call: &mut Call) -> Ended {
    let identity = node::identity(call)?;
    call.order(&Request::PeerRemove { address: None, identity: Some(identity) })
}
