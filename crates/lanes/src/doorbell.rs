//! How one side of a pair wakes the other.
//!
//! A doorbell belongs to the side that sleeps; the peer (and the daemon) ring it. To sleep without missing anything:
//! read [`Doorbell::seq`], announce the sleep ([`Doorbell::park`]), check everything once more, and only then wait for
//! the number to change. While no thread sleeps, ringing costs one load.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use utipc_os::Result;
use utipc_os::futex::{WAIT_ANY_MAX, Woken};
use utipc_os::shm::{Fence, Memory, Segment, Watched, wait_any};

use super::layout::{Layout, Side, bell};
use super::schedule::point;

/// Bit of `parked`: the owner waits by a descriptor, which the daemon makes readable when a ring is reported.
const TELL: u32 = 1 << 31;

/// The effect of ringing a doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "the daemon may need a notice"]
pub enum Wakeup {
    /// The peer is awake, or had not asked for anything.
    #[default]
    Quiet,
    /// The peer slept and was woken.
    Woken,
    /// The peer waits by a descriptor: tell the daemon, which makes it readable.
    TellDaemon,
}

/// One side's doorbell. Clones are the same doorbell.
#[derive(Debug)]
pub struct Doorbell<M = Segment> {
    memory: Arc<M>,
    at: usize,
}

impl<M> Clone for Doorbell<M> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), at: self.at }
    }
}

impl<M: Memory> Doorbell<M> {
    pub(super) fn new(memory: Arc<M>, owner: Side) -> Self {
        Self { memory, at: Layout::bell(owner) }
    }

    /// Number of rings, modulo 2^32. Read it before the last check of what it announces.
    #[inline]
    pub fn seq(&self) -> u32 {
        self.memory.load32(self.at + bell::SEQ, Acquire)
    }

    /// Announces that this thread is going to sleep. Check everything once more before it does.
    pub fn park(&self) -> Parked<'_, M> {
        self.memory.add32(self.at + bell::PARKED, 1);
        self.memory.fence(Fence::Park);
        point("park: before the last check");
        Parked { bell: self }
    }

    /// Sets whether the next ring tells the daemon, once. Check everything once more after setting it.
    pub fn tell_daemon(&self, on: bool) {
        if on {
            self.memory.or32(self.at + bell::PARKED, TELL);
            self.memory.fence(Fence::Park);
        } else {
            self.memory.and32(self.at + bell::PARKED, !TELL);
        }
    }

    /// Whether a thread of the owner sleeps, or waits by a descriptor. A hint: the owner can write anything there.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.memory.load32(self.at + bell::PARKED, Relaxed) != 0
    }

    /// Wakes the owner if it sleeps. Publish what it has to find before.
    pub fn ring(&self) -> Wakeup {
        self.memory.fence(Fence::Ring);
        point("ring: before looking for a sleeper");
        let parked = self.memory.load32(self.at + bell::PARKED, Relaxed);
        if parked == 0 {
            return Wakeup::Quiet;
        }
        point("ring: before changing the number");
        self.memory.add32(self.at + bell::SEQ, 1);
        point("ring: before waking");
        if parked & !TELL != 0 {
            self.memory.wake32(self.at + bell::SEQ);
        }
        // The thread that clears the bit tells the daemon, so that many rings cost one message.
        if parked & TELL != 0 && self.memory.and32(self.at + bell::PARKED, !TELL) & TELL != 0 {
            return Wakeup::TellDaemon;
        }
        Wakeup::Woken
    }
}

/// While it lives, ringing the doorbell wakes this thread.
#[derive(Debug)]
pub struct Parked<'a, M: Memory = Segment> {
    bell: &'a Doorbell<M>,
}

impl<M: Memory> Parked<'_, M> {
    /// Sleeps until the doorbell is rung, at most `timeout`; not at all if its number is no longer `seen`.
    pub fn wait(&self, seen: u32, timeout: Option<Duration>) {
        point("wait: before sleeping");
        self.bell.memory.wait32(self.bell.at + bell::SEQ, seen, timeout);
    }
}

impl Parked<'_> {
    /// The word that changes when the doorbell is rung, to sleep on together with others.
    fn watched(&self, seen: u32) -> Watched<'_> {
        let Doorbell { memory, at } = self.bell;
        Watched { segment: memory, at: at + bell::SEQ, seen }
    }
}

impl<M: Memory> Drop for Parked<'_, M> {
    fn drop(&mut self) {
        self.bell.memory.add32(self.bell.at + bell::PARKED, u32::MAX);
    }
}

/// Maximum number of doorbells that [`wait_with`] takes.
pub const BELLS_MAX: usize = WAIT_ANY_MAX - 1;

/// Sleeps until one of several doorbells is rung, at most `timeout`. Each comes with its number from before the last
/// check.
///
/// Kernels before 5.16 wait for the first alone and return within [`utipc_os::futex::SLICE`].
///
/// # Errors
/// No doorbell, or more than [`WAIT_ANY_MAX`]: wait for the descriptor then.
pub fn wait(bells: &[(&Parked<'_>, u32)], timeout: Option<Duration>) -> Result<Woken> {
    wait_any(bells.iter().map(|(parked, seen)| parked.watched(*seen)), timeout)
}

/// [`wait`] that a change of `word` ends too; `bells` may be empty.
///
/// # Errors
/// More than [`BELLS_MAX`] doorbells.
pub fn wait_with(
    word: Watched<'_>,
    bells: &[(&Parked<'_>, u32)],
    timeout: Option<Duration>,
) -> Result<Woken> {
    let rung = bells.iter().map(|(parked, seen)| parked.watched(*seen));
    wait_any(std::iter::once(word).chain(rung), timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, Shape};

    #[test]
    fn doorbell_and_word_both_end_the_sleep() {
        let shape = Shape { slots: 1, region: 1 << 20, ..Shape::STANDARD };
        let (arena, _fd) = Arena::create("utipc-test", shape).unwrap();
        let (page, _fd) = Segment::create("utipc-test", 8).unwrap();
        let bell = arena.doorbell(Side::Zero);
        let word = || Watched { segment: &page, at: 4, seen: 0 };
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait_with(word(), &[], short).unwrap(), Woken::TimedOut);
        let seen = bell.seq();
        let parked = bell.park();
        assert_eq!(wait_with(word(), &[(&parked, seen)], short).unwrap(), Woken::TimedOut);
        let _ = bell.ring();
        assert_eq!(wait_with(word(), &[(&parked, seen)], None).unwrap(), Woken::Changed);
        page.store32(4, 1, std::sync::atomic::Ordering::Release);
        assert_eq!(wait_with(word(), &[(&parked, bell.seq())], None).unwrap(), Woken::Changed);
    }
}
