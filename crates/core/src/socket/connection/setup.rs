//! Connection setup, both sides. Spec: tipc.md §8.2.

use super::receive::Verdict;
use super::session::Session;
use super::{Connection, Phase};
use crate::addr::{NodeAddr, PortId, ServiceAddr};
use crate::limits::{MAX_HEADER, MAX_USER_DATA, MESSAGE_OVERHEAD};
use crate::socket::base::Base;
use crate::socket::call::Call;
use crate::socket::error::{ConnectError, SendError};
use crate::socket::queue::charge;
use crate::socket::state::Event;
use crate::socket::types::{Destination, WaitReason};
use crate::socket::uplink::SubmitError;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType};

/// Pause before a connection request is repeated, and between checks of a congested link, milliseconds.
const RETRY_MS: u64 = 100;
/// The pause is randomised by up to a quarter of the connect timeout, which is taken as at least this, milliseconds.
const RETRY_TIMEOUT_FLOOR_MS: u16 = 4;

/// A connection request without a reply.
#[derive(Debug)]
pub(super) struct Request {
    /// Copy of the request, for retries.
    pub(super) syn: Message,
    /// Its destination.
    pub(super) peer: PortId,
    /// The service address that it names.
    pub(super) service: Option<ServiceAddr>,
    /// Time at which the request times out.
    deadline: Time,
    /// Time of the next attempt, if the request was refused for lack of room.
    retry_at: Option<Time>,
}

impl Request {
    /// Time at which the request must be repeated or times out.
    pub(super) fn due(&self) -> Time {
        self.retry_at.unwrap_or(self.deadline).min(self.deadline)
    }

    /// What the application waits for.
    pub(super) fn wait(&self, base: &Base) -> WaitReason {
        let waits_for_link = base.congestion.contains(self.peer.node);
        WaitReason::Connecting { node: if waits_for_link { NodeAddr::NONE } else { self.peer.node } }
    }

    /// Whether `msg` is this request, returned by the peer's node.
    fn is_returned_as(&self, msg: &Message) -> bool {
        let same_name = self.syn.message_type() == MessageType::Named && self.syn.service() == msg.service();
        msg.error_code() != ErrorCode::Ok
            && msg.message_type() == self.syn.message_type()
            && (msg.origin() == self.peer || msg.syn() && same_name)
    }
}

impl Connection {
    /// The connection for a request that a listener has received; replies to the client.
    pub(in crate::socket) fn accepted(now: Time, seed: u64, syn: Message, call: &mut Call<'_>) -> Self {
        call.base.settings.send.importance = syn.importance();
        let service = (syn.message_type() == MessageType::Named).then(|| syn.service());
        let session = Session::new(now, syn.origin(), service, call);
        let peer = session.peer();
        let mut new = Self::new(seed);
        new.enter(Event::Accept, Phase::Established(session));
        if !syn.data().is_empty() {
            call.base.queue.push(syn);
        }
        // this first message is empty: it is never acknowledged and does not count
        let ack = call.connection_message(peer, Vec::new(), &[]);
        if call.submit(peer.node, ack).is_err() {
            new.lose_peer(ErrorCode::NoNode, call);
        }
        new
    }

    pub(in crate::socket) fn connect(
        &mut self,
        now: Time,
        to: Option<Destination>,
        call: &mut Call<'_>,
    ) -> Result<(), ConnectError> {
        match (&mut self.phase, to) {
            (Phase::Open, Some(to)) => Ok(self.request(now, to, &[], call).map(|_| ())?),
            (Phase::Open, None) => Err(SendError::InvalidDestination.into()),
            (Phase::Connecting(_), _) => Err(ConnectError::Already),
            (Phase::Established(_), _) => Err(SendError::IsConnected.into()),
            (Phase::Ended(ended), _) => Err(ended.error.take().unwrap_or(SendError::Broken.into())),
        }
    }

    /// Sends a connection request with `data`.
    pub(super) fn request(
        &mut self,
        now: Time,
        to: Destination,
        data: &[u8],
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        if call.base.bindings() > 0 {
            return Err(SendError::BoundSocket);
        }
        let data = data.get(..MAX_USER_DATA).unwrap_or(data);
        let (peer, mut syn) = call.addressed(to, data)?;
        call.base.check_link(peer.node)?;
        syn.set_syn(true);
        let syn = keep_request(syn, call)?;
        call.submit(peer.node, syn.clone())?;
        let service = match to {
            Destination::Service { addr, .. } => Some(addr),
            Destination::Range(_) | Destination::Port(_) => None,
        };
        // If contact with the node is lost, nothing else answers.
        call.uplink.register_connection(call.base.port(), peer.on(call.own()));
        let deadline = now.plus_millis(call.base.settings.request_timeout_ms());
        let request = Request { syn, peer, service, deadline, retry_at: None };
        call.base.set_wait(Some(request.wait(call.base)));
        self.enter(Event::Request, Phase::Connecting(request));
        Ok(call.base.sent(data))
    }

    /// Decides about a payload message that arrives while the request is pending.
    pub(super) fn filter_connecting(&mut self, now: Time, msg: &Message, call: &mut Call<'_>) -> Verdict {
        let Phase::Connecting(request) = &mut self.phase else { return Verdict::Reject };
        let on_connection = msg.message_type() == MessageType::Conn;
        if on_connection && msg.error_code() == ErrorCode::Ok {
            let session = Session::new(now, msg.origin(), request.service, call);
            let session = session.with_request(&request.syn);
            self.enter(Event::Answer, Phase::Established(session));
            call.base.settings.send.importance = msg.importance();
            return if msg.data().is_empty() { Verdict::Done } else { Verdict::Queue };
        }
        if !on_connection && !request.is_returned_as(msg) {
            return Verdict::Reject;
        }
        if !on_connection && msg.error_code() == ErrorCode::Overload {
            // The listener had no room.
            let timeout = call.base.settings.connect_timeout.max(RETRY_TIMEOUT_FLOOR_MS);
            let pause = RETRY_MS + self.rng.below(u64::from(timeout / 4));
            request.retry_at = Some(now.plus_millis(pause));
            return Verdict::Done;
        }
        let is_lost = on_connection && msg.error_code() == ErrorCode::NoNode;
        let error = if is_lost { SendError::HostUnreachable.into() } else { ConnectError::Refused };
        self.end(Event::Refuse, Some(msg.error_code()), Some(error), call);
        Verdict::Queue
    }

    pub(super) fn request_timeout(&mut self, now: Time, call: &mut Call<'_>) {
        let Phase::Connecting(request) = &mut self.phase else { return };
        if request.deadline <= now {
            return self.end(Event::GiveUp, None, Some(ConnectError::TimedOut), call);
        }
        if call.base.congestion.contains(request.peer.node) {
            request.retry_at = Some(now.plus_millis(RETRY_MS));
            return;
        }
        request.retry_at = None;
        call.base.stats.syn_retries += 1;
        if let Err(e) = call.submit(request.peer.node, request.syn.clone()) {
            self.end(Event::Refuse, None, Some(SendError::from(e).into()), call);
        }
    }
}

/// Moves a request, which is kept for retries, to the memory of the socket's user.
fn keep_request(syn: Message, call: &mut Call<'_>) -> Result<Message, SubmitError> {
    let is_large = charge(&syn) > MESSAGE_OVERHEAD + MAX_HEADER;
    if call.base.account.user().is_none() || !is_large {
        return Ok(syn);
    }
    let has_room = charge(&syn) as u64 <= call.base.room(0);
    let kept = if has_room { call.keep(syn).ok() } else { None };
    kept.ok_or_else(|| {
        call.base.account.refuse();
        SubmitError::NoBuffers
    })
}
