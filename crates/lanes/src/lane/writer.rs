//! The writing end of a lane.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use utipc_os::shm::{Fence, LINE, Memory, Segment};

use super::record::{Code, Commit, WORD, span, span_max};
use super::{Corrupt, Kind, LaneError, MARK_WORDS, RECORD_MAX};
use crate::alloc::{Rings, Taken};
use crate::arena::Outgoing;
use crate::bits::Bits;
use crate::doorbell::{Doorbell, Wakeup};
use crate::layout::{Layout, Side, flag, slot};

/// Prefetch distance in bytes: lines that the reader has left, for small records.
const AHEAD: u64 = 512;

/// Bytes that always stay free for a JUMP or END in a full ring.
pub(super) const RESERVE: u64 = LINE as u64;

/// The writing end of a lane; see [`Outgoing::writer`].
///
/// After it is dropped, its rings are not reused as long as the arena is mapped: a reader may still use them.
/// [`Writer::retire`] frees them once the lane is closed.
#[derive(Debug)]
pub struct Writer<M: Memory = Segment> {
    pub(super) memory: Arc<M>,
    pub(super) layout: Layout,
    pub(super) side: Side,
    pub(super) slot: u32,
    /// Offset of the slot's header.
    pub(super) at: usize,
    pub(super) rings: Rings,
    pub(super) ready: Bits<M>,
    pub(super) bell: Doorbell<M>,
    pub(super) ring: Option<Own>,
    /// Rings that the reader may still use, oldest first.
    pub(super) older: Vec<Taken>,
    /// Bytes since the lane began, as all positions.
    pub(super) position: u64,
    /// Position up to which the reader has released space, as last seen.
    pub(super) released: u64,
    /// Position up to which the ring is free, as last seen.
    pub(super) limit: u64,
    pub(super) sent_cost: u64,
    pub(super) released_cost: u64,
    /// Position of the first record pushed since the last flush, and their number.
    pub(super) unflushed: (u64, u32),
    pub(super) owed: Wakeup,
    pub(super) telling: bool,
    pub(super) ended: bool,
}

/// The current ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) taken: Taken,
    pub(super) base: usize,
    pub(super) size: u64,
}

impl Own {
    #[inline(always)]
    pub(super) fn at(&self, position: u64) -> usize {
        self.base + (position & (self.size - 1)) as usize
    }
}

impl<M: Memory> Writer<M> {
    pub(crate) fn new(out: &Outgoing<M>, number: u32) -> Result<Self, Corrupt> {
        let (arena, side) = (&out.arena, out.me);
        let no_slot = Corrupt { writer: side, slot: number, what: "the slot does not exist" };
        Ok(Self {
            memory: arena.memory.clone(),
            layout: arena.layout,
            side,
            slot: number,
            at: arena.layout.slot(side, number).ok_or(no_slot)?,
            rings: out.rings.clone(),
            ready: Bits::new(arena.memory.clone(), arena.layout.ready(side), arena.slots()),
            bell: arena.doorbell(side.other()),
            ring: None,
            older: Vec::new(),
            position: 0,
            released: 0,
            limit: 0,
            sent_cost: 0,
            released_cost: 0,
            unflushed: (0, 0),
            owed: Wakeup::Quiet,
            telling: false,
            ended: false,
        })
    }

    /// Its slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Sends one message and notifies the reader. `cost` is added to [`Writer::outstanding_cost`].
    ///
    /// # Errors
    /// Nothing was sent, unless [`LaneError::Gone`] counts fewer unsent records than were pushed.
    #[inline]
    pub fn send(&mut self, header: &[u8], payload: &[&[u8]], cost: u32) -> Result<Wakeup, LaneError> {
        self.push(header, payload, cost)?;
        self.flush()
    }

    /// Sends one message without notifying the reader: a reader that does not poll may see it only after
    /// [`Writer::flush`].
    #[inline]
    pub fn push(&mut self, header: &[u8], payload: &[&[u8]], cost: u32) -> Result<(), LaneError> {
        self.check()?;
        let len = payload.iter().fold(header.len(), |sum, part| sum.saturating_add(part.len()));
        let ring = self.ring_for(len)?;
        let (at, end) = self.fit(ring, span(len) as u64)?;
        let body = ring.at(at) + WORD;
        self.memory.write(body, header);
        let mut next = body + header.len();
        for part in payload {
            self.memory.write(next, part);
            next += part.len();
        }
        self.commit(ring, at, end, Commit { code: Code::Mark(Kind::Data), len: len as u32 });
        self.sent_cost += u64::from(cost);
        let lines = (end - at).min(AHEAD);
        if end + AHEAD + lines <= self.limit {
            for line in (0..lines).step_by(LINE) {
                self.memory.prefetch_write(ring.at(end + AHEAD + line));
            }
        }
        Ok(())
    }

    /// Wakes the reader if it sleeps and records were pushed since the last flush.
    #[inline]
    pub fn flush(&mut self) -> Result<Wakeup, LaneError> {
        // Pairs with the reader's fence between arming and its last check: one of the two sees the other.
        self.memory.fence(Fence::Commit);
        let flags = self.memory.load32(self.at + slot::FLAGS, Relaxed);
        if flags & (flag::WANT | flag::GONE) == 0 {
            self.unflushed.1 = 0;
            return Ok(std::mem::take(&mut self.owed));
        }
        self.flush_slowly(flags)
    }

    /// Sends a marker with at most [`MARK_WORDS`] words (the rest is dropped), and notifies the reader. An END always
    /// finds room.
    pub fn mark(&mut self, kind: Kind, words: &[u64]) -> Result<Wakeup, LaneError> {
        self.check()?;
        let words = words.get(..MARK_WORDS).unwrap_or(words);
        let ring = match self.ring {
            Some(ring) => ring,
            None => self.first_ring(0)?,
        };
        let commit = Commit { code: Code::Mark(kind), len: words.len() as u32 * 8 };
        let (at, end) = match kind {
            Kind::End => (self.position, self.position + RESERVE),
            Kind::Data | Kind::Switch | Kind::Open => self.fit(ring, span(words.len() * 8) as u64)?,
        };
        self.put_words(ring, at, words);
        if kind == Kind::End {
            // The last free line: no commit word follows that would have to be cleared.
            self.memory.store64(ring.at(at), commit.pack(at), Release);
            self.pushed(at, end);
            self.ended = true;
        } else {
            self.commit(ring, at, end, commit);
        }
        self.flush()
    }

    /// Cost of the messages that the reader has not given back, as last seen: never less than it is. The reader reports
    /// late, by at most a cost of 63 or an eighth of the ring, while it has more to read.
    pub fn outstanding_cost(&self) -> u64 {
        self.sent_cost.saturating_sub(self.released_cost)
    }

    /// Whether a message of `len` bytes, header included, can be sent now.
    pub fn has_room(&mut self, len: usize) -> Result<bool, LaneError> {
        self.check()?;
        let Some(ring) = self.ring else { return Ok(true) };
        let fits = span(len) <= span_max(ring.size as usize);
        Ok(fits && self.fit(ring, span(len) as u64).is_ok())
    }

    /// Checks whether a message of `len` bytes, header included, can be sent now.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn check_room(&mut self, len: usize) -> Result<(), LaneError> {
        self.check()?;
        let ring = self.ring_for(len)?;
        self.fit(ring, span(len) as u64).map(drop)
    }

    /// Bytes that the reader has given back, as last seen.
    pub fn given_back(&self) -> u64 {
        self.released
    }

    /// The ring in use, if it takes a message of `len` bytes when it is empty.
    #[inline]
    fn ring_for(&mut self, len: usize) -> Result<Own, LaneError> {
        match self.ring {
            Some(ring) if span(len.min(RECORD_MAX)) <= span_max(ring.size as usize) && len <= RECORD_MAX => {
                Ok(ring)
            }
            _ => self.first_ring(len),
        }
    }

    /// The class of the ring in use; `None` before the first record.
    pub fn class(&self) -> Option<u8> {
        self.ring.map(|ring| ring.taken.class)
    }

    #[inline]
    pub(super) fn check(&self) -> Result<(), LaneError> {
        let flags = self.memory.load32(self.at + slot::FLAGS, Relaxed);
        if flags & !(flag::WANT | flag::TELL) == flag::OPEN && !self.ended {
            Ok(())
        } else {
            Err(self.refusal(flags))
        }
    }

    #[cold]
    fn refusal(&self, flags: u32) -> LaneError {
        match flags {
            _ if self.ended => LaneError::Ended,
            flags if flags & flag::GONE != 0 => LaneError::Gone { unsent: 0 },
            _ => LaneError::Frozen,
        }
    }

    pub(super) fn corrupt(&self, what: &'static str) -> Corrupt {
        Corrupt { writer: self.side, slot: self.slot, what }
    }

    /// Start and end of a record of `span` bytes.
    #[inline]
    fn fit(&mut self, ring: Own, span: u64) -> Result<(u64, u64), LaneError> {
        let rest = ring.size - (self.position & (ring.size - 1));
        let at = if span <= rest { self.position } else { self.position + rest };
        let end = at + span;
        if end + RESERVE > self.limit {
            self.refresh()?;
            if end + RESERVE > self.limit {
                return Err(LaneError::Full);
            }
        }
        Ok((at, end))
    }

    /// Commits the record at `at`, and the pad before it if there is one.
    #[inline]
    fn commit(&mut self, ring: Own, at: u64, end: u64, commit: Commit) {
        self.memory.store64(ring.at(end), 0, Relaxed);
        if at == self.position {
            self.memory.store64(ring.at(at), commit.pack(at), Release);
        } else {
            // The pad commits both.
            self.memory.store64(ring.at(at), commit.pack(at), Relaxed);
            let pad = Commit { code: Code::Pad, len: (at - self.position) as u32 - WORD as u32 };
            self.memory.store64(ring.at(self.position), pad.pack(self.position), Release);
        }
        self.pushed(self.position, end);
    }

    #[inline]
    pub(super) fn pushed(&mut self, at: u64, end: u64) {
        if self.unflushed.1 == 0 {
            self.unflushed.0 = at;
        }
        self.unflushed.1 += 1;
        self.position = end;
    }

    pub(super) fn put_words(&self, ring: Own, position: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.memory.write(ring.at(position) + WORD + index * 8, &word.to_le_bytes());
        }
    }
}
