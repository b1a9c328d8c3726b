//! [`Socket`]: its components, and the calls that are requests to the daemon.

mod handle;
pub(crate) mod passing;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use utipc_attach::{Failure, Reply, SocketCall, SocketView};
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest, MAX_MEMBERS, MemberInfo};
use utipc_core::limits::MESSAGE_OVERHEAD;
use utipc_core::socket::{
    ConnectError, Destination, EndpointStats, OptionValue, Received, RecvOptions, SocketKind, SocketOption,
    State, WaitReason,
};
use utipc_os::Wait;
use utipc_os::spin::Mode;

use crate::attacher::Attacher;
use crate::base::{Base, unless_blocked};
use crate::error::Error;
use crate::life::Life;
use crate::life::resume::Resumption;
use crate::ready::Readiness;
use crate::ready::descriptor::Ends;
use crate::receive::{ReceivePath, lanes};
use crate::send::SendPath;
use crate::state::{Half, SocketState};
use crate::waiting::repeat;

/// One socket of the daemon's node; closed when dropped.
#[derive(Debug)]
pub struct Socket {
    life: Life<Self>,
    send: SendPath,
    receive: ReceivePath,
    ready: Readiness,
}

impl Socket {
    fn with(base: Base, ends: Arc<Ends>, resumption: Option<Arc<Resumption<Self>>>) -> Self {
        let life = Life::new(base.clone(), resumption);
        let ready = Readiness::new(base, ends);
        Self { life, send: SendPath::new(ready.clone()), receive: ReceivePath::new(ready.clone()), ready }
    }

    #[inline]
    fn base(&self) -> &Base {
        self.ready.base()
    }

    pub(crate) fn new(base: Base) -> Self {
        Self::with(base, Arc::default(), None)
    }

    /// A connectionless socket that resumes, or another one, which resumes from when it listens.
    pub(crate) fn resuming(base: Base, ends: Arc<Ends>, attacher: &Attacher, mode: Mode) -> Self {
        let resumption = Resumption::begin(&base, &ends, attacher, mode);
        Self::with(base, ends, Some(resumption))
    }

    /// The handle that this process may use: `self`, except in a forked child that has inherited the socket, and of a
    /// socket that has resumed. Call it before any other method, and use its result.
    ///
    /// # Errors
    /// [`Error::Died`], [`Error::NotShared`].
    #[inline]
    pub fn live(&self) -> Result<&Self, Error> {
        if self.life.is_plain() { Ok(self) } else { Life::current(self) }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.base().port()
    }

    /// Address of the daemon's node.
    #[must_use]
    pub fn node_address(&self) -> NodeAddr {
        self.base().attachment.address()
    }

    /// Kind of the socket.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.base().kind()
    }

    /// Its readiness, for programs that poll.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.ready
    }

    /// Sets whether and how calls spin from now on.
    pub fn set_spin(&self, mode: Mode) {
        self.base().state.set_spin(mode);
    }

    /// State, peer, readiness and counters as the node has them, without lanes.
    ///
    /// # Errors
    /// [`Error::Died`], as for all calls.
    pub fn look(&self) -> Result<SocketView, Error> {
        self.base().look()
    }

    /// Counters, including messages in lanes.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn stats(&self) -> Result<EndpointStats, Error> {
        let mut stats = self.look()?.stats;
        self.base().state.outbox.lock().add_to(&mut stats);
        let receiver = self.base().state.inbox.lock();
        stats.received_messages += receiver.messages;
        stats.received_bytes += receiver.bytes;
        Ok(stats)
    }

    /// Why the last call would have blocked, if it still would.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn wait_reason(&self) -> Result<Option<WaitReason>, Error> {
        let state = &self.base().state;
        if state.waits(Half::Send) {
            let reason = state.outbox.lock().wait_reason(self.node_address());
            if reason.is_some() {
                return Ok(reason);
            }
        }
        if state.waits(Half::Receive) && state.inbox.lock().has_lanes() {
            return Ok(Some(WaitReason::NothingReceived));
        }
        Ok(self.look()?.wait)
    }

    /// Binds to a range.
    ///
    /// # Errors
    /// [`Failure::Bind`], [`Failure::NotAllowed`].
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Error> {
        self.base().request(SocketCall::Bind { range, scope })?;
        self.life.note(|record| record.bindings.push((range, scope)));
        Ok(())
    }

    /// Withdraws one binding; `None`: all.
    ///
    /// # Errors
    /// [`Failure::Bind`].
    pub fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<(), Error> {
        self.base().request(SocketCall::Unbind { which })?;
        self.life.note(|record| record.unbind(which));
        Ok(())
    }

    /// Joins a group: from now on the socket sends to members and receives from them only.
    ///
    /// # Errors
    /// [`Failure::Join`], [`Failure::NotAllowed`].
    pub fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<(), Error> {
        // A lane would pass by the order of the group.
        let Base { attachment, state } = self.base();
        attachment.host(state)?;
        self.base().request(SocketCall::Join { request, policy })?;
        self.life.note(|record| record.group = Some((request, policy)));
        state.in_group.set(true);
        attachment.use_group_lanes(state)?;
        // Writable once a member has joined.
        self.ready.note_full_node()
    }

    /// The members of the socket's group, by address.
    ///
    /// # Errors
    /// [`Failure::Leave`] if it is in none.
    pub fn group_members(&self) -> Result<Vec<MemberInfo>, Error> {
        let mut all: Vec<MemberInfo> = Vec::new();
        loop {
            let call = SocketCall::GroupMembers { after: all.last().map(|last| last.port) };
            let more = self.base().call(call, |reply, _| match reply {
                Reply::GroupMembers(members) => Some(members),
                _ => None,
            })?;
            // Addresses increase, so that a faulty daemon cannot keep this loop going for ever.
            let ascends =
                more.first().is_some_and(|first| all.last().is_none_or(|last| last.port < first.port));
            if !ascends || all.len() > MAX_MEMBERS {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// [`Failure::Leave`].
    pub fn leave(&self) -> Result<(), Error> {
        let Base { attachment, state } = self.base();
        if state.in_group.get() {
            // What is left in lanes can still be received.
            attachment.host(state)?;
        }
        self.base().request(SocketCall::Leave)?;
        state.in_group.set(false);
        self.life.note(|record| record.group = None);
        Ok(())
    }

    /// Makes it a listener.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn listen(&self) -> Result<(), Error> {
        self.base().request(SocketCall::Listen)?;
        self.life.note(|record| record.listens = true);
        if self.life.may_resume() {
            self.ready.begin_resuming();
        }
        Ok(())
    }

    /// Accepts the next connection request: a socket for it, and the peer; `None` if there is none within `wait`. On a
    /// listener that resumes it waits for the next daemon too.
    ///
    /// # Errors
    /// [`Failure::Accept`].
    pub fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        if self.life.may_resume() {
            return Life::across_restarts(self, wait, |socket| socket.accept_here(wait));
        }
        self.accept_here(wait)
    }

    /// [`Socket::accept`] from the daemon of this handle.
    fn accept_here(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        let accepted = repeat(self.base(), wait, || {
            let accepted = self.base().call(SocketCall::Accept, |reply, _| match reply {
                Reply::Accepted { port, peer } => Some((port, peer)),
                _ => None,
            });
            self.ready.note_read()?;
            unless_blocked(accepted)
        })?;
        let Base { attachment, state } = self.base();
        // A call that this one's signal handler has interrupted may spin.
        let mode = state.inbox.spin_mode();
        let socket = |port| {
            let accepted = SocketState::new(port, state.kind, true, mode);
            Self::new(Base::new(Arc::clone(attachment), accepted))
        };
        Ok(accepted.map(|(port, peer)| (socket(port), peer)))
    }

    /// Begins a connection, or sets the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub fn connect(&self, to: Option<Destination>) -> Result<(), Error> {
        let begun = self.base().request(SocketCall::Connect { to });
        if self.kind().is_connection_oriented() {
            if begun.is_ok() {
                self.send.connects_to(to);
            }
            self.ready.note_full_node()?;
        } else if begun.is_ok() {
            self.base().state.outbox.lock().set_default(to);
            self.life.note(|record| record.default_to = to);
        }
        begun
    }

    /// Waits until the connection is set up; `None` if `wait` ends before.
    ///
    /// # Errors
    /// [`Failure::Connect`] if the connection has failed.
    pub fn wait_connected(&self, wait: Wait) -> Result<Option<()>, Error> {
        repeat(self.base(), wait, || {
            let view = self.look()?;
            match view.state {
                State::Connecting => Ok(None),
                State::Established => Ok(Some(())),
                // It was set up and has ended since: its data can still be read.
                _ if view.peer.is_some() && view.error.is_none() => Ok(Some(())),
                _ => {
                    let cause = self.take_error()?.unwrap_or(ConnectError::Refused);
                    Err(Error::Failed(Failure::Connect(cause)))
                }
            }
        })
    }

    /// Takes the error that ended the connection; later calls return `None`.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn take_error(&self) -> Result<Option<ConnectError>, Error> {
        self.base().call(SocketCall::TakeError, |reply, _| match reply {
            Reply::Error(error) => Some(error),
            _ => None,
        })
    }

    /// Shuts the connection down. A connectionless socket gets an error, and receives on it no longer wait; its
    /// messages go through the node from now on.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn shutdown(&self) -> Result<(), Error> {
        let Base { attachment, state } = self.base();
        if !self.kind().is_connection_oriented() {
            // Unread messages move to the node, which returns them.
            attachment.host(state)?;
            let done = self.base().request(SocketCall::Shutdown);
            state.inbox.lock().node_is_ready();
            attachment.ring();
            return done;
        }
        // The daemon ends the lanes; unread messages are lost.
        self.base().request(SocketCall::Shutdown)?;
        let mut receiver = state.inbox.lock();
        // Drops announced lanes: the reader of one that is opened now would wait for an end that never comes.
        drop(state.inbox.events.take());
        receiver.remove_all();
        receiver.node_is_ready();
        drop(receiver);
        // Wake threads that wait for the peer.
        attachment.ring();
        Ok(())
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<(), Error> {
        if (option, value) == (SocketOption::GroupLeave, OptionValue::None) {
            return self.leave();
        }
        self.base().request(SocketCall::SetOption { option, value })?;
        self.life.note(|record| record.set_option(option, value));
        let state = &self.base().state;
        let mut options = state.outbox.options();
        options.set(option, value);
        state.outbox.set_options(options);
        if let (SocketOption::ReceiveLowWater, OptionValue::Number(bytes)) = (option, value) {
            state.inbox.set_low_water(bytes);
        }
        Ok(())
    }

    /// Reads an option. Counts of waiting messages include those in lanes.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn option(&self, option: SocketOption) -> Result<u32, Error> {
        let at_node = self.base().option(option)?;
        let in_lanes = match option {
            SocketOption::ReceiveQueueDepth => lanes::waiting(self.base())?.0,
            SocketOption::ReceiveQueueUsed => {
                let (messages, bytes) = lanes::waiting(self.base())?;
                u32::try_from(bytes + u64::from(messages) * MESSAGE_OVERHEAD as u64).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        Ok(at_node.saturating_add(in_lanes))
    }

    /// Sends `data`. Returns the number of bytes taken, or `None` if there was no room within `wait`.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        if self.life.may_resume() {
            return Life::across_restarts(self, wait, |socket| socket.send.send(data, to, wait));
        }
        self.send.send(data, to, wait)
    }

    /// [`Socket::send`] in a group, with a key for slow members. Without a group the key has no effect.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>, Error> {
        if self.life.may_resume() {
            return Life::across_restarts(self, wait, |socket| socket.send.send_keyed(data, to, key, wait));
        }
        self.send.send_keyed(data, to, key, wait)
    }

    /// Receives into `buffer`; `None` if nothing arrives within `wait`.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>, Error> {
        if self.life.may_resume() {
            return Life::across_restarts(self, wait, |socket| socket.receive.receive(buffer, options, wait));
        }
        self.receive.receive(buffer, options, wait)
    }

    /// Receives one message (of a stream: the bytes that are there) into `data`, which is resized.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>, Error> {
        if self.life.may_resume() {
            return Life::across_restarts(self, wait, |socket| socket.receive.receive_whole(data, wait));
        }
        self.receive.receive_whole(data, wait)
    }

    /// A descriptor to poll, which shows the readiness of the socket; made at the first call. The socket keeps its
    /// lanes.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is free; [`Failure::State`] if the program owns the descriptor, see
    /// [`Socket::keep`].
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.ready.descriptor(self.life.resumes())
    }
}
