//! An arena that this process shares with another one, and which socket reads which of its lanes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use utipc_attach::{LaneId, PairId};
use utipc_lanes::{Arena, Doorbell, Incoming, Outgoing, Side, Wakeup, Writer};
use utipc_os::Result;
use utipc_os::hidden::{Hiding, raise};
use utipc_os::reactor::Waker;

use crate::attachment::lock;

/// Lanes of one socket that were reported to have something to read.
#[derive(Debug, Default)]
pub(crate) struct ReadyBox {
    lanes: Mutex<Vec<LaneId>>,
    some: AtomicBool,
}

impl ReadyBox {
    fn put(&self, lane: LaneId) {
        lock(&self.lanes).push(lane);
        self.some.store(true, Release);
    }

    /// Takes all out.
    pub(crate) fn take(&self, mut each: impl FnMut(LaneId)) {
        if self.some.load(Acquire) {
            let mut lanes = lock(&self.lanes);
            self.some.store(false, Release);
            lanes.drain(..).for_each(&mut each);
        }
    }
}

/// One side of an arena; there is one value of it in the process.
/// What tells the daemon, hidden from the program.
#[derive(Clone, Debug)]
struct Knock {
    /// Before the descriptor, which it hides.
    _hiding: Arc<Hiding>,
    waker: Waker,
}

impl Knock {
    fn new(fd: OwnedFd) -> Self {
        let fd = raise(fd);
        Self { _hiding: Arc::new(Hiding::of(&fd)), waker: Waker::from_fd(fd) }
    }
}

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) id: PairId,
    side: Side,
    arena: Arena,
    pub(crate) out: Outgoing,
    pub(crate) inc: Incoming,
    /// Wakes this process.
    pub(crate) bell: Doorbell,
    /// Wakes the other one.
    partner: Doorbell,
    /// The other one is the daemon, which is told by this that it was rung for.
    knock: Option<Knock>,
    /// By slot; its lock is held while reports are handed out, so that whoever has held it has seen them all.
    readers: Mutex<Vec<Option<Arc<ReadyBox>>>>,
    /// Writers of sockets that are closed, until their lanes are.
    leaving: Mutex<HashMap<u16, Writer>>,
}

impl Pair {
    /// `knock` tells the daemon, if that is the other side.
    pub(crate) fn open(id: PairId, side: u8, arena: &OwnedFd, knock: Option<OwnedFd>) -> Result<Self> {
        let side = if side == 0 { Side::Zero } else { Side::One };
        Ok(Self::new(id, side, Arena::open(arena)?, knock.map(Knock::new)))
    }

    fn new(id: PairId, side: Side, arena: Arena, knock: Option<Knock>) -> Self {
        Self {
            id,
            side,
            out: arena.outgoing(side),
            inc: arena.incoming(side),
            bell: arena.doorbell(side),
            partner: arena.doorbell(side.other()),
            arena,
            knock,
            readers: Mutex::default(),
            leaving: Mutex::default(),
        }
    }

    /// The same arena from its other side, for a process that has both.
    pub(crate) fn other_side(&self) -> Self {
        Self::new(self.id, self.side.other(), self.arena.clone(), self.knock.clone())
    }

    /// The number of the side that writes what this one reads.
    fn writer(&self) -> u8 {
        self.side.other().index() as u8
    }

    /// The other side is the daemon.
    pub(crate) fn is_nodes(&self) -> bool {
        self.knock.is_some()
    }

    /// Tells the daemon that it was rung for, if it is the other side; else what is left to be told by a command.
    #[inline]
    pub(crate) fn tell(&self, ring: Wakeup) -> Wakeup {
        match &self.knock {
            Some(knock) if ring == Wakeup::TellDaemon => {
                knock.waker.wake();
                Wakeup::Quiet
            }
            _ => ring,
        }
    }

    /// Whether the other process was awake when it was last seen.
    pub(crate) fn partner_is_awake(&self) -> bool {
        !self.partner.is_parked()
    }

    /// From now on reports about a lane go to `ready`, or to nobody.
    pub(crate) fn set_reader(&self, slot: u16, ready: Option<Arc<ReadyBox>>) {
        let mut readers = lock(&self.readers);
        let at = usize::from(slot);
        if readers.len() <= at && ready.is_some() {
            readers.resize(at + 1, None);
        }
        if let Some(place) = readers.get_mut(at) {
            *place = ready;
        }
    }

    /// Hands out the reports that there are. After it, each socket's box has its own.
    pub(crate) fn dispatch(&self) {
        let readers = lock(&self.readers);
        if self.inc.has_ready() {
            self.inc.take_ready(|slot| {
                // A peer may report what it likes.
                if let Some(Some(ready)) = readers.get(slot as usize) {
                    ready.put(LaneId { pair: self.id, writer: self.writer(), slot: slot as u16 });
                }
            });
        }
    }

    /// Keeps the writer of a socket that is closed.
    pub(crate) fn keep(&self, slot: u16, writer: Writer) {
        lock(&self.leaving).insert(slot, writer);
    }

    /// The lane is closed: its memory is free.
    pub(crate) fn retire(&self, slot: u16) {
        if let Some(writer) = lock(&self.leaving).remove(&slot) {
            writer.retire();
        }
    }
}
