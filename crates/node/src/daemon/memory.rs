//! Memory of the daemon: messages by user, and what its allocator keeps after users have left.

use utipc_core::Time;
use utipc_core::memory::MessageMemory;
use utipc_core::quota::{Ledger, Resource, UserId};
use utipc_core::stack::Stack;
use utipc_os::heap;
use utipc_os::many::PARTS;

/// Items that users release before the allocator's free memory goes back to the system. Our choice: each has a few KiB.
const RELEASED: u64 = 256;
/// Delay before it goes back, milliseconds: users seldom release everything in one turn.
const PAUSE_MS: u64 = 1000;
/// Maximum number of items released before it goes back, which takes a few milliseconds.
const MOST_RELEASED: u64 = 4096;
/// Bytes of memory that count as one item.
const BYTES_PER_ITEM: u64 = 64 << 10;

/// Messages in the memory of [`heap`].
#[derive(Debug)]
struct Messages;

impl MessageMemory for Messages {
    fn buffer(&mut self, size: usize) -> Vec<u8> {
        heap::buffer(size).unwrap_or_else(|| Vec::with_capacity(size))
    }

    fn keep(&mut self, UserId(user): UserId, message: Vec<u8>, growth: u64) -> Result<Vec<u8>, Vec<u8>> {
        heap::keep(user, message, usize::try_from(growth).unwrap_or(usize::MAX))
    }

    fn disown(&mut self, buffer: &[u8]) {
        heap::disown(buffer);
    }

    fn take_changed(&mut self) -> Option<(UserId, u64)> {
        heap::take_changed().map(|(user, bytes)| (UserId(user), bytes as u64))
    }

    fn is_short(&mut self) -> bool {
        heap::is_short()
    }

    fn needs_trim(&self) -> bool {
        heap::needs_trim()
    }

    fn trim(&mut self) {
        heap::trim();
    }
}

/// Keeps the messages of sockets in memory of their users, if the program has the allocator for it.
pub(super) fn install(stack: &mut Stack) {
    if heap::start() {
        stack.set_memory(Box::new(Messages));
    }
}

/// When the allocator's free memory goes back to the system.
#[derive(Debug, Default)]
pub(super) struct Trim {
    /// Largest number of items in use since the last time.
    most: u64,
    at: Option<Time>,
    /// The part of the tables that goes back next.
    part: Option<usize>,
}

/// What goes back to the system in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// Memory of this part of the tables.
    Tables(usize),
    /// Free memory of the allocator.
    Heap,
}

impl Trim {
    /// When [`Self::step`] has something to return.
    pub(super) fn deadline(&self) -> Time {
        let at = self.at.unwrap_or(Time::NEVER);
        if self.part.is_some() { Time::ZERO } else { at }
    }

    /// Notes what is in use now; returns what is to go back. Call it in each turn.
    pub(super) fn step(&mut self, now: Time, ledger: &Ledger) -> Option<Portion> {
        if self.is_due(now, ledger) {
            self.part.get_or_insert(0);
        }
        let part = self.part?;
        self.part = (part < PARTS).then_some(part + 1);
        Some(if part < PARTS { Portion::Tables(part) } else { Portion::Heap })
    }

    fn is_due(&mut self, now: Time, ledger: &Ledger) -> bool {
        let total = ledger.total().used;
        let items = Resource::ALL.into_iter().map(|resource| match resource {
            Resource::Memory => total.get(resource) / BYTES_PER_ITEM,
            _ => total.get(resource),
        });
        let items: u64 = items.sum();
        self.most = self.most.max(items);
        let released = self.most - items;
        if released >= RELEASED && self.at.is_none() {
            self.at = Some(now.plus_millis(PAUSE_MS));
        }
        let is_due = released >= MOST_RELEASED || self.at.is_some_and(|at| at <= now);
        if is_due {
            (self.most, self.at) = (items, None);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserId = UserId(1);

    #[test]
    fn free_memory_goes_back_a_second_after_much_was_released() {
        let (mut trim, mut ledger) = (Trim::default(), Ledger::default());
        let at = |ms| Time::ZERO.plus_millis(ms);
        ledger.charge(USER, Resource::Sockets, 1000);
        assert!(!trim.is_due(at(0), &ledger));
        ledger.release(USER, Resource::Sockets, RELEASED - 1);
        assert!(!trim.is_due(at(10), &ledger));
        assert_eq!(trim.deadline(), Time::NEVER, "little was released");
        ledger.release(USER, Resource::Sockets, 1);
        assert!(!trim.is_due(at(20), &ledger));
        ledger.release(USER, Resource::Sockets, 500);
        assert!(!trim.is_due(at(500), &ledger));
        assert_eq!(trim.deadline(), at(20 + PAUSE_MS));
        assert!(trim.is_due(at(20 + PAUSE_MS), &ledger));
        assert_eq!((trim.deadline(), trim.most), (Time::NEVER, 1000 - RELEASED - 500));
        ledger.charge(USER, Resource::Memory, RELEASED * BYTES_PER_ITEM);
        assert!(!trim.is_due(at(3000), &ledger));
        ledger.release(USER, Resource::Memory, RELEASED * BYTES_PER_ITEM);
        assert!(!trim.is_due(at(3001), &ledger));
        assert_eq!(trim.deadline(), at(3001 + PAUSE_MS), "memory counts too");
        ledger.charge(USER, Resource::Memory, 2 * MOST_RELEASED * BYTES_PER_ITEM);
        assert!(!trim.is_due(at(3002), &ledger));
        ledger.release(USER, Resource::Memory, MOST_RELEASED * BYTES_PER_ITEM);
        assert!(trim.is_due(at(3003), &ledger), "much goes back at once");
        assert_eq!(trim.deadline(), Time::NEVER);
    }

    #[test]
    fn tables_go_back_part_by_part_before_the_heap() {
        let (mut trim, mut ledger) = (Trim::default(), Ledger::default());
        ledger.charge(USER, Resource::Sockets, MOST_RELEASED);
        assert_eq!(trim.step(Time::ZERO, &ledger), None);
        ledger.release(USER, Resource::Sockets, MOST_RELEASED);
        for part in 0..PARTS {
            assert_eq!(trim.step(Time::ZERO, &ledger), Some(Portion::Tables(part)));
            assert_eq!(trim.deadline(), Time::ZERO);
        }
        assert_eq!(trim.step(Time::ZERO, &ledger), Some(Portion::Heap));
        assert_eq!((trim.step(Time::ZERO, &ledger), trim.deadline()), (None, Time::NEVER));
    }
}
