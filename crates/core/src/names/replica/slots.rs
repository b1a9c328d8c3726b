//! Allocates the blocks and records of a replica.

use crate::collections::Queue;

/// Allocates numbers from 1 on. A returned number is reused only some changes later.
#[derive(Debug)]
pub(super) struct Slots {
    /// The lowest number never allocated.
    fresh: u32,
    /// Returned numbers, with the first version in which no reader can find them; oldest first.
    returned: Queue<(u64, u32)>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { fresh: 1, returned: Queue::default() }
    }
}

impl Slots {
    /// Allocates a number below `limit`. `reclaimable`: the newest version that all readers have left behind.
    pub(super) fn take(&mut self, reclaimable: u64, limit: u32) -> Option<u32> {
        if self.returned.front().is_some_and(|(version, _)| *version <= reclaimable) {
            return self.returned.pop_front().map(|(_, number)| number);
        }
        let number = self.fresh;
        (number < limit).then(|| {
            self.fresh += 1;
            number
        })
    }

    /// Returns `number`, which readers cannot find from `version` on.
    pub(super) fn give_back(&mut self, version: u64, number: u32) {
        self.returned.push_back((version, number));
    }

    /// True if `count` numbers can be allocated one after another.
    pub(super) fn can_take(&self, count: u32, reclaimable: u64, limit: u32) -> bool {
        let last = (count as usize).checked_sub(1).and_then(|last| self.returned.get(last));
        limit.saturating_sub(self.fresh) >= count || last.is_some_and(|(version, _)| *version <= reclaimable)
    }

    /// Number of numbers below `limit` that are or will become free.
    pub(super) fn free(&self, limit: u32) -> u32 {
        let returned = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        returned.saturating_add(limit.saturating_sub(self.fresh))
    }

    /// All numbers ever allocated are below this.
    pub(super) const fn high(&self) -> u32 {
        self.fresh
    }
}
