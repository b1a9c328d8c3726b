//! Updates that were broadcast and that some peer has not acknowledged yet. A message to such a peer takes another path
//! and could overtake them: it is preceded by copies on its own link. Decision 33.

use std::collections::VecDeque;

use crate::wire::Message;

/// Maximum number of updates that are kept. Ours: what a program binds in some milliseconds; each takes about 200
/// bytes. Copies are never further ahead of the broadcasts than this: a peer takes an update that it has applied for a
/// later one if it is 32,768 numbers late.
pub(crate) const MAX_RECENT: usize = 4096;

/// The updates, numbered without wrap from the start of the node on.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Each with the number of broadcast packets that carry it and all before it.
    updates: VecDeque<(u64, Message)>,
    /// Number of the first one.
    first: u64,
    /// The first broadcast packets that carry all updates that were dropped for later ones.
    dropped: u64,
}

impl Recent {
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Whether all updates are kept that the first `acknowledged` broadcast packets do not carry.
    pub(crate) fn has_all_after(&self, acknowledged: u64) -> bool {
        acknowledged >= self.dropped
    }

    /// Number of the next update.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.updates.len() as u64
    }

    /// Adds an update that the first `end` broadcast packets carry; drops the oldest one if there are too many.
    pub(crate) fn push(&mut self, end: u64, update: Message) {
        if self.updates.len() >= MAX_RECENT
            && let Some((end, _)) = self.updates.pop_front()
        {
            self.first += 1;
            self.dropped = end;
        }
        self.updates.push_back((end, update));
    }

    /// Copies of the updates from number `told` on that the first `acknowledged` broadcast packets do not carry, with
    /// their numbers.
    pub(crate) fn after(&self, told: u64, acknowledged: u64) -> Vec<(u64, Message)> {
        let skipped = usize::try_from(told.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let numbered = (self.first..).zip(&self.updates).skip(skipped);
        let missing = numbered.filter(|(_, (end, _))| *end > acknowledged);
        missing.map(|(number, (_, update))| (number, update.clone())).collect()
    }

    /// Forgets the updates that the first `acknowledged` broadcast packets carry.
    pub(crate) fn forget(&mut self, acknowledged: u64) {
        while self.updates.front().is_some_and(|(end, _)| *end <= acknowledged) {
            self.updates.pop_front();
            self.first += 1;
        }
    }

    /// Forgets all updates.
    pub(crate) fn clear(&mut self) {
        self.first = self.next();
        self.updates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{INTERNAL_HEADER, User};

    fn recent() -> Recent {
        let mut recent = Recent::default();
        // Packets 1 and 2 carry one update each, packet 3 carries two.
        for (number, end) in [1, 2, 3, 3].into_iter().enumerate() {
            recent.push(end, Message::build(User::NameDistributor, 0, INTERNAL_HEADER, &[number as u8]));
        }
        recent
    }

    fn numbers(updates: &[(u64, Message)]) -> Vec<u8> {
        assert!(updates.iter().all(|(number, update)| *number == u64::from(update.data()[0])));
        updates.iter().map(|(_, update)| update.data()[0]).collect()
    }

    #[test]
    fn only_what_was_neither_told_nor_acknowledged_is_repeated() {
        let recent = recent();
        assert_eq!(numbers(&recent.after(0, 0)), [0, 1, 2, 3]);
        assert_eq!(numbers(&recent.after(1, 2)), [2, 3]);
        assert_eq!(numbers(&recent.after(3, 0)), [3]);
        assert_eq!(numbers(&recent.after(0, 3)), []);
        assert_eq!(numbers(&recent.after(recent.next(), 0)), []);
        assert_eq!(numbers(&recent.after(u64::MAX, 0)), []);
    }

    #[test]
    fn oldest_updates_are_dropped_for_later_ones() {
        let mut recent = Recent::default();
        for end in 1..=MAX_RECENT as u64 + 10 {
            recent.push(end, Message::build(User::NameDistributor, 0, INTERNAL_HEADER, &[]));
        }
        assert_eq!((recent.updates.len(), recent.first), (MAX_RECENT, 10));
        assert!(!recent.has_all_after(9) && recent.has_all_after(10));
    }

    #[test]
    fn numbers_go_on_when_updates_are_forgotten() {
        let mut recent = recent();
        recent.forget(2);
        assert_eq!((numbers(&recent.after(0, 0)), recent.next()), (vec![2, 3], 4));
        assert_eq!(numbers(&recent.after(3, 0)), [3]);
        recent.clear();
        assert_eq!((recent.is_empty(), recent.next()), (true, 4));
    }
}
