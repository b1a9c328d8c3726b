//! The link to one other node of the host: an arena with one lane in each direction.
//!
//! The node that connects makes the arena and is its side 0. A node that sleeps is woken by its waker, an event
//! descriptor that the other node has; the connection itself carries nothing after the hello, and ends with the
//! process.

use std::os::fd::{AsFd, OwnedFd};

use utipc_core::wire::MediaAddr;
use utipc_lanes::{
    Arena, Corrupt, Doorbell, Incoming, Kind, LaneError, Peek, Reader, Shape, Side, Wakeup, Writer,
};
use utipc_os::Result;
use utipc_os::fdpass::Channel;
use utipc_os::reactor::{Interest, Reactor, Waker};

use super::directory::HostAddress;
use super::hello::Hello;

/// Rings of 256 KiB, 1, 2 and 4 MiB, and a piece of 4 MiB for each size in each direction (pages exist once touched).
/// The smallest ring takes two of the largest frames; a lane grows when its reader falls behind.
pub(super) const SHAPE: Shape = Shape { slots: 1, region: 16 << 20, ring_shifts: [18, 20, 21, 22] };

/// Class of the largest ring.
const LARGEST: u8 = 3;

/// The only lane of each direction.
const SLOT: u32 = 0;

/// Tokens of a peer: its waker, its connection, its process.
pub(super) const TOKENS: u64 = 4;
const WAKER: u64 = 0;
const CHANNEL: u64 = 1;
const PROCESS: u64 = 2;

/// The result of a push.
pub(super) enum Push {
    Sent,
    Dropped,
}

/// Another node of the host.
#[derive(Debug)]
pub(super) struct Peer {
    token: u64,
    address: HostAddress,
    channel: Channel,
    /// Readable when the process at the other end has ended, even if a forked child still has the connection.
    process: Option<OwnedFd>,
    writer: Writer,
    reader: Reader,
    reports: Incoming,
    bell: Doorbell,
    /// Wakes this node; the other node has it too.
    ours: Waker,
    /// Wakes the other node.
    theirs: Waker,
    /// The lane reports its next frame, and need not be checked before.
    armed: bool,
    /// Frames were pushed since the last flush.
    pushed: bool,
    /// A batch has waited for room in vain: later batches do not wait until there is some.
    stalled: bool,
    ended: bool,
}

impl Peer {
    /// Connects to a node: makes the memory and passes it.
    ///
    /// # Errors
    /// The system gives no memory or descriptor, or the node does not accept.
    pub(super) fn invite(token: u64, own: HostAddress, to: HostAddress, channel: Channel) -> Result<Peer> {
        let (arena, fd) = Arena::create("utipc-host", SHAPE)?;
        for side in [Side::Zero, Side::One] {
            arena.open_slot(side, SLOT).map_err(broken)?;
        }
        let (ours, theirs) = (Waker::new()?, Waker::new()?);
        // The other node's view: the connecting node is "they".
        Hello { from: own, arena: fd, theirs: ours.share()?, ours: theirs.share()? }.send(&channel)?;
        Self::new(token, to, channel, (&arena, Side::Zero), (ours, theirs))
    }

    /// Uses the memory that a connecting node has passed.
    ///
    /// # Errors
    /// It is not an arena.
    pub(super) fn answer(token: u64, hello: Hello, channel: Channel) -> Result<Peer> {
        let arena = Arena::open(&hello.arena)?;
        let wakers = (Waker::from_fd(hello.ours), Waker::from_fd(hello.theirs));
        Self::new(token, hello.from, channel, (&arena, Side::One), wakers)
    }

    fn new(
        token: u64,
        address: HostAddress,
        channel: Channel,
        (arena, side): (&Arena, Side),
        (ours, theirs): (Waker, Waker),
    ) -> Result<Peer> {
        let reports = arena.incoming(side);
        Ok(Peer {
            token,
            address,
            process: channel.peer_process(),
            channel,
            writer: arena.outgoing(side).writer(SLOT).map_err(broken)?,
            reader: reports.reader(SLOT).map_err(broken)?,
            reports,
            bell: arena.doorbell(side),
            ours,
            theirs,
            armed: false,
            pushed: false,
            stalled: false,
            ended: false,
        })
    }

    pub(super) fn address(&self) -> MediaAddr {
        self.address.media()
    }

    pub(super) fn host_address(&self) -> HostAddress {
        self.address
    }

    /// Where its frames are reported, and the doorbell of this node.
    pub(super) fn reports(&self) -> (Incoming, Doorbell) {
        (self.reports.clone(), self.bell.clone())
    }

    pub(super) fn watch(&self, reactor: &Reactor) -> Result<()> {
        reactor.add(&self.ours, self.token + WAKER, Interest::Waker)?;
        reactor.add(&self.channel, self.token + CHANNEL, Interest::Read)?;
        match &self.process {
            Some(process) => reactor.add(process, self.token + PROCESS, Interest::Read),
            None => Ok(()),
        }
    }

    pub(super) fn unwatch(&self, reactor: &Reactor) {
        let descriptors =
            [Some(self.ours.as_fd()), Some(self.channel.as_fd()), self.process.as_ref().map(AsFd::as_fd)];
        for descriptor in descriptors.into_iter().flatten() {
            // It fails if it was removed before.
            let _ = reactor.remove(descriptor);
        }
    }

    /// Whether an event of the reactor belongs to this peer.
    pub(super) fn has(&self, token: u64) -> bool {
        (self.token..self.token + TOKENS).contains(&token)
    }

    /// Whether an event means that the other node is gone: its connection carries nothing after the hello.
    pub(super) fn has_ended(&self, token: u64) -> bool {
        token != self.token + WAKER
    }

    /// The other node is gone; frames that lie in the ring are still good.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the lane may have frames.
    pub(super) fn has_ready(&self) -> bool {
        !self.armed || self.ended || self.reports.has_ready()
    }

    /// Passes frames to `sink`: at most `most` of them, and of their bytes. Returns whether there are more.
    ///
    /// # Errors
    /// The other node has written what no node writes.
    pub(super) fn read(
        &mut self,
        most: (usize, usize),
        buffer: &mut [u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> std::result::Result<bool, Corrupt> {
        self.armed = false;
        self.reports.take_ready(|_| ());
        let (mut frames, mut bytes) = most;
        let more = loop {
            let Peek::Record(record) = self.reader.peek()? else { break false };
            if frames == 0 || bytes == 0 {
                break true;
            }
            (frames, bytes) = (frames - 1, bytes.saturating_sub(record.len()));
            let copied = self.reader.copy_payload(&record, 0, buffer);
            // A longer record is not a frame of this bearer.
            let is_frame = record.kind() == Kind::Data && copied == record.len();
            self.reader.consume(record, 1);
            if let Some(frame) = buffer.get(..copied).filter(|_| is_frame) {
                sink(frame);
            }
        };
        let more = more || self.arm()?;
        let owed = self.reader.take_wakeup();
        self.wake(owed);
        Ok(more)
    }

    /// Asks the other node to report its next frame. Returns true if one is already there.
    fn arm(&mut self) -> std::result::Result<bool, Corrupt> {
        let found = !self.ended && self.reader.arm()?;
        self.armed = !found;
        Ok(found)
    }

    /// Writes a frame into the ring. While it is full, calls `wait` as long as that returns true.
    pub(super) fn push(&mut self, pieces: [&[u8]; 2], mut wait: impl FnMut() -> bool) -> Push {
        if self.ended {
            return Push::Dropped;
        }
        let [head, part] = pieces;
        loop {
            match self.writer.push(head, &[part], 1) {
                Ok(()) => {
                    (self.pushed, self.stalled) = (true, false);
                    return Push::Sent;
                }
                Err(LaneError::Full) if self.grow() => {}
                Err(LaneError::Full) if !self.stalled => {
                    self.flush();
                    self.stalled = !wait();
                }
                Err(_) => return Push::Dropped,
            }
        }
    }

    /// Moves to the next larger ring.
    fn grow(&mut self) -> bool {
        let next = self.writer.class().map_or(0, |class| class + 1);
        next <= LARGEST && self.writer.grow(next).is_ok()
    }

    /// Wakes the other node if it sleeps and frames were pushed.
    pub(super) fn flush(&mut self) {
        if std::mem::take(&mut self.pushed)
            && let Ok(wakeup) = self.writer.flush()
        {
            self.wake(wakeup);
        }
    }

    fn wake(&self, wakeup: Wakeup) {
        if wakeup == Wakeup::TellDaemon {
            self.theirs.wake();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // This works even if a forked child has the connection.
        self.channel.shut();
    }
}

fn broken(corrupt: Corrupt) -> utipc_os::OsError {
    utipc_os::OsError::new("use", "shared memory between nodes", std::io::Error::other(corrupt.to_string()))
}
