//! [`Socket`]: every call except sending, receiving and polling.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use utipc_attach::{Failure, LaneCall, LaneId, Reply, Request, SocketCall, SocketView};
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest, MAX_MEMBERS, MemberInfo};
use utipc_core::limits::MESSAGE_OVERHEAD;
use utipc_core::socket::{
    AcceptError, ConnectError, Destination, EndpointStats, OptionValue, RecvError, SendError, SocketKind,
    SocketOption, State, WaitReason,
};
use utipc_lanes::OwnSocket;
use utipc_os::spin::{Mode, Spin};
use utipc_os::{Left, lock};

use crate::attachment::Attachment;
use crate::descriptor::Descriptor;
use crate::fork;
use crate::resume::Resumption;
use crate::state::{Event, Half, SocketState};
use crate::waiting::unless_silent;
use crate::{Error, Wait};

/// One socket of the daemon's node; closed when dropped.
#[derive(Debug)]
pub struct Socket {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) state: Arc<SocketState>,
    /// [`SocketOption::ReceiveLowWater`]: the least number of bytes for which a blocking receive of a stream returns.
    pub(crate) low_water: AtomicU32,
    pub(crate) descriptor: Arc<OnceLock<Descriptor>>,
    /// Set if it attaches to the next daemon when its own dies.
    pub(crate) resumption: Option<Arc<Resumption>>,
    /// In a forked child: the same socket as the child holds it. Set only while forks are locked out.
    pub(crate) inherited: OnceLock<Box<Socket>>,
}

/// Whether the failure of a request means that the call has to wait.
fn would_block(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Send(SendError::WouldBlock)
            | Failure::Receive(RecvError::WouldBlock)
            | Failure::Accept(AcceptError::WouldBlock)
    )
}

/// Turns the failures that mean "the call has to wait" into `None`.
pub(crate) fn unless_blocked<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Failed(failure)) if would_block(&failure) => Ok(None),
        result => result.map(Some),
    }
}

impl Socket {
    pub(crate) fn new(
        attachment: Arc<Attachment>,
        port: u32,
        kind: SocketKind,
        accepted: bool,
        mode: Mode,
    ) -> Self {
        let state = Arc::new(SocketState::new(port, kind, accepted, mode));
        attachment.register(&state);
        Self {
            attachment,
            state,
            low_water: AtomicU32::new(1),
            descriptor: Arc::default(),
            resumption: None,
            inherited: OnceLock::new(),
        }
    }

    /// The handle that this process may use: `self`, except in a forked child that has inherited the socket, and of a
    /// socket that has resumed. Call it before any other method, and use its result.
    ///
    /// # Errors
    /// [`Error::Died`], [`Error::NotShared`].
    #[inline]
    pub fn live(&self) -> Result<&Self, Error> {
        if self.attachment.is_own() && self.resumption.is_none() { Ok(self) } else { self.current() }
    }

    #[cold]
    fn current(&self) -> Result<&Self, Error> {
        match self.next() {
            Some(next) => next.live(),
            None if self.attachment.is_own() => Ok(self),
            None => self.in_child(true),
        }
    }

    /// The socket in a forked child, claimed at the first call. `used`: the child is going to use it, not only to close
    /// it.
    #[cold]
    fn in_child(&self, used: bool) -> Result<&Self, Error> {
        if let Some(inherited) = self.inherited.get() {
            return inherited.live();
        }
        let mut attachments = fork::attachments();
        if !self.attachment.has_inheritance() {
            return Err(Error::NotShared(self.attachment.path().to_owned()));
        }
        let attachment = self.attachment.claim(&mut attachments)?;
        let inherited = self.inherited.get_or_init(|| {
            let state = Arc::new(self.state.inherited());
            attachment.register(&state);
            let descriptor = Arc::<OnceLock<Descriptor>>::default();
            if let Some(copy) = self.descriptor.get().and_then(Descriptor::inherited) {
                if copy.is_polled() {
                    attachment.watch_near_end(copy.near());
                    state.has_other_holders.store(false, Relaxed);
                }
                drop(descriptor.set(copy));
            }
            let low_water = AtomicU32::new(self.low_water.load(Relaxed));
            let (resumption, inherited) = (None, OnceLock::new());
            Box::new(Self { attachment, state, low_water, descriptor, resumption, inherited })
        });
        drop(attachments);
        match inherited.look() {
            Err(Error::Failed(Failure::NoSocket(_))) => {
                Err(Error::NotShared(self.attachment.path().to_owned()))
            }
            Err(error) => Err(error),
            Ok(_) => {
                if used {
                    // If the parent closed it before the claim, this process has got no notice that it is sole holder.
                    inherited.attachment.unshare(&inherited.state)?;
                }
                Ok(inherited)
            }
        }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.state.port
    }

    /// Address of the daemon's node.
    #[must_use]
    pub fn node_address(&self) -> NodeAddr {
        self.attachment.address()
    }

    pub(crate) fn own(&self) -> OwnSocket {
        OwnSocket { node: self.attachment.address(), port: self.port(), kind: self.kind() }
    }

    pub(crate) fn kind(&self) -> SocketKind {
        self.state.kind
    }

    /// Sets whether and how calls spin from now on.
    pub fn set_spin(&self, mode: Mode) {
        for spin in [&self.state.receive_spin, &self.state.send_spin] {
            *lock(spin) = Spin::new(mode);
        }
    }

    /// State, peer, readiness and counters as the node has them, without lanes.
    ///
    /// # Errors
    /// [`Error::Died`], as for all calls.
    pub fn look(&self) -> Result<SocketView, Error> {
        self.attachment.call(&SocketCall::Look.on(self.port()), &[], |reply, _| match reply {
            Reply::Socket(view) => Some(*view),
            _ => None,
        })
    }

    /// Counters, including messages in lanes.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn stats(&self) -> Result<EndpointStats, Error> {
        let mut stats = self.look()?.stats;
        let sender = &lock(&self.state.sender).lanes;
        stats.sent_messages += sender.messages;
        stats.sent_bytes += sender.bytes;
        stats.window_waits += sender.window_waits;
        stats.link_waits += sender.link_waits;
        stats.overloads += sender.overloads;
        let receiver = lock(&self.state.receiver);
        stats.received_messages += receiver.messages;
        stats.received_bytes += receiver.bytes;
        Ok(stats)
    }

    /// Why the last call would have blocked, if it still would.
    ///
    /// # Errors
    /// As [`Socket::look`].
    pub fn wait_reason(&self) -> Result<Option<WaitReason>, Error> {
        if self.state.waits(Half::Send) {
            let reason = lock(&self.state.sender).lanes.wait_reason(self.attachment.address());
            if reason.is_some() {
                return Ok(reason);
            }
        }
        if self.state.waits(Half::Receive) && lock(&self.state.receiver).has_lanes() {
            return Ok(Some(WaitReason::NothingReceived));
        }
        Ok(self.look()?.wait)
    }

    /// Binds to a range.
    ///
    /// # Errors
    /// [`Failure::Bind`], [`Failure::NotAllowed`].
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Error> {
        self.request(&SocketCall::Bind { range, scope }.on(self.port()))?;
        if let Some(resumption) = &self.resumption {
            resumption.note_binding(range, scope);
        }
        Ok(())
    }

    /// Withdraws one binding; `None`: all.
    ///
    /// # Errors
    /// [`Failure::Bind`].
    pub fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<(), Error> {
        self.request(&SocketCall::Unbind { which }.on(self.port()))?;
        if let Some(resumption) = &self.resumption {
            resumption.forget_binding(which);
        }
        Ok(())
    }

    /// Joins a group: from now on the socket sends to members and receives from them only.
    ///
    /// # Errors
    /// [`Failure::Join`], [`Failure::NotAllowed`].
    pub fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<(), Error> {
        // A lane would pass by the order of the group.
        self.attachment.host(&self.state)?;
        let port = self.port();
        self.request(&SocketCall::Join { request, policy }.on(port))?;
        if let Some(resumption) = &self.resumption {
            resumption.note_group(Some((request, policy)));
        }
        self.state.in_group.store(true, Relaxed);
        self.attachment.use_group_lanes(&self.state)?;
        // Writable once a member has joined.
        self.note_full_node()
    }

    /// The members of the socket's group, by address.
    ///
    /// # Errors
    /// [`Failure::Leave`] if it is in none.
    pub fn group_members(&self) -> Result<Vec<MemberInfo>, Error> {
        let mut all: Vec<MemberInfo> = Vec::new();
        loop {
            let request =
                SocketCall::GroupMembers { after: all.last().map(|last| last.port) }.on(self.port());
            let more = self.attachment.call(&request, &[], |reply, _| match reply {
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
        if self.state.in_group.load(Relaxed) {
            // What is left in lanes can still be received.
            self.attachment.host(&self.state)?;
        }
        self.request(&SocketCall::Leave.on(self.port()))?;
        self.state.in_group.store(false, Relaxed);
        if let Some(resumption) = &self.resumption {
            resumption.note_group(None);
        }
        Ok(())
    }

    /// Makes it a listener.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn listen(&self) -> Result<(), Error> {
        self.request(&SocketCall::Listen.on(self.port()))?;
        self.keep_listening();
        Ok(())
    }

    /// Accepts the next connection request: a socket for it, and the peer; `None` if there is none within `wait`. On a
    /// listener that resumes it waits for the next daemon too.
    ///
    /// # Errors
    /// [`Failure::Accept`].
    pub fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        if self.resumption.is_some() {
            return self.across_restarts(wait, |socket| socket.accept_here(wait));
        }
        self.accept_here(wait)
    }

    /// [`Socket::accept`] from the daemon of this handle.
    fn accept_here(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        let request = SocketCall::Accept.on(self.port());
        let accepted = self.poll(wait, || {
            let accepted = self.attachment.call(&request, &[], |reply, _| match reply {
                Reply::Accepted { port, peer } => Some((port, peer)),
                _ => None,
            });
            self.note_read()?;
            unless_blocked(accepted)
        })?;
        // A call that this one's signal handler has interrupted may hold it while it sleeps.
        let mode = self.state.receive_spin.try_lock().map_or(Mode::Adaptive, |spin| spin.mode());
        let socket = |port| Self::new(Arc::clone(&self.attachment), port, self.kind(), true, mode);
        Ok(accepted.map(|(port, peer)| (socket(port), peer)))
    }

    /// Begins a connection, or sets the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub fn connect(&self, to: Option<Destination>) -> Result<(), Error> {
        let begun = self.request(&SocketCall::Connect { to }.on(self.port()));
        if self.kind().is_connection_oriented() {
            if begun.is_ok() {
                self.connects_to(to);
            }
            self.note_full_node()?;
        } else if begun.is_ok() {
            lock(&self.state.sender).default_to = to;
            if let Some(resumption) = &self.resumption {
                resumption.note_destination(to);
            }
        }
        begun
    }

    /// Notes that a connection to `to` was requested.
    pub(crate) fn connects_to(&self, to: Option<Destination>) {
        if let Some(Destination::Service { addr, .. }) = to {
            *lock(&self.state.service) = Some(addr.into());
        }
    }

    /// Waits until the connection is set up; `None` if `wait` ends before.
    ///
    /// # Errors
    /// [`Failure::Connect`] if the connection has failed.
    pub fn wait_connected(&self, wait: Wait) -> Result<Option<()>, Error> {
        self.poll(wait, || {
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
        self.attachment.call(&SocketCall::TakeError.on(self.port()), &[], |reply, _| match reply {
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
        let request = SocketCall::Shutdown.on(self.port());
        if !self.kind().is_connection_oriented() {
            // Unread messages move to the node, which returns them.
            self.attachment.host(&self.state)?;
            let done = self.request(&request);
            lock(&self.state.receiver).node_is_ready();
            self.attachment.ring();
            return done;
        }
        // The daemon ends the lanes; unread messages are lost.
        self.request(&request)?;
        let mut receiver = lock(&self.state.receiver);
        // Drops announced lanes: the reader of one that is opened now would wait for an end that never comes.
        drop(self.state.receiver_events.take());
        receiver.remove_all();
        receiver.node_is_ready();
        drop(receiver);
        // Wake threads that wait for the peer.
        self.attachment.ring();
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
        self.request(&SocketCall::SetOption { option, value }.on(self.port()))?;
        if let Some(resumption) = &self.resumption {
            resumption.note_option(option, value);
        }
        let mut options = self.state.options();
        options.set(option, value);
        self.state.set_options(options);
        if let (SocketOption::ReceiveLowWater, OptionValue::Number(bytes)) = (option, value) {
            self.low_water.store(bytes.max(1), Relaxed);
        }
        Ok(())
    }

    /// Reads an option. Counts of waiting messages include those in lanes.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn option(&self, option: SocketOption) -> Result<u32, Error> {
        let at_node = self.option_at_node(option)?;
        let in_lanes = match option {
            SocketOption::ReceiveQueueDepth => self.waiting()?.0,
            SocketOption::ReceiveQueueUsed => {
                let (messages, bytes) = self.waiting()?;
                u32::try_from(bytes + u64::from(messages) * MESSAGE_OVERHEAD as u64).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        Ok(at_node.saturating_add(in_lanes))
    }

    fn option_at_node(&self, option: SocketOption) -> Result<u32, Error> {
        self.attachment.call(&SocketCall::GetOption { option }.on(self.port()), &[], |reply, _| match reply {
            Reply::Number(value) => Some(value),
            _ => None,
        })
    }

    /// Requests that the daemon wake the processes at the other end of `lanes`, which poll a descriptor.
    pub(crate) fn wake_peers(&self, lanes: Vec<LaneId>) -> Result<(), Error> {
        lanes
            .into_iter()
            .try_for_each(|lane| self.request_that_may_fail(&Request::Lane(LaneCall::Wake { lane })))
    }

    /// Sends a request about a lane that may have ended meanwhile; ignores a refusal.
    pub(crate) fn request_that_may_fail(&self, request: &Request) -> Result<(), Error> {
        match self.request(request) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    pub(crate) fn request(&self, request: &Request) -> Result<(), Error> {
        self.attachment.request(request, &[])
    }

    /// Repeats `attempt`, which makes a request, whenever the bell rings, until it yields something or `wait` ends.
    fn poll<T>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut end = None;
        loop {
            let sleeper = self.attachment.bell().park();
            if let Some(done) = unless_silent(attempt(), wait)? {
                return Ok(Some(done));
            }
            let overdue = self.attachment.is_overdue();
            match end.get_or_insert_with(|| wait.start()).left() {
                Left::Nothing => return Ok(None),
                Left::Time(limit) if overdue => drop(self.pause(limit)?),
                Left::Time(limit) => self.check_interrupted(sleeper.sleep(&[], limit)?)?,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.next().is_some() {
            // The daemon of this handle is gone; the next one is dropped with `resumption`.
            return;
        }
        if !self.attachment.is_own() {
            // Claims the child's socket, which is closed when `inherited` is dropped. The parent's stays open.
            let _ = self.in_child(false);
            return;
        }
        lock(&self.state.sender).lanes.leave_all();
        lock(&self.state.receiver).remove_all();
        // From now on the attachment answers the ends of lanes, including those that this socket has queued.
        self.attachment.unregister(self.port());
        for event in self.state.sender_events.take() {
            if let Event::LaneOver(lane) = event {
                self.attachment.answer_lane_end(lane);
            }
        }
        // If the daemon is gone, the socket is closed already.
        let _ = self.request(&SocketCall::Close.on(self.port()));
        if self.attachment.has_tasks() {
            let _ = self.attachment.fetch_notices();
        }
    }
}
