//! The keys that this node sends with, and which of them a frame takes. Spec: tipc.md §12.4.

use std::sync::Arc;

use super::aead::Aead;
use super::info::Introduced;
use super::key::{Key, Mode};
use super::receiving::Receiving;
use super::replay::CLASS_BITS;
use super::slots::{self, Busy, Change, LAST, Slots, Usage};
use crate::time::Time;
use crate::wire::{LinkProtocolType, User, View};

/// Slot of the master key.
pub(super) const MASTER: u8 = 0;
/// Time for which the master key replaces the active one after a peer was found to have no key, milliseconds.
const GRACE_MS: u64 = 5000;
/// Time without a change among the users of a pending key before it becomes active, milliseconds.
const LASTING_MS: u64 = 10_000;
/// Bits of a number below the counter.
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;
/// Numbers that a clock does not reach before the year 2116; a peer that names a higher one is not believed.
const FARTHEST: u64 = 1 << 62;
/// Default interval of new keys, minutes.
pub const REKEYING_MINUTES: u32 = 24 * 60;

/// A key to send with.
#[derive(Debug)]
pub(super) struct SendingKey {
    pub(super) aead: Arc<Aead>,
    pub(super) key: Key,
    pub(super) mode: Mode,
    /// Counts the keys of this node.
    pub(super) generation: u16,
    /// Peers that receive with it.
    pub(super) users: i32,
    pub(super) since: Time,
    pub(super) introduced: Introduced,
}

/// A key that waits until a slot is free.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) since: Time,
}

/// Keys to send with.
#[derive(Debug, Default)]
pub(super) struct Sending {
    keys: [Option<SendingKey>; LAST as usize + 1],
    pub(super) slots: Slots,
    /// False until a key is set; then nothing is sent in clear text.
    pub(super) is_on: bool,
    generation: u16,
    /// Number of the last frame; the same counter for all keys, so that no change of keys repeats a number.
    seqno: u64,
    users_changed: Time,
    grace_until: Time,
    /// A key of the operator that is introduced as soon as the one before it is.
    pub(super) waiting: Option<Waiting>,
    /// A peer has no master key.
    legacy_user: bool,
    /// Interval of new keys, minutes; 0 for none.
    pub(super) rekeying_minutes: u32,
    pub(super) rekey_at: Option<Time>,
}

/// The slots whose keys a frame is sent with: copies first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// An additional copy that shows whether the peer can receive with a pending key.
    pub(super) probe: Option<u8>,
    /// An additional copy with the master key, for peers that may lack the key of the frame itself.
    pub(super) master_copy: bool,
    /// The frame itself; `None` if there is no key for it.
    pub(super) main: Option<u8>,
}

impl Sending {
    pub(super) fn new(generation: u16) -> Self {
        Self {
            keys: Default::default(),
            slots: Slots::default(),
            is_on: false,
            generation,
            seqno: 0,
            users_changed: Time::ZERO,
            grace_until: Time::ZERO,
            waiting: None,
            legacy_user: false,
            rekeying_minutes: REKEYING_MINUTES,
            rekey_at: None,
        }
    }

    pub(super) fn get(&self, slot: u8) -> Option<&SendingKey> {
        self.keys.get(usize::from(slot))?.as_ref()
    }

    fn get_mut(&mut self, slot: u8) -> Option<&mut SendingKey> {
        self.keys.get_mut(usize::from(slot))?.as_mut()
    }

    fn users(&self, slot: u8) -> i32 {
        self.get(slot).map_or(0, |key| key.users)
    }

    pub(super) fn has_master(&self) -> bool {
        self.get(MASTER).is_some()
    }

    /// The next number; never 0. Numbers start at the clock, so that a node that restarts repeats none. Their low bits
    /// are free for the class of the frame; without classes Linux's way to count.
    pub(super) fn next_number(&mut self, has_class: bool) -> u64 {
        self.seqno = if has_class {
            (self.seqno | CLASS_MASK).saturating_add(1)
        } else {
            self.seqno.saturating_add(1)
        };
        self.seqno
    }

    /// A peer has received this number from an earlier life of this node, whose clock was ahead: later ones follow it.
    pub(super) fn catch_up(&mut self, number: u64) {
        if number < FARTHEST {
            self.seqno = self.seqno.max(number);
        }
    }

    /// Adds a key; `clock` is the wall clock, nanoseconds. Returns its slot.
    pub(super) fn attach(
        &mut self,
        now: Time,
        clock: u64,
        key: Key,
        (mode, master): (Mode, bool),
        introduced: Introduced,
    ) -> Result<u8, Busy> {
        let slot = if master {
            MASTER
        } else {
            let (slots, slot) = self.slots.attach(self.users(self.slots.pending), 0)?;
            self.slots = slots;
            slot
        };
        self.generation = self.generation.wrapping_add(1);
        self.seqno = self.seqno.max(clock);
        self.is_on = true;
        self.users_changed = now;
        let aead = Arc::new(Aead::new(&key));
        if let Some(place) = self.keys.get_mut(usize::from(slot)) {
            let generation = self.generation;
            *place = Some(SendingKey { aead, key, mode, generation, users: 0, since: now, introduced });
        }
        self.schedule(now);
        Ok(slot)
    }

    /// Takes the key that waits if a slot is free now.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        let (slots, users) = (self.slots, self.users(self.slots.pending));
        self.waiting.take_if(|_| slots.attach(users, 0).is_ok())
    }

    /// Removes all keys: from now on everything is clear text.
    pub(super) fn flush(&mut self) {
        let kept = (self.generation, self.seqno, self.rekeying_minutes);
        *self = Self { seqno: kept.1, rekeying_minutes: kept.2, ..Self::new(kept.0) };
    }

    /// Plans the next new key.
    pub(super) fn schedule(&mut self, now: Time) {
        let minutes = u64::from(self.rekeying_minutes);
        self.rekey_at = (minutes != 0).then(|| now.plus_millis(minutes * 60_000));
    }

    /// The key that a new one resembles in length; `None` while one is being introduced.
    pub(super) fn template(&self) -> Option<&SendingKey> {
        let slot = if self.slots.active != 0 { self.slots.active } else { MASTER };
        self.get(slot).filter(|_| self.slots.pending == 0)
    }

    /// The newest key, which peers without one receive.
    pub(super) fn newest(&self) -> Option<&SendingKey> {
        let slot = if self.slots.pending != 0 { self.slots.pending } else { self.slots.active };
        self.get(slot).filter(|_| slot != MASTER)
    }

    /// The keys of the whole cluster, with which a frame from a peer may be encrypted: at most two.
    pub(super) fn cluster_keys(&self) -> impl Iterator<Item = &SendingKey> {
        let slots = [self.slots.pending, self.slots.active];
        slots
            .into_iter()
            .filter(|slot| *slot != 0)
            .filter_map(|slot| self.get(slot))
            .filter(|key| key.mode == Mode::Cluster)
    }

    /// Chooses the keys for a message to one peer, or to several.
    pub(super) fn choose(&self, now: Time, peer: Option<&Receiving>, message: View<'_>) -> Choice {
        let choice = self.choose_main(now, peer, message);
        // These messages make contact: the slot that the peer has announced may hold a key of a previous life.
        let makes_contact = message.user() == User::LinkProtocol
            && matches!(message.link_type(), LinkProtocolType::Reset | LinkProtocolType::Activate);
        let can_read = self.has_master() && peer.is_some_and(|peer| peer.has_master);
        let needs_copy = makes_contact && can_read && choice.main != Some(MASTER);
        Choice { master_copy: choice.master_copy || needs_copy, ..choice }
    }

    fn choose_main(&self, now: Time, peer: Option<&Receiving>, message: View<'_>) -> Choice {
        let Slots { pending, active, .. } = self.slots;
        let (user, peer_uses) = (message.user(), peer.map_or(0, |peer| peer.peer_active));
        let mut choice = Choice::default();
        if pending != 0 {
            let only = active == 0 && !self.has_master();
            if only || peer.is_some() && peer_uses == pending {
                return Choice { main: Some(pending), ..choice };
            }
            if matches!(user, User::LinkConfig | User::LinkProtocol) {
                choice.probe = Some(pending);
            }
        }
        let main = (active != 0).then_some(active);
        if !self.has_master() {
            return Choice { main, ..choice };
        }
        if main.is_none() {
            return Choice { main: Some(MASTER), ..choice };
        }
        let is_vital = match user {
            User::LinkConfig | User::Crypto => true,
            User::LinkProtocol => message.link_type() == LinkProtocolType::Reset,
            _ => false,
        };
        if !is_vital && now >= self.grace_until {
            return Choice { main, ..choice };
        }
        match peer {
            Some(peer) if peer.has_master && peer_uses == 0 => Choice { main: Some(MASTER), ..choice },
            Some(_) => Choice { main, ..choice },
            None if !self.legacy_user => Choice { main: Some(MASTER), ..choice },
            None => {
                choice.master_copy = true;
                Choice { main, ..choice }
            }
        }
    }

    /// A peer has announced whether it has a master key.
    pub(super) fn note_master(&mut self, has_master: bool) {
        self.legacy_user |= !has_master;
    }

    /// A peer has announced that it has no key of this node.
    pub(super) fn begin_grace(&mut self, now: Time) {
        self.grace_until = now.plus_millis(GRACE_MS);
    }

    /// A peer receives with another key of this node than before.
    pub(super) fn move_user(&mut self, now: Time, from: u8, to: u8) {
        if let Some(key) = self.get_mut(to).filter(|_| to != MASTER) {
            key.users = key.users.saturating_add(1);
        }
        if let Some(key) = self.get_mut(from).filter(|_| from != MASTER) {
            key.users = (key.users - 1).max(0);
        }
        self.users_changed = now;
    }

    /// Handles the passing of time; true if a pending key became active.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        let Slots { pending, active, .. } = self.slots;
        let usage = Usage {
            pending: self.users(pending),
            active: self.users(active),
            settled: now >= self.users_changed.plus_millis(LASTING_MS),
            ..Usage::default()
        };
        let change = self.slots.tick_sending(usage);
        if change == Some(Change::Activate) {
            if let Some(place) = self.keys.get_mut(usize::from(active)).filter(|_| active != 0) {
                *place = None;
            }
            self.slots = Slots { pending: 0, active: pending, passive: 0 };
        }
        if now >= self.grace_until {
            self.legacy_user = false;
        }
        change.is_some()
    }
}

const _: () = assert!(slots::next(LAST) == 1);
