//! Changing the ring of a lane, and freeing old rings.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use utipc_os::shm::{LINE, Memory};

use super::record::{Code, Commit, span, span_max};
use super::writer::{Own, RESERVE, Writer};
use super::{Corrupt, LaneError, OLDER_MAX, RECORD_MAX};
use crate::alloc::{Rings, Taken};
use crate::doorbell::Wakeup;
use crate::layout::{LINES, Layout, Place, Side, slot};

impl<M: Memory> Writer<M> {
    /// Moves the lane to a ring of `class` (0 smallest to 3), for which the daemon has granted memory.
    ///
    /// # Errors
    /// [`LaneError::NoRing`]: no ring is free, or the reader is still four rings behind, or in the slot's first ring.
    pub fn grow(&mut self, class: u8) -> Result<(), LaneError> {
        self.check()?;
        self.refresh()?;
        let has_first =
            || self.ring.iter().map(|ring| &ring.taken).chain(&self.older).any(|ring| ring.class == 0);
        if self.older.len() >= OLDER_MAX || class == 0 && has_first() {
            return Err(LaneError::NoRing);
        }
        if self.unflushed.1 > 0 {
            self.owed = self.flush()?;
        }
        let taken = self.rings.take(class, self.slot).ok_or(LaneError::NoRing)?;
        let from = self.position + if self.ring.is_some() { RESERVE } else { 0 };
        let place = Place::new(taken.class, taken.unit, from);
        let Some((base, size)) = self.layout.ring(self.side, self.slot, place) else {
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

    /// Moves an empty lane from a larger ring to the smallest class, and returns old rings that the reader has left to
    /// the system. `None`: nothing to do now.
    pub fn shrink_if_idle(&mut self) -> Result<Option<Wakeup>, LaneError> {
        self.refresh()?;
        match self.ring {
            Some(ring) if ring.taken.class > 0 && self.released == self.position && !self.ended => {
                self.grow(0)?;
                // The reader leaves the old ring even if no message follows.
                self.flush().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The position in the lane, and whether it has more memory than one ring of the smallest class.
    pub fn extent(&self) -> (u64, bool) {
        let large = self.ring.is_some_and(|ring| ring.taken.class > 0) || !self.older.is_empty();
        (self.position, large)
    }

    /// Updates the space that the reader has released.
    pub fn refresh(&mut self) -> Result<(), Corrupt> {
        let word = self.memory.load64(self.at + slot::RELEASED, Acquire);
        let cost = self.memory.load64(self.at + slot::RELEASED_COST, Relaxed);
        let (Some(ring), true) = (self.ring, word != 0) else { return Ok(()) };
        let place = Place::unpack(word).ok_or(self.corrupt("the reader's position is none"))?;
        let released = self.beyond_released(place);
        if released > self.position || cost < self.released_cost || cost > self.sent_cost {
            return Err(self.corrupt("the reader released more than was sent"));
        }
        let here = Taken { class: place.class, unit: place.unit };
        if here == ring.taken {
            self.free_older(self.older.len());
            self.limit = released + ring.size;
        } else {
            let left = self.older.iter().position(|old| *old == here);
            self.free_older(left.ok_or(self.corrupt("the reader's ring does not belong to this lane"))?);
        }
        self.released = released;
        self.released_cost = cost;
        Ok(())
    }

    /// The position of `place`, which is at or beyond what the reader gave back before.
    pub(super) fn beyond_released(&self, place: Place) -> u64 {
        let seen = self.released / LINE as u64;
        self.released + (place.lines.wrapping_sub(seen) & (LINES - 1)) * LINE as u64
    }

    pub(super) fn free_older(&mut self, count: usize) {
        for ring in self.older.drain(..count) {
            give_back(&*self.memory, self.layout, (self.side, self.slot), &self.rings, ring);
        }
    }

    /// Frees all rings, and gives their memory to the system. Call it when neither the reader nor the daemon uses the
    /// lane, and before the daemon knows that the writer no longer does: a later lane in the slot begins in the same
    /// ring.
    pub fn retire(mut self) {
        self.free_older(self.older.len());
        if let Some(ring) = self.ring.take() {
            give_back(&*self.memory, self.layout, (self.side, self.slot), &self.rings, ring.taken);
        }
    }

    /// Takes a ring of the smallest class, if the lane has none and a message of `len` bytes fits it. Otherwise the
    /// error has the class that the message needs.
    #[cold]
    pub(super) fn first_ring(&mut self, len: usize) -> Result<Own, LaneError> {
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
}

fn give_back<M: Memory>(memory: &M, layout: Layout, (side, slot): (Side, u32), rings: &Rings, ring: Taken) {
    if let Some((start, size)) = layout.ring(side, slot, Place::new(ring.class, ring.unit, 0)) {
        memory.release(start..start + size);
    }
    rings.free(ring);
}
