//! Encryption of what bearers carry: frames on their way out and in, keys, strict mode. Spec: tipc.md §12.

use super::{Peers, Switch};
use crate::addr::{NodeAddr, NodeId};
use crate::crypto::{EncryptionInfo, EncryptionStats, Key, KeyUse, Own, Sender, SetKeyError, Verdict};
use crate::event::Drop;
use crate::link::Link;
use crate::outbox::{BearerId, FrameBatch};
use crate::time::Time;
use crate::wire::{Encrypted, EncryptedSource, LinkProtocolType, Message, User, View};

/// How a packet came to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// As it is.
    Clear,
    /// In an encrypted frame.
    Encrypted,
}

impl Switch {
    fn own(&self) -> Own {
        Own { id: self.identity().unwrap_or_default(), addr: self.own_node() }
    }

    /// Opens an encrypted frame and processes the packet in it. The result is that of [`Switch::receive`].
    pub(super) fn receive_encrypted(
        &mut self,
        now: Time,
        bearer: BearerId,
        frame: &[u8],
    ) -> Result<bool, Drop> {
        if !self.encryption.has_keys() {
            return Err(Drop::Encrypted);
        }
        let own = self.own();
        let sender = match Encrypted::parse(frame).map_err(Drop::Malformed)?.source {
            EncryptedSource::Identity(id) => Sender { id, far_bearer: None },
            EncryptedSource::Node(addr) if addr == own.addr => Sender { id: own.id, far_bearer: None },
            EncryptedSource::Node(addr) => {
                let peer = &self.peers.get(&addr).ok_or(Drop::UnknownPeer)?.peer;
                let link = peer.slot(bearer).map(|slot| &slot.link).filter(|link| link.is_up());
                Sender { id: peer.id, far_bearer: link.map(Link::peer_bearer) }
            }
        };
        let id = sender.id;
        if id == own.id {
            return Ok(false); // many media return a broadcast to its sender
        }
        let (peers, mut old_reset) = (&self.peers, None);
        let opened = self.encryption.open(now, own, sender, frame, |view| {
            if view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::Reset {
                old_reset = Some(view.prev_node());
            }
            judge(peers, bearer, id, view)
        });
        if let (Err(Drop::Replayed), Some(addr)) = (&opened, old_reset) {
            // It may be of a peer that has restarted, whose answer will prove it.
            self.with_peer(now, addr, |peer, ctx| peer.tell_session(bearer, ctx));
        }
        let opened = opened?;
        let view = View::parse(&opened.0).map_err(Drop::Malformed)?;
        let processed = self.process(now, bearer, view, Carried::Encrypted);
        self.encryption.recycle(opened);
        processed
    }

    /// Why a frame in clear text is refused.
    pub(super) fn refuse_clear_text(&mut self, frame: &[u8]) -> Drop {
        if let Err(error) = View::parse(frame) {
            return Drop::Malformed(error);
        }
        self.encryption.refused_clear_text();
        Drop::ClearText
    }

    fn identity_of(&self, addr: NodeAddr) -> Option<NodeId> {
        self.peers.get(&addr).map(|entry| entry.peer.id)
    }

    /// The frames to send, encrypted if the node has a key.
    pub(crate) fn outgoing(&mut self) -> &mut FrameBatch {
        let (own, now) = (self.own(), self.now);
        let peers = &self.peers;
        let identity = |addr| peers.get(&addr).map(|entry| entry.peer.id);
        self.encryption.outgoing(now, own, &mut self.frames, identity)
    }

    /// Sets a key, and hands it to the peers if this node sends with it.
    pub(crate) fn set_key(&mut self, now: Time, key_use: KeyUse, key: Key) -> Result<(), SetKeyError> {
        self.now = now;
        let is_own = self.encryption.set_key(now, self.identity(), key_use, key)?;
        self.apply_overhead();
        if is_own {
            self.distribute_key(now);
        }
        Ok(())
    }

    /// Removes all keys.
    pub(crate) fn flush_keys(&mut self) {
        self.encryption.flush();
        self.apply_overhead();
    }

    /// Makes a new session key and hands it to the peers.
    pub(crate) fn rekey(&mut self, now: Time) -> Result<(), SetKeyError> {
        self.now = now;
        self.encryption.rekey(now)?;
        self.distribute_key(now);
        Ok(())
    }

    /// Sets the interval of new session keys, minutes; 0 for none.
    pub(crate) fn set_rekeying(&mut self, now: Time, minutes: u32) {
        self.encryption.set_rekeying(now, minutes);
    }

    pub(crate) fn set_strict(&mut self, strict: bool) {
        self.encryption.set_strict(strict);
    }

    pub(crate) fn encryption_stats(&self) -> EncryptionStats {
        self.encryption.stats()
    }

    pub(crate) fn encryption_info(&self) -> EncryptionInfo {
        self.encryption.info()
    }

    /// Packets become smaller or larger by what encryption adds.
    fn apply_overhead(&mut self) {
        let bytes = self.encryption.overhead();
        self.bcast.set_overhead(bytes);
        for entry in self.peers.values_mut() {
            entry.peer.set_overhead(bytes as u16);
        }
    }

    fn distribute_key(&mut self, now: Time) {
        let peers = self.peers.iter().filter(|(_, entry)| entry.peer.is_up());
        for addr in peers.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            self.send_key(now, addr);
        }
    }

    fn send_key(&mut self, now: Time, to: NodeAddr) {
        if let Some(message) = self.encryption.distribution(self.own_node(), to) {
            self.send_to_peer(now, to, message, 0).ok(); // a peer without contact asks when it is back
        }
    }

    /// A peer has sent the key that it is going to use.
    pub(super) fn receive_key(&mut self, now: Time, from: NodeAddr, message: &Message) {
        let taken =
            self.identity_of(from).is_some_and(|id| self.encryption.receive_key(now, id, message.view()));
        self.stats.messages_dropped += u64::from(!taken);
    }

    /// Handles the passing of time for the keys of a peer.
    pub(super) fn tick_keys(&mut self, now: Time, addr: NodeAddr) {
        let Some(id) = self.identity_of(addr).filter(|_| self.encryption.is_on()) else { return };
        if self.encryption.tick(now, &id) {
            self.send_key(now, addr);
        }
        if self.encryption.introduce_waiting(now) {
            self.distribute_key(now);
        }
    }
}

/// Judges a message whose number under the peer's key was used before. A peer that has restarted its numbers proves
/// it by the session in its ACTIVATE, which this node has chosen.
fn judge(peers: &Peers, bearer: BearerId, id: NodeId, view: View<'_>) -> Verdict {
    let entry = peers.get(&view.prev_node()).filter(|entry| entry.peer.id == id);
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
