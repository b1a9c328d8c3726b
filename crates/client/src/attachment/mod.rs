//! One attachment: what this process has in common with one daemon, shared by all its sockets.
//!
//! There is one round trip at a time; the daemon answers at once. Each reply carries the notices that have accumulated
//! since the last one. A thread per attachment waits for the end of the connection, so that the daemon's death wakes
//! every call at once.
//!
//! | Question | File |
//! |---|---|
//! | How does a process attach? | `handshake.rs` |
//! | How are requests sent, and what if no reply comes in time? | `connection.rs`, `bell.rs` |
//! | Where do notices go? | `notices.rs`, `registry.rs` |
//! | Which arenas are mapped, and who may use lanes? | `data_path.rs`; idle lanes: `idle.rs` |
//! | Which sockets are bound to a service? | `names.rs`, `lookup.rs` |
//! | What happens at a fork? | `fork.rs`, `inheritance.rs` |
//! | Which descriptors and sockets outlive the daemon? | `near_ends.rs`, `resuming.rs` |

pub(crate) mod bell;
pub(crate) mod connection;
mod data_path;
pub(crate) mod fork;
mod handshake;
mod idle;
mod inheritance;
pub(crate) mod lookup;
pub(crate) mod names;
mod near_ends;
pub(crate) mod notices;
mod registry;
pub(crate) mod resuming;

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use utipc_attach::{Envelope, Notice, PairId, ProcessCall, Reply, Request, decode};
use utipc_core::addr::NodeAddr;
use utipc_lanes::Pair;
use utipc_os::{fork as forks, lock};

use crate::attachment::connection::{Answered, Connection, Wire};
use crate::attachment::handshake::{Welcomed, connect};
use crate::attachment::inheritance::Inheritance;
use crate::attachment::names::Names;
use crate::attachment::notices::Notices;
use crate::attachment::resuming::Resuming;
use crate::error::Error;

/// Pauses between tries while the daemon closes the connection during the handshake, because this process was too slow
/// or too many processes attach at once.
const HANDSHAKE_BACKOFF: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(5), ms(25), ms(100), ms(250), ms(500), ms(500), ms(1000)]
};

/// The connection of this process to one daemon, and the state that its sockets share.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// The process that it belongs to, see [`forks::generation`].
    generation: u32,
    /// The inheritance for the child of the fork in progress. In the child: of the fork that made it, until it is
    /// claimed. Used only while forks are locked out.
    inheritance: Mutex<Option<Inheritance>>,
    /// In a forked child: its own attachment to the same daemon. Set only while forks are locked out.
    in_child: OnceLock<Arc<Attachment>>,
    pub(crate) connection: Connection,
    /// Arenas by pair and own side. Between its own sockets this process has both sides. Locked before the connection,
    /// never after it.
    pairs: Mutex<HashMap<(PairId, u8), Arc<Pair>>>,
    /// The binding table. Locked before the connection too.
    names: Names,
    pub(crate) notices: Notices,
    /// A thread that shrinks idle rings is running.
    shrinks_rings: AtomicBool,
    /// Number of rings of the bell before the last fetch of notices.
    fetched: AtomicU32,
    /// The sockets that resume when this attachment ends.
    pub(crate) resuming: Arc<Resuming>,
}

/// Data that comes with a reply: payload and descriptors.
pub(crate) struct Extra<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) fds: &'a mut Vec<OwnedFd>,
}

/// One round trip.
struct Exchanged<T> {
    result: Result<T, Error>,
    /// More notices wait at the daemon.
    has_more: bool,
}

impl Attachment {
    /// Attaches this process to the daemon at `path`; `None` if no daemon listens there. Tries again, for a few
    /// seconds, if the daemon closes the connection. The attachment is not registered for forks: see [`fork::attach`].
    fn open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        let mut pauses = HANDSHAKE_BACKOFF.iter();
        loop {
            match (Self::try_open(path), pauses.next()) {
                (Err(Error::HungUp(_)), Some(pause)) => std::thread::sleep(*pause),
                (opened, _) => return opened,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Option<Arc<Self>>, Error> {
        let Some(Welcomed { channel, wire, welcome, bell }) = connect(path)? else { return Ok(None) };
        let notices = Notices::default();
        notices.set_address(welcome.node);
        let attachment = Arc::new(Self {
            generation: forks::generation(),
            inheritance: Mutex::default(),
            in_child: OnceLock::new(),
            pairs: Mutex::default(),
            names: Names::default(),
            notices,
            shrinks_rings: AtomicBool::new(false),
            fetched: AtomicU32::new(bell.seq()),
            connection: Connection::new(path, channel, wire, bell),
            resuming: Arc::default(),
        });
        attachment.connection.watch()?;
        Ok(Some(attachment))
    }

    /// Whether this process opened the attachment; false in a forked child for those of its parent.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation == forks::generation()
    }

    /// Address of the node as last reported.
    pub(crate) fn address(&self) -> NodeAddr {
        self.notices.address()
    }

    /// Makes one round trip. `take` gets the reply, unless the request failed, and its payload and descriptors; it
    /// returns `None` for a reply of the wrong kind.
    pub(crate) fn call<T>(
        &self,
        request: &Request,
        payload: &[u8],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        self.exchange(request, payload, &[], take)
    }

    /// [`Attachment::call`] with descriptors that go with the request.
    pub(crate) fn call_with<T>(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        self.exchange(request, &[], fds, take)
    }

    /// Makes one round trip whose reply is [`Reply::Done`].
    pub(crate) fn request(&self, request: &Request, payload: &[u8]) -> Result<(), Error> {
        self.call(request, payload, |reply, _| (reply == Reply::Done).then_some(()))
    }

    /// One round trip, then those that fetch the notices that did not fit its reply.
    fn exchange<T>(
        &self,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        if self.connection.is_overdue() {
            self.connection.wait_for_overdue(request, |packet| self.process_overdue(packet))?;
        }
        let done = self.round_trip(&mut self.connection.lock(), request, payload, passed, take)?;
        let mut has_more = done.has_more;
        while has_more {
            let notices = Request::Process(ProcessCall::Notices);
            let wire = &mut self.connection.lock();
            has_more = self.round_trip(wire, &notices, &[], &[], |_, _| Some(()))?.has_more;
        }
        done.result
    }

    /// One round trip on the locked connection.
    fn round_trip<T>(
        &self,
        wire: &mut Wire,
        request: &Request,
        payload: &[u8],
        passed: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<Exchanged<T>, Error> {
        let connection = &self.connection;
        let assumed = connection.collect_before(wire, request, |packet| self.process_overdue(packet))?;
        let seen = self.connection.bell().seq();
        connection.send(wire, request, payload, passed, assumed.is_none())?;
        let answered = match assumed {
            Some(reply) => Answered::Assumed(reply),
            None => connection.await_reply(wire, request)?,
        };
        let malformed = || connection.nonsense();
        let Wire { input, fds, .. } = wire;
        let len = match answered {
            Answered::Reply(len) => len,
            Answered::Assumed(reply) => {
                let result = take(reply, Extra { payload: &[], fds }).ok_or_else(malformed);
                return Ok(Exchanged { result, has_more: false });
            }
        };
        let (envelope, payload) = decode::<Envelope>(&input[..len]).map_err(|_| malformed())?;
        let Envelope { notices, more, reply } = envelope;
        self.process_notices(&notices, &reply, seen, more);
        let result = match reply {
            Reply::Failed(failure) => Err(Error::Failed(failure)),
            reply => take(reply, Extra { payload, fds }).ok_or_else(malformed),
        };
        Ok(Exchanged { result, has_more: more })
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
    fn process_overdue(&self, packet: &[u8]) -> Result<(), Error> {
        let (envelope, _) = decode::<Envelope>(packet).map_err(|_| self.connection.nonsense())?;
        // The next call fetches what came after this reply.
        let seen = self.connection.bell().seq().wrapping_sub(1);
        self.process_notices(&envelope.notices, &Reply::Done, seen, envelope.more);
        Ok(())
    }

    /// Wakes the other threads of this process. This ring does not count as a notice of the daemon.
    pub(crate) fn ring(&self) {
        let before = self.connection.bell().ring();
        let _ = self.fetched.compare_exchange(before, before.wrapping_add(1), AcqRel, Relaxed);
    }

    /// Whether the daemon has notices or has died. Costs two loads.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.connection.bell().seq() != self.fetched.load(Relaxed)
    }

    /// Unmaps all arenas: the daemon, and with it all lanes, is gone.
    pub(crate) fn drop_pairs(&self) {
        lock(&self.pairs).clear();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Ends the watching thread and tells the daemon that this process detaches. A forked child must not end its
        // parent's connection.
        if self.is_own() {
            self.connection.shut();
        }
    }
}
