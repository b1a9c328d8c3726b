//! One attachment: the connection of this process to a daemon, shared by all its sockets.
//!
//! There is one round trip at a time; the daemon answers at once. Each reply carries the notices that have accumulated
//! since the last one. A thread per attachment waits for the end of the connection, so that the daemon's death wakes
//! every call at once.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use utipc_attach::{Envelope, LaneId, Notice, PairId, ProcessCall, Reply, Request, decode, encode};
use utipc_core::addr::NodeAddr;
use utipc_lanes::Pair;
use utipc_os::fdpass::{Channel, Put};
use utipc_os::hangup::{self, Table};
use utipc_os::hidden::Hiding;
use utipc_os::packets::Near;
use utipc_os::{OsError, fork, lock};

use crate::bell::Bell;
use crate::error::Error;
use crate::handshake::{Connection, Wire, connect};
use crate::inheritance::Inheritance;
use crate::names::Names;
use crate::near_ends::{NearEnds, Reach};
use crate::notices::{Notices, Task};
use crate::overdue::Answered;
use crate::resume::Resuming;
use crate::state::SocketState;

/// Pauses between tries while the daemon closes the connection during the handshake, because this process was too slow
/// or too many processes attach at once.
const HANDSHAKE_BACKOFF: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(5), ms(25), ms(100), ms(250), ms(500), ms(500), ms(1000)]
};

/// The connection of this process to one daemon, and the state that its sockets share.
#[derive(Debug)]
pub(crate) struct Attachment {
    path: PathBuf,
    /// The process that it belongs to, see [`fork::generation`].
    generation: u32,
    /// The inheritance for the child of the fork in progress. In the child: of the fork that made it, until it is
    /// claimed. Used only while forks are locked out.
    pub(crate) inheritance: Mutex<Option<Inheritance>>,
    /// In a forked child: its own attachment to the same daemon. Set only while forks are locked out.
    pub(crate) in_child: OnceLock<Arc<Attachment>>,
    /// Dropped before the channel, which it hides.
    _hiding: Hiding,
    channel: Channel,
    wire: Mutex<Wire>,
    /// Arenas by pair and own side. Between its own sockets this process has both sides. Locked before the wire, never
    /// after it.
    pub(crate) pairs: Mutex<HashMap<(PairId, u8), Arc<Pair>>>,
    /// The binding table. Locked before the wire too.
    pub(crate) names: Names,
    notices: Notices,
    /// A thread that shrinks idle rings is running.
    pub(crate) shrinks_rings: AtomicBool,
    /// Some replies have not come in time. Changed with the wire locked.
    pub(crate) overdue: AtomicBool,
    /// Number of rings of the bell before the last fetch of notices.
    fetched: AtomicU32,
    life: Arc<Life>,
    resuming: Arc<Resuming>,
}

/// State shared by the watching thread and the attachment.
#[derive(Debug)]
struct Life {
    over: AtomicBool,
    bell: Bell,
    near_ends: NearEnds,
}

impl Life {
    /// Marks the daemon as gone and wakes all waiters.
    fn end(&self) {
        self.over.store(true, Release);
        self.bell.ring();
    }
}

/// Data that comes with a reply: payload and descriptors.
pub(crate) struct Extra<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) fds: &'a mut Vec<OwnedFd>,
}

impl Attachment {
    /// Attaches this process to the daemon at `path`; `None` if no daemon listens there. Tries again, for a few
    /// seconds, if the daemon closes the connection. The attachment is not registered for forks: see
    /// [`crate::fork::attach`].
    pub(crate) fn open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        let mut pauses = HANDSHAKE_BACKOFF.iter();
        loop {
            match (Self::try_open(path), pauses.next()) {
                (Err(Error::HungUp(_)), Some(pause)) => std::thread::sleep(*pause),
                (opened, _) => return opened,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        let Some(Connection { channel, wire, welcome, bell }) = connect(path)? else { return Ok(None) };
        let notices = Notices::default();
        notices.set_address(welcome.node);
        let attachment = Arc::new(Self {
            _hiding: Hiding::of(&channel),
            path: path.to_owned(),
            generation: fork::generation(),
            inheritance: Mutex::default(),
            in_child: OnceLock::new(),
            channel,
            wire: Mutex::new(wire),
            pairs: Mutex::default(),
            names: Names::default(),
            notices,
            shrinks_rings: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            fetched: AtomicU32::new(bell.seq()),
            life: Arc::new(Life { over: AtomicBool::new(false), bell, near_ends: NearEnds::default() }),
            resuming: Arc::default(),
        });
        attachment.watch()?;
        Ok(Some(attachment))
    }

    /// Starts the thread that detects the daemon's death.
    fn watch(&self) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        let started = hangup::watch("utipc daemon", self.channel.as_fd(), Table::Own, move || {
            life.end();
            life.near_ends.hang_up();
        });
        started.map_err(|cause| {
            let error = OsError::new("start", "the thread that watches the daemon", cause);
            Error::System(error.with_remedy("raise the limit of threads, `ulimit -u`"))
        })
    }

    /// Hangs this near end, which the program polls, up when the daemon dies, even if another process keeps a copy of
    /// the far end.
    pub(crate) fn watch_near_end(&self, near: &Near) {
        if self.life.near_ends.add(near) == Reach::NeedsThread {
            let life = Arc::clone(&self.life);
            let ended = move || life.near_ends.hang_up();
            // Without the thread the next call finds out.
            let _ = hangup::watch("utipc sockets", self.channel.as_fd(), Table::Shared, ended);
        }
    }

    /// The near end stays when the daemon dies: the socket resumes.
    pub(crate) fn forget_near_end(&self, near: &Near) {
        self.life.near_ends.forget(near);
    }

    /// Whether this process opened the attachment; false in a forked child for those of its parent.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether some replies have not come in time.
    #[inline]
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Acquire)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Address of the node as last reported.
    pub(crate) fn address(&self) -> NodeAddr {
        self.notices.address()
    }

    /// The sockets that resume when this attachment ends.
    pub(crate) fn resuming(&self) -> &Arc<Resuming> {
        &self.resuming
    }

    /// Whether the daemon is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.life.over.load(Acquire)
    }

    /// The doorbell that wakes threads that wait for the daemon.
    pub(crate) fn bell(&self) -> &Bell {
        &self.life.bell
    }

    /// The error of every call once the daemon is gone.
    pub(crate) fn died(&self) -> Error {
        Error::Died(self.path.clone())
    }

    /// Marks the attachment as over because the connection has broken.
    pub(crate) fn lost(&self) -> Error {
        self.life.end();
        self.died()
    }

    /// Marks the attachment as over because the daemon has written malformed data.
    #[cold]
    pub(crate) fn broken(&self) -> Error {
        self.channel.shut();
        self.life.end();
        Error::Nonsense(self.path.clone())
    }

    /// Makes one round trip. `take` gets the reply, unless the request failed, and its payload and descriptors; it
    /// returns `None` for a reply of the wrong kind.
    pub(crate) fn call<T>(
        &self,
        request: &Request,
        payload: &[u8],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        if self.is_overdue() {
            self.wait_for_overdue(request)?;
        }
        let done = self.round_trip(&mut lock(&self.wire), request, payload, &[], take)?;
        self.fetch_all_notices(done)
    }

    /// [`Attachment::call`] with descriptors that go with the request.
    pub(crate) fn call_with<T>(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        if self.is_overdue() {
            self.wait_for_overdue(request)?;
        }
        let done = self.round_trip(&mut lock(&self.wire), request, &[], fds, take)?;
        self.fetch_all_notices(done)
    }

    /// Makes one round trip whose reply is [`Reply::Done`].
    pub(crate) fn request(&self, request: &Request, payload: &[u8]) -> Result<(), Error> {
        self.call(request, payload, |reply, _| (reply == Reply::Done).then_some(()))
    }

    /// Fetches the notices that did not fit the reply.
    fn fetch_all_notices<T>(&self, (result, mut more): (Result<T, Error>, bool)) -> Result<T, Error> {
        while more {
            (_, more) = self.round_trip(
                &mut lock(&self.wire),
                &Request::Process(ProcessCall::Notices),
                &[],
                &[],
                |_, _| Some(()),
            )?;
        }
        result
    }

    /// Locks the connection, for a sequence of requests that other threads must not interrupt.
    pub(crate) fn lock_wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    /// One round trip on the locked connection; returns the result, and whether more notices wait.
    pub(crate) fn round_trip<T>(
        &self,
        wire: &mut Wire,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<(Result<T, Error>, bool), Error> {
        let assumed = self.settle_overdue(wire, request)?;
        wire.out.clear();
        encode(request, &[], &mut wire.out);
        wire.fds.clear();
        let parts = [IoSlice::new(&wire.out), IoSlice::new(payload)];
        let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
        let seen = self.bell().seq();
        if self.is_over() {
            return Err(self.lost());
        }
        match self.channel.send(parts, passed, assumed.is_none())? {
            Put::Sent => wire.sent = wire.sent.wrapping_add(1).max(1),
            Put::Full | Put::Busy => return Err(self.silent()),
            Put::Gone => return Err(self.lost()),
        }
        let answered = match assumed {
            Some(reply) => Answered::Assumed(reply),
            None => self.await_reply(wire, request)?,
        };
        let malformed = || Error::Nonsense(self.path.clone());
        let Wire { input, fds, .. } = wire;
        let len = match answered {
            Answered::Reply(len) => len,
            Answered::Assumed(reply) => {
                return Ok((take(reply, Extra { payload: &[], fds }).ok_or_else(malformed), false));
            }
        };
        let (envelope, payload) = decode::<Envelope>(&input[..len]).map_err(|_| malformed())?;
        let Envelope { notices, more, reply } = envelope;
        self.process_notices(&notices, &reply, seen, more);
        let result = match reply {
            Reply::Failed(failure) => Err(Error::Failed(failure)),
            reply => take(reply, Extra { payload, fds }).ok_or_else(malformed),
        };
        Ok((result, more))
    }

    /// Processes the notices of a reply; `seen`: the number of rings before its request.
    fn process_notices(&self, notices: &[Notice], reply: &Reply, seen: u32, more: bool) {
        let done = self.notices.process(notices, reply);
        if !done {
            // `has_notices` stays true, so that the next call does the tasks.
            self.fetched.store(seen.wrapping_sub(1), Relaxed);
        } else if !more {
            self.fetched.store(seen, Relaxed);
        }
        if !notices.is_empty() {
            // They may concern other threads.
            self.ring();
        }
    }

    /// Processes the notices of a reply that came too late for its request.
    pub(crate) fn process_overdue(&self, packet: &[u8]) -> Result<(), Error> {
        let (envelope, _) = decode::<Envelope>(packet).map_err(|_| Error::Nonsense(self.path.clone()))?;
        // The next call fetches what came after this reply.
        let seen = self.bell().seq().wrapping_sub(1);
        self.process_notices(&envelope.notices, &Reply::Done, seen, envelope.more);
        Ok(())
    }

    /// Wakes the other threads of this process. This ring does not count as a notice of the daemon.
    pub(crate) fn ring(&self) {
        let before = self.bell().ring();
        let _ = self.fetched.compare_exchange(before, before.wrapping_add(1), AcqRel, Relaxed);
    }

    /// Whether the daemon has notices or has died. Costs two loads.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.bell().seq() != self.fetched.load(Relaxed)
    }

    /// Registers a new socket to receive its notices.
    pub(crate) fn register(&self, socket: &Arc<SocketState>) {
        self.notices.register(socket);
    }

    /// Removes a closed socket.
    pub(crate) fn unregister(&self, port: u32) {
        self.notices.unregister(port);
    }

    /// The sockets of this attachment.
    pub(crate) fn sockets(&self) -> Vec<Arc<SocketState>> {
        self.notices.sockets()
    }

    pub(crate) fn socket(&self, port: u32) -> Option<Arc<SocketState>> {
        self.notices.socket(port)
    }

    /// Before a fork: drops notices about lanes of sockets that are not registered yet.
    pub(crate) fn forget_lanes(&self) {
        self.notices.forget_lanes();
    }

    /// Makes the next [`Attachment::fetch_notices`] answer the end of a lane that a closed socket has written.
    pub(crate) fn answer_lane_end(&self, lane: LaneId) {
        self.notices.add_task(Task::AnswerLaneEnd(lane));
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.notices.has_tasks()
    }

    pub(crate) fn take_tasks(&self) -> Vec<Task> {
        self.notices.take_tasks()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Ends the watching thread and tells the daemon that this process detaches. A forked child must not end its
        // parent's connection.
        if self.is_own() {
            self.channel.shut();
        }
    }
}
