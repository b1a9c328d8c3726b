//! Allocates the blocks and records of a replica.

use crate::collections::{Numbers, Queue};

/// Allocates numbers from 1 on. A returned number is reused only some changes later.
#[derive(Debug)]
pub(super) struct Slots {
    /// The lowest number never allocated.
    fresh: u32,
    /// Numbers returned lately, with the first version in which no reader can find them; oldest first.
    returned: Queue<(u64, u32)>,
    /// Numbers that no reader can find.
    free: Numbers,
}

impl Default for Slots {
    fn default() -> Self {
        Self { fresh: 1, returned: Queue::default(), free: Numbers::default() }
    }
}

impl Slots {
    /// Allocates a number below `limit`. `reclaimable`: the newest version that all readers have left behind.
    pub(super) fn take(&mut self, reclaimable: u64, limit: u32) -> Option<u32> {
        self.free_some(reclaimable);
        if let Some(number) = self.free.take_first() {
            return Some(number);
        }
        let number = self.fresh;
        (number < limit).then(|| {
            self.fresh += 1;
            number
        })
    }

    /// Returns `number`, which readers cannot find from `version` on.
    pub(super) fn give_back(&mut self, reclaimable: u64, version: u64, number: u32) {
        self.returned.push_back((version, number));
        self.free_some(reclaimable);
    }

    /// Frees the oldest returned numbers that readers have left behind: two, because each call returns at most one.
    fn free_some(&mut self, reclaimable: u64) {
        for _ in 0..2 {
            let Some((_, number)) = self.returned.front().filter(|(version, _)| *version <= reclaimable)
            else {
                return;
            };
            self.free.insert(*number);
            self.returned.pop_front();
        }
    }

    /// True if `count` numbers can be allocated one after another.
    pub(super) fn can_take(&self, count: u32, reclaimable: u64, limit: u32) -> bool {
        let last = (count as usize).checked_sub(self.free.len() + 1);
        limit.saturating_sub(self.fresh) >= count
            || last.is_none_or(|last| {
                self.returned.get(last).is_some_and(|(version, _)| *version <= reclaimable)
            })
    }

    /// Number of numbers below `limit` that are or will become free.
    pub(super) fn free(&self, limit: u32) -> u32 {
        let returned = u32::try_from(self.free.len() + self.returned.len()).unwrap_or(u32::MAX);
        returned.saturating_add(limit.saturating_sub(self.fresh))
    }

    /// All numbers ever allocated are below this.
    pub(super) const fn high(&self) -> u32 {
        self.fresh
    }
}
