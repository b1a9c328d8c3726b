//! `node list|get|set|flush`.

use utipc_manage::{Entry, Request};

use super::call::{Call, Ended, Failure, needed};
use super::identity;

pub(super) fn list(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::Nodes)?;
    call.out.raw("Node Identity                    Hash     State\n");
    for entry in reply {
        if let Entry::Node(node) = entry {
            let name = call.identity_of(node.address)?;
            let state = if node.up { "up" } else { "down" };
            call.out.raw(&format!("{name:<32} {:08x} {state}\n", node.address));
        }
    }
    Ok(())
}

pub(super) fn get_address(call: &mut Call) -> Ended {
    let net = call.net()?;
    call.out.raw(&format!("{:08x}\n", net.address.unwrap_or(0)));
    Ok(())
}

pub(super) fn get_identity(call: &mut Call) -> Ended {
    let net = call.net()?;
    call.out.raw("Node Identity                    Hash\n");
    call.out.raw(&format!("{:<33}{:08x}\n", identity::show(&net.identity), net.address.unwrap_or(0)));
    Ok(())
}

pub(super) fn get_cluster(call: &mut Call) -> Ended {
    let net = call.net()?;
    call.out.raw(&format!("{}\n", net.id));
    Ok(())
}

pub(super) fn set_address(call: &mut Call) -> Ended {
    let address = address(call)?;
    call.order(&Request::NetSet { id: None, address: Some(address), identity: None })
}

pub(super) fn set_identity(call: &mut Call) -> Ended {
    let identity = identity(call)?;
    call.order(&Request::NetSet { id: None, address: None, identity: Some(identity) })
}

pub(super) fn set_cluster(call: &mut Call) -> Ended {
    let id = call.number()?;
    call.order(&Request::NetSet { id: Some(id), address: None, identity: None })
}

/// The next word as an address `Z.C.N`.
pub(super) fn address(call: &mut Call) -> Result<u32, Failure> {
    let word = needed(call.words.next(), "the address")?;
    let wrong = || Failure::Words(format!("{word:?} is not an address (write it as Z.C.N, as in 1.1.7)"));
    identity::address(&word).filter(|address| *address != 0).ok_or_else(wrong)
}

/// The next word as an identity.
pub(super) fn identity(call: &mut Call) -> Result<[u8; 16], Failure> {
    let word = needed(call.words.next(), "the identity")?;
    let wrong = "is not an identity (use at most 16 of a-z A-Z 0-9 - _ . : @, or 32 hexadecimal digits)";
    identity::read(&word).ok_or_else(|| Failure::Words(format!("{word:?} {wrong}")))
}

pub(super) fn set_key(call: &mut Call) -> Ended {
    needed(call.words.next(), "the key")?;
    call.order(&Request::KeySet)
}

pub(super) fn flush_keys(call: &mut Call) -> Ended {
    call.order(&Request::KeyFlush)
}
