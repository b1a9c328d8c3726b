//! One lane: records from one writer to one reader through a ring in shared memory.
//!
//! The writer fills a record's body, clears the word in which the next record will be committed, and then stores the
//! record's own commit word: that store alone publishes the record. The reader polls the next commit word, so that a
//! message costs the cache lines that it fills, without an index line. A lane can change its ring: a JUMP record says
//! where it continues.

mod growth;
mod notify;
mod reader;
mod record;
mod recover;
mod tap;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

pub(crate) use reader::Walk;
pub use reader::{Peek, Reader, Record};
pub use record::Kind;
pub use recover::{Recovered, Step};
pub use tap::{Tap, Tapped};
pub use writer::Writer;

use crate::layout::Side;
use utipc_os::shm::LINE;

/// Maximum number of bytes of one record's body: a message of 66,000 bytes and its header, with room to spare.
pub const RECORD_MAX: usize = 128 * 1024 - LINE;

/// Maximum number of words of a marker.
pub const MARK_WORDS: usize = 7;

/// Maximum number of older rings of a writer that the reader has not left yet.
const OLDER_MAX: usize = 4;

/// A lane with malformed contents, from a broken or malicious peer. It stays unusable; other lanes are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The side that writes the lane.
    pub writer: Side,
    /// Which of that side's lanes.
    pub slot: u32,
    /// The fault.
    pub what: &'static str,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corrupt { writer, slot, what } = self;
        write!(
            f,
            "lane {slot} written by side {} is corrupt: {what} (a process on it is broken)",
            writer.index()
        )
    }
}

impl std::error::Error for Corrupt {}

/// Why a record was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneError {
    /// The lane is full: ask for room, or for a larger ring.
    Full,
    /// The message needs a ring of this class or a larger one ([`Writer::grow`]), for which the daemon grants memory.
    NeedsRing(u8),
    /// More than [`RECORD_MAX`] bytes, or than the largest ring takes.
    TooLarge,
    /// No free ring of that size in the arena, or too many old rings unread: a connected sender waits.
    NoRing,
    /// The reader is gone. The last `unsent` records pushed were not sent; the daemon returns those before.
    Gone {
        /// How many.
        unsent: u32,
    },
    /// The daemon froze the lane, or it never opened it.
    Frozen,
    /// END was written: nothing can follow.
    Ended,
    /// No lane leads to the receiver: send by the node.
    NoLane,
    /// The peer of the connection, or the member of the group, has not read enough yet.
    WindowFull,
    /// The reader has written malformed data.
    Corrupt(Corrupt),
}

impl LaneError {
    /// Whether no lane takes the message, now or later: send by the node.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::NoLane | Self::Gone { .. } | Self::Frozen | Self::Ended | Self::TooLarge)
    }
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneError::Full => f.write_str("the lane is full (wait for room or use a larger ring)"),
            LaneError::NeedsRing(class) => {
                write!(f, "the message needs a ring of class {class} (grow the lane)")
            }
            LaneError::TooLarge => write!(f, "the message exceeds {RECORD_MAX} bytes or the largest ring"),
            LaneError::NoRing => {
                f.write_str("the arena has no ring left (wait until the reader releases one)")
            }
            LaneError::Gone { unsent } => {
                write!(f, "the reader is gone, {unsent} not sent (send by the node)")
            }
            LaneError::Frozen => f.write_str("the lane is frozen or not open (send by the node)"),
            LaneError::Ended => f.write_str("the lane was ended (open another)"),
            LaneError::NoLane => f.write_str("no lane leads to the receiver (send by the node)"),
            LaneError::WindowFull => {
                f.write_str("the connection's window is full (wait for the peer to read)")
            }
            LaneError::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}

impl std::error::Error for LaneError {}

impl From<Corrupt> for LaneError {
    fn from(corrupt: Corrupt) -> Self {
        LaneError::Corrupt(corrupt)
    }
}
