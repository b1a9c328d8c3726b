//! A table in shared memory with one writer and many readers: a segment that only its [`Publisher`] can store to, and a
//! small *open area* in which every reader may write hints.
//!
//! This module interprets only the congested destinations and the publisher's pid. Areas never change their size: a
//! publisher that needs more space creates a [successor](Publisher::successor) and announces it in its areas.
//!
//! ```
//! use std::sync::atomic::Ordering;
//! use utipc_os::replica::{Publisher, Replica};
//! let publisher = Publisher::new("example", [512, 512, 512], 64)?;
//! let [table, open] = publisher.descriptors();
//! let replica = Replica::map(table, open)?;
//! publisher.area(0)[7].store(42, Ordering::Release);
//! assert_eq!(replica.area(0)[7].load(), 42);
//! # Ok::<(), utipc_os::OsError>(())
//! ```

mod congestion;

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::shm::{Access, PAGE, ReadWord, Segment};
use crate::{OsError, Result};

/// Number of areas of a table.
pub const AREAS: usize = 3;
/// The largest table or open area, bytes.
const MAX_SIZE: usize = 1 << 30;

/// First word of a segment; the last byte is the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"utipcTb\x01");
/// Words of the header: magic, process id, then words in each area.
const PUBLISHER: usize = 1;
const LENGTHS: usize = 2;

/// Number of words in a page.
const PAGE_WORDS: usize = PAGE / 8;
/// Offset of the congestion words.
const CONGESTION: usize = PAGE;
/// Offset of the first area.
const FIRST_AREA: usize = CONGESTION + congestion::WORDS * 8;

/// The areas of a segment: offset in bytes, and number of words.
#[derive(Clone, Copy)]
struct Layout([(usize, usize); AREAS]);

impl Layout {
    /// `None` if the areas are too large.
    fn of(lengths: [usize; AREAS]) -> Option<(Self, usize)> {
        let mut end = FIRST_AREA;
        let mut areas = [(0, 0); AREAS];
        for (area, length) in areas.iter_mut().zip(lengths) {
            *area = (end, length);
            let pages = length.checked_next_multiple_of(PAGE_WORDS)?;
            end = end.checked_add(pages.checked_mul(8)?).filter(|end| *end <= MAX_SIZE)?;
        }
        Some((Self(areas), end))
    }

    fn area(&self, number: usize) -> (usize, usize) {
        self.0.get(number).copied().unwrap_or((FIRST_AREA, 0))
    }
}

/// The open area, which a table shares with its successors.
struct Open {
    segment: Segment,
    descriptor: OwnedFd,
    len: usize,
}

/// The writer of a table.
pub struct Publisher {
    segment: Segment,
    descriptor: OwnedFd,
    layout: Layout,
    open: Arc<Open>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.layout.0.map(|(_, length)| length);
        f.debug_struct("Publisher").field("areas", &lengths).field("open", &self.open.len).finish()
    }
}

impl Publisher {
    /// Creates a table whose areas have these numbers of words, all zero, and an open area of `open` words. Memory is
    /// allocated when it is first written.
    pub fn new(name: &str, areas: [usize; AREAS], open: usize) -> Result<Publisher> {
        let (segment, descriptor) = Segment::create(name, checked(open)?)?;
        Self::beside(name, areas, Arc::new(Open { segment, descriptor, len: open }))
    }

    /// Creates a table to replace this one: areas all zero, the same congestion words and open area.
    pub fn successor(&self, name: &str, areas: [usize; AREAS]) -> Result<Publisher> {
        let next = Self::beside(name, areas, Arc::clone(&self.open))?;
        for (old, new) in self.congestion().iter().zip(next.congestion()) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(next)
    }

    fn beside(name: &str, areas: [usize; AREAS], open: Arc<Open>) -> Result<Publisher> {
        let (layout, size) = Layout::of(areas).ok_or_else(|| too_large(name))?;
        let (segment, descriptor) = Segment::publish(name, size)?;
        let header = segment.words(0, PAGE_WORDS);
        let values = [MAGIC, u64::from(std::process::id())].into_iter().chain(areas.map(|n| n as u64));
        for (word, value) in header.iter().zip(values) {
            word.store(value, Ordering::Release);
        }
        Ok(Publisher { segment, descriptor, layout, open })
    }

    /// Words of area 0, 1 or 2; no words for any other.
    pub fn area(&self, number: usize) -> &[AtomicU64] {
        let (at, length) = self.layout.area(number);
        self.segment.words(at, length)
    }

    /// Words of the open area, which any process may have overwritten.
    pub fn open_area(&self) -> &[AtomicU64] {
        self.open.segment.words(0, self.open.len)
    }

    /// The descriptors of the table and of the open area, for [`Replica::map`].
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.descriptor.as_fd(), self.open.descriptor.as_fd()]
    }

    /// Publishes whether messages of this level (0 to 7) to a destination have to wait; false if the table of
    /// destinations is full.
    pub fn set_congested(&self, destination: u32, level: u8, congested: bool) -> bool {
        congestion::set(self.congestion(), destination, level, congested)
    }

    fn congestion(&self) -> &[AtomicU64] {
        self.segment.words(CONGESTION, congestion::WORDS)
    }
}

/// A reader of a table.
pub struct Replica {
    segment: Segment,
    layout: Layout,
    open: Segment,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.layout.0.map(|(_, length)| length);
        f.debug_struct("Replica").field("publisher", &self.publisher()).field("areas", &lengths).finish()
    }
}

impl Replica {
    /// Maps the descriptors of [`Publisher::descriptors`], which may be closed afterwards.
    pub fn map(table: impl AsFd, open: impl AsFd) -> Result<Replica> {
        let segment = Segment::open(table, Access::ReadOnly, MAX_SIZE)?;
        let header: Vec<u64> = segment.words_to_read(0, PAGE_WORDS).iter().map(ReadWord::load).collect();
        let lengths = |range: Range<usize>| -> Option<[usize; AREAS]> {
            let lengths: Option<Vec<usize>> =
                header.get(range)?.iter().map(|length| usize::try_from(*length).ok()).collect();
            lengths?.try_into().ok()
        };
        let sound = header.first() == Some(&MAGIC);
        let layout = lengths(LENGTHS..LENGTHS + AREAS)
            .and_then(Layout::of)
            .filter(|(_, size)| sound && *size <= crate::shm::Memory::size(&segment))
            .ok_or_else(|| {
                OsError::new("use", "a descriptor as a shared table", Errno::PROTO)
                    .with_remedy("library and daemon are of incompatible versions: restart the older one")
            })?;
        let open = Segment::open(open, Access::ReadWrite, MAX_SIZE)?;
        Ok(Replica { segment, layout: layout.0, open })
    }

    /// Words of area 0, 1 or 2; no words for any other.
    #[inline]
    pub fn area(&self, number: usize) -> &[ReadWord] {
        let (at, length) = self.layout.area(number);
        self.segment.words_to_read(at, length)
    }

    /// Words of the open area, for hints; any process may have overwritten them.
    #[inline]
    pub fn open_area(&self) -> &[AtomicU64] {
        self.open.words(0, crate::shm::Memory::size(&self.open) / 8)
    }

    /// Pid of the publisher when it created the segment.
    pub fn publisher(&self) -> u32 {
        self.segment.words_to_read(0, PAGE_WORDS).get(PUBLISHER).map_or(0, |pid| pid.load() as u32)
    }

    /// Whether messages of this level to a destination have to wait.
    #[inline]
    pub fn is_congested(&self, destination: u32, level: u8) -> bool {
        let words = self.segment.words_to_read(CONGESTION, congestion::WORDS);
        congestion::has(congestion::word(words, destination), level)
    }
}

fn checked(words: usize) -> Result<usize> {
    words.checked_mul(8).filter(|size| *size <= MAX_SIZE).ok_or_else(|| too_large("an open area"))
}

fn too_large(name: &str) -> OsError {
    OsError::new("create shared memory", name, Errno::FBIG)
}

#[cfg(test)]
mod tests;
