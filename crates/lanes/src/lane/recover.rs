//! Recovery of the records that a reader left unread when it died or stopped. Each has one owner, also if it was being
//! sent at that moment.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use utipc_os::shm::{LINE, Memory, Segment};

use super::record::{Code, Commit, WORD, span};
use super::{Corrupt, Kind, OLDER_MAX, Peek, Reader, Record, Writer};
use crate::arena::Arena;
use crate::layout::{Place, Side, slot};
use crate::schedule::point;

/// Most bytes of rings that recovery reads from one lane: more than a correct writer can have, which are the one that
/// it writes and [`OLDER_MAX`], of 1 MiB at most. So there are at most 98,304 records, each of which costs memory and
/// time even if it is empty.
const BYTES_MAX: usize = (OLDER_MAX + 2) << 20;

/// The unread whole records of a lane, oldest first; see [`Arena::recover`](crate::Arena::recover).
///
/// Each record is claimed, so that a writer that is still alive finds out which of its records were not.
#[derive(Debug)]
pub struct Recovered<M: Memory = Segment> {
    reader: Reader<M>,
    left: usize,
}

impl<M: Memory> Recovered<M> {
    pub(crate) fn new(reader: Reader<M>) -> Self {
        Self { reader, left: BYTES_MAX }
    }

    /// Copies the body of the next record to `body`; `None` after the last.
    ///
    /// # Errors
    /// From here on the lane is corrupt: records read before are valid, the rest is lost.
    pub fn next_into(&mut self, body: &mut Vec<u8>) -> Result<Option<Kind>, Corrupt> {
        while let Peek::Record(record) = self.reader.peek()? {
            point("recover: before claiming a record");
            let claimed = self.reader.claim(&record);
            self.left = self.left.saturating_sub(span(record.len()));
            if self.left == 0 {
                return Err(self.reader.corrupt("it never ends"));
            }
            if claimed {
                body.clear();
                self.reader.append_payload(&record, body);
                self.reader.consume(record, 0);
                return Ok(Some(record.kind()));
            }
            // Its writer has taken it back: the word is VOID now, which the next peek skips. Anything else is corrupt,
            // which the next peek finds, or a record again, which the bound above ends.
        }
        Ok(None)
    }
}

impl<M: Memory> Reader<M> {
    /// A reader that continues at the last position of the previous one.
    pub(crate) fn resume(arena: &Arena<M>, writer: Side, number: u32) -> Result<Self, Corrupt> {
        let mut reader = Self::new(arena, writer, number)?;
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
