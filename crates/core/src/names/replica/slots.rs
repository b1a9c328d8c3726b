//! Which blocks or records are free.

use std::collections::VecDeque;

/// Numbers from 1 on. One that was given back is handed out again only a number of changes later.
#[derive(Debug)]
pub(super) struct Slots {
    /// The first number that was never handed out.
    fresh: u32,
    /// Numbers given back, with the first version in which no reader can come across them; oldest first.
    returned: VecDeque<(u64, u32)>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { fresh: 1, returned: VecDeque::new() }
    }
}

impl Slots {
    /// A free number below `limit`. `settled`: the newest version whose readers have all noticed.
    pub(super) fn take(&mut self, settled: u64, limit: u32) -> Option<u32> {
        if self.returned.front().is_some_and(|(version, _)| *version <= settled) {
            return self.returned.pop_front().map(|(_, number)| number);
        }
        let number = self.fresh;
        (number < limit).then(|| {
            self.fresh += 1;
            number
        })
    }

    /// `number` cannot be come across any more from `version` on.
    pub(super) fn give_back(&mut self, version: u64, number: u32) {
        self.returned.push_back((version, number));
    }

    /// True if `count` can be taken one after another.
    pub(super) fn can_take(&self, count: u32, settled: u64, limit: u32) -> bool {
        let last = (count as usize).checked_sub(1).and_then(|last| self.returned.get(last));
        limit.saturating_sub(self.fresh) >= count || last.is_some_and(|(version, _)| *version <= settled)
    }

    /// How many numbers below `limit` are or will be free.
    pub(super) fn free(&self, limit: u32) -> u32 {
        let returned = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        returned.saturating_add(limit.saturating_sub(self.fresh))
    }

    /// All numbers that were ever handed out are below this.
    pub(super) const fn high(&self) -> u32 {
        self.fresh
    }
}
