//! An arena that this process shares with another one, and which socket reads which of its lanes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use utipc_attach::{LaneId, PairId};
use utipc_os::hidden::{Hiding, raise};
use utipc_os::reactor::Waker;
use utipc_os::{Result, lock};

use crate::{Arena, Doorbell, Incoming, Outgoing, Side, Wakeup, Writer};

/// The lanes of one socket that were reported to have something to read.
#[derive(Debug, Default)]
pub struct ReadyLanes {
    lanes: Mutex<Vec<LaneId>>,
    some: AtomicBool,
}

impl ReadyLanes {
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

/// The eventfd by which this process tells the daemon that it has rung its doorbell; hidden from the program.
#[derive(Clone, Debug)]
struct DaemonWaker {
    /// Dropped before the descriptor, which it hides.
    _hiding: Arc<Hiding>,
    waker: Waker,
}

impl DaemonWaker {
    fn new(fd: OwnedFd) -> Self {
        let fd = raise(fd);
        Self { _hiding: Arc::new(Hiding::of(&fd)), waker: Waker::from_fd(fd) }
    }
}

/// One side of an arena. A process has one value for each side that it is.
#[derive(Debug)]
pub struct Pair {
    pub(crate) id: PairId,
    side: Side,
    arena: Arena,
    pub(crate) out: Outgoing,
    pub(crate) inc: Incoming,
    /// Wakes this process.
    bell: Doorbell,
    /// Wakes the peer.
    peer_bell: Doorbell,
    /// Present if the peer is the daemon.
    daemon: Option<DaemonWaker>,
    /// The sockets that read, by slot. Locked while reports are handed out: a thread that has held the lock sees all of
    /// them.
    readers: Mutex<Vec<Option<Arc<ReadyLanes>>>>,
    /// Writers of closed sockets, until their lanes are closed too.
    closing: Mutex<HashMap<u16, Writer>>,
}

impl Pair {
    /// Maps an arena as its side 0 or 1; with `waker`, an eventfd, if the peer is the daemon.
    ///
    /// # Errors
    /// See [`Arena::open`].
    pub fn open(id: PairId, side: u8, arena: &OwnedFd, waker: Option<OwnedFd>) -> Result<Self> {
        let side = if side == 0 { Side::Zero } else { Side::One };
        Ok(Self::new(id, side, Arena::open(arena)?, waker.map(DaemonWaker::new)))
    }

    fn new(id: PairId, side: Side, arena: Arena, daemon: Option<DaemonWaker>) -> Self {
        Self {
            id,
            side,
            out: arena.outgoing(side),
            inc: arena.incoming(side),
            bell: arena.doorbell(side),
            peer_bell: arena.doorbell(side.other()),
            arena,
            daemon,
            readers: Mutex::default(),
            closing: Mutex::default(),
        }
    }

    /// The other side of the same arena, for a process whose sockets talk to each other.
    #[must_use]
    pub fn other_side(&self) -> Self {
        Self::new(self.id, self.side.other(), self.arena.clone(), self.daemon.clone())
    }

    /// The doorbell that wakes this process.
    #[must_use]
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Whether the peer is the daemon: its lanes are node lanes.
    #[must_use]
    pub fn is_to_daemon(&self) -> bool {
        self.daemon.is_some()
    }

    /// Wakes the daemon if it is the peer and sleeps by a descriptor. Returns what is left for a request to do.
    #[inline]
    pub(crate) fn wake_daemon(&self, wakeup: Wakeup) -> Wakeup {
        match &self.daemon {
            Some(daemon) if wakeup == Wakeup::TellDaemon => {
                daemon.waker.wake();
                Wakeup::Quiet
            }
            _ => wakeup,
        }
    }

    /// Whether the peer was awake when last seen.
    #[must_use]
    pub fn peer_is_awake(&self) -> bool {
        !self.peer_bell.is_parked()
    }

    /// Directs reports about a lane to `ready` from now on; `None` drops them.
    pub(crate) fn set_reader(&self, slot: u16, ready: Option<Arc<ReadyLanes>>) {
        let mut readers = lock(&self.readers);
        let at = usize::from(slot);
        if readers.len() <= at && ready.is_some() {
            readers.resize(at + 1, None);
        }
        if let Some(reader) = readers.get_mut(at) {
            *reader = ready;
        }
    }

    /// Hands pending reports to the sockets that they concern.
    pub(crate) fn dispatch(&self) {
        let readers = lock(&self.readers);
        if self.inc.has_ready() {
            let writer = self.side.other().index() as u8;
            self.inc.take_ready(|slot| {
                // The peer may report slots that do not exist.
                if let Some(Some(ready)) = readers.get(slot as usize) {
                    ready.put(LaneId { pair: self.id, writer, slot: slot as u16 });
                }
            });
        }
    }

    /// Keeps the writer of a closed socket until [`Pair::retire`].
    pub(crate) fn keep(&self, slot: u16, writer: Writer) {
        lock(&self.closing).insert(slot, writer);
    }

    /// Frees the memory of a lane that is closed and whose socket was closed before.
    pub fn retire(&self, slot: u16) {
        if let Some(writer) = lock(&self.closing).remove(&slot) {
            writer.retire();
        }
    }
}
