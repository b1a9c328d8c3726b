//! Frames that arrive: which key opens them, and whether they may be used.

use std::sync::Arc;

use super::frame;
use super::layer::{Encryption, Own};
use super::receiving::{Distribution, Origin, Receiving, ReceivingKey};
use super::sending::MASTER;
use crate::addr::NodeId;
use crate::error::WireError;
use crate::event::Drop;
use crate::time::Time;
use crate::wire::{Encrypted, EncryptedSource, SHORT_HEADER, User, View};

/// What the rest of the node knows about a message whose number was received before or is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be a recording.
    Stale,
    /// It can do no harm, because there is no contact with the peer.
    Harmless,
    /// It answers a message that this node has just sent: the peer has restarted, and its numbers too.
    Fresh,
}

/// A frame that was opened: the message is at the start of the buffer, which goes back with [`Encryption::recycle`].
#[derive(Debug)]
pub(crate) struct Opened(pub(crate) Vec<u8>);

/// The key that opened a frame.
enum Found {
    /// The peer's key in this slot; it may be the pending one, which belongs elsewhere.
    Peer(u8),
    /// A cluster key of this node.
    Cluster(Arc<super::Aead>),
}

impl Encryption {
    /// Opens a frame of the peer with this identity; `judge` decides about a number that was used before.
    ///
    /// # Errors
    /// [`Drop`]: why the frame is not used.
    pub(crate) fn open(
        &mut self,
        now: Time,
        own: Own,
        id: NodeId,
        frame: &[u8],
        judge: impl FnOnce(View<'_>) -> Verdict,
    ) -> Result<Opened, Drop> {
        let header = Encrypted::parse(frame).map_err(Drop::Malformed)?;
        let mut text = core::mem::take(&mut self.text);
        let result = self.decrypt(own, id, &header, frame, &mut text).and_then(|found| {
            let view = View::parse(&text).map_err(Drop::Malformed)?;
            check_source(&header, view)?;
            self.accept(now, own, id, &header, (view, found), judge)
        });
        match result {
            Ok(()) => {
                self.stats.opened += 1;
                Ok(Opened(text))
            }
            Err(reason) => {
                self.text = text;
                self.count(reason);
                Err(reason)
            }
        }
    }

    /// Takes back the buffer of a frame that was opened.
    pub(crate) fn recycle(&mut self, opened: Opened) {
        self.text = opened.0;
    }

    fn count(&mut self, reason: Drop) {
        match reason {
            Drop::Encrypted => self.stats.no_key += 1,
            Drop::WrongKey => self.stats.wrong_key += 1,
            Drop::Replayed => self.stats.replayed += 1,
            _ => {}
        }
    }

    /// Finds the key of a frame, and decrypts it into `text`.
    fn decrypt(
        &mut self,
        own: Own,
        id: NodeId,
        header: &Encrypted<'_>,
        frame: &[u8],
        text: &mut Vec<u8>,
    ) -> Result<Found, Drop> {
        let slot = header.tx_slot;
        let mut tried = false;
        if slot == MASTER {
            let key = self.sending.get(MASTER).ok_or(Drop::Encrypted)?;
            let opened = frame::open(&key.aead, key.mode, header, own.addr, frame, text);
            return if opened { Ok(Found::Cluster(Arc::clone(&key.aead))) } else { Err(Drop::WrongKey) };
        }
        if let Some(peer) = self.peers.get_mut(&id)
            && let Some(candidate) = peer.candidate(slot)
            && let Some(key) = peer.get(candidate)
        {
            if frame::open(&key.aead, key.mode, header, own.addr, frame, text) {
                return Ok(Found::Peer(candidate));
            }
            peer.failed(candidate);
            tried = true;
        }
        for key in self.sending.cluster_keys() {
            if frame::open(&key.aead, key.mode, header, own.addr, frame, text) {
                return Ok(Found::Cluster(Arc::clone(&key.aead)));
            }
            tried = true;
        }
        if tried {
            return Err(Drop::WrongKey);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.no_key = !peer.expects_newer(slot);
        }
        Err(Drop::Encrypted)
    }

    /// Notes that a frame was decrypted, unless it is a recording, and learns from its header.
    fn accept(
        &mut self,
        now: Time,
        own: Own,
        id: NodeId,
        header: &Encrypted<'_>,
        (view, found): (View<'_>, Found),
        judge: impl FnOnce(View<'_>) -> Verdict,
    ) -> Result<(), Drop> {
        let slot = header.tx_slot;
        let peer = self.peer(id).ok_or(Drop::UnknownPeer)?;
        let found = match found {
            Found::Peer(found) => Some(found),
            Found::Cluster(aead) if slot == MASTER => Some(peer.use_master(aead)),
            // Without a free slot the frame is used, though its number cannot be remembered.
            Found::Cluster(aead) => peer.adopt(aead, slot),
        };
        if let Some(found) = found
            && let Some(key) = peer.get_mut(found)
        {
            let mut is_new = true;
            if key.is_fresh(header.destined, header.seqno) {
                key.note(header.destined, header.seqno);
            } else {
                match judge(view) {
                    Verdict::Stale => return Err(Drop::Replayed),
                    Verdict::Harmless => is_new = false,
                    Verdict::Fresh => peer.restart(found, header.seqno),
                }
            }
            if found != MASTER {
                peer.succeeded(now, found, slot);
            } else if is_new {
                peer.doubt(now);
            }
        }
        if let EncryptedSource::Node(addr) = header.source {
            peer.addr = addr;
        }
        self.synchronise(now, own, id, header, view);
        Ok(())
    }

    /// Learns from a frame which keys the peer has. Spec: tipc.md §12.5.
    fn synchronise(&mut self, now: Time, own: Own, id: NodeId, header: &Encrypted<'_>, view: View<'_>) {
        self.sending.note_master(header.has_master);
        let delay_ms = (1 + self.rng.below(5)) * 500;
        let has_key = self.sending.newest().is_some();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.has_master = header.has_master;
        let is_for_this = view.header_size() > SHORT_HEADER && view.dest_node() == Some(own.addr);
        if !header.destined || !is_for_this {
            return;
        }
        if header.no_rx_key {
            self.sending.begin_grace(now);
            if has_key && peer.distribution == Distribution::Idle {
                peer.distribution = Distribution::Due(now.plus_millis(delay_ms));
            }
        } else {
            peer.distribution = Distribution::Idle;
        }
        let before = peer.peer_active;
        if before != header.rx_slot && !self.sending.slots.is_empty() {
            peer.peer_active = header.rx_slot;
            self.sending.move_user(now, before, header.rx_slot);
        }
    }
}

/// The message inside must be of the sender that the header names, and of the kind.
fn check_source(header: &Encrypted<'_>, view: View<'_>) -> Result<(), Drop> {
    let matches = match header.source {
        EncryptedSource::Node(node) => view.prev_node() == node && view.user() != User::LinkConfig,
        EncryptedSource::Identity(_) => view.user() == User::LinkConfig,
    };
    let fault = Drop::Malformed(WireError::Malformed("encrypted packet: another sender or user inside"));
    if matches { Ok(()) } else { Err(fault) }
}

impl Receiving {
    /// Uses this node's master key for a peer; returns its slot.
    fn use_master(&mut self, aead: Arc<super::Aead>) -> u8 {
        self.ensure_master(|| ReceivingKey::new(aead, super::Mode::Cluster, Origin::Cluster));
        MASTER
    }

    /// Takes over a cluster key of this node as the peer's key in `slot`; returns the slot in which it is.
    fn adopt(&mut self, aead: Arc<super::Aead>, slot: u8) -> Option<u8> {
        if self.replace_cluster_key(slot, &aead) {
            return Some(slot);
        }
        self.attach(aead, super::Mode::Cluster, Origin::Cluster, slot).ok()
    }
}
