//! Frames that arrive: which key opens them, and whether they may be used.

use std::sync::Arc;

use super::frame;
use super::info::Introduced;
use super::key::Mode;
use super::layer::{Encryption, Own};
use super::proof::Proof;
use super::receiving::{Distribution, Receiving};
use super::replay::class;
use super::sending::{MASTER, Sending};
use crate::addr::NodeId;
use crate::error::WireError;
use crate::event::Drop;
use crate::outbox::BearerId;
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{Encrypted, EncryptedSource, LinkProtocolType, SHORT_HEADER, User, View};

/// What the rest of the node knows about a message whose number was received before or is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be a recording.
    Stale,
    /// It can do no harm, because there is no contact with the peer.
    Harmless,
    /// It answers a message that this node has just sent: the peer has restarted, and its numbers too, as in Linux.
    Fresh,
}

/// What the rest of the node knows about the sender of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) id: NodeId,
    /// The sender's bearer at the other end of the link that is up on the bearer of arrival.
    pub(crate) far_bearer: Option<BearerId>,
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
    /// Opens a frame of a peer; `judge` decides about a number that was used before.
    ///
    /// # Errors
    /// [`Drop`]: why the frame is not used.
    pub(crate) fn open(
        &mut self,
        now: Time,
        own: Own,
        sender: Sender,
        frame: &[u8],
        judge: impl FnOnce(View<'_>) -> Verdict,
    ) -> Result<Opened, Drop> {
        let header = Encrypted::parse(frame).map_err(Drop::Malformed)?;
        let mut text = core::mem::take(&mut self.text);
        let result = self.decrypt(own, sender.id, &header, frame, &mut text).and_then(|found| {
            let view = View::parse(&text).map_err(Drop::Malformed)?;
            check_source(&header, view)?;
            check_bearer(&header, view, sender.far_bearer)?;
            let proof = if header.timed && asks(view) { Proof::read(view, &text) } else { None };
            self.accept(now, own, sender.id, &header, (view, found, proof), judge)
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
        (view, found, proof): (View<'_>, Found, Option<Proof>),
        judge: impl FnOnce(View<'_>) -> Verdict,
    ) -> Result<(), Drop> {
        let (question, needs_proof, slot) = (self.question, self.needs_proof(), header.tx_slot);
        if !self.peers.contains_key(&id) {
            self.peer(id).ok_or(Drop::UnknownPeer)?;
        }
        let Some(peer) = self.peers.get_mut(&id) else { return Err(Drop::UnknownPeer) };
        let key = match &found {
            Found::Peer(found) => peer.get(*found).map(|key| (key.aead.fingerprint(), key.mode)),
            Found::Cluster(aead) => Some((aead.fingerprint(), Mode::Cluster)),
        };
        let (fingerprint, mode) = key.ok_or(Drop::Encrypted)?;
        peer.is_timed |= header.timed;
        let answers = proof.is_some_and(|proof| proof.answers.contains(&question));
        let is_proven = peer.numbers.is_of_proven_life(header);
        let is_fresh = peer.numbers.is_fresh(header, fingerprint);
        let is_new = if is_fresh && (is_proven || answers || !header.timed || !needs_proof) {
            if answers && !is_proven {
                peer.numbers.prove(header);
            }
            peer.numbers.note(header, fingerprint, mode);
            true
        } else {
            match judge(view) {
                Verdict::Fresh if !header.timed => {
                    peer.numbers.restart(header, fingerprint, mode);
                    true
                }
                Verdict::Harmless => false,
                // The peer has restarted, and asks for the first time.
                _ if view.user() == User::LinkConfig && is_fresh && peer.numbers.is_proven() => false,
                Verdict::Stale | Verdict::Fresh => return Err(Drop::Replayed),
            }
        };
        if let Some(proof) = proof {
            peer.heard.note(header.seqno, proof.question);
        }
        if is_new {
            peer.take(now, found, slot);
            if header.timed && begins_session(view) {
                peer.numbers.begin_session(header.seqno);
            }
            if let Some(proof) = proof {
                peer.has_asked = proof.seen == 0;
                self.sending.catch_up(proof.seen.saturating_sub(self.shift.1));
            }
        }
        synchronise(&mut self.sending, &mut self.rng, peer, (now, own), header, view);
        Ok(())
    }
}

/// Learns from a frame which keys the peer has. Spec: tipc.md §12.5.
fn synchronise(
    sending: &mut Sending,
    rng: &mut Rng,
    peer: &mut Receiving,
    (now, own): (Time, Own),
    header: &Encrypted<'_>,
    view: View<'_>,
) {
    sending.note_master(header.has_master);
    if let EncryptedSource::Node(addr) = header.source {
        peer.addr = addr;
    }
    peer.has_master = header.has_master;
    let is_for_this = view.header_size() > SHORT_HEADER && view.dest_node() == Some(own.addr);
    if !header.destined || !is_for_this {
        return;
    }
    if header.no_rx_key {
        sending.begin_grace(now);
        if sending.newest().is_some() && peer.distribution == Distribution::Idle {
            let delay_ms = (1 + rng.below(5)) * 500;
            peer.distribution = Distribution::Due(now.plus_millis(delay_ms));
        }
    } else {
        peer.distribution = Distribution::Idle;
    }
    let before = peer.peer_active;
    if before != header.rx_slot && !sending.slots.is_empty() {
        peer.peer_active = header.rx_slot;
        sending.move_user(now, before, header.rx_slot);
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

/// A packet of a link's session must come from the bearer at its other end: an attacker could take it there and give it
/// to another link of the same nodes.
fn check_bearer(header: &Encrypted<'_>, view: View<'_>, expected: Option<BearerId>) -> Result<(), Drop> {
    let is_free = view.non_sequenced() || begins_session(view);
    let is_other = expected.is_some_and(|bearer| usize::from(bearer) != class(header.seqno));
    if header.timed && !is_free && is_other { Err(Drop::Replayed) } else { Ok(()) }
}

/// True for messages behind which a utipc node asks and answers.
fn asks(view: View<'_>) -> bool {
    matches!(view.user(), User::LinkConfig | User::LinkProtocol)
}

/// True if all that the link of the sender sends from now on belongs to the session of this message.
fn begins_session(view: View<'_>) -> bool {
    view.user() == User::LinkProtocol && view.link_type() != LinkProtocolType::State
}

impl Receiving {
    /// Notes that the key decrypted a new frame under the peer's key `slot`.
    fn take(&mut self, now: Time, found: Found, slot: u8) {
        match found {
            Found::Cluster(_) if slot == MASTER => self.doubt(now),
            Found::Cluster(aead) => {
                if let Some(found) = self.adopt(now, aead, slot) {
                    self.succeeded(now, found, slot);
                }
            }
            Found::Peer(found) => {
                self.succeeded(now, found, slot);
            }
        }
    }

    /// Takes over a cluster key of this node as the peer's key in `slot`; returns the slot in which it is.
    fn adopt(&mut self, now: Time, aead: Arc<super::Aead>, slot: u8) -> Option<u8> {
        if self.replace_cluster_key(now, slot, &aead) {
            return Some(slot);
        }
        self.attach(now, aead, Mode::Cluster, Introduced::Cluster, slot).ok()
    }
}
