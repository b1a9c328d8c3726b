//! Sending: through a lane if there is one, otherwise by a request to the daemon.
//!
//! A [`LaneError`] says why a lane has not taken a message. If a larger ring helps, this module requests one and tries
//! again; otherwise the message waits, is returned to its sender or goes through the node.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use utipc_attach::{Failure, LaneCall, LaneEnd, LaneId, Reply, Request, SocketCall};
use utipc_core::addr::{Importance, NodeAddr, PortId, Scope};
use utipc_core::limits::{MAX_RETURNED_DATA, MAX_USER_DATA};
use utipc_core::socket::{Destination, Received, Returned, SendError, SocketKind, SocketOption};
use utipc_core::stack::Stack;
use utipc_core::wire::ErrorCode;
use utipc_lanes::{Address, Growth, LaneError, OutboundLane, Route};
use utipc_os::lock;
use utipc_os::packets::Far;

use crate::socket::{Socket, unless_blocked};
use crate::state::{Event, Half, SendHalf};
use crate::{Error, Wait};

/// Number of lanes to one receiver that may end under the same message. After the last the message is dropped, like one
/// to a closed socket.
const COPY_ATTEMPTS: u32 = 8;

/// What has become of a message for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByLane {
    /// The lane has it, or it was returned because the receiver is overloaded.
    Taken,
    /// It waits until the reader of the full lane, or a full link, has room.
    Waits,
    /// There is no lane.
    NoLane,
}

impl Socket {
    /// Sends `data`. Returns the number of bytes taken, or `None` if there was no room within `wait`.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        if self.resumption.is_some() {
            return self.across_restarts(wait, |socket| socket.send_here(data, to, wait));
        }
        self.send_here(data, to, wait)
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
        if self.resumption.is_some() {
            return self.across_restarts(wait, |socket| socket.send_keyed_here(data, to, key, wait));
        }
        self.send_keyed_here(data, to, key, wait)
    }

    fn send_keyed_here(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        let request = SocketCall::SendKeyed { to, key }.on(self.port());
        let sent = self.block(Half::Send, wait, data.len(), || {
            self.send_through_node(&mut lock(&self.state.sender), data, &request)
        });
        match sent {
            // The socket is in no group.
            Err(Error::Failed(Failure::State)) => self.send_here(data, to, wait),
            sent => sent,
        }
    }

    /// [`Socket::send`] by the daemon of this handle.
    #[inline]
    fn send_here(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA && self.kind() != SocketKind::Stream {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        let sent = self.block(Half::Send, wait, data.len(), || self.try_send(data, to))?;
        if sent.is_none() {
            self.note_full_lane(data.len())?;
        }
        Ok(sent)
    }

    fn try_send(&self, data: &[u8], to: Option<Destination>) -> Result<Option<usize>, Error> {
        let mut half = lock(&self.state.sender);
        let sent = self.send_on(&mut half, data, to);
        let to_wake = half.lanes.take_lanes_to_wake();
        drop(half);
        if !to_wake.is_empty() {
            self.wake_readers(to_wake)?;
        }
        if self.state.receiver_events.has_some() {
            // The reply announced a lane to read. Its messages make the descriptor readable only once it is armed.
            self.sync_readability(true, false)?;
        }
        sent
    }

    /// Asks the daemon to wake the readers of these lanes, which wait by descriptors, and for the means to wake them
    /// without it from now on.
    #[cold]
    fn wake_readers(&self, lanes: Vec<LaneId>) -> Result<(), Error> {
        for lane in &lanes {
            if lock(&self.state.sender).lanes.wants_far_end(*lane) {
                let far = self.fetch_near(&Request::Lane(LaneCall::FarEnd { lane: *lane }));
                match far.map(Far::new) {
                    Ok(Some(far)) => lock(&self.state.sender).lanes.set_far_end(*lane, far),
                    Ok(None) | Err(Error::Failed(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.wake_peers(lanes)
    }

    fn send_on(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Option<usize>, Error> {
        let node_request = SocketCall::Send { to }.on(self.port());
        if self.kind().is_connection_oriented() {
            return self.send_connected(half, data, to, &node_request);
        }
        if self.state.in_group.load(Relaxed) {
            return self.send_to_members(half, data, to, &node_request);
        }
        match to.or(half.default_to) {
            Some(Destination::Port(port)) if self.is_here(port.node) => {
                self.send_local(half, port.port, Address::Direct, data, &node_request)
            }
            Some(Destination::Port(port)) => {
                self.send_remote(half, port, Address::Direct, data, &node_request)
            }
            Some(Destination::Service { addr, domain }) if self.may_look_up() => {
                self.send_anycast(half, (addr, domain), data, &node_request)
            }
            Some(Destination::Range(range)) if range.is_valid() && self.may_look_up() => {
                self.send_multicast(half, range, data, &node_request)
            }
            _ => self.send_through_node(half, data, &node_request),
        }
    }

    /// Whether `node` is the daemon's node.
    pub(crate) fn is_here(&self, node: NodeAddr) -> bool {
        node.is_none() || node == self.attachment.address()
    }

    /// Whether this process chooses the receiver of an anycast. The node chooses for a hosted socket, whose messages
    /// all go through it.
    pub(crate) fn may_look_up(&self) -> bool {
        !self.state.hosted.load(Relaxed)
    }

    fn send_connected(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        loop {
            self.process_sender_events(half)?;
            let error = match half.lanes.send_connected(self.own(), self.state.options(), data) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) => error,
            };
            if self.resolves(half, Route::Sole, error)? {
                continue;
            }
            if !error.is_over() {
                half.lanes.wait_for_room();
                return Ok(None);
            }
            let sent = self.send_through_node(half, data, node_request);
            if to.is_some() && matches!(sent, Ok(Some(_))) {
                self.connects_to(to);
                // While the request is pending, the descriptor is not writable.
                self.note_full_node()?;
            }
            return sent;
        }
    }

    /// Sends to a local socket: through a lane; without one through the node, and requests a lane.
    pub(crate) fn send_local(
        &self,
        half: &mut SendHalf,
        to: u32,
        address: Address,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        match self.send_through_lane(half, to, address, data, true)? {
            ByLane::Taken => return Ok(Some(data.len())),
            ByLane::Waits => return Ok(None),
            ByLane::NoLane => {}
        }
        let sent = self.send_through_node(half, data, node_request)?;
        if sent.is_some() && half.lanes.note_request_to(to) {
            self.ask_for_lane(to)?;
        }
        Ok(sent)
    }

    /// Sends to a socket of another node: through the node lane; without one by a request, and requests a node lane.
    pub(crate) fn send_remote(
        &self,
        half: &mut SendHalf,
        to: PortId,
        address: Address,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        match self.send_by_node_lane(half, to, address, data)? {
            ByLane::Taken => return Ok(Some(data.len())),
            ByLane::Waits => return Ok(None),
            ByLane::NoLane => {}
        }
        let sent = self.send_through_node(half, data, node_request)?;
        if sent.is_some() && self.may_look_up() && half.lanes.note_remote_request() {
            // From the reply on, messages to other nodes use the lane.
            self.ask_for_lane(0)?;
        }
        Ok(sent)
    }

    /// Sends through the node lane; a multicast, whose sender reaches the sockets of this node itself, has no `to`.
    pub(crate) fn send_by_node_lane(
        &self,
        half: &mut SendHalf,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Result<ByLane, Error> {
        let is_multicast = matches!(address, Address::Multicast(_));
        loop {
            self.process_sender_events(half)?;
            if !half.lanes.has_sole_lane() {
                return Ok(ByLane::NoLane);
            }
            let level = Stack::level(self.port(), self.state.options().importance);
            // A multicast that meets a full link waits at the node.
            if !is_multicast && self.attachment.is_congested(to.node, level)? {
                // Send by a request: after a would-block the daemon makes the descriptor of a program that polls
                // writable again, or reports that it is this sender's turn.
                if self.is_polled() || !half.lanes.waits_for_link(to.node, level, Instant::now()) {
                    return Ok(ByLane::NoLane);
                }
                return Ok(ByLane::Waits);
            }
            half.lanes.link_has_room(to.node);
            let error = match half.lanes.send_remote(self.own(), self.state.options(), to, address, data) {
                Ok(_) => return Ok(ByLane::Taken),
                Err(error) => error,
            };
            if self.resolves(half, Route::Sole, error)? {
                continue;
            }
            if error.is_over() {
                return Ok(ByLane::NoLane);
            }
            half.lanes.wait_for_room();
            return Ok(ByLane::Waits);
        }
    }

    /// Sends to a local socket through its lane. `may_wait`: for a reader that is slower than this sender.
    #[inline]
    pub(crate) fn send_through_lane(
        &self,
        half: &mut SendHalf,
        to: u32,
        address: Address,
        data: &[u8],
        may_wait: bool,
    ) -> Result<ByLane, Error> {
        loop {
            self.process_sender_events(half)?;
            let error = match half.lanes.send_to(self.own(), self.state.options(), to, address, data) {
                Ok(_) => return Ok(ByLane::Taken),
                Err(error) => error,
            };
            if self.resolves(half, Route::Socket(to), error)? {
                continue;
            }
            if error.is_over() {
                return Ok(ByLane::NoLane);
            }
            if may_wait && error == LaneError::Full && self.waits_for_reader(half, to) {
                return Ok(ByLane::Waits);
            }
            half.lanes.overloads += 1;
            self.return_overload(to, address, data);
            return Ok(ByLane::Taken);
        }
    }

    /// Whether a message waits for the reader of the full lane to `to`.
    #[cold]
    pub(crate) fn waits_for_reader(&self, half: &mut SendHalf, to: u32) -> bool {
        half.lanes.waits_for_reader(to, Instant::now())
    }

    /// Reacts to `error` of a lane: requests a larger ring, or leaves a corrupt lane. Returns whether to try again.
    #[cold]
    pub(crate) fn resolves(
        &self,
        half: &mut SendHalf,
        route: Route,
        error: LaneError,
    ) -> Result<bool, Error> {
        if matches!(error, LaneError::Corrupt(_)) {
            if let Some(lane) = half.lanes.remove_route(route) {
                self.report(lane.id)?;
            }
            return Ok(true);
        }
        match half.lanes.wants_ring(route, error) {
            // The reader may have made room while the daemon refused the larger ring.
            Some(growth) => Ok(self.grow(half, growth)? || !growth.is_needed),
            None => Ok(false),
        }
    }

    /// Requests a larger ring; returns whether the lane has it now.
    fn grow(&self, half: &mut SendHalf, growth: Growth) -> Result<bool, Error> {
        let importance = self.state.options().importance as u8;
        let request = Request::Lane(LaneCall::Grow { lane: growth.lane, log2: growth.log2(), importance });
        match self.request(&request) {
            Ok(()) => {
                self.attachment.shrink_idle_rings();
                Ok(half.lanes.grow(growth, true))
            }
            Err(Error::Failed(_)) => Ok(half.lanes.grow(growth, false)),
            Err(error) => Err(error),
        }
    }

    /// Returns a message to this socket because its receiver is overloaded, unless the socket's options say to drop it.
    #[cold]
    pub(crate) fn return_overload(&self, to: u32, address: Address, data: &[u8]) {
        if !self.state.options().dest_droppable {
            let port = PortId { port: to, node: self.attachment.address() };
            let data = data.get(..MAX_RETURNED_DATA).unwrap_or(data).to_vec();
            let returned = Some(Returned { code: ErrorCode::Overload, data });
            let destination = match address {
                Address::Named(service, _) => Some(service.into()),
                Address::Multicast(range) => Some(range),
                Address::Connection | Address::Direct | Address::Group(_) => None,
            };
            self.state.return_message(Received {
                source: port,
                returned,
                destination,
                ..Received::default()
            });
            self.attachment.ring();
        }
    }

    /// Reports a corrupt lane to the daemon.
    pub(crate) fn report(&self, lane: LaneId) -> Result<(), Error> {
        self.request_that_may_fail(&Request::Lane(LaneCall::Report { lane }))
    }

    /// Sends by one request, then through lanes to the receivers that the reply lists.
    pub(crate) fn send_through_node(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        request: &Request,
    ) -> Result<Option<usize>, Error> {
        let Some(taken) = self.give_to_node(data, request)? else {
            self.note_full_node()?;
            return Ok(None);
        };
        if self.kind().is_connection_oriented() {
            return Ok(Some((taken.bytes as usize).min(taken.given)));
        }
        let to = match request {
            Request::Socket { call: SocketCall::SendFound { to, .. }, .. } => Some(*to),
            Request::Socket { call: SocketCall::Send { to }, .. } => to.or(half.default_to),
            _ => None,
        };
        // If the message has other receivers too, the node counts it.
        let counted = (taken.bytes > 0).then_some((half.lanes.messages, half.lanes.bytes));
        for port in taken.lanes {
            let Some(to) = to else { break };
            self.send_copy(half, port, data, to)?;
        }
        (half.lanes.messages, half.lanes.bytes) = counted.unwrap_or((half.lanes.messages, half.lanes.bytes));
        Ok(Some(data.len()))
    }

    /// Gives a message to the node; `None` if it takes nothing now.
    pub(crate) fn give_to_node(&self, data: &[u8], request: &Request) -> Result<Option<TakenByNode>, Error> {
        // One request of a stream carries this part; the next call sends the rest.
        let part = data.get(..MAX_USER_DATA).unwrap_or(data);
        unless_blocked(self.attachment.call(request, part, |reply, _| match reply {
            Reply::Sent { bytes, lanes } => Some(TakenByNode { bytes, lanes, given: part.len() }),
            _ => None,
        }))
    }

    /// Sends a message, or one copy of a multicast, to a local socket that has a lane. If the lane has ended, the node
    /// delivers it.
    pub(crate) fn send_copy(
        &self,
        half: &mut SendHalf,
        port: u32,
        data: &[u8],
        to: Destination,
    ) -> Result<(), Error> {
        let address = match to {
            Destination::Service { addr, domain } => {
                let scope = if domain.is_none() { Scope::Cluster } else { Scope::Node };
                Address::Named(addr, scope.number())
            }
            Destination::Range(range) => Address::Multicast(range),
            Destination::Port(_) => Address::Direct,
        };
        for _ in 0..COPY_ATTEMPTS {
            if self.send_through_lane(half, port, address, data, false)? != ByLane::NoLane {
                return Ok(());
            }
            let found = PortId { port, node: self.attachment.address() };
            let request = match to {
                Destination::Port(_) => SocketCall::Send { to: Some(to) }.on(self.port()),
                to => SocketCall::SendFound { to, found }.on(self.port()),
            };
            match self.give_to_node(data, &request) {
                // There is a new lane to it.
                Ok(Some(taken)) if taken.lanes.contains(&port) => {}
                // The node has taken the message, or the socket is gone.
                Ok(_) | Err(Error::Failed(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Requests a lane to the socket `to` (0: to the node); if it is granted, messages use it from the reply on.
    pub(crate) fn ask_for_lane(&self, to: u32) -> Result<(), Error> {
        self.request_that_may_fail(&SocketCall::WantLane { to }.on(self.port()))
    }

    #[inline]
    pub(crate) fn process_sender_events(&self, half: &mut SendHalf) -> Result<(), Error> {
        if self.state.sender_events.has_some() { self.process_events(half) } else { Ok(()) }
    }

    #[cold]
    fn process_events(&self, half: &mut SendHalf) -> Result<(), Error> {
        let mut events = self.state.sender_events.take().into_iter();
        while let Some(event) = events.next() {
            match event {
                Event::LaneOpened { peer, lane, member, .. } => {
                    let pair = match self.attachment.pair(lane, LaneEnd::Writer) {
                        Ok(pair) => pair,
                        Err(error) => {
                            let rest = std::iter::once(event).chain(events).collect();
                            self.state.sender_events.put_back(rest);
                            return Err(error);
                        }
                    };
                    match OutboundLane::new(lane, pair, peer) {
                        Ok(new) => half.lanes.add(new.with_member(member), self.kind()),
                        Err(_) => self.report(lane)?,
                    }
                    if self.state.accepted {
                        self.fetch_importance()?;
                    }
                }
                Event::LaneOver(lane) => {
                    half.members.lane_is_over();
                    let gone = half.lanes.remove(lane);
                    // Before the slot has another lane, which begins in the same ring.
                    match gone {
                        Some(gone) => gone.retire(),
                        // The sender has left the lane before.
                        None => self.attachment.retire(lane),
                    }
                    self.attachment.lane_done(lane, LaneEnd::Writer)?;
                }
                Event::GroupChanged => half.members.forget(),
                Event::Ready => {}
            }
        }
        Ok(())
    }

    /// Fetches the importance of an accepted socket, which is that of the connection request.
    fn fetch_importance(&self) -> Result<(), Error> {
        let mut options = self.state.options();
        let number = self.option(SocketOption::Importance)?;
        options.importance = Importance::from_number(number).unwrap_or(options.importance);
        self.state.set_options(options);
        Ok(())
    }
}

/// The node's reply to a message.
pub(crate) struct TakenByNode {
    /// Bytes taken.
    bytes: u32,
    /// Local receivers to which the process has lanes; the node has not delivered the message to them.
    pub(crate) lanes: Vec<u32>,
    /// Bytes that the request carried.
    given: usize,
}
