//! How writer and reader notify each other, and when they need not. Each fence here pairs with one on the other side.

use std::sync::atomic::Ordering::{Relaxed, Release};

use utipc_os::shm::{Fence, Memory};

use super::reader::{Reader, place};
use super::writer::Writer;
use super::{Corrupt, LaneError, Peek};
use crate::doorbell::Wakeup;
use crate::layout::{flag, slot, waiting};
use crate::schedule::point;

impl<M: Memory> Writer<M> {
    #[cold]
    pub(super) fn flush_slowly(&mut self, flags: u32) -> Result<Wakeup, LaneError> {
        if flags & flag::GONE != 0 {
            return match self.take_back() {
                0 => Ok(std::mem::take(&mut self.owed)),
                unsent => Err(LaneError::Gone { unsent }),
            };
        }
        self.unflushed.1 = 0;
        point("flush: before taking the request");
        let asked = self.memory.and32(self.at + slot::FLAGS, !(flag::WANT | flag::TELL));
        point("flush: before reporting the lane");
        if asked & flag::WANT != 0 {
            self.ready.add(self.slot);
            let tell = if asked & flag::TELL != 0 { Wakeup::TellDaemon } else { Wakeup::Quiet };
            self.owed = self.owed.max(self.bell.ring()).max(tell);
        }
        Ok(std::mem::take(&mut self.owed))
    }

    /// Asks to be notified of room, by [`Outgoing::take_room`](crate::Outgoing::take_room) and this side's doorbell,
    /// and checks once more: try again after this, and sleep only if that fails too. Announce the sleep
    /// ([`Doorbell::park`](crate::Doorbell::park)) first: otherwise room that becomes free in between wakes no thread.
    pub fn want_room(&mut self) -> Result<(), LaneError> {
        self.want_outstanding(u64::MAX)
    }

    /// [`Writer::want_room`] for a writer that is notified once at most a cost of `most` is outstanding. A reader that
    /// has read everything notifies in any case.
    pub fn want_outstanding(&mut self, most: u64) -> Result<(), LaneError> {
        let cost = self.sent_cost.saturating_sub(most) << waiting::COST_SHIFT;
        let asked = cost | waiting::ROOM | if self.telling { waiting::TELL } else { 0 };
        self.memory.store64(self.at + slot::WAITING, asked, Relaxed);
        // Pairs with the reader's fence between giving back and loading `waiting`.
        self.memory.fence(Fence::WantRoom);
        point("want room: before the last check");
        self.check()?;
        Ok(self.refresh()?)
    }

    /// Sets whether [`Writer::want_room`] also notifies the daemon: for a writer that waits by its
    /// descriptor.
    pub fn tell_daemon(&mut self, on: bool) {
        self.telling = on;
    }

    /// Cancels [`Writer::want_room`].
    pub fn ignore_room(&mut self) {
        self.memory.store64(self.at + slot::WAITING, 0, Relaxed);
    }
}

impl<M: Memory> Reader<M> {
    /// Releases the space of consumed records, and wakes the writer if that is enough for it.
    pub fn release(&mut self) {
        let Some(ring) = self.ring else { return };
        if self.released == self.position && self.released_cost == self.cost || self.holds_room {
            return;
        }
        self.released = self.position;
        self.released_cost = self.cost;
        self.memory.store64(self.at + slot::RELEASED_COST, self.cost, Relaxed);
        self.memory.store64(self.at + slot::RELEASED, place(ring, self.position), Release);
        // Pairs with the writer's fence between setting `waiting` and its last check.
        self.memory.fence(Fence::Release);
        point("release: before looking for a waiting writer");
        let asked = self.memory.load64(self.at + slot::WAITING, Relaxed);
        if asked == 0 || self.released_cost < asked >> waiting::COST_SHIFT {
            return;
        }
        let asked = self.memory.swap64(self.at + slot::WAITING, 0);
        point("release: before reporting room");
        if asked != 0 {
            self.room.add(self.slot);
            let tell = if asked & waiting::TELL != 0 { Wakeup::TellDaemon } else { Wakeup::Quiet };
            self.owed = self.owed.max(self.bell.ring()).max(tell);
        }
    }

    /// Takes the wake-up that the writer is owed: call it after a round of reading.
    #[must_use = "the daemon may need a notice"]
    pub fn take_wakeup(&mut self) -> Wakeup {
        std::mem::take(&mut self.owed)
    }

    /// Asks to be notified of the next record, by [`Incoming::take_ready`](crate::Incoming::take_ready) and this side's
    /// doorbell, and checks once more. Returns true, without arming, if something is already there.
    ///
    /// An armed lane need not be checked, or armed again, before it is reported.
    pub fn arm(&mut self) -> Result<bool, Corrupt> {
        let tell = if self.telling { flag::TELL } else { 0 };
        self.memory.or32(self.at + slot::FLAGS, flag::WANT | tell);
        // Pairs with the writer's fence between committing and loading the flags.
        self.memory.fence(Fence::Arm);
        point("arm: before the last check");
        if self.peek()? == Peek::Empty {
            return Ok(false);
        }
        self.disarm();
        Ok(true)
    }

    /// Cancels [`Reader::arm`]; returns false if the writer had answered it already.
    pub fn disarm(&mut self) -> bool {
        self.memory.and32(self.at + slot::FLAGS, !(flag::WANT | flag::TELL)) & flag::WANT != 0
    }

    /// Sets whether [`Reader::arm`] also notifies the daemon: for a reader that waits by its descriptor.
    pub fn tell_daemon(&mut self, on: bool) {
        self.telling = on;
    }
}
