//! Sleeping on words of segments.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::memory::Memory;
use super::segment::Segment;
use crate::Result;
use crate::futex::{self, WAIT_ANY_MAX, Woken};

/// A 32-bit word of a segment to sleep on, and the value that it had before the caller's last check.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// Offset, bytes.
    pub at: usize,
    /// Value of the word before the caller's last check.
    pub seen: u32,
}

/// Sleeps until one of several words differs from the value seen, at most `timeout`.
///
/// Kernels before 5.16 wait for the first alone and return within [`futex::SLICE`].
///
/// # Errors
/// No word, or more than [`WAIT_ANY_MAX`].
///
/// # Panics
/// If an offset is misaligned or outside of its segment.
pub fn wait_any<'a>(words: impl Iterator<Item = Watched<'a>>, timeout: Option<Duration>) -> Result<Woken> {
    let word = |Watched { segment, at, seen }: Watched<'a>| (segment.word32(at, segment.size()), seen);
    let words: Vec<(&AtomicU32, u32)> = words.take(WAIT_ANY_MAX + 1).map(word).collect();
    futex::wait_any(&words, timeout)
}
