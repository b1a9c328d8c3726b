//! Which of the slots 1 to 3 holds the pending, the active and the passive key. Spec: tipc.md §12.4, §12.5.
//!
//! Sending, a key waits as *pending* until the peers can receive with it, then becomes *active*. Receiving, the key of
//! a peer is *pending* until a frame was decrypted with it, *active* while frames arrive, and *passive* for a while
//! after a newer key has taken its place.

/// Number of the last slot; 0 is the master key.
pub(super) const LAST: u8 = 3;

/// Failed frames in a row after which a key that never worked is dropped. Spec: tipc.md §12.5.
pub(super) const MAX_FAILURES: i32 = 10;

/// Slots by role; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// The key that waits to be used.
    pub pending: u8,
    /// The key in use.
    pub active: u8,
    /// The key before it, with which late frames are received.
    pub passive: u8,
}

/// No slot is free, or a key that is being introduced must not be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// The state of the keys by role, for the decision what a tick changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Sending: peers that receive with the key. Receiving: 1 after a success, one less after each failure.
    pub(super) pending: i32,
    pub(super) active: i32,
    pub(super) passive: i32,
    /// The time in which nothing must change is over: 10 s for sending, 3 s since the last frame for receiving.
    pub(super) settled: bool,
    /// The time for which a passive key is kept is over.
    pub(super) outdated: bool,
}

/// What a tick changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The pending key becomes active; sending, the active one is dropped, receiving, it becomes passive.
    Activate,
    /// Receiving: the pending key never worked and is dropped.
    DropPending,
    /// Receiving: the active key is silent and becomes pending, or passive if there is a pending one.
    Deactivate,
    /// Receiving: the passive key is dropped.
    DropPassive,
}

/// The slot after `slot`.
pub(super) const fn next(slot: u8) -> u8 {
    slot % LAST + 1
}

impl Slots {
    /// True without any key.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// True if the slot has a role.
    pub(super) fn has(self, slot: u8) -> bool {
        slot != 0 && [self.pending, self.active, self.passive].contains(&slot)
    }

    /// The slot for a new key, in the slot `wanted` if that is not 0; `pending_users` are those of the pending key.
    pub(super) fn attach(self, pending_users: i32, wanted: u8) -> Result<(Self, u8), Busy> {
        if self.active != 0 && self.passive != 0 || self.pending != 0 && pending_users > 0 {
            return Err(Busy);
        }
        if self.pending != 0 {
            return Ok((self, self.pending));
        }
        let newest = if self.active != 0 { self.active } else { self.passive };
        if wanted != 0 && self.active != 0 && wanted != next(self.active) {
            return Ok((Self { passive: wanted, ..self }, wanted));
        }
        let slot = if wanted != 0 && newest == 0 { wanted } else { next(newest) };
        Ok((Self { pending: slot, ..self }, slot))
    }

    /// The slots after the pending key, which was found to be the peer's key `slot`, has moved there, with the passive
    /// one at the same distance. `None` if the keys are in use where they are.
    pub(super) fn align(self, pending_users: i32, slot: u8) -> Option<Self> {
        if self.active != 0 || self.pending == 0 || pending_users > 0 || slot == 0 || slot > LAST {
            return None;
        }
        let shifted = (LAST + self.passive - self.pending + slot) % LAST;
        let passive = match (self.passive, shifted) {
            (0, _) => 0,
            (_, 0) => LAST,
            (_, shifted) => shifted,
        };
        Some(Self { pending: slot, active: 0, passive })
    }

    /// What a tick changes in the keys for sending.
    pub(super) fn tick_sending(self, usage: Usage) -> Option<Change> {
        let in_use = self.active != 0 && usage.active > 0;
        let wanted = self.pending != 0 && usage.pending > 0;
        (wanted && !in_use && usage.settled).then_some(Change::Activate)
    }

    /// What a tick changes in the keys of a peer.
    pub(super) fn tick_receiving(self, usage: Usage) -> Option<Change> {
        if self.pending != 0 && usage.pending > 0 {
            return Some(Change::Activate);
        }
        if self.pending != 0 && usage.pending <= -MAX_FAILURES {
            return Some(Change::DropPending);
        }
        if self.active != 0 && (usage.settled || usage.active <= 0) {
            return Some(Change::Deactivate);
        }
        (self.passive != 0 && (usage.outdated || usage.passive <= -MAX_FAILURES))
            .then_some(Change::DropPassive)
    }

    /// The slots after a change of a peer's keys.
    pub(super) fn after(self, change: Change) -> Self {
        match change {
            Change::Activate => Self {
                pending: 0,
                active: self.pending,
                passive: if self.active != 0 { self.active } else { self.passive },
            },
            Change::DropPending => Self { pending: 0, ..self },
            Change::Deactivate if self.pending != 0 => Self { active: 0, passive: self.active, ..self },
            Change::Deactivate => Self { active: 0, pending: self.active, ..self },
            Change::DropPassive => Self { passive: 0, ..self },
        }
    }
}
