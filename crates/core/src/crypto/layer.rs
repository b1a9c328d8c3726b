//! The layer as a whole: keys of all nodes, frames on their way out, timers.

use std::collections::BTreeMap;

use super::entropy::Entropy;
use super::info::{EncryptionInfo, EncryptionStats, Introduced, KeyInfo, KeyRole, PeerKeys};
use super::key::{ALGORITHM, ALGORITHM_LEN, Key, Mode};
use super::proof::Proof;
use super::receiving::{Distribution, RETRY_MS, Receiving};
use super::replay::{CLASS_BITS, DISCOVERY_CLASS};
use super::sending::{Choice, MASTER, Sending, Waiting};
use super::slots::Slots;
use super::{Aead, EncryptionConfig, KeyUse, OVERHEAD, SetKeyError, frame};
use crate::addr::{NodeAddr, NodeId};
use crate::limits::MAX_PEERS;
use crate::outbox::{FrameBatch, FrameRef};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{
    Encrypted, EncryptedSource, Envelope, INTERNAL_HEADER, KeyDistribution, LinkProtocolType, Message, User,
    View,
};

/// Bits that a shift leaves free: shifts are below 2^61, so that no clock makes a number overflow before the year 2480.
const SHIFT_BITS: u32 = 3 + CLASS_BITS;

/// The node itself, as far as the layer has to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) id: NodeId,
    pub(crate) addr: NodeAddr,
}

/// Encryption of one node's frames.
#[derive(Debug, Default)]
pub(crate) struct Encryption {
    pub(super) strict: bool,
    clock_at_zero: u64,
    entropy: Option<Entropy>,
    pub(super) rng: Rng,
    pub(super) sending: Sending,
    pub(super) peers: BTreeMap<NodeId, Receiving>,
    sealed: FrameBatch,
    pub(super) text: Vec<u8>,
    /// Asked in messages that make contact. A peer that answers it has heard this node since its start, and since it
    /// last forgot the numbers of a peer.
    pub(super) question: u64,
    /// Random for each start; 0 unless `timed`.
    life: u16,
    /// Numbers come from the clock, and peers that number so must answer.
    pub(super) timed: bool,
    /// This node's identity, and what it adds to the numbers of its frames.
    pub(super) shift: (NodeId, u64),
    pub(super) stats: EncryptionStats,
}

impl Encryption {
    /// A node without keys.
    pub(crate) fn new(config: &EncryptionConfig, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut layer = Self {
            strict: config.strict,
            clock_at_zero: config.clock_at_zero,
            entropy: config.secret.as_ref().and_then(|secret| Entropy::new(secret).ok()),
            timed: config.clock_at_zero != 0,
            question: 0,
            life: 0,
            shift: (NodeId::default(), shift(NodeId::default())),
            sending: Sending::new(rng.next_u32() as u16),
            rng,
            peers: BTreeMap::new(),
            sealed: FrameBatch::default(),
            text: Vec::new(),
            stats: EncryptionStats::default(),
        };
        layer.renew_question();
        layer.life = if layer.timed { layer.question as u16 } else { 0 };
        layer.renew_question();
        layer
    }

    /// Chooses another question: answers to the last one no longer prove anything.
    fn renew_question(&mut self) {
        let secret = self.entropy.as_mut().map_or(0, Entropy::number);
        self.question = self.rng.next_u64() ^ secret;
    }

    /// True if what a peer has sent before it heard this node is refused.
    pub(super) fn needs_proof(&self) -> bool {
        self.timed && self.refuses_clear_text()
    }

    /// True once a key is set.
    pub(crate) fn is_on(&self) -> bool {
        self.sending.is_on
    }

    /// True if frames of peers can be decrypted.
    pub(crate) fn has_keys(&self) -> bool {
        self.sending.is_on || !self.peers.is_empty()
    }

    /// True if clear text is refused now.
    pub(crate) fn refuses_clear_text(&self) -> bool {
        self.strict && self.sending.is_on
    }

    /// Counts a frame in clear text that was refused.
    pub(crate) fn refused_clear_text(&mut self) {
        self.stats.clear_text += 1;
    }

    /// Sets whether clear text is refused once a key is set.
    pub(crate) fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Bytes that encryption adds to a frame of a link.
    pub(crate) fn overhead(&self) -> usize {
        if self.sending.is_on { OVERHEAD } else { 0 }
    }

    /// Sets a key. True if the peers must be sent the new key of this node.
    pub(crate) fn set_key(
        &mut self,
        now: Time,
        own: Option<NodeId>,
        key_use: KeyUse,
        key: Key,
    ) -> Result<bool, SetKeyError> {
        let (mode, master) = match key_use {
            KeyUse::Cluster => (Mode::Cluster, false),
            KeyUse::Master => (Mode::Cluster, true),
            KeyUse::Node(id) if own.ok_or(SetKeyError::NoIdentity)? == id => (Mode::PerNode, false),
            KeyUse::Node(id) => {
                self.peer(id).ok_or(SetKeyError::TooMany)?.configure(now, key);
                return Ok(false);
            }
        };
        let clock = self.clock(now);
        self.sending.waiting = None;
        if self.sending.attach(now, clock, key.clone(), (mode, master), Introduced::Operator).is_err() {
            self.sending.waiting = Some(Waiting { key, mode, since: now });
            return Ok(false);
        }
        Ok(!master)
    }

    fn clock(&self, now: Time) -> u64 {
        self.clock_at_zero.saturating_add(now.as_nanos())
    }

    /// Introduces a key that had to wait. True if the peers must be sent it.
    pub(crate) fn introduce_waiting(&mut self, now: Time) -> bool {
        let Some(Waiting { key, mode, .. }) = self.sending.take_waiting() else { return false };
        let clock = self.clock(now);
        self.sending.attach(now, clock, key, (mode, false), Introduced::Operator).is_ok()
    }

    /// Removes all keys; the node sends clear text again.
    pub(crate) fn flush(&mut self) {
        self.sending.flush();
        self.peers.values_mut().for_each(Receiving::flush);
    }

    /// Makes a new key of this node, which the peers must be sent.
    pub(crate) fn rekey(&mut self, now: Time) -> Result<(), SetKeyError> {
        self.sending.schedule(now);
        if self.sending.slots.pending != 0 {
            return Err(SetKeyError::Busy);
        }
        let template = self.sending.template().ok_or(SetKeyError::NoKey)?.key.clone();
        let entropy = self.entropy.as_mut().ok_or(SetKeyError::NoEntropy)?;
        let key = entropy.key_like(&template).map_err(|_| SetKeyError::NoEntropy)?;
        let clock = self.clock(now);
        let attached = self.sending.attach(now, clock, key, (Mode::PerNode, false), Introduced::Rekeying);
        attached.map_err(|_| SetKeyError::Busy)?;
        Ok(())
    }

    /// Sets the interval of new keys, minutes; 0 for none.
    pub(crate) fn set_rekeying(&mut self, now: Time, minutes: u32) {
        self.sending.rekeying_minutes = minutes;
        self.sending.schedule(now);
    }

    /// Time of the next new key. Without a master key a node that restarts could not be handed the session keys, so
    /// there are none by the clock.
    pub(crate) fn rekey_at(&self) -> Option<Time> {
        self.sending.rekey_at.filter(|_| self.sending.has_master() && self.entropy.is_some())
    }

    /// The message that hands the newest key of this node to a peer.
    pub(crate) fn distribution(&mut self, own: NodeAddr, to: NodeAddr) -> Option<Message> {
        let newest = self.sending.newest()?;
        let mut algorithm = [0; ALGORITHM_LEN];
        algorithm.iter_mut().zip(ALGORITHM.bytes()).for_each(|(to, from)| *to = from);
        let body = KeyDistribution {
            generation: newest.generation,
            mode: newest.mode.number(),
            algorithm: &algorithm,
            key: newest.key.bytes(),
        };
        self.stats.distributed += 1;
        Some(body.to_message(&Envelope::between(own, to, INTERNAL_HEADER)))
    }

    /// Takes a key that a peer has sent in an encrypted message; false if it is not usable or known already.
    pub(crate) fn receive_key(&mut self, now: Time, from: NodeId, message: View<'_>) -> bool {
        let Ok(body) = KeyDistribution::parse(message) else { return false };
        let key = Key::for_algorithm(body.algorithm, body.key);
        let (Ok(key), Some(mode)) = (key, Mode::from_number(body.mode)) else { return false };
        let taken = self.peer(from).is_some_and(|peer| peer.receive(now, body.generation, mode, key));
        self.stats.received += u64::from(taken);
        taken
    }

    /// Handles the passing of time for a peer; true if it must be sent this node's key.
    pub(crate) fn tick(&mut self, now: Time, id: &NodeId) -> bool {
        self.stats.switches += u64::from(self.sending.tick(now));
        let Some(peer) = self.peers.get_mut(id) else { return false };
        self.stats.switches += u64::from(peer.tick(now));
        match peer.distribution {
            Distribution::Due(at) if at <= now => {
                peer.distribution = Distribution::Done(now.plus_millis(RETRY_MS));
                true
            }
            Distribution::Done(at) if at <= now => {
                peer.distribution = Distribution::Idle;
                false
            }
            _ => false,
        }
    }

    /// A peer is forgotten. Its keys stay: they know which of its frames are recordings.
    pub(crate) fn forget(&mut self, now: Time, id: &NodeId) {
        if let Some(peer) = self.peers.get_mut(id) {
            let uses = core::mem::take(&mut peer.peer_active);
            self.sending.move_user(now, uses, MASTER);
        }
    }

    /// The keys of a peer. If as many peers as a node stores have some, the one that was silent for longest loses its
    /// own; `None` if the operator has set all of them.
    pub(super) fn peer(&mut self, id: NodeId) -> Option<&mut Receiving> {
        if !self.peers.contains_key(&id) && self.peers.len() >= MAX_PEERS {
            let learned = self.peers.iter().filter(|(_, peer)| !peer.is_configured());
            let oldest = *learned.min_by_key(|(_, peer)| peer.last_success())?.0;
            self.peers.remove(&oldest);
            self.renew_question();
        }
        Some(self.peers.entry(id).or_default())
    }

    /// Seals the frames of `plain`, and returns all that have not been sent.
    pub(crate) fn outgoing<'a>(
        &'a mut self,
        now: Time,
        own: Own,
        plain: &'a mut FrameBatch,
        identity: impl Fn(NodeAddr) -> Option<NodeId>,
    ) -> &'a mut FrameBatch {
        if !self.sending.is_on && self.sealed.is_empty() {
            return plain;
        }
        if self.shift.0 != own.id {
            self.shift = (own.id, shift(own.id));
        }
        let mut sealed = core::mem::take(&mut self.sealed);
        for frame in plain.frames() {
            if self.sending.is_on {
                let peer = (!frame.peer.is_none()).then(|| identity(frame.peer).unwrap_or_default());
                let asks = peer.or_else(|| identity(asks(plain, frame)?));
                self.seal(now, own, (plain, frame), (peer, asks), &mut sealed);
            } else {
                sealed.push(frame.bearer, frame.to, &plain.frame(frame));
            }
        }
        plain.clear();
        self.sealed = sealed;
        &mut self.sealed
    }

    /// Seals one frame, with copies where peers may lack the key.
    fn seal(
        &mut self,
        now: Time,
        own: Own,
        (plain, frame): (&FrameBatch, &FrameRef),
        (peer, asks): (Option<NodeId>, Option<NodeId>),
        out: &mut FrameBatch,
    ) {
        let pieces = plain.pieces(frame);
        let view = View::of_header(pieces[0]);
        let fallback = Receiving::default();
        let state = peer.map(|id| self.peers.get(&id).unwrap_or(&fallback));
        let choice = self.sending.choose(now, state, view);
        let is_state = view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::State;
        let discovery = view.user() == User::LinkConfig;
        let mut header = Encrypted {
            user: match view.user() {
                User::LinkConfig => User::LinkConfig,
                _ if is_state => User::LinkProtocol,
                _ => User::Low,
            },
            destined: state.is_some(),
            tx_slot: 0,
            rx_slot: state.map_or(0, |state| state.slots.active),
            keepalive: is_state && view.keepalive(),
            has_master: self.sending.has_master(),
            no_rx_key: state.is_some_and(|state| state.no_key),
            timed: self.timed,
            life: self.life,
            seqno: 0,
            source: match discovery {
                true => EncryptedSource::Identity(own.id),
                false => EncryptedSource::Node(view.prev_node()),
            },
            ciphertext: &[],
        };
        let proof = self.proof(view, asks);
        let after = proof.map(Proof::to_bytes);
        let class = if discovery { DISCOVERY_CLASS } else { u64::from(frame.bearer) };
        let Choice { probe, master_copy, main } = choice;
        self.stats.unsealed += u64::from(main.is_none());
        for slot in probe.into_iter().chain(master_copy.then_some(MASTER)).chain(main) {
            header.tx_slot = slot;
            header.seqno = self.sending.next_number(self.timed);
            if self.timed {
                header.seqno = header.seqno.saturating_add(self.shift.1) | class;
            }
            let Some(key) = self.sending.get(slot) else { continue };
            self.stats.sealed += 1;
            out.push_with(frame, |bytes| {
                let after = after.as_ref().map_or(&[][..], |after| after);
                frame::seal(&key.aead, key.mode, &header, frame.peer, pieces, after, bytes);
            });
        }
        if is_state
            && proof.is_some()
            && let Some(peer) = asks.and_then(|id| self.peers.get_mut(&id))
        {
            peer.has_asked = false;
        }
    }

    /// What follows a message: in those that make contact, and in a STATE as long as one of both nodes needs it.
    fn proof(&self, view: View<'_>, peer: Option<NodeId>) -> Option<Proof> {
        if !matches!(view.user(), User::LinkConfig | User::LinkProtocol) {
            return None;
        }
        let peer = peer.and_then(|id| self.peers.get(&id));
        let is_open = |peer: &Receiving| peer.is_timed && (!peer.numbers.is_proven() || peer.has_asked);
        let is_state = view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::State;
        let is_needed = !is_state || peer.is_some_and(is_open);
        let seen = peer.filter(|peer| peer.numbers.is_proven()).map_or(0, |peer| peer.numbers.top());
        let answers = peer.map_or([0; 2], |peer| peer.heard.answers());
        (self.timed && is_needed).then_some(Proof { question: self.question, answers, seen })
    }

    /// The counters.
    pub(crate) fn stats(&self) -> EncryptionStats {
        self.stats
    }

    /// The state for operators.
    pub(crate) fn info(&self) -> EncryptionInfo {
        let sending = |slot: u8, role| {
            let key = self.sending.get(slot)?;
            let users = u32::try_from(key.users).unwrap_or(0);
            Some(KeyInfo {
                slot,
                role,
                mode: key.mode,
                users,
                fingerprint: key.aead.fingerprint(),
                since: key.since,
                introduced: key.introduced,
            })
        };
        let mut keys: Vec<KeyInfo> = sending(MASTER, KeyRole::Master).into_iter().collect();
        keys.extend(roles(self.sending.slots).filter_map(|(slot, role)| sending(slot, role)));
        keys.extend(self.sending.waiting.as_ref().map(|waiting| KeyInfo {
            slot: 0,
            role: KeyRole::Waiting,
            mode: waiting.mode,
            users: 0,
            fingerprint: Aead::new(&waiting.key).fingerprint(),
            since: waiting.since,
            introduced: Introduced::Operator,
        }));
        let peer = |(id, peer): (&NodeId, &Receiving)| {
            let key = |(slot, role)| {
                let key = peer.get(slot)?;
                Some(KeyInfo {
                    slot,
                    role,
                    mode: key.mode,
                    users: 0,
                    fingerprint: key.aead.fingerprint(),
                    since: key.since,
                    introduced: key.origin,
                })
            };
            let keys = roles(peer.slots).filter_map(key).collect();
            PeerKeys { id: *id, addr: peer.addr, keys, receives_with: peer.peer_active }
        };
        EncryptionInfo {
            is_on: self.sending.is_on,
            strict: self.strict,
            keys,
            peers: self.peers.iter().filter(|(_, peer)| !peer.slots.is_empty()).map(peer).collect(),
            rekeying_minutes: self.sending.rekeying_minutes,
            stats: self.stats,
        }
    }
}

/// The slots in use with their roles.
fn roles(slots: Slots) -> impl Iterator<Item = (u8, KeyRole)> {
    let all = [
        (slots.pending, KeyRole::Pending),
        (slots.active, KeyRole::Active),
        (slots.passive, KeyRole::Passive),
    ];
    all.into_iter().filter(|(slot, _)| *slot != 0)
}

/// The peer of a discovery message to one node, which it names.
fn asks(plain: &FrameBatch, frame: &FrameRef) -> Option<NodeAddr> {
    let view = View::of_header(plain.pieces(frame)[0]);
    let is_response = view.user() == User::LinkConfig && view.kind() == 1;
    is_response.then(|| NodeAddr(view.word(2)))
}

/// What a node adds to its numbers, so that nodes whose nonces vary by the same four bytes use numbers far from each
/// other: it depends on all of the identity.
fn shift(id: NodeId) -> u64 {
    let (high, low) = id.0.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    let mixed = Rng::new(Rng::new(number(high)).next_u64() ^ number(low)).next_u64();
    mixed >> SHIFT_BITS << CLASS_BITS
}
