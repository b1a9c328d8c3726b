//! `peer remove`.

use utipc_manage::{Entry, Request};

use super::call::{Call, Ended, Failure, needed};
use super::{identity, node};

pub(super) fn remove_address(call: &mut Call) -> Ended {
    let word = needed(call.words.peek().map(str::to_owned), "the address")?;
    let decimal = word.parse().ok().filter(|number| *number != 0);
    let address = match (decimal, identity::hexadecimal_address(&word)) {
        // A plain number is accepted too. Hexadecimal digits may look like an identity: a known node decides.
        (Some(number), None) => number,
        (Some(number), Some(address)) => {
            if is_known(call, address)? {
                address
            } else {
                number
            }
        }
        (None, _) => node::address(call)?,
    };
    call.order(&Request::PeerRemove { address: Some(address), identity: None })
}

fn is_known(call: &Call, address: u32) -> Result<bool, Failure> {
    let nodes = call.ask(&Request::Nodes)?;
    Ok(nodes.iter().any(|entry| matches!(entry, Entry::Node(node) if node.address == address)))
}

pub(super) fn remove_identity(call: &mut Call) -> Ended {
    let identity = node::identity(call)?;
    call.order(&Request::PeerRemove { address: None, identity: Some(identity) })
}
