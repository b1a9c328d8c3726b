//! The reading end of a lane. Everything that it loads may come from a broken or malicious writer.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use utipc_os::shm::{LINE, Memory, Segment};

use super::record::{Code, Commit, WORD, span, span_max};
use super::{Corrupt, Kind, MARK_WORDS, OLDER_MAX};
use crate::arena::Arena;
use crate::bits::Bits;
use crate::doorbell::{Doorbell, Wakeup};
use crate::layout::{LARGEST_CLASS, Layout, Place, Side, flag, slot};

/// Maximum number of pads, voids and jumps that one peek skips; a correct writer makes far fewer in a row.
const HOPS_MAX: u32 = 4096;

/// Maximum number of records that [`Reader::waiting`] visits: more than fit the largest ring, and the hops of one peek.
const COUNTED_MAX: u32 = 32_768;

/// Maximum number of records before the first data record that [`Reader::has_waiting`] visits.
const WITHOUT_DATA_MAX: u32 = 64;

/// Space is released once it is the ring's size divided by this, or costs [`RELEASE_COST`], or when the lane is found
/// empty.
const RELEASE_PART: u64 = 8;
/// See [`RELEASE_PART`].
const RELEASE_COST: u64 = 64;
/// Prefetch distance of a reader that is behind, bytes.
const AHEAD: u64 = 512;
/// A reader is behind after this many records without finding the lane empty. Otherwise it would fetch lines that are
/// being written.
const BEHIND: u32 = 16;

/// The next record of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// A whole record.
    Record(Record),
    /// There is none yet.
    Empty,
    /// There will be none: END was consumed, or the writer is gone and everything was read.
    Ended,
}

/// A committed record with checked bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub(super) kind: Kind,
    pub(super) len: u32,
    pub(super) position: u64,
    /// Offset of its body in the segment.
    pub(super) body: usize,
}

impl Record {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Size of its body, header and payload, bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The reading end of a lane; see [`Incoming::reader`](crate::Incoming::reader).
#[derive(Debug)]
pub struct Reader<M: Memory = Segment> {
    pub(super) memory: Arc<M>,
    pub(super) layout: Layout,
    /// The writer's side.
    pub(super) side: Side,
    pub(super) slot: u32,
    pub(super) at: usize,
    pub(super) room: Bits<M>,
    /// The doorbell of the writer's side.
    pub(super) bell: Doorbell<M>,
    pub(super) ring: Option<Own>,
    /// The class of the largest ring that the writer may use; the daemon, which grants rings, knows it.
    pub(super) largest: u8,
    /// It does not release space: the writer can fill its rings, but not write more.
    pub(super) holds_room: bool,
    pub(super) position: u64,
    pub(super) released: u64,
    pub(super) cost: u64,
    pub(super) released_cost: u64,
    pub(super) owed: Wakeup,
    pub(super) telling: bool,
    pub(super) ended: bool,
    /// Records consumed since the lane was empty.
    pub(super) streak: u32,
}

/// Where a walk through unread records is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// `None`: it is at its end.
    ring: Option<Own>,
    at: u64,
}

impl Walk {
    /// Whether nothing follows.
    pub(crate) fn is_over(&self) -> bool {
        self.ring.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    place: Place,
    base: usize,
    size: u64,
}

impl Own {
    #[inline(always)]
    pub(super) fn at(&self, position: u64) -> usize {
        self.base + (position & (self.size - 1)) as usize
    }
}

impl<M: Memory> Reader<M> {
    pub(crate) fn new(arena: &Arena<M>, writer: Side, number: u32) -> Result<Self, Corrupt> {
        let (memory, layout) = (arena.memory.clone(), arena.layout);
        let no_slot = Corrupt { writer, slot: number, what: "the slot does not exist" };
        Ok(Self {
            layout,
            side: writer,
            slot: number,
            at: layout.slot(writer, number).ok_or(no_slot)?,
            room: Bits::new(memory.clone(), layout.room(writer), arena.slots()),
            bell: arena.doorbell(writer),
            memory,
            ring: None,
            largest: LARGEST_CLASS,
            holds_room: false,
            position: 0,
            released: 0,
            cost: 0,
            released_cost: 0,
            owed: Wakeup::Quiet,
            telling: false,
            ended: false,
            streak: 0,
        })
    }

    /// Its slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The daemon has granted its writer rings up to this class. Larger records are malformed from now on.
    pub(crate) fn set_largest(&mut self, class: u8) {
        self.largest = class;
    }

    /// The next record, which stays in the lane until [`Reader::consume`].
    ///
    /// # Errors
    /// The lane is corrupt.
    #[inline]
    pub fn peek(&mut self) -> Result<Peek, Corrupt> {
        self.peek_within(&mut HOPS_MAX.clone())?.ok_or(self.corrupt("too many empty records"))
    }

    /// [`Reader::peek`], which skips at most this many empty records and subtracts them. `None`: there are more; the
    /// next call continues after them.
    #[inline]
    pub(crate) fn peek_within(&mut self, hops: &mut u32) -> Result<Option<Peek>, Corrupt> {
        if self.ended {
            return Ok(Some(Peek::Ended));
        }
        while *hops > 0 {
            let Some(ring) = self.ring else {
                if self.start()? {
                    continue;
                }
                match self.nothing(self.at + slot::START) {
                    Some(found) => return Ok(Some(found)),
                    None => continue,
                }
            };
            let at = ring.at(self.position);
            let word = self.memory.load64(at, Acquire);
            if word == 0 {
                match self.nothing(at) {
                    Some(found) => return Ok(Some(found)),
                    None => {
                        *hops -= 1;
                        continue;
                    }
                }
            }
            let commit = Commit::unpack(word, self.position);
            let Commit { code, len } = commit.ok_or(self.corrupt("unknown kind of record"))?;
            let bytes = span(len as usize) as u64;
            let rest = ring.size - (self.position & (ring.size - 1));
            if u64::from(len) > rest || bytes > rest {
                return Err(self.corrupt("a record reaches beyond its ring"));
            }
            match code {
                Code::Mark(kind) if bytes <= span_max(ring.size as usize) as u64 => {
                    let record = Record { kind, len, position: self.position, body: at + WORD };
                    return Ok(Some(Peek::Record(record)));
                }
                Code::Mark(_) => return Err(self.corrupt("a record is too large for its ring")),
                Code::Pad | Code::Void => self.pass(bytes),
                Code::Jump => self.jump(at, len)?,
            }
            *hops -= 1;
        }
        Ok(None)
    }

    /// Where the next record is, as bytes since the lane began.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// More unread bytes than a correct writer can have: the ring that it writes, and [`OLDER_MAX`], each of the
    /// largest class that it may use.
    pub(crate) fn unread_max(&self) -> u64 {
        let shifts = self.layout.shape.ring_shifts;
        (OLDER_MAX as u64 + 2) << shifts.get(usize::from(self.largest)).unwrap_or(&shifts[0])
    }

    /// A walk through the unread records, which stay unread.
    pub(crate) fn walk(&self) -> Walk {
        let start = || Place::unpack(self.memory.load64(self.at + slot::START, Acquire));
        Walk { ring: self.ring.or_else(|| start().and_then(|start| self.own(start))), at: self.position }
    }

    /// Takes a walk to the next data record; the result is the length of its body. `None`: none yet, or corrupt data
    /// follows, which [`Reader::peek`] will report. Each record visited is subtracted from `visits`; at zero the walk
    /// stops, and continues with the next call.
    pub(crate) fn next_waiting(&self, walk: &mut Walk, visits: &mut u32) -> Option<u32> {
        while *visits > 0 {
            *visits -= 1;
            // A process can change the position in shared memory, also backwards.
            let is_ahead = walk.at.checked_sub(self.position).is_some_and(|ahead| ahead <= self.unread_max());
            if self.ended || !is_ahead {
                walk.ring = None;
            }
            let own = walk.ring?;
            let at = own.at(walk.at);
            let commit = Commit::unpack(self.memory.load64(at, Acquire), walk.at);
            let bytes = commit.map_or(0, |commit| span(commit.len as usize) as u64);
            let fits = bytes <= own.size - (walk.at & (own.size - 1));
            let Some(Commit { code, len }) = commit.filter(|_| fits) else {
                walk.ring = None;
                return None;
            };
            walk.at += bytes;
            match code {
                Code::Mark(Kind::End) => walk.ring = None,
                Code::Mark(Kind::Data) => return Some(len),
                Code::Mark(_) | Code::Pad | Code::Void => {}
                Code::Jump => {
                    let mut word = [0; 8];
                    self.memory.read(at + WORD, &mut word);
                    walk.ring = Place::unpack(u64::from_le_bytes(word)).and_then(|place| self.own(place));
                }
            }
        }
        None
    }

    /// Counts the data records that wait, and the bytes of their bodies. Records written during the walk may be
    /// missing; those behind corrupt data are, which [`Reader::peek`] will report.
    #[must_use]
    pub fn waiting(&self) -> (u32, u64) {
        let (mut walk, mut visits, mut found) = (self.walk(), COUNTED_MAX, (0, 0));
        while let Some(len) = self.next_waiting(&mut walk, &mut visits) {
            found = (found.0 + 1, found.1 + u64::from(len));
        }
        found
    }

    /// Whether a data record waits; a correct writer never puts one behind this many others.
    pub(crate) fn has_waiting(&self) -> bool {
        self.next_waiting(&mut self.walk(), &mut WITHOUT_DATA_MAX.clone()).is_some()
    }

    /// Prefetches what the next peek needs: with many lanes, its lines have left the caches since its last turn.
    #[inline]
    pub fn prefetch(&self) {
        let Some(ring) = self.ring else { return };
        let bytes = if self.streak > BEHIND { AHEAD } else { 2 * LINE as u64 };
        for line in (0..bytes).step_by(LINE) {
            self.memory.prefetch(ring.at(self.position + line));
        }
        self.memory.prefetch_write(self.at + slot::EXACT);
    }

    /// Copies the start of a body, each byte once; returns the number of bytes. Check the copy, never the lane.
    #[inline]
    pub fn read_header(&self, record: &Record, into: &mut [u8; 60]) -> usize {
        self.copy_payload(record, 0, into)
    }

    /// Copies bytes of a body from `offset` on, each once; returns their number.
    #[inline]
    pub fn copy_payload(&self, record: &Record, offset: usize, into: &mut [u8]) -> usize {
        let Some(left) = record.len().checked_sub(offset) else { return 0 };
        let len = left.min(into.len());
        let Some(into) = into.get_mut(..len) else { return 0 };
        self.memory.read(record.body + offset, into);
        len
    }

    /// Appends the whole body of a record to `into`.
    pub fn append_payload(&self, record: &Record, into: &mut Vec<u8>) {
        self.memory.append(record.body, record.len(), into);
    }

    /// The words of a marker; missing ones are zero.
    pub fn words(&self, record: &Record) -> [u64; MARK_WORDS] {
        let mut bytes = [0; MARK_WORDS * 8];
        self.copy_payload(record, 0, &mut bytes);
        let mut words = [0; MARK_WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        words
    }

    /// Takes the record out that [`Reader::peek`] has returned last; ignores any other. `cost` is what its sender gave.
    /// The writer may overwrite it from now on.
    #[inline]
    pub fn consume(&mut self, record: Record, cost: u32) {
        if record.position != self.position || self.ended {
            return;
        }
        self.cost = self.cost.wrapping_add(u64::from(cost));
        if record.kind == Kind::End {
            // It stays in the lane, so that a reader that resumes finds the end too.
            self.ended = true;
            self.release();
            return;
        }
        let span = span(record.len()) as u64;
        self.pass(span);
        self.streak = self.streak.saturating_add(1);
        if self.streak > BEHIND
            && let Some(ring) = self.ring
        {
            for line in (0..span.min(AHEAD)).step_by(LINE) {
                self.memory.prefetch(ring.at(self.position + AHEAD + line));
            }
        }
        let size = self.ring.map_or(0, |ring| ring.size);
        let unreleased = self.position - self.released;
        if unreleased >= size / RELEASE_PART || self.cost.wrapping_sub(self.released_cost) >= RELEASE_COST {
            self.release();
        }
    }

    pub(super) fn corrupt(&self, what: &'static str) -> Corrupt {
        Corrupt { writer: self.side, slot: self.slot, what }
    }

    #[inline]
    fn pass(&mut self, bytes: u64) {
        self.position += bytes;
        if let Some(ring) = self.ring {
            // No other process loads this line, so the store is as cheap as to private memory.
            self.memory.store64(self.at + slot::EXACT, place(ring, self.position), Release);
        }
    }

    /// Handles an empty lane (the word at `at` is zero): releases space and finds out whether more can come. `None`:
    /// check again.
    fn nothing(&mut self, at: usize) -> Option<Peek> {
        self.streak = 0;
        self.release();
        if self.memory.load32(self.at + slot::FLAGS, Acquire) & flag::FROZEN == 0 {
            return Some(Peek::Empty);
        }
        // Records committed before the freeze are visible now.
        (self.memory.load64(at, Acquire) == 0).then_some(Peek::Ended)
    }

    /// Enters the first ring; returns false if the writer has not made it yet.
    fn start(&mut self) -> Result<bool, Corrupt> {
        let word = self.memory.load64(self.at + slot::START, Acquire);
        if word == 0 {
            return Ok(false);
        }
        let start = Place::unpack(word).ok_or(self.corrupt("the first ring is none"))?;
        if start.lines != 0 {
            return Err(self.corrupt("the lane does not start at its beginning"));
        }
        self.enter(start)?;
        Ok(true)
    }

    fn jump(&mut self, at: usize, len: u32) -> Result<(), Corrupt> {
        let mut word = [0; 8];
        if len as usize != word.len() {
            return Err(self.corrupt("a jump has the wrong size"));
        }
        self.memory.read(at + WORD, &mut word);
        let to = Place::unpack(u64::from_le_bytes(word)).ok_or(self.corrupt("a jump leads nowhere"))?;
        let position = self.position + LINE as u64;
        if Place::new(to.class, to.unit, position) != to {
            return Err(self.corrupt("a jump leads to another position"));
        }
        self.enter(to)?;
        self.pass(LINE as u64);
        // At once, so that the writer can reuse the old ring.
        self.release();
        Ok(())
    }

    pub(super) fn enter(&mut self, to: Place) -> Result<(), Corrupt> {
        self.ring = Some(self.own(to).ok_or(self.corrupt("this ring does not belong to the lane"))?);
        Ok(())
    }

    /// A ring, if this lane may have it.
    fn own(&self, to: Place) -> Option<Own> {
        let (base, size) = self.layout.ring(self.side, self.slot, to).filter(|_| to.class <= self.largest)?;
        Some(Own { place: to, base, size: size as u64 })
    }
}

pub(super) fn place(ring: Own, position: u64) -> u64 {
    Place::new(ring.place.class, ring.place.unit, position).pack()
}
