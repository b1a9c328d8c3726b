//! The end of a connection. Spec: tipc.md §8.3.

use super::session::Session;
use super::{Connection, Phase};
use crate::addr::{PortId, ServiceAddr};
use crate::socket::base::Base;
use crate::socket::error::ConnectError;
use crate::socket::state::Event;
use crate::socket::uplink::Uplink;
use crate::time::Time;
use crate::wire::{ErrorCode, User};

/// Longest wait for congestion to clear before the connection is ended, milliseconds. Spec: tipc.md §8.3.
const MAX_LINGER_MS: u64 = 8000;

/// The end of a connection, delayed until congestion clears so that it does not overtake data.
#[derive(Debug)]
pub(super) struct Closing {
    code: ErrorCode,
    /// The socket is closed as well.
    closes_socket: bool,
    deadline: Time,
}

impl Closing {
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }
}

/// A connection that has ended, or a request that has failed.
#[derive(Debug)]
pub(super) struct Ended {
    /// The peer, or the destination of the request.
    pub(super) peer: PortId,
    pub(super) service: Option<ServiceAddr>,
    pub(super) was_established: bool,
    /// Error code with which the peer ended the connection.
    pub(super) code: Option<ErrorCode>,
    /// Returned to the application once.
    pub(super) error: Option<ConnectError>,
}

impl Connection {
    /// The result of the connection request; `None` while it is pending. Takes the error.
    pub(in crate::socket) fn take_setup(&mut self) -> Option<Result<(), ConnectError>> {
        Some(match &mut self.phase {
            Phase::Connecting(_) => return None,
            Phase::Open => Err(ConnectError::Refused),
            Phase::Established(_) => Ok(()),
            Phase::Ended(ended) => match ended.error.take() {
                None if ended.was_established => Ok(()),
                why => Err(why.unwrap_or(ConnectError::Refused)),
            },
        })
    }

    /// The error that ended the request or the connection.
    pub(in crate::socket) fn error(&self) -> Option<ConnectError> {
        match &self.phase {
            Phase::Ended(ended) => ended.error,
            _ => None,
        }
    }

    /// As [`Self::error`], once.
    pub(in crate::socket) fn take_error(&mut self) -> Option<ConnectError> {
        match &mut self.phase {
            Phase::Ended(ended) => ended.error.take(),
            _ => None,
        }
    }

    /// The request or the connection ends, if the state allows the event.
    pub(super) fn end(
        &mut self,
        event: Event,
        code: Option<ErrorCode>,
        error: Option<ConnectError>,
        base: &Base,
        uplink: &mut dyn Uplink,
    ) {
        let (peer, service, was_established) = match &self.phase {
            Phase::Connecting(request) => (request.peer, request.service, false),
            Phase::Established(session) => (session.peer(), session.service(), true),
            Phase::Open | Phase::Ended(_) => return,
        };
        if self.enter(event, Phase::Ended(Ended { peer, service, was_established, code, error })) {
            uplink.unregister_connection(base.port());
        }
    }

    /// The peer is gone without a message that ends the connection: queues such a message.
    pub(super) fn lose_peer(&mut self, code: ErrorCode, base: &mut Base, uplink: &mut dyn Uplink) {
        let Some(peer) = self.session().map(Session::peer) else { return };
        self.end(Event::PeerEnd, Some(code), None, base, uplink);
        let mut abort = base.connection_message(peer.node, peer, Vec::new(), &[]);
        abort.set_origin_port(peer.port);
        abort.set_dest_port(base.port());
        abort.set_error_code(code);
        base.queue.push(abort);
        self.continue_closing(base, uplink);
    }

    /// Ends the connection with an error at both ends.
    pub(in crate::socket) fn abort(&mut self, base: &mut Base, uplink: &mut dyn Uplink) {
        if let Some(peer) = self.session().map(Session::peer) {
            send_end(peer, ErrorCode::NoPort, base, uplink);
            self.lose_peer(ErrorCode::NoPort, base, uplink);
        }
    }

    /// Ends the connection in both directions, once everything sent has left.
    pub(in crate::socket) fn shut_down(&mut self, now: Time, base: &mut Base, uplink: &mut dyn Uplink) {
        self.begin_closing(now, ErrorCode::ConnShutdown, false, base, uplink);
    }

    /// As [`Self::shut_down`], and closes the socket. If the connection is already being shut down, the peer learns of
    /// that.
    pub(in crate::socket) fn close(&mut self, now: Time, base: &mut Base, uplink: &mut dyn Uplink) {
        match &mut self.closing {
            Some(closing) => closing.closes_socket = true,
            None => self.begin_closing(now, ErrorCode::NoPort, true, base, uplink),
        }
    }

    fn begin_closing(
        &mut self,
        now: Time,
        code: ErrorCode,
        closes_socket: bool,
        base: &mut Base,
        uplink: &mut dyn Uplink,
    ) {
        self.closing = Some(Closing { code, closes_socket, deadline: now.plus_millis(MAX_LINGER_MS) });
        self.continue_closing(base, uplink);
    }

    /// Completes the end if nothing delays it any more.
    pub(super) fn continue_closing(&mut self, base: &mut Base, uplink: &mut dyn Uplink) {
        let must_wait = self.session().is_some_and(|session| session.send_wait(base).is_some());
        if !must_wait && let Some(closing) = self.closing.take() {
            self.finish(closing, base, uplink);
        }
    }

    /// Ends the connection now; unread data is lost.
    pub(super) fn finish(&mut self, closing: Closing, base: &mut Base, uplink: &mut dyn Uplink) {
        let Closing { code, closes_socket, .. } = closing;
        self.push_collected(base, uplink);
        base.queue.drop_partly_read();
        let is_ended = matches!(self.phase, Phase::Ended(_));
        if !is_ended && let Some(peer) = self.remote() {
            self.end(Event::Shutdown, None, None, base, uplink);
            // An unread message that returns ends the connection too.
            match base.queue.pop() {
                Some(unread) => base.respond(unread, code, uplink),
                None => send_end(peer, code, base, uplink),
            }
        }
        base.queue.clear();
        if closes_socket {
            base.close();
            self.take_error();
        }
    }
}

/// Sends the peer a message that ends the connection.
fn send_end(peer: PortId, code: ErrorCode, base: &Base, uplink: &mut dyn Uplink) {
    let mut end = base.connection_message(uplink.own_node(), peer, Vec::new(), &[]);
    end.set_user(User::Critical);
    end.set_src_droppable(false);
    end.set_dest_droppable(false);
    end.set_error_code(code);
    // an unreachable node has learned of the lost contact
    let _ = uplink.submit(peer.node, end);
}
