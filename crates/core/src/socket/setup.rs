//! Connection setup, both sides. Spec: tipc.md §8.2.

use super::endpoint::Endpoint;
use super::error::{ConnectError, SendError};
use super::pending::Request;
use super::queue::charge;
use super::settings::DEFAULT_CONNECT_TIMEOUT_MS;
use super::state::{Event, State};
use super::types::{Destination, SocketKind, WaitReason};
use super::uplink::{SubmitError, Uplink};
use crate::addr::{NodeAddr, PortId};
use crate::limits::{MAX_HEADER, MAX_MESSAGE, MAX_USER_DATA, MESSAGE_OVERHEAD, capability};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, SHORT_HEADER};

/// Pause before a connection request is repeated, and between checks of a congested link, milliseconds.
const RETRY_MS: u64 = 100;
/// The pause is randomised by up to a quarter of the connect timeout, which is taken as at least this, milliseconds.
const RETRY_TIMEOUT_FLOOR_MS: u16 = 4;
/// Largest message collected for a peer on the same node, bytes. Spec: tipc.md §8.6.
const LOCAL_NAGLE: usize = 1500;

impl Endpoint {
    /// The socket for a connection request that [`Self::next_request`] of `listener` returned; replies to the client.
    #[must_use]
    pub fn accepted(
        now: Time,
        port: u32,
        seed: u64,
        listener: &Endpoint,
        syn: Message,
        uplink: &mut dyn Uplink,
    ) -> Self {
        let mut new = Self::new(now, listener.kind, port, seed);
        new.settings.receive_buffer = listener.settings.receive_buffer;
        new.settings.exact_hang_up = listener.settings.exact_hang_up;
        new.enter(Event::Accept);
        new.establish(now, syn.origin(), uplink);
        new.settings.importance = syn.importance();
        if syn.message_type() == MessageType::Named {
            new.service = Some(syn.service());
        }
        if !syn.data().is_empty() {
            new.queue.push(syn);
        }
        // this first message is empty: it is never acknowledged and does not count
        let ack = new.connection_message(&[], uplink.own_node());
        if new.submit(new.peer.node, ack, uplink).is_err() {
            new.lost_peer(ErrorCode::NoNode, uplink);
        }
        new
    }

    /// Requests a connection. On success the state is [`State::Connecting`] and becomes [`State::Established`], or
    /// [`State::Disconnecting`] (see [`Self::take_error`]). On a connectionless socket sets the default destination
    /// instead; `None` removes it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Time,
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), ConnectError> {
        if self.group.is_some() {
            return Err(ConnectError::InGroup);
        }
        if !self.kind.is_connection_oriented() {
            if matches!(to, Some(Destination::Range(range)) if !range.is_valid()) {
                return Err(SendError::InvalidDestination.into());
            }
            self.default_to = to;
            return Ok(());
        }
        match (self.state, to) {
            (State::Open, Some(to)) => Ok(self.request(now, to, &[], uplink).map(|_| ())?),
            (State::Open, None) => Err(SendError::InvalidDestination.into()),
            (State::Connecting, _) => Err(ConnectError::Already),
            (State::Established, _) => Err(SendError::IsConnected.into()),
            (State::Listen, _) => Err(SendError::Broken.into()),
            (State::Disconnecting, _) => Err(self.error.take().unwrap_or(SendError::Broken.into())),
        }
    }

    /// Sends a connection request with `data`.
    pub(super) fn request(
        &mut self,
        now: Time,
        to: Destination,
        data: &[u8],
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        if self.is_bound() {
            return Err(SendError::BoundSocket);
        }
        let data = data.get(..MAX_USER_DATA).unwrap_or(data);
        let (peer, mut syn) = self.addressed(to, data, uplink)?;
        if self.congested.contains(&peer.node) {
            self.stats.link_waits += 1;
            self.blocked = Some(self.link_reason(peer.node));
            return Err(SendError::WouldBlock);
        }
        syn.set_syn(true);
        let syn = self.keep_request(syn, uplink)?;
        self.submit(peer.node, syn.clone(), uplink)?;
        self.enter(Event::Request);
        self.peer = peer;
        if let Destination::Service { addr, .. } = to {
            self.service = Some(addr);
        }
        if !data.is_empty() {
            self.flow.sent(self.flow.cost(syn.size()));
        }
        let timeout = match self.settings.connect_timeout {
            0 => DEFAULT_CONNECT_TIMEOUT_MS,
            ms => ms,
        };
        let deadline = now.plus_millis(u64::from(timeout));
        // If contact with the node is lost, nothing else answers.
        uplink.register_connection(self.port, peer.on(uplink.own_node()));
        self.request = Some(Request { syn, deadline, retry_at: None });
        self.blocked = Some(self.setup_reason());
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Moves the request, which is kept for retries, to the memory of the socket's user.
    fn keep_request(&mut self, syn: Message, uplink: &mut dyn Uplink) -> Result<Message, SubmitError> {
        let Some(user) = self.user().filter(|_| charge(&syn) > MESSAGE_OVERHEAD + MAX_HEADER) else {
            return Ok(syn);
        };
        let has_room = charge(&syn) as u64 <= self.room();
        let kept = if has_room { syn.moved(|bytes| uplink.keep(user, bytes)).ok() } else { None };
        kept.ok_or_else(|| {
            self.count_over_memory();
            SubmitError::NoBuffers
        })
    }

    pub(super) fn setup_reason(&self) -> WaitReason {
        let waits_for_link = self.congested.contains(&self.peer.node);
        WaitReason::Connecting { node: if waits_for_link { NodeAddr::NONE } else { self.peer.node } }
    }

    /// Completes the connection with `peer`.
    pub(super) fn establish(&mut self, now: Time, peer: PortId, uplink: &mut dyn Uplink) {
        self.request = None;
        self.peer = peer.on(uplink.own_node());
        self.capabilities = uplink.capabilities(self.peer.node);
        self.mss = uplink.mss(self.peer.node);
        self.flow.set_capabilities(self.capabilities);
        self.allow_nagle();
        self.probe_at = Some(now.plus_millis(super::control::PROBE_INTERVAL_MS));
        self.probe_unanswered = false;
        uplink.register_connection(self.port, self.peer);
    }

    /// Enables Nagle's algorithm if kind, option and peer allow it.
    pub(super) fn allow_nagle(&mut self) {
        let usable = self.kind == SocketKind::Stream
            && !self.settings.no_delay
            && self.capabilities & capability::NAGLE != 0
            && self.mss > SHORT_HEADER;
        match self.mss {
            _ if !usable => self.nagle.set_max(0),
            MAX_MESSAGE.. => self.nagle.set_max(LOCAL_NAGLE),
            packet => self.nagle.set_packet(packet),
        }
    }

    /// True if `msg` is this socket's own connection request, returned by the peer's node.
    pub(super) fn is_returned_request(&self, msg: &Message) -> bool {
        let Some(request) = &self.request else { return false };
        let same_name =
            request.syn.message_type() == MessageType::Named && request.syn.service() == msg.service();
        msg.error_code() != ErrorCode::Ok
            && msg.message_type() == request.syn.message_type()
            && (msg.origin() == self.peer || msg.syn() && same_name)
    }

    /// The listener had no room: schedules a retry.
    pub(super) fn retry_request(&mut self, now: Time) {
        let timeout = self.settings.connect_timeout.max(RETRY_TIMEOUT_FLOOR_MS);
        let pause = RETRY_MS + self.rng.below(u64::from(timeout / 4));
        if let Some(request) = &mut self.request {
            request.retry_at = Some(now.plus_millis(pause));
        }
    }

    pub(super) fn request_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {
        let Some(request) = &mut self.request else { return };
        if request.deadline <= now {
            return self.end_request(Event::GiveUp, ConnectError::TimedOut, uplink);
        }
        if self.congested.contains(&self.peer.node) {
            request.retry_at = Some(now.plus_millis(RETRY_MS));
            return;
        }
        request.retry_at = None;
        let syn = request.syn.clone();
        self.stats.syn_retries += 1;
        if let Err(e) = self.submit(self.peer.node, syn, uplink) {
            self.end_request(Event::Refuse, SendError::from(e).into(), uplink);
        }
    }

    /// The connection request has failed.
    pub(super) fn end_request(&mut self, event: Event, error: ConnectError, uplink: &mut dyn Uplink) {
        self.request = None;
        self.enter(event);
        self.error = Some(error);
        uplink.unregister_connection(self.port);
    }
}
