//! The state of one socket, and access to it. The other files of this folder implement its behaviour.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{AcceptError, ConnectError, StateError};
use super::flow::Flow;
use super::full::Full;
use super::multicast_sync::MulticastSync;
use super::nagle::Nagle;
use super::pending::{Closing, Request};
use super::queue::{ReceiveQueue, charge};
use super::settings::Settings;
use super::state::{Event, State};
use super::types::{Destination, EndpointStats, Readiness, SocketKind, WaitReason};
use super::uplink::{BindError, SubmitError, Submitted, Uplink};
use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::group::Group;
use crate::limits::MESSAGE_OVERHEAD;
use crate::quota::UserId;
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{ErrorCode, Message};

/// One socket: kind, state, queues and flow control. Spec: tipc.md §8.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) port: u32,
    pub(super) kind: SocketKind,
    pub(super) state: State,
    pub(super) settings: Settings,
    /// The peer of the connection; while connecting, the destination of the request.
    pub(super) peer: PortId,
    /// Capabilities of the peer's node.
    pub(super) capabilities: u16,
    /// Largest message to the peer that is not fragmented, bytes.
    pub(super) mss: usize,
    /// The service address by which the connection was set up.
    pub(super) service: Option<ServiceAddr>,
    pub(super) default_to: Option<Destination>,
    pub(super) request: Option<Request>,
    pub(super) queue: ReceiveQueue,
    pub(super) full: Full,
    pub(super) multicast_sync: MulticastSync,
    pub(super) flow: Flow,
    pub(super) nagle: Nagle,
    /// Nodes whose links are congested; the own node while a local receiver is full. Bounded by the number of peers.
    pub(super) congested: BTreeSet<NodeAddr>,
    /// Copies of its last multicast for sockets of its node are still to be made: it waits for its own node.
    pub(super) spreads: bool,
    /// The receivers of its last multicast are being collected, on this node and on others.
    pub(super) collects_receivers: bool,
    /// Bytes of messages that congested links have taken beyond their limits, by node, and their sum.
    pub(super) beyond: BTreeMap<NodeAddr, u64>,
    pub(super) beyond_bytes: u64,
    pub(super) probe_at: Option<Time>,
    pub(super) probe_unanswered: bool,
    pub(super) closing: Option<Closing>,
    pub(super) closed: bool,
    /// The application has shut the connection down.
    pub(super) shut: bool,
    /// Error code with which the peer ended the connection.
    pub(super) end: Option<ErrorCode>,
    pub(super) error: Option<ConnectError>,
    /// The connection was set up; it may have ended since.
    pub(super) was_established: bool,
    pub(super) blocked: Option<WaitReason>,
    /// The last message was an anycast with several receivers: only if all are full the next one waits.
    pub(super) chooses: bool,
    /// All receivers of the last message were full. Ends with the next [`Endpoint::wakeup`], of whichever.
    pub(super) waits_for_any: bool,
    /// The group that the socket is in.
    pub(super) group: Option<Box<Group>>,
    bindings: u32,
    /// The user that it is charged to, if any.
    user: Option<UserId>,
    /// Bytes that its messages may use together; see [`Endpoint::set_room`].
    memory_limit: u64,
    /// Messages refused because of that.
    over_memory: u64,
    pub(super) rng: Rng,
    pub(super) stats: EndpointStats,
}

impl Endpoint {
    /// A socket of `kind` with port number `port`; `seed` randomises the retries of connection requests.
    #[must_use]
    pub fn new(_now: Time, kind: SocketKind, port: u32, seed: u64) -> Self {
        Self {
            port,
            kind,
            state: State::Open,
            settings: Settings::new(kind),
            peer: PortId::default(),
            capabilities: 0,
            mss: 0,
            service: None,
            default_to: None,
            request: None,
            queue: ReceiveQueue::default(),
            full: Full::default(),
            multicast_sync: MulticastSync::default(),
            flow: Flow::new(),
            nagle: Nagle::new(),
            congested: BTreeSet::new(),
            spreads: false,
            collects_receivers: false,
            beyond: BTreeMap::new(),
            beyond_bytes: 0,
            probe_at: None,
            probe_unanswered: false,
            closing: None,
            closed: false,
            shut: false,
            end: None,
            error: None,
            was_established: false,
            blocked: None,
            chooses: false,
            waits_for_any: false,
            group: None,
            bindings: 0,
            user: None,
            memory_limit: u64::MAX,
            over_memory: 0,
            rng: Rng::new(seed),
            stats: EndpointStats::default(),
        }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Kind.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// State.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The peer of the connection, also after its end. A request that failed had no peer.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        (self.was_established && self.peer.port != 0).then_some(self.peer)
    }

    /// The result of the connection request; `None` while it is pending. A connection that was set up stays so after
    /// its end: its data can still be read. Takes the error.
    pub fn take_setup(&mut self) -> Option<Result<(), ConnectError>> {
        match self.state {
            State::Connecting => None,
            State::Established => Some(Ok(())),
            _ => match self.error.take() {
                None if self.was_established => Some(Ok(())),
                why => Some(Err(why.unwrap_or(ConnectError::Refused))),
            },
        }
    }

    /// The service address by which the connection was set up, if any.
    #[must_use]
    pub fn connected_service(&self) -> Option<ServiceAddr> {
        self.service
    }

    /// Destination of sends without one, on a connectionless socket.
    #[must_use]
    pub fn default_destination(&self) -> Option<Destination> {
        self.default_to
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// Binds the socket to a range. Spec: tipc.md §1.2.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(
        &mut self,
        range: ServiceRange,
        scope: Scope,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        if !range.is_valid() {
            return Err(BindError::InvalidRange);
        }
        if self.state == State::Established || self.closing.is_some() || self.closed {
            return Err(BindError::InvalidState);
        }
        if self.group.is_some() {
            return Err(BindError::InGroup);
        }
        uplink.bind(self.port, range, scope)?;
        self.bindings = self.bindings.saturating_add(1);
        Ok(())
    }

    /// Withdraws one binding, or all; of a socket in a group only all, with which it leaves the group.
    ///
    /// # Errors
    /// [`BindError::NotBound`] if there is no such binding, or none at all; [`BindError::InGroup`].
    pub fn unbind(
        &mut self,
        which: Option<(ServiceRange, Scope)>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        if which.is_none() && self.bindings == 0 {
            return Err(BindError::NotBound);
        }
        if self.group.is_some() {
            if which.is_some() {
                return Err(BindError::InGroup);
            }
            let _ = self.leave(uplink);
            if self.bindings == 0 {
                return Ok(());
            }
        }
        uplink.unbind(self.port, which)?;
        self.bindings = if which.is_some() { self.bindings.saturating_sub(1) } else { 0 };
        Ok(())
    }

    /// The user that the socket is charged to.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        self.user
    }

    pub(crate) fn set_user(&mut self, user: UserId) {
        self.user = Some(user);
    }

    /// Number of its bindings.
    pub(crate) fn binding_count(&self) -> u32 {
        self.bindings
    }

    /// Bytes of the messages that it keeps, a connection request among them, of those that congested links have taken
    /// from it beyond their limits, and of their bookkeeping.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let kept = self.queue.charged() + self.full.bytes() + self.multicast_sync.bytes();
        let deferred = self
            .group
            .as_ref()
            .map_or(0, |group| group.deferred_bytes() + group.kept_bytes() + group.member_bytes());
        let request = self.request.as_ref().map_or(0, |request| charge(&request.syn));
        (kept + deferred + request) as u64 + self.nagle.bytes() + self.beyond_bytes
    }

    /// Limits by how many bytes [`Self::memory`] may grow from now on; messages beyond it are rejected with OVERLOAD,
    /// and further members of its group stay unknown.
    pub(crate) fn set_room(&mut self, bytes: u64) {
        self.memory_limit = self.memory().saturating_add(bytes);
        if let Some(group) = &mut self.group {
            group.limit_members(bytes);
        }
    }

    /// How many more bytes its messages may use.
    pub(super) fn room(&self) -> u64 {
        self.memory_limit.saturating_sub(self.memory())
    }

    pub(super) fn count_over_memory(&mut self) {
        self.over_memory += 1;
    }

    /// Messages rejected because of [`Self::set_room`] since the last call.
    pub(crate) fn take_over_memory(&mut self) -> u64 {
        core::mem::take(&mut self.over_memory)
    }

    /// True if the socket has a binding.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bindings > 0
    }

    /// Makes the socket a listener. The receive buffer limits the queue of requests. Spec: tipc.md §8.2.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn listen(&mut self) -> Result<(), StateError> {
        if !self.kind.is_connection_oriented() {
            return Err(StateError::Connectionless);
        }
        if self.enter(Event::Listen) { Ok(()) } else { Err(StateError::InUse) }
    }

    /// Removes the oldest connection request of a listener, for [`Self::accepted`].
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub fn next_request(&mut self) -> Result<Message, AcceptError> {
        if self.state != State::Listen || self.closed {
            return Err(AcceptError::NotListening);
        }
        self.queue.pop().ok_or_else(|| {
            self.blocked = Some(WaitReason::NothingReceived);
            AcceptError::WouldBlock
        })
    }

    /// Applies `event` to the state; false if the state does not allow it.
    pub(super) fn enter(&mut self, event: Event) -> bool {
        if let Some(state) = self.state.next(event) {
            self.state = state;
            self.was_established |= state == State::Established;
            return true;
        }
        false
    }

    /// Submits a message of the application, and records congestion.
    pub(super) fn submit(
        &mut self,
        to: NodeAddr,
        msg: Message,
        uplink: &mut dyn Uplink,
    ) -> Result<(), SubmitError> {
        let size = msg.size();
        let submitted = uplink.submit(to, msg)?;
        self.submitted(submitted, size);
        Ok(())
    }

    /// Checks that the user of the socket has memory left for a message that a congested link would take beyond its
    /// limit.
    pub(super) fn may_send(
        &mut self,
        to: NodeAddr,
        size: usize,
        uplink: &dyn Uplink,
    ) -> Result<(), SubmitError> {
        let size = (size + MESSAGE_OVERHEAD) as u64;
        if self.room() >= size || !uplink.is_congested(to, self.settings.importance) {
            return Ok(());
        }
        self.count_over_memory();
        Err(SubmitError::NoBuffers)
    }

    /// Records that a message of the application of so many bytes was submitted.
    pub(super) fn submitted(&mut self, submitted: Submitted, size: usize) {
        self.stats.sent_messages += 1;
        self.note_congested(submitted, size);
    }

    /// Records that a congested link has taken a message of so many bytes.
    pub(crate) fn note_congested(&mut self, submitted: Submitted, size: usize) {
        if let Submitted::Congested(node) = submitted {
            self.congested.insert(node);
            let size = (size + MESSAGE_OVERHEAD) as u64;
            *self.beyond.entry(node).or_default() += size;
            self.beyond_bytes += size;
        }
    }

    /// The link to a node has taken everything within its limit again.
    pub(super) fn settle_beyond(&mut self, node: NodeAddr) {
        self.beyond_bytes -= self.beyond.remove(&node).unwrap_or(0);
    }

    /// The operations that do not block now. Spec: tipc.md §8.11.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let received = !self.queue.is_empty();
        let mut r = Readiness { read_closed: self.shut, hung_up: self.shut, ..Readiness::default() };
        match self.state {
            State::Established => {
                r.writable = self.congested.is_empty() && !self.flow.is_congested() && self.closing.is_none();
                r.readable = received;
            }
            State::Listen | State::Connecting => r.readable = received,
            State::Open => {
                r.writable = self.takes_datagrams() && self.is_group_open();
                r.readable = received && !self.kind.is_connection_oriented();
            }
            State::Disconnecting => {
                r.readable = true;
                r.hung_up = !self.defers_hang_up(false);
                // A sender that waits learns of the end: its next send fails.
                r.writable = !r.hung_up;
            }
        }
        r.readable |= self.shut;
        r
    }

    /// Whether the connection has ended and its hang-up waits until the last message is read. `in_lanes`: messages of
    /// it wait outside the endpoint.
    #[must_use]
    pub fn defers_hang_up(&self, in_lanes: bool) -> bool {
        let ended = self.state == State::Disconnecting && !self.shut && !self.settings.exact_hang_up;
        ended && (in_lanes || self.has_unread_data())
    }

    fn has_unread_data(&self) -> bool {
        self.queue.front().is_some_and(|msg| msg.error_code() == ErrorCode::Ok)
    }

    /// Number of messages received since the socket was opened.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.queue.taken()
    }

    /// Value of [`Self::taken`] when everything now queued has been received.
    #[must_use]
    pub fn taken_with_queue(&self) -> u64 {
        self.queue.taken() + (self.queue.len() + self.full.len()) as u64
    }

    /// True if collected data has not been sent yet (Nagle).
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.nagle.is_empty()
    }

    /// Reason why the last call would have blocked, if it still would.
    #[must_use]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        let reason = match self.blocked? {
            WaitReason::NothingReceived if self.queue.is_empty() && !self.is_over() => {
                WaitReason::NothingReceived
            }
            WaitReason::LinkCongested { node, .. } if self.congested.contains(&node) => {
                WaitReason::LinkCongested { node, importance: self.settings.importance }
            }
            WaitReason::PeerWindow { .. } if self.state == State::Established && self.flow.is_congested() => {
                self.window_reason()
            }
            reason @ WaitReason::ReceiversFull { .. } if self.waits_for_any => reason,
            WaitReason::MemberWindow { .. } | WaitReason::MemberAck { .. } => return self.group_reason(),
            WaitReason::Connecting { .. } if self.state == State::Connecting => self.setup_reason(),
            _ => return None,
        };
        Some(reason)
    }

    /// True if nothing can be received except what is queued.
    pub(super) fn is_over(&self) -> bool {
        self.shut || self.closed || self.state == State::Disconnecting
    }

    pub(super) fn window_reason(&self) -> WaitReason {
        WaitReason::PeerWindow {
            peer: self.peer,
            unacked: self.flow.unacked(),
            window: self.flow.send_window(),
        }
    }

    pub(super) fn link_reason(&self, node: NodeAddr) -> WaitReason {
        WaitReason::LinkCongested { node, importance: self.settings.importance }
    }

    /// The error that ended connection setup or the connection; returned once (SO_ERROR).
    pub fn take_error(&mut self) -> Option<ConnectError> {
        self.error.take()
    }

    /// The error that ended connection setup or the connection; it stays for [`Self::take_error`].
    #[must_use]
    pub fn error(&self) -> Option<ConnectError> {
        self.error
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let is_quiet = self.request.is_none() && self.closing.is_none() && self.multicast_sync.is_empty();
        if is_quiet && !self.is_full() {
            let late = self.group.as_ref().and_then(|group| group.deadline());
            // The most frequent case: called around every operation, mostly on idle sockets. A member has no
            // connection to probe.
            return late.or(self.probe_at);
        }
        let request = self.request.as_ref().map(Request::due);
        let closing = self.closing.as_ref().map(|c| c.deadline);
        let sync = self.multicast_sync.deadline();
        let late = self.group.as_ref().and_then(|group| group.deadline());
        [request, closing, self.probe_at, sync, self.full.deadline(), late].into_iter().flatten().min()
    }

    /// Handles the timers that are due; call it at [`Self::deadline`].
    pub fn handle_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {
        if self.closing.as_ref().is_some_and(|c| c.deadline <= now) {
            self.finish_closing(uplink);
        }
        if self.request.as_ref().is_some_and(|r| r.due() <= now) {
            self.request_timeout(now, uplink);
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe(now, uplink);
        }
        for msg in self.multicast_sync.expire(now) {
            self.admit(now, msg, uplink);
        }
        self.group_timeout(now, uplink);
        self.wait_timeout(now, uplink);
    }
}
