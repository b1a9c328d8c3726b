//! Recovery of the records that a reader left unread when it died or stopped. Each has one owner, even if it was being
//! sent at that moment.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use utipc_os::shm::{LINE, Memory, Segment};

use super::record::{Code, Commit, WORD, span};
use super::{Corrupt, Kind, Peek, Reader, Record, Writer};
use crate::arena::Arena;
use crate::layout::{Place, Side, slot};
use crate::schedule::point;

/// Maximum number of records of one call of [`Recovered::next_into`], including empty ones.
const VISITS_MAX: u32 = 4096;

/// The unread whole records of a lane, oldest first; see [`Arena::recover`](crate::Arena::recover).
///
/// Once the lane is marked gone each record is claimed, so that a writer that is still alive finds out which of its
/// records were not. Before that, [`Recovered::next`] reads as the reader did, but releases no space: the writer can
/// fill its rings, and then has to wait.
#[derive(Debug)]
pub struct Recovered<M: Memory = Segment> {
    reader: Reader<M>,
    /// Where recovery ends: a correct writer has written less.
    until: u64,
    is_gone: bool,
}

/// The result of [`Recovered::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A record; its body was copied.
    Record(Kind),
    /// None yet, but visits are used up: go on.
    Unfinished,
    /// Everything present now was read.
    Empty,
}

impl<M: Memory> Recovered<M> {
    pub(crate) fn new(mut reader: Reader<M>, is_gone: bool) -> Self {
        reader.holds_room = true;
        let until = reader.position() + reader.unread_max();
        Self { reader, until, is_gone }
    }

    /// The lane was marked gone: each record is claimed from now on.
    pub fn note_gone(&mut self) {
        self.is_gone = true;
    }

    /// Copies the body of the next record to `body`. Each record visited is subtracted from `visits`.
    ///
    /// # Errors
    /// From here on the lane is corrupt: records read before are valid, the rest is lost.
    pub fn next(&mut self, body: &mut Vec<u8>, visits: &mut u32) -> Result<Step, Corrupt> {
        while *visits > 0 {
            let record = match self.reader.peek_within(visits)? {
                None => break,
                Some(Peek::Empty | Peek::Ended) => return Ok(Step::Empty),
                Some(Peek::Record(record)) => record,
            };
            *visits = visits.saturating_sub(1);
            if self.reader.position() > self.until {
                return Err(self.reader.corrupt("it never ends"));
            }
            point("recover: before claiming a record");
            if !self.is_gone || self.reader.claim(&record) {
                body.clear();
                self.reader.append_payload(&record, body);
                self.reader.consume(record, 0);
                return Ok(Step::Record(record.kind()));
            }
            // Its writer has taken it back: the word is VOID now, which the next peek skips. Anything else is corrupt,
            // which the next peek finds, or a record again, which `visits` ends.
        }
        if self.reader.position() > self.until {
            return Err(self.reader.corrupt("it never ends"));
        }
        Ok(Step::Unfinished)
    }

    /// Copies the body of the next record to `body`; `None` after the last.
    ///
    /// # Errors
    /// As [`Recovered::next`], and too many empty records.
    pub fn next_into(&mut self, body: &mut Vec<u8>) -> Result<Option<Kind>, Corrupt> {
        match self.next(body, &mut VISITS_MAX.clone())? {
            Step::Record(kind) => Ok(Some(kind)),
            Step::Empty => Ok(None),
            Step::Unfinished => Err(self.reader.corrupt("too many empty records")),
        }
    }
}

impl<M: Memory> Reader<M> {
    /// A reader that continues at the last position of the previous one.
    pub(crate) fn resume(arena: &Arena<M>, writer: Side, number: u32, largest: u8) -> Result<Self, Corrupt> {
        let mut reader = Self::new(arena, writer, number)?;
        reader.largest = largest;
        let word = reader.memory.load64(reader.at + slot::EXACT, Acquire);
        if word != 0 {
            let place = Place::unpack(word).ok_or(reader.corrupt("the reader's position is none"))?;
            reader.enter(place)?;
            reader.position = place.lines * LINE as u64;
            reader.released = reader.position;
            reader.cost = reader.memory.load64(reader.at + slot::RELEASED_COST, Relaxed);
            reader.released_cost = reader.cost;
        }
        Ok(reader)
    }

    /// Claims a record that its writer may take back at the same time; returns whether it is ours.
    pub(super) fn claim(&self, record: &Record) -> bool {
        let commit = |code| Commit { code, len: record.len }.pack(record.position);
        self.memory.exchange64(record.body - WORD, commit(Code::Mark(record.kind)), commit(Code::Void))
    }
}

impl<M: Memory> Writer<M> {
    /// Takes back the records pushed since the last flush that neither the reader has read nor the daemon has claimed;
    /// returns their number.
    pub(super) fn take_back(&mut self) -> u32 {
        let (mut at, count) = std::mem::take(&mut self.unflushed);
        let Some(ring) = self.ring else { return 0 };
        // The acquire that makes the reader's last position below visible.
        self.memory.load32(self.at + slot::FLAGS, Acquire);
        point("take back: before walking");
        let place = Place::unpack(self.memory.load64(self.at + slot::EXACT, Relaxed));
        let read = place.map_or(0, |place| self.beyond_released(place));
        let mut seen = 0;
        let mut unsent = 0;
        // The daemon writes VOID here, and a broken peer may write anything: an unknown word ends the walk.
        while seen < count && at < self.position {
            let word = self.memory.load64(ring.at(at), Acquire);
            let Some(Commit { code, len }) = Commit::unpack(word, at) else { break };
            if code != Code::Pad {
                seen += 1;
            }
            if code != Code::Pad && at >= read {
                let void = Commit { code: Code::Void, len }.pack(at);
                let old = self.memory.swap64(ring.at(at), void);
                unsent += u32::from(old != void);
            }
            at += span(len as usize) as u64;
        }
        unsent
    }
}
