//! Neighbour discovery: how nodes on one medium find each other, and how a node gets its address.
//!
//! [`OwnAddress`] is this node's identity and address, [`Discoverer`] the timers and checks of one bearer,
//! [`DiscoveryMessage`] the message. Discovery does not know links: a [`Neighbour`] that passed all checks is passed to
//! the node layer, which calls [`evaluate`] to decide what to do. Spec: tipc.md §4.2 to §4.6.

mod discoverer;
mod own;
mod rate;
#[cfg(test)]
mod tests;

pub use discoverer::{Discoverer, DiscovererConfig, Neighbour, Output, Refusal, Relation};
pub use own::{AddressState, OwnAddress};

use crate::addr::{NodeAddr, NodeId};
pub use crate::wire::{DiscoveryKind, DiscoveryMessage};

/// The nodes that the node layer knows, as discovery needs them.
pub trait KnownNodes {
    /// The identity of the node with address `addr`.
    fn identity_of(&self, addr: NodeAddr) -> Option<NodeId>;
    /// The address of the node with identity `id`.
    fn address_of(&self, id: &NodeId) -> Option<NodeAddr>;
    /// Whether the node layer can store one more node, perhaps in place of one that has never answered.
    fn has_room(&self) -> bool;
}

/// Actions to take after a request or response of a neighbour. Spec: tipc.md §4.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Store the neighbour's signature.
    pub store_signature: bool,
    /// Use its media address: create the link on this bearer if one more is allowed, reset an existing one.
    pub accept_address: bool,
    /// Respond if the message was a request; see [`Discoverer::respond`].
    pub respond: bool,
    /// Another node may use this address: log a warning, do nothing.
    pub duplicate: bool,
}

/// Evaluates a neighbour from three facts that the node layer has stored about it on this bearer.
///
/// `signature_same`: the stored signature equals the received one (false for a new node). `address_same`: there is a
/// link and its media address equals the received one. `link_up`: that link is up. Spec: tipc.md §4.5.
#[must_use]
pub const fn evaluate(signature_same: bool, address_same: bool, link_up: bool) -> Assessment {
    let nothing =
        Assessment { store_signature: false, accept_address: false, respond: false, duplicate: false };
    match (signature_same, address_same, link_up) {
        (true, true, true) => nothing,
        (true, true, false) => Assessment { respond: true, ..nothing },
        (_, false, true) => Assessment { duplicate: true, ..nothing },
        (true, false, false) => Assessment { accept_address: true, respond: true, ..nothing },
        (false, true, true) => Assessment { store_signature: true, ..nothing },
        (false, true, false) => Assessment { store_signature: true, respond: true, ..nothing },
        (false, false, false) => {
            Assessment { store_signature: true, accept_address: true, respond: true, ..nothing }
        }
    }
}

/// True if `domain` covers `addr`: 0 covers all nodes, an address covers itself, and with legacy addresses `<Z.C.0>`
/// and `<Z.0.0>` cover their part of the network. Spec: tipc.md §1.4.
#[must_use]
pub const fn in_domain(domain: NodeAddr, addr: NodeAddr, legacy: bool) -> bool {
    const CLUSTER: u32 = 0xffff_f000;
    const ZONE: u32 = 0xff00_0000;
    let (d, a) = (domain.0, addr.0);
    d == 0 || d == a || (legacy && (d == a & CLUSTER || d == a & ZONE))
}

/// True if `domain` names one node exactly.
const fn is_exact(domain: NodeAddr, legacy: bool) -> bool {
    if legacy { domain.0 & 0xfff != 0 } else { domain.0 != 0 }
}
