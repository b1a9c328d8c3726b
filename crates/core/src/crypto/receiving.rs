//! The keys of one peer: with which its frames are decrypted. Spec: tipc.md §12.5.

use std::sync::Arc;

use super::aead::Aead;
use super::info::Introduced;
use super::key::{Key, Mode};
use super::proof::Heard;
use super::replay::Numbers;
use super::slots::{Busy, Change, LAST, Slots, Usage};
use crate::addr::NodeAddr;
use crate::time::Time;

/// Silence after which an active key is taken to be out of use, milliseconds.
const ACTIVE_MS: u64 = 3000;
/// Time for which a passive key is kept, milliseconds.
const PASSIVE_MS: u64 = 15_000;
/// Time after which an attempt is repeated to attach a received key, or to distribute one, milliseconds.
pub(super) const RETRY_MS: u64 = 5000;

/// A key to receive with.
#[derive(Debug)]
pub(super) struct ReceivingKey {
    pub(super) aead: Arc<Aead>,
    pub(super) mode: Mode,
    pub(super) origin: Introduced,
    /// 1 after a success, one less after each failure.
    users: i32,
    /// It has decrypted a frame, and there is no doubt that the peer still has it: failures do not count.
    works: bool,
    /// Time at which this node got to know that the peer has it.
    pub(super) since: Time,
}

impl ReceivingKey {
    pub(super) fn new(now: Time, aead: Arc<Aead>, mode: Mode, origin: Introduced) -> Self {
        Self { aead, mode, origin, users: 0, works: false, since: now }
    }
}

/// State of handing this node's key to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Nothing to do.
    #[default]
    Idle,
    /// The peer has no key: it is sent then.
    Due(Time),
    /// It was sent; it may be sent again then.
    Done(Time),
}

/// A key that is not attached yet.
#[derive(Debug)]
struct Received {
    key: Key,
    mode: Mode,
    origin: Introduced,
    retry: Time,
}

/// The keys of one peer, and what it has announced.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    keys: [Option<ReceivingKey>; LAST as usize + 1],
    pub(super) slots: Slots,
    /// The peer's address, once a frame has shown it.
    pub(super) addr: NodeAddr,
    /// The slot of this node's key with which the peer receives.
    pub(super) peer_active: u8,
    /// The peer has a master key.
    pub(super) has_master: bool,
    /// A frame of the peer could not be decrypted because there is no key for it.
    pub(super) no_key: bool,
    pub(super) distribution: Distribution,
    /// The numbers of its frames.
    pub(super) numbers: Numbers,
    /// Its questions.
    pub(super) heard: Heard,
    /// It is a utipc node: it numbers by the clock, and answers questions.
    pub(super) is_timed: bool,
    /// It has asked in a STATE, as its link is up; the next STATE answers.
    pub(super) has_asked: bool,
    generation: Option<u16>,
    received: Option<Received>,
    last_success: Time,
    passive_since: Time,
}

impl Receiving {
    pub(super) fn get_mut(&mut self, slot: u8) -> Option<&mut ReceivingKey> {
        self.keys.get_mut(usize::from(slot))?.as_mut()
    }

    pub(super) fn get(&self, slot: u8) -> Option<&ReceivingKey> {
        self.keys.get(usize::from(slot))?.as_ref()
    }

    fn users(&self, slot: u8) -> i32 {
        self.get(slot).filter(|_| slot != 0).map_or(0, |key| key.users)
    }

    /// Puts another cluster key in the place of one in `slot`; false if there is none.
    pub(super) fn replace_cluster_key(&mut self, now: Time, slot: u8, aead: &Arc<Aead>) -> bool {
        let key = self.get_mut(slot).filter(|key| slot != 0 && key.origin == Introduced::Cluster);
        key.is_some_and(|key| {
            *key = ReceivingKey::new(now, Arc::clone(aead), Mode::Cluster, Introduced::Cluster);
            true
        })
    }

    /// Removes its keys; the numbers that they have used are remembered.
    pub(super) fn flush(&mut self) {
        let (numbers, heard) = (core::mem::take(&mut self.numbers), self.heard);
        *self = Self { numbers, heard, is_timed: self.is_timed, ..Self::default() };
    }

    /// True if the operator has set one of its keys.
    pub(super) fn is_configured(&self) -> bool {
        let mut origins = self.keys.iter().flatten().map(|key| key.origin);
        let waits = self.received.as_ref().is_some_and(|key| key.origin == Introduced::Operator);
        waits || origins.any(|origin| origin == Introduced::Operator)
    }

    /// Time of the last frame that was decrypted.
    pub(super) fn last_success(&self) -> Time {
        self.last_success
    }

    /// True if a received key waits, or a newer one than that of `slot` is there.
    pub(super) fn expects_newer(&self, slot: u8) -> bool {
        self.received.is_some() || self.get(super::slots::next(slot)).is_some()
    }

    /// Adds a key in the slot `wanted` if that is not 0 and possible; returns its slot.
    pub(super) fn attach(
        &mut self,
        now: Time,
        aead: Arc<Aead>,
        mode: Mode,
        origin: Introduced,
        wanted: u8,
    ) -> Result<u8, Busy> {
        let (slots, slot) = self.slots.attach(self.users(self.slots.pending), wanted)?;
        self.slots = slots;
        if let Some(place) = self.keys.get_mut(usize::from(slot)) {
            *place = Some(ReceivingKey::new(now, aead, mode, origin));
        }
        self.no_key = false;
        Ok(slot)
    }

    /// The slots to try for a frame under the peer's key `slot`: that one, or the pending one, which may have to move.
    pub(super) fn candidate(&self, slot: u8) -> Option<u8> {
        if self.slots.has(slot) {
            return Some(slot);
        }
        self.slots.align(self.users(self.slots.pending), slot).map(|_| self.slots.pending)
    }

    /// A frame under the peer's key `slot` was decrypted with the key in `found`; returns the slot it has now.
    pub(super) fn succeeded(&mut self, now: Time, found: u8, slot: u8) -> u8 {
        if found != slot
            && let Some(aligned) = self.slots.align(self.users(self.slots.pending), slot)
        {
            let passive = self.remove(self.slots.passive);
            let pending = self.remove(found);
            self.slots = aligned;
            self.put(aligned.pending, pending);
            self.put(aligned.passive, passive);
        }
        if let Some(key) = self.get_mut(slot) {
            key.users = 1;
            key.works = true;
        }
        if slot == self.slots.passive {
            self.passive_since = now;
        }
        self.last_success = now;
        slot
    }

    /// A frame could not be decrypted with the key in `slot`.
    pub(super) fn failed(&mut self, slot: u8) {
        // A key that works, or that the operator has set, is not lost to forged frames.
        let counts = |key: &&mut ReceivingKey| !key.works && key.origin != Introduced::Operator;
        if let Some(key) = self.get_mut(slot).filter(counts) {
            key.users = (key.users - 1).max(-super::slots::MAX_FAILURES);
        }
    }

    /// The peer has just used the master key. If none of its keys has decrypted a frame for a while, they may be of its
    /// previous life: failures count again, and a key that they take away is asked for under the master key.
    pub(super) fn doubt(&mut self, now: Time) {
        if now >= self.last_success.plus_millis(ACTIVE_MS) {
            self.keys.iter_mut().flatten().for_each(|key| key.works = false);
        }
    }

    /// Takes a key that the peer has sent; false if it is known, or another one waits.
    pub(super) fn receive(&mut self, now: Time, generation: u16, mode: Mode, key: Key) -> bool {
        let is_known = self.generation == Some(generation) && !self.slots.is_empty();
        if self.received.is_some() || is_known {
            return false;
        }
        self.generation = Some(generation);
        self.no_key = false;
        self.received = Some(Received { key, mode, origin: Introduced::Peer, retry: now });
        self.attach_received(now);
        true
    }

    /// Takes a key of the peer that the operator has set; it waits for a free slot if need be.
    pub(super) fn configure(&mut self, now: Time, key: Key) {
        let origin = Introduced::Operator;
        self.received = Some(Received { key, mode: Mode::PerNode, origin, retry: now });
        self.attach_received(now);
    }

    /// Attaches the received key as soon as a slot is free.
    fn attach_received(&mut self, now: Time) {
        let Some(received) = self.received.take_if(|received| received.retry <= now) else { return };
        let aead = Arc::new(Aead::new(&received.key));
        if self.attach(now, aead, received.mode, received.origin, 0).is_err() {
            self.received = Some(Received { retry: now.plus_millis(RETRY_MS), ..received });
        }
    }

    /// Handles the passing of time; true if a pending key became active.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        self.attach_received(now);
        let Slots { pending, active, passive } = self.slots;
        let usage = Usage {
            pending: self.users(pending),
            active: self.users(active),
            passive: self.users(passive),
            settled: now >= self.last_success.plus_millis(ACTIVE_MS),
            outdated: now >= self.passive_since.plus_millis(PASSIVE_MS),
        };
        let Some(change) = self.slots.tick_receiving(usage) else { return false };
        self.slots = self.slots.after(change);
        match change {
            Change::Activate => self.passive_since = now,
            Change::Deactivate => {
                self.passive_since = now;
                let pending = self.slots.pending;
                if let Some(key) = self.get_mut(pending) {
                    key.users = 0;
                }
            }
            Change::DropPending | Change::DropPassive => {}
        }
        self.drop_unused();
        if self.slots.active != active {
            self.numbers.expect_restart();
        }
        change == Change::Activate
    }

    /// Drops keys that have lost their role to another one.
    fn drop_unused(&mut self) {
        let slots = self.slots;
        for slot in (1..=LAST).filter(|slot| !slots.has(*slot)) {
            drop(self.remove(slot));
        }
    }

    fn remove(&mut self, slot: u8) -> Option<ReceivingKey> {
        self.keys.get_mut(usize::from(slot)).filter(|_| slot != 0)?.take()
    }

    fn put(&mut self, slot: u8, key: Option<ReceivingKey>) {
        if let Some(place) = self.keys.get_mut(usize::from(slot)).filter(|_| slot != 0) {
            *place = key;
        }
    }
}
