//! The memory that two processes share: their doorbells and every lane between them.
//!
//! The daemon creates it, hands the descriptor to both sides and keeps it mapped: it assigns slots, and when a side
//! dies it reads the unread records.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::io::Errno;
use utipc_os::OsError;
use utipc_os::shm::{Access, LINE, Memory, Segment};

use super::alloc::Rings;
use super::bits::Bits;
use super::doorbell::{Doorbell, Wakeup};
use super::lane::{Corrupt, Reader, Recovered, Tap, Writer};
use super::layout::{Layout, MAGIC, Place, Shape, Side, VERSION, flag, header, slot};
use crate::schedule::point;

/// Largest segment that is accepted as an arena, bytes.
const MAX_SIZE: usize = 1 << 33;

/// An arena. Clones are the same arena.
#[derive(Debug)]
pub struct Arena<M = Segment> {
    pub(super) memory: Arc<M>,
    pub(super) layout: Layout,
}

impl<M> Clone for Arena<M> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), layout: self.layout }
    }
}

fn invalid(remedy: &'static str) -> OsError {
    OsError::new("use", "shared memory as an arena", Errno::INVAL).with_remedy(remedy)
}

impl Arena {
    /// Creates an arena; returns it and the descriptor for both sides.
    pub fn create(name: &str, shape: Shape) -> utipc_os::Result<(Arena, OwnedFd)> {
        let layout = Layout::new(shape).ok_or_else(|| invalid("ask for valid sizes"))?;
        let (segment, fd) = Segment::create(name, layout.size())?;
        Ok((Arena::format(segment, shape)?, fd))
    }

    /// Maps an arena that another process has created; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// Not sealed, not an arena, or of a version that this build does not know.
    pub fn open(fd: impl AsFd) -> utipc_os::Result<Arena> {
        Arena::attach(Segment::open(fd, Access::ReadWrite, MAX_SIZE)?)
    }
}

impl<M: Memory> Arena<M> {
    /// Formats memory, which must be all zero, as an arena.
    pub fn format(memory: M, shape: Shape) -> utipc_os::Result<Arena<M>> {
        let layout = Layout::new(shape).ok_or_else(|| invalid("ask for valid sizes"))?;
        if memory.size() < layout.size() {
            return Err(invalid("give it more memory"));
        }
        for (at, value) in [
            (header::VERSION, VERSION),
            (header::SIZE, layout.size() as u64),
            (header::SLOTS, u64::from(shape.slots)),
            (header::REGION, shape.region),
            (header::SHIFTS, u64::from(u32::from_le_bytes(shape.ring_shifts))),
        ] {
            memory.store64(at, value, Relaxed);
        }
        memory.store64(header::MAGIC, MAGIC, Release);
        Ok(Arena { memory: Arc::new(memory), layout })
    }

    /// Uses memory that is formatted as an arena. The header is checked and copied once: later changes by a peer have
    /// no effect.
    pub fn attach(memory: M) -> utipc_os::Result<Arena<M>> {
        let word = |at| memory.load64(at, Relaxed);
        if word(header::MAGIC) != MAGIC {
            return Err(invalid("its sender broke the protocol: it is not an arena"));
        }
        if word(header::VERSION) != VERSION {
            return Err(invalid("the daemon speaks another version: restart both with the same release"));
        }
        let shape = Shape {
            slots: u32::try_from(word(header::SLOTS)).unwrap_or(0),
            region: word(header::REGION),
            ring_shifts: u32::try_from(word(header::SHIFTS)).unwrap_or(0).to_le_bytes(),
        };
        let broken = || invalid("its sender broke the protocol: its sizes are invalid");
        let layout = Layout::new(shape).ok_or_else(broken)?;
        if word(header::SIZE) != layout.size() as u64 || memory.size() < layout.size() {
            return Err(broken());
        }
        Ok(Arena { memory: Arc::new(memory), layout })
    }

    /// Number of lanes that each direction can have.
    pub fn slots(&self) -> u32 {
        self.layout.shape.slots
    }

    /// The doorbell that wakes `owner`.
    pub fn doorbell(&self, owner: Side) -> Doorbell<M> {
        Doorbell::new(self.memory.clone(), owner)
    }

    /// The lanes that side `me` writes. Call it once per process and arena: the value knows which rings are free.
    pub fn outgoing(&self, me: Side) -> Outgoing<M> {
        Outgoing {
            arena: self.clone(),
            me,
            rings: Rings::new(&self.layout),
            room: Bits::new(self.memory.clone(), self.layout.room(me), self.slots()),
        }
    }

    /// The lanes that side `me` reads.
    pub fn incoming(&self, me: Side) -> Incoming<M> {
        let writer = me.other();
        let ready = Bits::new(self.memory.clone(), self.layout.ready(writer), self.slots());
        Incoming { arena: self.clone(), me, ready }
    }

    fn slot(&self, writer: Side, slot: u32) -> Result<usize, Corrupt> {
        self.layout.slot(writer, slot).ok_or(Corrupt { writer, slot, what: "the slot does not exist" })
    }

    /// Daemon: opens a lane in a free slot. Notify both sides afterwards.
    pub fn open_slot(&self, writer: Side, number: u32) -> Result<(), Corrupt> {
        let at = self.slot(writer, number)?;
        for word in [slot::START, slot::WAITING, slot::RELEASED, slot::RELEASED_COST, slot::EXACT] {
            self.memory.store64(at + word, 0, Relaxed);
        }
        self.memory.store32(at + slot::FLAGS, flag::OPEN, Release);
        Ok(())
    }

    /// Daemon: bytes of records that the reader has read since the lane was opened, or the remainder modulo 2^42.
    #[must_use]
    pub fn carried(&self, writer: Side, number: u32) -> u64 {
        let Some(at) = self.layout.slot(writer, number) else { return 0 };
        let exact = Place::unpack(self.memory.load64(at + slot::EXACT, Relaxed));
        exact.map_or(0, |place| place.lines * LINE as u64)
    }

    /// Daemon: a tap on a lane, which reports the messages after its first scan if `from_now`, else all; `None` if the
    /// slot does not exist.
    #[must_use]
    pub fn tap(&self, writer: Side, number: u32, from_now: bool) -> Option<Tap<M>> {
        Tap::new(self, writer, number, from_now)
    }

    /// Daemon: arms a lane before its writer is notified, because its reader may already wait for its descriptor.
    pub fn arm_slot(&self, writer: Side, number: u32) -> Result<(), Corrupt> {
        self.memory.or32(self.slot(writer, number)? + slot::FLAGS, flag::WANT | flag::TELL);
        Ok(())
    }

    /// Daemon: whether the lane is still armed as by [`Arena::arm_slot`], so that its writer reports the next message.
    #[must_use]
    pub fn is_armed(&self, writer: Side, number: u32) -> bool {
        let armed = flag::WANT | flag::TELL;
        self.slot(writer, number)
            .is_ok_and(|at| self.memory.load32(at + slot::FLAGS, Acquire) & armed == armed)
    }

    /// Daemon: closes a lane that neither side uses. The slot may be opened again.
    pub fn close_slot(&self, writer: Side, number: u32) -> Result<(), Corrupt> {
        self.memory.store32(self.slot(writer, number)? + slot::FLAGS, 0, Release);
        Ok(())
    }

    /// Daemon: freezes a lane whose writer is gone. The reader reads to the last whole record and then sees the end.
    pub fn freeze(&self, writer: Side, number: u32) -> Result<Wakeup, Corrupt> {
        self.memory.or32(self.slot(writer, number)? + slot::FLAGS, flag::FROZEN);
        point("freeze: before reporting the lane");
        Bits::new(self.memory.clone(), self.layout.ready(writer), self.slots()).add(number);
        Ok(self.doorbell(writer.other()).ring())
    }

    /// Daemon: marks a lane whose reader is gone; the writer's sends fail from now on. Call [`Arena::recover`]
    /// afterwards: the fence in `ring` orders the mark before that reading, and pairs with the writer's between commit
    /// and flags.
    pub fn mark_gone(&self, writer: Side, number: u32) -> Result<Wakeup, Corrupt> {
        self.memory.or32(self.slot(writer, number)? + slot::FLAGS, flag::GONE);
        point("mark gone: before reporting the lane");
        Bits::new(self.memory.clone(), self.layout.room(writer), self.slots()).add(number);
        Ok(self.doorbell(writer).ring())
    }

    /// Daemon: the class of the ring in which the reader is; 0 before it has read.
    pub(crate) fn reader_class(&self, writer: Side, number: u32) -> u8 {
        let Some(at) = self.layout.slot(writer, number) else { return 0 };
        let word = |at| Place::unpack(self.memory.load64(at, Relaxed));
        word(at + slot::EXACT).or_else(|| word(at + slot::START)).map_or(0, |place| place.class)
    }

    /// Daemon: the unread records of a lane whose reader has stopped, from its last position on, after
    /// [`Arena::mark_gone`]. Its writer was granted rings up to class `largest`.
    pub fn recover(&self, writer: Side, number: u32, largest: u8) -> Result<Recovered<M>, Corrupt> {
        Ok(Recovered::new(Reader::resume(self, writer, number, largest)?, true))
    }

    /// Daemon: as [`Arena::recover`], for a lane that is marked gone later.
    pub fn read_out(&self, writer: Side, number: u32, largest: u8) -> Result<Recovered<M>, Corrupt> {
        Ok(Recovered::new(Reader::resume(self, writer, number, largest)?, false))
    }

    /// Daemon: a reader that continues at the last position of the previous one, while the writer still writes. Its
    /// writer was granted rings up to class `largest`.
    pub fn resume(&self, writer: Side, number: u32, largest: u8) -> Result<Reader<M>, Corrupt> {
        Reader::resume(self, writer, number, largest)
    }
}

/// The lanes that this process writes in one arena. Clones share.
#[derive(Debug)]
pub struct Outgoing<M = Segment> {
    pub(super) arena: Arena<M>,
    pub(super) me: Side,
    pub(super) rings: Rings,
    room: Bits<M>,
}

impl<M> Clone for Outgoing<M> {
    fn clone(&self) -> Self {
        Self { arena: self.arena.clone(), me: self.me, rings: self.rings.clone(), room: self.room.clone() }
    }
}

impl<M: Memory> Outgoing<M> {
    /// The writing end of a lane that the daemon has opened. Call it once per lane.
    pub fn writer(&self, slot: u32) -> Result<Writer<M>, Corrupt> {
        Writer::new(self, slot)
    }

    /// Passes the slots of writers that waited for room and may have it now to `each`. A hint: check, and ask again.
    pub fn take_room(&self, each: impl FnMut(u32)) {
        self.room.take(each);
    }

    /// [`Outgoing::take_room`] until there are `most` slots, or up to 63 more.
    pub(crate) fn take_some_room(&self, most: u32, each: impl FnMut(u32)) {
        self.room.take_some(most, each);
    }

    /// Whether [`Outgoing::take_room`] has any slot.
    pub fn has_room(&self) -> bool {
        !self.room.is_empty()
    }

    /// Bytes of the region that rings occupy.
    pub fn bytes(&self) -> u64 {
        self.rings.bytes()
    }
}

/// The lanes that this process reads in one arena. Clones share.
#[derive(Debug)]
pub struct Incoming<M = Segment> {
    pub(super) arena: Arena<M>,
    pub(super) me: Side,
    ready: Bits<M>,
}

impl<M> Clone for Incoming<M> {
    fn clone(&self) -> Self {
        Self { arena: self.arena.clone(), me: self.me, ready: self.ready.clone() }
    }
}

impl<M: Memory> Incoming<M> {
    /// The reading end of a lane that the daemon has opened. Call it once per lane.
    pub fn reader(&self, slot: u32) -> Result<Reader<M>, Corrupt> {
        Reader::new(&self.arena, self.me.other(), slot)
    }

    /// Hands the slots of armed lanes that may have something to read to `each`. A hint: there may be slots without a
    /// lane.
    pub fn take_ready(&self, each: impl FnMut(u32)) {
        self.ready.take(each);
    }

    /// [`Incoming::take_ready`] until there are `most` slots, or up to 63 more.
    pub(crate) fn take_some_ready(&self, most: u32, each: impl FnMut(u32)) {
        self.ready.take_some(most, each);
    }

    /// Whether [`Incoming::take_ready`] has any slot.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
