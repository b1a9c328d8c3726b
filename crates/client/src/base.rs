//! What all components of a socket stand on: its attachment, its state, and requests about it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use utipc_attach::{Failure, LaneCall, LaneId, ProcessCall, Reply, Request, SocketCall, SocketView};
use utipc_core::addr::NodeAddr;
use utipc_core::socket::{AcceptError, RecvError, SendError, SocketKind, SocketOption};
use utipc_lanes::{OwnSocket, Receiver};
use utipc_os::Wait;
use utipc_os::futex::Woken;
use utipc_os::spin::Mode;

use crate::attachment::connection::PAUSE;
use crate::attachment::{Attachment, Extra};
use crate::error::Error;
use crate::state::SocketState;

/// A socket at the daemon of one attachment.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) state: Arc<SocketState>,
}

/// Turns the failures that mean "the call has to wait" into `None`.
pub(crate) fn unless_blocked<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Failed(
            Failure::Send(SendError::WouldBlock)
            | Failure::Receive(RecvError::WouldBlock)
            | Failure::Accept(AcceptError::WouldBlock),
        )) => Ok(None),
        result => result.map(Some),
    }
}

impl Base {
    /// Registers the state of a new socket.
    pub(crate) fn new(attachment: Arc<Attachment>, state: SocketState) -> Self {
        let state = Arc::new(state);
        attachment.notices.register(&state);
        Self { attachment, state }
    }

    /// Opens a socket at this daemon.
    pub(crate) fn open(attachment: &Arc<Attachment>, kind: SocketKind, mode: Mode) -> Result<Self, Error> {
        let request = Request::Process(ProcessCall::Open { kind });
        let port = attachment.call(&request, &[], |reply, _| match reply {
            Reply::Opened { port } => Some(port),
            _ => None,
        })?;
        Ok(Self::new(Arc::clone(attachment), SocketState::new(port, kind, false, mode)))
    }

    pub(crate) fn port(&self) -> u32 {
        self.state.port
    }

    pub(crate) fn kind(&self) -> SocketKind {
        self.state.kind
    }

    pub(crate) fn own(&self) -> OwnSocket {
        OwnSocket { node: self.attachment.address(), port: self.port(), kind: self.kind() }
    }

    /// Whether `node` is the daemon's node.
    pub(crate) fn is_here(&self, node: NodeAddr) -> bool {
        node.is_none() || node == self.attachment.address()
    }

    /// Makes a request about this socket; see [`Attachment::call`].
    pub(crate) fn call<T>(
        &self,
        call: SocketCall,
        take: impl FnOnce(Reply, Extra<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        self.attachment.call(&call.on(self.port()), &[], take)
    }

    /// Makes a request about this socket whose reply is [`Reply::Done`].
    pub(crate) fn request(&self, call: SocketCall) -> Result<(), Error> {
        self.attachment.request(&call.on(self.port()), &[])
    }

    /// Sends a request about a lane that may have ended meanwhile; ignores a refusal.
    pub(crate) fn request_that_may_fail(&self, request: &Request) -> Result<(), Error> {
        match self.attachment.request(request, &[]) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    /// Reports a corrupt lane to the daemon.
    pub(crate) fn report(&self, lane: LaneId) -> Result<(), Error> {
        self.request_that_may_fail(&Request::Lane(LaneCall::Report { lane }))
    }

    /// Requests a lane to the socket `to` (0: to the node); if it is granted, messages use it from the reply on.
    pub(crate) fn ask_for_lane(&self, to: u32) -> Result<(), Error> {
        self.request_that_may_fail(&SocketCall::WantLane { to }.on(self.port()))
    }

    /// Requests that the daemon wake the processes at the other end of `lanes`, which poll a descriptor.
    pub(crate) fn wake_peers(&self, lanes: Vec<LaneId>) -> Result<(), Error> {
        let wake = |lane| self.request_that_may_fail(&Request::Lane(LaneCall::Wake { lane }));
        lanes.into_iter().try_for_each(wake)
    }

    /// Unlocks the receiver, then wakes the writers of lanes in which it has made room.
    #[inline]
    pub(crate) fn unlock(&self, mut receiver: MutexGuard<'_, Receiver>) -> Result<(), Error> {
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        if to_wake.is_empty() { Ok(()) } else { self.wake_peers(to_wake) }
    }

    /// Fetches an end of a descriptor.
    pub(crate) fn fetch_end(&self, request: &Request) -> Result<OwnedFd, Error> {
        self.attachment.call(request, &[], |reply, extra| extra.fds.pop().filter(|_| reply == Reply::Done))
    }

    /// State, peer, readiness and counters as the node has them, without lanes.
    pub(crate) fn look(&self) -> Result<SocketView, Error> {
        self.call(SocketCall::Look, |reply, _| match reply {
            Reply::Socket(view) => Some(*view),
            _ => None,
        })
    }

    /// An option as the node has it.
    pub(crate) fn option(&self, option: SocketOption) -> Result<u32, Error> {
        self.call(SocketCall::GetOption { option }, |reply, _| match reply {
            Reply::Number(value) => Some(value),
            _ => None,
        })
    }

    /// Sleeps for a moment, while the daemon does not answer.
    #[cold]
    pub(crate) fn pause(&self, limit: Option<Duration>) -> Result<(), Error> {
        let pause = limit.map_or(PAUSE, |limit| limit.min(PAUSE));
        self.check_interrupted(self.attachment.connection.bell().park().sleep(&[], Some(pause))?)
    }

    /// After a sleep: returns an error if a signal ended it and the socket is interruptible.
    pub(crate) fn check_interrupted(&self, woken: Woken) -> Result<(), Error> {
        let ends = woken == Woken::Signal && self.state.interruptible.get();
        if ends { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// A call that may wait waits for a daemon that does not answer, too.
#[inline]
pub(crate) fn unless_silent<T>(tried: Result<Option<T>, Error>, wait: Wait) -> Result<Option<T>, Error> {
    match tried {
        Err(Error::Silent(_)) if wait != Wait::Never => Ok(None),
        tried => tried,
    }
}
