//! What a reader left behind when it died or stopped.

use super::{Corrupt, Kind, Peek, Reader};
use crate::shm::memory::Memory;
use crate::shm::segment::Segment;

/// Most bytes that recovery reads from one lane: more than all rings that an honest writer can have.
const BYTES_MAX: usize = 16 << 20;

/// The unread whole records of a lane, oldest first; see [`Arena::recover`](super::super::Arena::recover).
///
/// Each record is claimed: a writer that is still alive knows afterwards which of its records were not.
#[derive(Debug)]
pub struct Recovered<M: Memory = Segment> {
    reader: Reader<M>,
    left: usize,
}

impl<M: Memory> Recovered<M> {
    pub(in crate::shm) fn new(reader: Reader<M>) -> Self {
        Self { reader, left: BYTES_MAX }
    }

    /// The next record, its body in `body`; `None` after the last.
    ///
    /// # Errors
    /// From here on the lane holds nonsense: what was read before stands, the rest is lost.
    pub fn next_into(&mut self, body: &mut Vec<u8>) -> Result<Option<Kind>, Corrupt> {
        while let Peek::Record(record) = self.reader.peek()? {
            let claimed = self.reader.claim(&record);
            self.left = self.left.saturating_sub(record.len().max(1));
            if self.left == 0 {
                return Err(self.reader.corrupt("it never ends"));
            }
            if claimed {
                body.clear();
                body.resize(record.len(), 0);
                self.reader.copy_payload(&record, 0, body);
                self.reader.consume(record, 0);
                return Ok(Some(record.kind()));
            }
            // Taken back by its writer: the word is VOID now, which the next look skips. Anything else is nonsense
            // that the next look finds, or a record again, which the bound above ends.
        }
        Ok(None)
    }
}
