//! The connection of this process to its daemon: requests, replies, the daemon's death, and replies that do not come in
//! time because the daemon is stopped or has no processor.
//!
//! No call waits for a reply without limit. A request that the daemon has not begun by then is cancelled: it has no
//! effect, so that the call can report an error or try again. A request that only keeps daemon and process in step
//! stays where it is, and the call goes on as if it were done. The replies to both come later, and are read before the
//! next request. Decision 25, docs/spec/attach.md §2.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use utipc_attach::{MAX_PACKET, Reply, Request, encode};
use utipc_os::fdpass::{Channel, Got, MAX_FDS, Put};
use utipc_os::hangup::{self, Table};
use utipc_os::hidden::Hiding;
use utipc_os::packets::Near;
use utipc_os::{OsError, lock};

use crate::attachment::bell::Bell;
use crate::attachment::near_ends::{NearEnds, Reach};
use crate::error::Error;

/// Unit in which waits for replies are measured.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Slices for which a call waits that programs make in event loops and before forks: long enough for a daemon on a
/// loaded machine.
const SHORT: u32 = 1;
/// Slices for which any other call waits.
pub(crate) const LONG: u32 = 5;
/// Maximum number of requests without a reply. Each takes less than 1 KiB of the send buffer.
const UNANSWERED_MAX: u32 = 64;
/// Pause between two tries of a call that may wait for a daemon that does not answer.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Slices for which to wait for the reply to a request.
fn patience(request: &Request) -> u32 {
    if request.is_urgent() { SHORT } else { LONG }
}

/// Buffers of a round trip.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(super) out: Vec<u8>,
    pub(super) input: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    /// Number of the last packet that was sent; the handshake is 1.
    pub(super) sent: u32,
    /// Replies that have not come in time.
    overdue: u32,
}

impl Wire {
    /// Those of a new connection, whose first packet is the handshake.
    pub(super) fn new() -> Self {
        Self { input: vec![0; MAX_PACKET], sent: 1, ..Self::default() }
    }
}

/// What has become of a request.
pub(super) enum Answered {
    /// The reply has this length.
    Reply(usize),
    /// No reply has come; to be taken for this one.
    Assumed(Reply),
}

/// State shared by the watching thread and the connection.
#[derive(Debug)]
struct Liveness {
    over: AtomicBool,
    bell: Bell,
    near_ends: NearEnds,
}

impl Liveness {
    /// Marks the daemon as gone and wakes all waiters.
    fn end(&self) {
        self.over.store(true, Release);
        self.bell.ring();
    }
}

/// The connection to one daemon.
#[derive(Debug)]
pub(crate) struct Connection {
    path: PathBuf,
    /// Dropped before the channel, which it hides.
    _hiding: Hiding,
    channel: Channel,
    wire: Mutex<Wire>,
    /// Some replies have not come in time. Changed with the wire locked.
    overdue: AtomicBool,
    liveness: Arc<Liveness>,
}

impl Connection {
    pub(super) fn new(path: &Path, channel: Channel, wire: Wire, bell: Bell) -> Self {
        Self {
            path: path.to_owned(),
            _hiding: Hiding::of(&channel),
            channel,
            wire: Mutex::new(wire),
            overdue: AtomicBool::new(false),
            liveness: Arc::new(Liveness {
                over: AtomicBool::new(false),
                bell,
                near_ends: NearEnds::default(),
            }),
        }
    }

    /// Starts the thread that detects the daemon's death.
    pub(super) fn watch(&self) -> Result<(), Error> {
        let liveness = Arc::clone(&self.liveness);
        let started = hangup::watch("utipc daemon", self.channel.as_fd(), Table::Own, move || {
            liveness.end();
            liveness.near_ends.hang_up();
        });
        started.map_err(|cause| {
            let error = OsError::new("start", "the thread that watches the daemon", cause);
            Error::System(error.with_remedy("raise the limit of threads, `ulimit -u`"))
        })
    }

    /// Hangs this near end, which the program polls, up when the daemon dies, even if another process keeps a copy of
    /// the far end.
    pub(crate) fn watch_near_end(&self, near: &Near) {
        if self.liveness.near_ends.add(near) == Reach::NeedsThread {
            let liveness = Arc::clone(&self.liveness);
            let ended = move || liveness.near_ends.hang_up();
            // Without the thread the next call finds out.
            let _ = hangup::watch("utipc sockets", self.channel.as_fd(), Table::Shared, ended);
        }
    }

    /// The near end stays when the daemon dies: the socket resumes.
    pub(crate) fn forget_near_end(&self, near: &Near) {
        self.liveness.near_ends.forget(near);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that hangs up when the daemon dies.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The doorbell that wakes threads that wait for the daemon.
    #[inline]
    pub(crate) fn bell(&self) -> &Bell {
        &self.liveness.bell
    }

    /// Whether some replies have not come in time.
    #[inline]
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Acquire)
    }

    /// Whether the daemon is gone.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.liveness.over.load(Acquire)
    }

    /// The error of every call once the daemon is gone.
    pub(super) fn died(&self) -> Error {
        Error::Died(self.path.clone())
    }

    /// Marks the connection as over because it has broken.
    pub(super) fn lost(&self) -> Error {
        self.liveness.end();
        self.died()
    }

    /// Marks the connection as over because the daemon has written malformed data.
    #[cold]
    pub(super) fn broken(&self) -> Error {
        self.shut();
        self.liveness.end();
        self.nonsense()
    }

    /// The error of a malformed reply.
    pub(super) fn nonsense(&self) -> Error {
        Error::Nonsense(self.path.clone())
    }

    /// The error of a call for which the daemon has not replied in time.
    fn silent(&self) -> Error {
        Error::Silent(self.path.clone())
    }

    /// Ends the connection, for this process and for the daemon.
    pub(super) fn shut(&self) {
        self.channel.shut();
    }

    /// Locks the connection, for a sequence of requests that other threads must not interrupt.
    pub(super) fn lock(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    /// Sends a request. `may_wait`: for room in the daemon's queue.
    pub(super) fn send(
        &self,
        wire: &mut Wire,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
        may_wait: bool,
    ) -> Result<(), Error> {
        wire.out.clear();
        encode(request, &[], &mut wire.out);
        wire.fds.clear();
        let parts = [IoSlice::new(&wire.out), IoSlice::new(payload)];
        let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
        if self.is_over() {
            return Err(self.lost());
        }
        match self.channel.send(parts, passed, may_wait)? {
            Put::Sent => wire.sent = wire.sent.wrapping_add(1).max(1),
            Put::Full | Put::Busy => return Err(self.silent()),
            Put::Gone => return Err(self.lost()),
        }
        Ok(())
    }

    /// Waits for the reply to the request that was sent last.
    pub(super) fn await_reply(&self, wire: &mut Wire, request: &Request) -> Result<Answered, Error> {
        if let Some(len) = self.receive_within(wire, patience(request))? {
            return Ok(Answered::Reply(len));
        }
        if let Some(reply) = request.assumed_reply() {
            self.note_overdue(wire);
            return Ok(Answered::Assumed(reply));
        }
        if self.bell().cancel(wire.sent) {
            self.note_overdue(wire);
            return Err(self.silent());
        }
        // The daemon has begun the request: whether it has an effect is unknown.
        match self.receive_within(wire, LONG)? {
            Some(len) => Ok(Answered::Reply(len)),
            None => Err(self.lost()),
        }
    }

    fn receive_within(&self, wire: &mut Wire, slices: u32) -> Result<Option<usize>, Error> {
        for _ in 0..slices {
            match self.channel.receive(&mut wire.input, &mut wire.fds, MAX_FDS, true)? {
                Got::Packet(len) => return Ok(Some(len)),
                Got::Nothing => {}
                Got::End => return Err(self.lost()),
            }
        }
        Ok(None)
    }

    fn note_overdue(&self, wire: &mut Wire) {
        wire.overdue += 1;
        self.overdue.store(true, Release);
    }

    /// Before a request: passes the overdue replies that have come to `process`. If others are still missing, returns
    /// what follows for the request: an error, or the reply to assume after it was sent.
    pub(super) fn collect_before(
        &self,
        wire: &mut Wire,
        request: &Request,
        process: impl Fn(&[u8]) -> Result<(), Error>,
    ) -> Result<Option<Reply>, Error> {
        if wire.overdue == 0 {
            return Ok(None);
        }
        self.collect_overdue(wire, process)?;
        if wire.overdue == 0 {
            return Ok(None);
        }
        match request.assumed_reply() {
            Some(reply) if wire.overdue < UNANSWERED_MAX => {
                self.note_overdue(wire);
                Ok(Some(reply))
            }
            _ => Err(self.silent()),
        }
    }

    /// Reads the overdue replies that have come. Their requests were cancelled, or no call depends on their results.
    fn collect_overdue(
        &self,
        wire: &mut Wire,
        process: impl Fn(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while wire.overdue > 0 {
            wire.fds.clear();
            match self.channel.receive(&mut wire.input, &mut wire.fds, MAX_FDS, false)? {
                Got::Packet(len) => process(&wire.input[..len.min(MAX_PACKET)])?,
                Got::Nothing => return Ok(()),
                Got::End => return Err(self.lost()),
            }
            wire.overdue -= 1;
        }
        wire.fds.clear();
        self.bell().forget_cancelled();
        self.overdue.store(false, Release);
        Ok(())
    }

    /// Before a request that may wait: waits until the daemon answers again, without the connection's lock.
    #[cold]
    pub(super) fn wait_for_overdue(
        &self,
        request: &Request,
        process: impl Fn(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if request.assumed_reply().is_some() || patience(request) == SHORT {
            return Ok(());
        }
        let end = Instant::now() + SLICE * patience(request);
        while self.is_overdue() && !self.is_over() {
            self.collect_overdue(&mut self.lock(), &process)?;
            if Instant::now() >= end {
                return Err(self.silent());
            }
            if self.is_overdue() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}
