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
    /// What goes back next.
    next: Option<Portion>,
}

/// What goes back to the system in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// Memory of this part of the tables.
    Tables(usize),
    /// Free memory of the allocator.
    Heap,
}

impl Portion {
    fn next(self) -> Option<Self> {
        match self {
            Self::Tables(part) if part + 1 < PARTS => Some(Self::Tables(part + 1)),
            Self::Tables(_) => Some(Self::Heap),
            Self::Heap => None,
        }
    }
}

impl Trim {
    /// When [`Self::step`] has something to return.
    pub(super) fn deadline(&self) -> Time {
        match self.next {
            Some(_) => Time::ZERO,
            None => self.at.unwrap_or(Time::NEVER),
        }
    }

    /// Notes what is in use now; returns what is to go back. Call it in each turn.
    pub(super) fn step(&mut self, now: Time, ledger: &Ledger) -> Option<Portion> {
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
        // What is released before all has gone back is counted for the next time.
        if self.next.is_none() && (released >= MOST_RELEASED || self.at.is_some_and(|at| at <= now)) {
            (self.most, self.at) = (items, None);
            self.next = Some(Portion::Tables(0));
        }
        let portion = self.next?;
        self.next = portion.next();
        Some(portion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserId = UserId(1);

    /// Whether memory goes back; all of it does then.
    fn goes_back(trim: &mut Trim, now: Time, ledger: &Ledger) -> bool {
        let mut portions = 0;
        while trim.step(now, ledger).is_some() {
            portions += 1;
        }
        assert!(portions == 0 || portions == PARTS + 1, "{portions}");
        portions > 0
    }

    #[test]
    fn free_memory_goes_back_a_second_after_much_was_released() {
        let (mut trim, mut ledger) = (Trim::default(), Ledger::default());
        let at = |ms| Time::ZERO.plus_millis(ms);
        ledger.charge(USER, Resource::Sockets, 1000);
        assert!(!goes_back(&mut trim, at(0), &ledger));
        ledger.release(USER, Resource::Sockets, RELEASED - 1);
        assert!(!goes_back(&mut trim, at(10), &ledger));
        assert_eq!(trim.deadline(), Time::NEVER, "little was released");
        ledger.release(USER, Resource::Sockets, 1);
        assert!(!goes_back(&mut trim, at(20), &ledger));
        ledger.release(USER, Resource::Sockets, 500);
        assert!(!goes_back(&mut trim, at(500), &ledger));
        assert_eq!(trim.deadline(), at(20 + PAUSE_MS));
        assert!(goes_back(&mut trim, at(20 + PAUSE_MS), &ledger));
        assert_eq!((trim.deadline(), trim.most), (Time::NEVER, 1000 - RELEASED - 500));
        ledger.charge(USER, Resource::Memory, RELEASED * BYTES_PER_ITEM);
        assert!(!goes_back(&mut trim, at(3000), &ledger));
        ledger.release(USER, Resource::Memory, RELEASED * BYTES_PER_ITEM);
        assert!(!goes_back(&mut trim, at(3001), &ledger));
        assert_eq!(trim.deadline(), at(3001 + PAUSE_MS), "memory counts too");
        ledger.charge(USER, Resource::Memory, 2 * MOST_RELEASED * BYTES_PER_ITEM);
        assert!(!goes_back(&mut trim, at(3002), &ledger));
        ledger.release(USER, Resource::Memory, MOST_RELEASED * BYTES_PER_ITEM);
        assert!(goes_back(&mut trim, at(3003), &ledger), "much goes back at once");
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

    #[test]
    fn what_is_released_while_memory_goes_back_goes_back_too() {
        let (mut trim, mut ledger) = (Trim::default(), Ledger::default());
        ledger.charge(USER, Resource::Sockets, 3 * MOST_RELEASED);
        assert_eq!(trim.step(Time::ZERO, &ledger), None);
        ledger.release(USER, Resource::Sockets, MOST_RELEASED);
        assert_eq!(trim.step(Time::ZERO, &ledger), Some(Portion::Tables(0)));
        ledger.release(USER, Resource::Sockets, MOST_RELEASED);
        for _ in 0..PARTS {
            assert!(trim.step(Time::ZERO, &ledger).is_some());
        }
        assert_eq!(trim.step(Time::ZERO, &ledger), Some(Portion::Tables(0)));
    }
}
