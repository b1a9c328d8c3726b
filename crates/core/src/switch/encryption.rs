//! Who has sent an encrypted frame, and what a number that was used before means. Spec: tipc.md §12.

use super::peers::Peers;
use crate::addr::NodeId;
use crate::crypto::{Own, Sender, Verdict};
use crate::event::Drop;
use crate::link::Link;
use crate::outbox::BearerId;
use crate::wire::{Encrypted, EncryptedSource, LinkProtocolType, User, View};

/// How a packet came to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// As it is.
    Clear,
    /// In an encrypted frame.
    Encrypted,
}

impl Peers {
    /// The sender of an encrypted frame.
    pub(super) fn sender(&self, own: Own, bearer: BearerId, frame: &[u8]) -> Result<Sender, Drop> {
        Ok(match Encrypted::parse(frame).map_err(Drop::Malformed)?.source {
            EncryptedSource::Identity(id) => Sender { id, far_bearer: None },
            EncryptedSource::Node(addr) if addr == own.addr => Sender { id: own.id, far_bearer: None },
            EncryptedSource::Node(addr) => {
                let peer = &self.get(&addr).ok_or(Drop::UnknownPeer)?.peer;
                let link = peer.slot(bearer).map(|slot| &slot.link).filter(|link| link.is_up());
                Sender { id: peer.id, far_bearer: link.map(Link::peer_bearer) }
            }
        })
    }

    /// Judges a message whose number under the peer's key was used before. A peer that has restarted its numbers proves
    /// it by the session in its ACTIVATE, which this node has chosen.
    pub(super) fn judge(&self, bearer: BearerId, id: NodeId, view: View<'_>) -> Verdict {
        let entry = self.get(&view.prev_node()).filter(|entry| entry.peer.id == id);
        let link = entry.and_then(|entry| entry.peer.slot(bearer)).map(|slot| &slot.link);
        let is_activate = view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::Activate;
        let answers =
            |link: &Link| !link.is_up() && view.dest_session_valid() && view.dest_session() == link.session();
        if is_activate && link.is_some_and(answers) {
            return Verdict::Fresh;
        }
        let in_contact = entry.is_some_and(|entry| entry.peer.is_up());
        if view.user() == User::LinkConfig && !in_contact { Verdict::Harmless } else { Verdict::Stale }
    }
}
