//! The end of a connection. Spec: tipc.md §8.3.

use super::session::Session;
use super::{Connection, Phase};
use crate::addr::{PortId, ServiceAddr};
use crate::socket::call::Call;
use crate::socket::error::ConnectError;
use crate::socket::state::Event;
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
        call: &mut Call<'_>,
    ) {
        let (peer, service, was_established) = match &self.phase {
            Phase::Connecting(request) => (request.peer, request.service, false),
            Phase::Established(session) => (session.peer(), session.service(), true),
            Phase::Open | Phase::Ended(_) => return,
        };
        if self.enter(event, Phase::Ended(Ended { peer, service, was_established, code, error })) {
            call.uplink.unregister_connection(call.base.port());
        }
    }

    /// The peer is gone without a message that ends the connection: queues such a message.
    pub(super) fn lose_peer(&mut self, code: ErrorCode, call: &mut Call<'_>) {
        let Some(peer) = self.session().map(Session::peer) else { return };
        self.end(Event::PeerEnd, Some(code), None, call);
        let mut abort = call.connection_message(peer, Vec::new(), &[]);
        abort.set_prev_node(peer.node);
        abort.set_origin_port(peer.port);
        abort.set_dest_port(call.base.port());
        abort.set_error_code(code);
        call.base.queue.push(abort);
        self.continue_closing(call);
    }

    /// Ends the connection with an error at both ends.
    pub(in crate::socket) fn abort(&mut self, call: &mut Call<'_>) {
        if let Some(peer) = self.session().map(Session::peer) {
            send_end(peer, ErrorCode::NoPort, call);
            self.lose_peer(ErrorCode::NoPort, call);
        }
    }

    /// Ends the connection in both directions, once everything sent has left.
    pub(in crate::socket) fn shut_down(&mut self, now: Time, call: &mut Call<'_>) {
        self.begin_closing(now, ErrorCode::ConnShutdown, false, call);
    }

    /// As [`Self::shut_down`], and closes the socket. If the connection is already being shut down, the peer learns of
    /// that.
    pub(in crate::socket) fn close(&mut self, now: Time, call: &mut Call<'_>) {
        match &mut self.closing {
            Some(closing) => closing.closes_socket = true,
            None => self.begin_closing(now, ErrorCode::NoPort, true, call),
        }
    }

    fn begin_closing(&mut self, now: Time, code: ErrorCode, closes_socket: bool, call: &mut Call<'_>) {
        self.closing = Some(Closing { code, closes_socket, deadline: now.plus_millis(MAX_LINGER_MS) });
        self.continue_closing(call);
    }

    /// Completes the end if nothing delays it any more.
    pub(super) fn continue_closing(&mut self, call: &mut Call<'_>) {
        let must_wait = self.session().is_some_and(|session| session.send_wait(call.base).is_some());
        if !must_wait && let Some(closing) = self.closing.take() {
            self.finish(closing, call);
        }
    }

    /// Ends the connection now; unread data is lost.
    pub(super) fn finish(&mut self, closing: Closing, call: &mut Call<'_>) {
        let Closing { code, closes_socket, .. } = closing;
        self.push_collected(call);
        call.base.queue.drop_partly_read();
        let is_ended = matches!(self.phase, Phase::Ended(_));
        if !is_ended && let Some(peer) = self.remote() {
            self.end(Event::Shutdown, None, None, call);
            // An unread message that returns ends the connection too.
            match call.base.queue.pop() {
                Some(unread) => call.respond(unread, code),
                None => send_end(peer, code, call),
            }
        }
        call.base.queue.clear();
        if closes_socket {
            call.base.close();
            self.take_error();
        }
    }
}

/// Sends the peer a message that ends the connection.
fn send_end(peer: PortId, code: ErrorCode, call: &mut Call<'_>) {
    let mut end = call.connection_message(peer, Vec::new(), &[]);
    end.set_user(User::Critical);
    end.set_src_droppable(false);
    end.set_dest_droppable(false);
    end.set_error_code(code);
    // an unreachable node has learned of the lost contact
    let _ = call.uplink.submit(peer.node, end);
}
