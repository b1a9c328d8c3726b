//! Sleeping on doorbells and on one word of another segment at the same time.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::doorbell::Parked;
use super::memory::Memory;
use super::segment::Segment;
use crate::Result;
use crate::futex::{self, Woken};

/// A word of a segment that changes when there is something new, and what it held before the last look.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Where it is.
    pub segment: &'a Segment,
    /// Offset, bytes.
    pub at: usize,
    /// What it held.
    pub seen: u32,
}

/// Doorbells that [`wait_with`] takes at most.
pub const BELLS_MAX: usize = futex::WAIT_ANY_MAX - 1;

/// [`wait`](super::wait), ended by a change of `word` too; there may be no doorbell at all.
///
/// # Errors
/// More than [`BELLS_MAX`] doorbells.
pub fn wait_with(
    word: Watched<'_>,
    bells: &[(&Parked<'_>, u32)],
    timeout: Option<Duration>,
) -> Result<Woken> {
    let own = word.segment.word32(word.at, word.segment.size());
    let mut words: Vec<(&AtomicU32, u32)> = Vec::with_capacity(bells.len() + 1);
    words.push((own, word.seen));
    words.extend(bells.iter().map(|(parked, seen)| (parked.word(), *seen)));
    futex::wait_any(&words, timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{Arena, Shape, Side};

    #[test]
    fn either_wakes() {
        let shape = Shape { slots: 1, region: 1 << 20, ring_shifts: [12, 15, 18, 20] };
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
