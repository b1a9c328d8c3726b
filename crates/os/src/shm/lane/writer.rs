//! The writing end.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::record::{Code, Commit, WORD, span, span_max};
use super::{Corrupt, Kind, LaneError, MARK_WORDS, OLDER_MAX, RECORD_MAX};
use crate::shm::alloc::{Rings, Taken};
use crate::shm::arena::Outgoing;
use crate::shm::bits::Bits;
use crate::shm::doorbell::{Doorbell, Ring};
use crate::shm::layout::{LINE, LINES, Layout, Place, Side, flag, slot};
use crate::shm::memory::{Fence, Memory};
use crate::shm::segment::Segment;

/// Room that always stays free: for the JUMP or END that may have to follow when the ring is full.
const RESERVE: u64 = LINE as u64;

/// The writing end of a lane; see [`Outgoing::writer`].
///
/// Dropping it keeps its rings from being used again as long as the arena is mapped: a reader may still be at them.
/// [`Writer::retire`] gives them back once the daemon has said that the lane is closed.
#[derive(Debug)]
pub struct Writer<M: Memory = Segment> {
    memory: Arc<M>,
    layout: Layout,
    side: Side,
    slot: u32,
    /// The slot's header.
    at: usize,
    rings: Rings,
    ready: Bits<M>,
    bell: Doorbell<M>,
    ring: Option<Own>,
    /// Rings that the reader may still be in, oldest first.
    older: Vec<Taken>,
    /// Bytes since the lane began; all positions are.
    position: u64,
    /// What the reader gave back, as last seen.
    released: u64,
    /// Up to where the ring is free, as last seen.
    limit: u64,
    sent_cost: u64,
    released_cost: u64,
    /// Where the first record lies that was pushed since the last flush, and how many were.
    unflushed: (u64, u32),
    owed: Ring,
    ended: bool,
}

/// The ring that is written now.
#[derive(Clone, Copy, Debug)]
struct Own {
    taken: Taken,
    base: usize,
    size: u64,
}

impl Own {
    #[inline(always)]
    fn at(&self, position: u64) -> usize {
        self.base + (position & (self.size - 1)) as usize
    }
}

impl<M: Memory> Writer<M> {
    pub(in crate::shm) fn new(out: &Outgoing<M>, number: u32) -> Result<Self, Corrupt> {
        let (arena, side) = (&out.arena, out.me);
        let no_slot = Corrupt { writer: side, slot: number, what: "there is no such slot" };
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
            owed: Ring::Quiet,
            ended: false,
        })
    }

    /// Which lane of its arena and direction.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Sends one message and sees to it that the reader notices. `cost` is added to [`Writer::outstanding_cost`].
    ///
    /// # Errors
    /// Nothing was sent, with one exception that [`LaneError::Gone`] tells by its count.
    #[inline]
    pub fn send(&mut self, header: &[u8], payload: &[&[u8]], cost: u32) -> Result<Ring, LaneError> {
        self.push(header, payload, cost)?;
        self.flush()
    }

    /// Sends one message to a reader that polls; one that sleeps may not notice before [`Writer::flush`].
    #[inline]
    pub fn push(&mut self, header: &[u8], payload: &[&[u8]], cost: u32) -> Result<(), LaneError> {
        self.check()?;
        let len = payload.iter().fold(header.len(), |sum, part| sum.saturating_add(part.len()));
        let ring = match self.ring {
            Some(ring) if span(len.min(RECORD_MAX)) <= span_max(ring.size as usize) && len <= RECORD_MAX => {
                ring
            }
            _ => self.first_ring(len)?,
        };
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
        Ok(())
    }

    /// Sends a marker with at most [`MARK_WORDS`] words (the rest is cut off), and sees to it that the reader notices.
    /// An END always finds room.
    pub fn mark(&mut self, kind: Kind, words: &[u64]) -> Result<Ring, LaneError> {
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
            // The last line that is free: there is no next commit word to clear, and no need for one.
            self.memory.store64(ring.at(at), commit.pack(at), Release);
            self.pushed(at, end);
            self.ended = true;
        } else {
            self.commit(ring, at, end, commit);
        }
        self.flush()
    }

    /// Wakes a reader that sleeps, if records were pushed since the last time.
    #[inline]
    pub fn flush(&mut self) -> Result<Ring, LaneError> {
        // Against the reader's fence between asking to be told and its last look: one of the two sees the other.
        self.memory.fence(Fence::Commit);
        let flags = self.memory.load32(self.at + slot::FLAGS, Relaxed);
        if flags & (flag::WANT | flag::GONE) == 0 {
            self.unflushed.1 = 0;
            return Ok(std::mem::take(&mut self.owed));
        }
        self.flush_slowly(flags)
    }

    #[cold]
    fn flush_slowly(&mut self, flags: u32) -> Result<Ring, LaneError> {
        if flags & flag::GONE != 0 {
            return match self.take_back() {
                0 => Ok(std::mem::take(&mut self.owed)),
                unsent => Err(LaneError::Gone { unsent }),
            };
        }
        self.unflushed.1 = 0;
        if self.memory.and32(self.at + slot::FLAGS, !flag::WANT) & flag::WANT != 0 {
            self.ready.add(self.slot);
            self.owed = self.owed.max(self.bell.ring());
        }
        Ok(std::mem::take(&mut self.owed))
    }

    /// Takes back what was pushed since the last flush, as far as the daemon has not taken it: how many records.
    fn take_back(&mut self) -> u32 {
        let (mut at, count) = std::mem::take(&mut self.unflushed);
        let Some(ring) = self.ring else { return 0 };
        let mut seen = 0;
        let mut unsent = 0;
        // The daemon writes VOID here, and so may anybody else on this arena anything: an unknown word ends the walk.
        while seen < count && at < self.position {
            let word = self.memory.load64(ring.at(at), Acquire);
            let Some(Commit { code, len }) = Commit::unpack(word, at) else { break };
            if code != Code::Pad {
                seen += 1;
                let void = Commit { code: Code::Void, len }.pack(at);
                let old = self.memory.swap64(ring.at(at), void);
                unsent += u32::from(old != void);
            }
            at += span(len as usize) as u64;
        }
        unsent
    }

    /// Moves the lane to a ring of `class` (0 smallest to 3), for which the daemon has granted memory.
    ///
    /// # Errors
    /// [`LaneError::NoRing`]: none free, or the reader is still [four](OLDER_MAX) rings behind.
    pub fn grow(&mut self, class: u8) -> Result<(), LaneError> {
        self.check()?;
        self.refresh()?;
        if self.older.len() >= OLDER_MAX {
            return Err(LaneError::NoRing);
        }
        if self.unflushed.1 > 0 {
            self.owed = self.flush()?;
        }
        let taken = self.rings.take(class).ok_or(LaneError::NoRing)?;
        let from = self.position + if self.ring.is_some() { RESERVE } else { 0 };
        let place = Place::new(taken.class, taken.unit, from);
        let Some((base, size)) = self.layout.ring(self.side, place) else {
            self.rings.free(taken);
            return Err(LaneError::NoRing);
        };
        let ring = Own { taken, base, size: size as u64 };
        self.memory.store64(ring.at(from), 0, Relaxed);
        match self.ring.replace(ring) {
            None => self.memory.store64(self.at + slot::START, place.pack(), Release),
            Some(old) => {
                self.put_words(old, self.position, &[place.pack()]);
                let commit = Commit { code: Code::Jump, len: 8 }.pack(self.position);
                self.memory.store64(old.at(self.position), commit, Release);
                self.older.push(old.taken);
            }
        }
        self.position = from;
        self.limit = from + ring.size;
        Ok(())
    }

    /// Moves a lane that is empty from a larger ring to one of the smallest class, and gives old rings back to the
    /// system that the reader has left. `None`: nothing to do (yet).
    pub fn shrink_if_idle(&mut self) -> Result<Option<Ring>, LaneError> {
        self.refresh()?;
        match self.ring {
            Some(ring) if ring.taken.class > 0 && self.released == self.position && !self.ended => {
                self.grow(0)?;
                // So that the reader leaves the old ring even if no message follows.
                self.flush().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What the messages cost that the reader has not given back, as last seen (at most what it is): cost sent less
    /// cost consumed. The reader reports late, by at most 63 or an eighth of the ring while it has more to read.
    pub fn outstanding_cost(&self) -> u64 {
        self.sent_cost.saturating_sub(self.released_cost)
    }

    /// Looks at what the reader has given back.
    pub fn refresh(&mut self) -> Result<(), Corrupt> {
        let word = self.memory.load64(self.at + slot::RELEASED, Acquire);
        let cost = self.memory.load64(self.at + slot::RELEASED_COST, Relaxed);
        let (Some(ring), true) = (self.ring, word != 0) else { return Ok(()) };
        let place = Place::unpack(word).ok_or(self.corrupt("the reader's position is none"))?;
        let seen = self.released / LINE as u64;
        let released = self.released + (place.lines.wrapping_sub(seen) & (LINES - 1)) * LINE as u64;
        if released > self.position || cost < self.released_cost || cost > self.sent_cost {
            return Err(self.corrupt("the reader gave back what was not sent"));
        }
        let here = Taken { class: place.class, unit: place.unit };
        if here == ring.taken {
            self.free_older(self.older.len());
            self.limit = released + ring.size;
        } else {
            let left = self.older.iter().position(|old| *old == here);
            self.free_older(left.ok_or(self.corrupt("the reader is in no ring of this lane"))?);
        }
        self.released = released;
        self.released_cost = cost;
        Ok(())
    }

    fn free_older(&mut self, count: usize) {
        for ring in self.older.drain(..count) {
            give_back(&*self.memory, self.layout, self.side, &self.rings, ring);
        }
    }

    /// Asks to be told (by the bitmap of [`Outgoing::take_room`] and this side's doorbell) when there is room again,
    /// and looks once more: try again after this, and sleep only if that fails too.
    pub fn want_room(&mut self) -> Result<(), LaneError> {
        self.memory.store64(self.at + slot::WAITING, 1, Relaxed);
        // Against the reader's fence between giving back and looking at `waiting`.
        self.memory.fence(Fence::WantRoom);
        self.check()?;
        Ok(self.refresh()?)
    }

    /// Takes back [`Writer::want_room`].
    pub fn ignore_room(&mut self) {
        self.memory.store64(self.at + slot::WAITING, 0, Relaxed);
    }

    /// Whether a message of `len` bytes, header included, can be sent now.
    pub fn has_room(&mut self, len: usize) -> Result<bool, LaneError> {
        self.check()?;
        let Some(ring) = self.ring else { return Ok(true) };
        let fits = span(len) <= span_max(ring.size as usize);
        Ok(fits && self.fit(ring, span(len) as u64).is_ok())
    }

    /// The class of the ring in use; `None` before the first record.
    pub fn class(&self) -> Option<u8> {
        self.ring.map(|ring| ring.taken.class)
    }

    /// Gives all rings back to be used again, and their memory to the system. Only once the lane is closed: neither
    /// the reader nor the daemon looks at it any more.
    pub fn retire(mut self) {
        self.free_older(self.older.len());
        if let Some(ring) = self.ring.take() {
            give_back(&*self.memory, self.layout, self.side, &self.rings, ring.taken);
        }
    }

    #[inline]
    fn check(&self) -> Result<(), LaneError> {
        let flags = self.memory.load32(self.at + slot::FLAGS, Relaxed);
        if flags & !flag::WANT == flag::OPEN && !self.ended { Ok(()) } else { Err(self.refusal(flags)) }
    }

    #[cold]
    fn refusal(&self, flags: u32) -> LaneError {
        match flags {
            _ if self.ended => LaneError::Ended,
            flags if flags & flag::GONE != 0 => LaneError::Gone { unsent: 0 },
            _ => LaneError::Frozen,
        }
    }

    fn corrupt(&self, what: &'static str) -> Corrupt {
        Corrupt { writer: self.side, slot: self.slot, what }
    }

    /// The ring for a message that the present one does not take.
    #[cold]
    fn first_ring(&mut self, len: usize) -> Result<Own, LaneError> {
        let shifts = self.layout.shape.ring_shifts;
        let takes = |shift: &u8| span(len) <= span_max(1 << shift);
        let class = if len > RECORD_MAX { None } else { shifts.iter().position(takes) };
        let class = class.ok_or(LaneError::TooLarge)? as u8;
        if class > 0 || self.ring.is_some() {
            return Err(LaneError::NeedsRing(class));
        }
        self.grow(0)?;
        self.ring.ok_or(LaneError::NoRing)
    }

    /// Where a record of `span` bytes goes and where it ends.
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

    /// Hands over the record at `at`, and the pad before it if there is one.
    #[inline]
    fn commit(&mut self, ring: Own, at: u64, end: u64, commit: Commit) {
        self.memory.store64(ring.at(end), 0, Relaxed);
        if at == self.position {
            self.memory.store64(ring.at(at), commit.pack(at), Release);
        } else {
            // The pad hands over both.
            self.memory.store64(ring.at(at), commit.pack(at), Relaxed);
            let pad = Commit { code: Code::Pad, len: (at - self.position) as u32 - WORD as u32 };
            self.memory.store64(ring.at(self.position), pad.pack(self.position), Release);
        }
        self.pushed(self.position, end);
    }

    #[inline]
    fn pushed(&mut self, at: u64, end: u64) {
        if self.unflushed.1 == 0 {
            self.unflushed.0 = at;
        }
        self.unflushed.1 += 1;
        self.position = end;
    }

    fn put_words(&self, ring: Own, position: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.memory.write(ring.at(position) + WORD + index * 8, &word.to_le_bytes());
        }
    }
}

fn give_back<M: Memory>(memory: &M, layout: Layout, side: Side, rings: &Rings, ring: Taken) {
    if let Some((start, size)) = layout.ring(side, Place::new(ring.class, ring.unit, 0)) {
        memory.release(start..start + size);
    }
    rings.free(ring);
}
