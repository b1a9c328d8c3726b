//! A tap: copies the records of a lane without taking part in it. It stores nothing, so neither side notices it; in
//! return it loses records that are overwritten before it reads them.
//!
//! A record may be overwritten once its reader has released it and the writer has come round. While the tap walks from
//! record to record, it finds the place where the writer is. Data at most half a ring before that place was not
//! overwritten when the walk began: a writer fills at most half a ring beyond it ([`span_max`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;

use utipc_os::shm::{LINE, Memory, Segment};

use super::Kind;
use super::record::{Code, Commit, WORD, span, span_max};
use crate::arena::Arena;
use crate::layout::{LARGEST_CLASS, Layout, Place, Side, slot};

/// Maximum number of bytes of records that one scan copies.
const LOOK_BYTES: u64 = 4 << 20;
/// Maximum number of records and jumps of one scan: more than the largest ring holds.
const LOOK_RECORDS: usize = 20_000;

/// Where a tap is in a lane.
#[derive(Clone, Copy, Debug)]
struct At {
    base: usize,
    size: u64,
    position: u64,
}

/// The result of one step of a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tapped<'a> {
    /// A message.
    Message(&'a [u8]),
    /// Bytes of records that were overwritten before they could be copied.
    Missed(u64),
}

/// A tap on one lane.
#[derive(Debug)]
pub struct Tap<M: Memory = Segment> {
    memory: Arc<M>,
    layout: Layout,
    side: Side,
    number: u32,
    largest: u8,
    /// Offset of its slot.
    slot: usize,
    at: Option<At>,
    /// The next scan reports nothing.
    is_quiet: bool,
    /// Copies of the records of one scan, and where each begins: position in the lane, offset and length of the copy.
    bytes: Vec<u8>,
    found: Vec<(u64, usize, usize)>,
}

impl<M: Memory> Tap<M> {
    /// A tap on a lane; `None` if the slot does not exist. It begins with the messages after its first scan if
    /// `from_now`, otherwise with the first.
    pub(crate) fn new(arena: &Arena<M>, writer: Side, number: u32, from_now: bool) -> Option<Self> {
        let (memory, layout) = (arena.memory.clone(), arena.layout);
        let slot = layout.slot(writer, number)?;
        let mut tap = Self {
            memory,
            layout,
            side: writer,
            number,
            largest: LARGEST_CLASS,
            slot,
            at: None,
            is_quiet: from_now,
            bytes: Vec::new(),
            found: Vec::new(),
        };
        if from_now {
            tap.at = tap.reader_place();
        }
        Some(tap)
    }

    /// Reports the messages since the last scan; returns the number of records that it has visited. The writer was
    /// granted rings up to class `largest`.
    pub fn scan(&mut self, largest: u8, report: &mut dyn FnMut(Tapped<'_>)) -> usize {
        self.largest = largest;
        let Some(start) = self.at.or_else(|| self.enter(self.word(self.slot + slot::START))) else {
            self.is_quiet = false;
            return 0;
        };
        self.bytes.clear();
        self.found.clear();
        let mut at = start;
        // Records copied by this scan lie in this ring from here on: older rings are overwritten only when the reader
        // has left them.
        let mut ring_from = 0;
        let mut is_whole = false;
        let mut visited = 0;
        while visited < LOOK_RECORDS {
            visited += 1;
            let offset = at.base + (at.position & (at.size - 1)) as usize;
            let word = self.word(offset);
            if word == 0 {
                // A ring that the reader has left may have lost its memory.
                is_whole = self.reader_position().is_none_or(|reader| reader <= at.position);
                break;
            }
            let Some(Commit { code, len }) = Commit::unpack(word, at.position) else { break };
            let bytes = span(len as usize) as u64;
            if bytes > at.size - (at.position & (at.size - 1)) {
                break;
            }
            match code {
                Code::Jump => {
                    let next = self.enter(self.word(offset + WORD));
                    let Some(next) = next.filter(|next| next.position == at.position + LINE as u64) else {
                        break;
                    };
                    at = next;
                    ring_from = self.found.len();
                    continue;
                }
                Code::Mark(Kind::Data) => {
                    let from = self.bytes.len();
                    self.memory.append(offset + WORD, len as usize, &mut self.bytes);
                    self.found.push((at.position, from, len as usize));
                }
                // The end stays in the lane.
                Code::Mark(Kind::End) => {
                    is_whole = true;
                    break;
                }
                Code::Mark(_) | Code::Pad | Code::Void => {}
            }
            at.position += bytes;
            if at.position.saturating_sub(start.position) > LOOK_BYTES {
                break;
            }
        }
        fence(SeqCst);
        if std::mem::take(&mut self.is_quiet) {
            self.finish(start, at, is_whole, ring_from, &mut |_| {});
        } else {
            self.finish(start, at, is_whole, ring_from, report);
        }
        visited
    }

    /// Reports what was copied and is valid, and goes to where the next scan begins.
    fn finish(
        &mut self,
        start: At,
        end: At,
        is_whole: bool,
        ring_from: usize,
        report: &mut dyn FnMut(Tapped<'_>),
    ) {
        let next = if is_whole { Some(end) } else { self.reader_place() };
        let frontier = next.map_or(end.position, |next| next.position.max(end.position));
        // Nothing before this can be trusted.
        let oldest = (frontier + span_max(end.size as usize) as u64 + LINE as u64).saturating_sub(end.size);
        let released = self.released_position().unwrap_or(0);
        let mut missed = 0;
        for (index, (position, from, len)) in self.found.iter().enumerate() {
            let is_unreleased = *position >= released;
            if is_unreleased || is_whole && (index < ring_from || *position >= oldest) {
                report(Tapped::Message(&self.bytes[*from..*from + *len]));
            } else {
                missed += span(*len) as u64;
            }
        }
        if !is_whole {
            let to = next.map_or(start.position, |next| next.position);
            missed += to.saturating_sub(end.position);
        }
        if missed > 0 {
            report(Tapped::Missed(missed));
        }
        self.at = match next {
            Some(next) if next.position >= end.position => Some(next),
            _ => Some(end),
        };
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load64(at, Acquire)
    }

    fn enter(&self, word: u64) -> Option<At> {
        let place = Place::unpack(word)?;
        let place = Some(place).filter(|place| place.class <= self.largest)?;
        let (base, size) = self.layout.ring(self.side, self.number, place)?;
        Some(At { base, size: size as u64, position: place.lines * LINE as u64 })
    }

    /// Where the reader is; nowhere before its first record.
    fn reader_place(&self) -> Option<At> {
        self.enter(self.word(self.slot + slot::EXACT))
    }

    fn reader_position(&self) -> Option<u64> {
        self.reader_place().map(|at| at.position)
    }

    fn released_position(&self) -> Option<u64> {
        self.enter(self.word(self.slot + slot::RELEASED)).map(|at| at.position)
    }
}
