//! Sending through lanes.
//!
//! A [`LaneError`] says why a lane has not taken a message. If a larger ring helps, this module requests one and tries
//! again; otherwise the message waits, is returned to its sender or goes through the node.

use std::time::Instant;

use utipc_attach::{LaneCall, LaneEnd, Request};
use utipc_core::addr::{Importance, PortId};
use utipc_core::limits::MAX_RETURNED_DATA;
use utipc_core::socket::{Destination, Received, Returned, SocketOption};
use utipc_core::wire::ErrorCode;
use utipc_lanes::{Address, Growth, LaneError, OutboundLane, Route};

use crate::error::Error;
use crate::send::SendPath;
use crate::send::outbox::SendHalf;
use crate::state::events::Event;

/// What has become of a message for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByLane {
    /// The lane has it, or it was returned because the receiver is overloaded.
    Taken,
    /// It waits until the reader of the full lane, or a full link, has room.
    Waits,
    /// There is no lane.
    NoLane,
}

impl SendPath {
    /// Sends on a connection, or requests one.
    pub(super) fn send_connected(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        loop {
            self.process_events(half)?;
            let error = match half.lanes.send_connected(self.base().own(), self.options(), data) {
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
                self.ready.note_full_node()?;
            }
            return sent;
        }
    }

    /// Sends to a local socket: through a lane; without one through the node, and requests a lane.
    pub(super) fn send_local(
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
            self.base().ask_for_lane(to)?;
        }
        Ok(sent)
    }

    /// Sends to a socket of another node: through the node lane; without one by a request, and requests a node lane.
    pub(super) fn send_remote(
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
            self.base().ask_for_lane(0)?;
        }
        Ok(sent)
    }

    /// Sends through the node lane; a multicast, whose sender reaches the sockets of this node itself, has no `to`.
    pub(super) fn send_by_node_lane(
        &self,
        half: &mut SendHalf,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Result<ByLane, Error> {
        let is_multicast = matches!(address, Address::Multicast(_));
        loop {
            self.process_events(half)?;
            if !half.lanes.has_sole_lane() {
                return Ok(ByLane::NoLane);
            }
            let level = self.level();
            // A multicast that meets a full link waits at the node.
            if !is_multicast && self.base().attachment.is_congested(to.node, level)? {
                // Send by a request: after a would-block the daemon makes the descriptor of a program that polls
                // writable again, or reports that it is this sender's turn.
                if self.ready.polled().is_some() || !half.lanes.waits_for_link(to.node, level, Instant::now())
                {
                    return Ok(ByLane::NoLane);
                }
                return Ok(ByLane::Waits);
            }
            half.lanes.link_has_room(to.node);
            let error = match half.lanes.send_remote(self.base().own(), self.options(), to, address, data) {
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
    pub(super) fn send_through_lane(
        &self,
        half: &mut SendHalf,
        to: u32,
        address: Address,
        data: &[u8],
        may_wait: bool,
    ) -> Result<ByLane, Error> {
        loop {
            self.process_events(half)?;
            let error = match half.lanes.send_to(self.base().own(), self.options(), to, address, data) {
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
    pub(super) fn waits_for_reader(&self, half: &mut SendHalf, to: u32) -> bool {
        half.lanes.waits_for_reader(to, Instant::now())
    }

    /// Reacts to `error` of a lane: requests a larger ring, or leaves a corrupt lane. Returns whether to try again.
    #[cold]
    pub(super) fn resolves(
        &self,
        half: &mut SendHalf,
        route: Route,
        error: LaneError,
    ) -> Result<bool, Error> {
        if matches!(error, LaneError::Corrupt(_)) {
            if let Some(lane) = half.lanes.remove_route(route) {
                self.base().report(lane.id)?;
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
        let importance = self.options().importance as u8;
        let request = Request::Lane(LaneCall::Grow { lane: growth.lane, log2: growth.log2(), importance });
        match self.base().attachment.request(&request, &[]) {
            Ok(()) => {
                self.base().attachment.shrink_idle_rings();
                Ok(half.lanes.grow(growth, true))
            }
            Err(Error::Failed(_)) => Ok(half.lanes.grow(growth, false)),
            Err(error) => Err(error),
        }
    }

    /// Returns a message to this socket because its receiver is overloaded, unless the socket's options say to drop it.
    #[cold]
    pub(super) fn return_overload(&self, to: u32, address: Address, data: &[u8]) {
        if !self.options().dest_droppable {
            let port = PortId { port: to, node: self.base().attachment.address() };
            let data = data.get(..MAX_RETURNED_DATA).unwrap_or(data).to_vec();
            let returned = Some(Returned { code: ErrorCode::Overload, data });
            let destination = match address {
                Address::Named(service, _) => Some(service.into()),
                Address::Multicast(range) => Some(range),
                Address::Connection | Address::Direct | Address::Group(_) => None,
            };
            self.base().state.inbox.return_message(Received {
                source: port,
                returned,
                destination,
                ..Received::default()
            });
            self.base().attachment.ring();
        }
    }

    #[inline]
    pub(super) fn process_events(&self, half: &mut SendHalf) -> Result<(), Error> {
        if self.outbox().events.has_some() { self.process_all(half) } else { Ok(()) }
    }

    #[cold]
    fn process_all(&self, half: &mut SendHalf) -> Result<(), Error> {
        let mut events = self.outbox().events.take().into_iter();
        while let Some(event) = events.next() {
            match event {
                Event::LaneOpened { peer, lane, member, .. } => {
                    let pair = match self.base().attachment.pair(lane, LaneEnd::Writer) {
                        Ok(pair) => pair,
                        Err(error) => {
                            self.outbox().events.put_back(event, events);
                            return Err(error);
                        }
                    };
                    match OutboundLane::new(lane, pair, peer) {
                        Ok(new) => half.lanes.add(new.with_member(member), self.base().kind()),
                        Err(_) => self.base().report(lane)?,
                    }
                    if self.base().state.accepted {
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
                        None => self.base().attachment.retire(lane),
                    }
                    self.base().attachment.lane_done(lane, LaneEnd::Writer)?;
                }
                Event::GroupChanged => half.members.forget(),
                Event::Ready => {}
            }
        }
        Ok(())
    }

    /// Fetches the importance of an accepted socket, which is that of the connection request.
    fn fetch_importance(&self) -> Result<(), Error> {
        let mut options = self.options();
        let number = self.base().option(SocketOption::Importance)?;
        options.importance = Importance::from_number(number).unwrap_or(options.importance);
        self.outbox().set_options(options);
        Ok(())
    }
}
