//! Closing a socket or its connection from this side. Spec: tipc.md §8.3.

use super::endpoint::Endpoint;
use super::error::StateError;
use super::full::Full;
use super::pending::Closing;
use super::state::{Event, State};
use super::uplink::Uplink;
use crate::time::Time;
use crate::wire::{ErrorCode, User};

/// Longest wait for congestion to clear before the connection is ended, milliseconds. Spec: tipc.md §8.3.
const MAX_LINGER_MS: u64 = 8000;

impl Endpoint {
    /// Ends the connection in both directions; unread data is lost. If sent data still waits for the peer or the link,
    /// the end follows it, at the latest after 8 s.
    ///
    /// On a connectionless socket it fails, as on Linux, and has these effects: unread messages return to their senders
    /// (not those of a group), and from now on a receive fails instead of waiting. Messages still arrive.
    ///
    /// # Errors
    /// [`StateError::NotConnected`] without a connection or a connection request.
    pub fn shutdown(&mut self, now: Time, uplink: &mut dyn Uplink) -> Result<(), StateError> {
        match self.state {
            State::Connecting | State::Established | State::Disconnecting => {}
            State::Open if !self.kind.is_connection_oriented() => {
                self.end_waiting(uplink);
                return Err(StateError::NotConnected);
            }
            State::Open | State::Listen => return Err(StateError::NotConnected),
        }
        if !self.shut {
            self.shut = true;
            self.begin_closing(now, ErrorCode::ConnShutdown, false, uplink);
        }
        Ok(())
    }

    /// Ends the receives that wait on a connectionless socket.
    fn end_waiting(&mut self, uplink: &mut dyn Uplink) {
        self.shut = true;
        if self.group.is_some() || self.closed {
            return;
        }
        if self.queue.read > 0 {
            self.queue.pop();
        }
        self.return_all(ErrorCode::ConnShutdown, uplink);
    }

    /// Closes the socket: rejects unread messages, ends the connection, withdraws all bindings. A shutdown that still
    /// waits keeps its deadline, and the peer reads its end, not that of the close. The endpoint is finished when
    /// [`Self::is_closed`] returns true; until then (at most 8 s, while congestion clears) it must get messages,
    /// wake-ups and timeouts as before.
    pub fn close(&mut self, now: Time, uplink: &mut dyn Uplink) {
        // first, so that no new lookup finds a socket that is going away; it leaves its group
        let _ = self.unbind(None, uplink);
        self.shut = true;
        match &mut self.closing {
            // the peer learns of the shutdown, which came first
            Some(waiting) => waiting.closes_socket = true,
            None => self.begin_closing(now, ErrorCode::NoPort, true, uplink),
        }
    }

    /// True if [`Self::close`] has completed; the owner may drop the endpoint.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn begin_closing(&mut self, now: Time, code: ErrorCode, closes_socket: bool, uplink: &mut dyn Uplink) {
        self.closing = Some(Closing { code, closes_socket, deadline: now.plus_millis(MAX_LINGER_MS) });
        self.continue_closing(uplink);
    }

    /// Completes the end if nothing delays it any more.
    pub(super) fn continue_closing(&mut self, uplink: &mut dyn Uplink) {
        let must_wait = self.state == State::Established && self.connection_blocked().is_some();
        if self.closing.is_some() && !must_wait {
            self.finish_closing(uplink);
        }
    }

    pub(super) fn finish_closing(&mut self, uplink: &mut dyn Uplink) {
        let Some(Closing { code, closes_socket, .. }) = self.closing.take() else { return };
        if self.state == State::Established {
            self.push_collected(uplink);
        }
        self.request = None;
        self.probe_at = None;
        if self.queue.read > 0 {
            self.queue.pop();
        }
        match self.state {
            State::Connecting | State::Established => self.end_connection(code, uplink),
            State::Listen => self.return_all(code, uplink),
            State::Open if !self.kind.is_connection_oriented() => self.return_all(code, uplink),
            State::Open | State::Disconnecting => {}
        }
        self.queue.clear();
        self.full = Full::default();
        self.closed |= closes_socket;
        if self.closed {
            self.multicast_sync = super::multicast_sync::MulticastSync::default();
            self.congested.clear();
            self.beyond.clear();
            self.beyond_bytes = 0;
            self.error = None;
        }
    }

    /// Ends the connection: rejects the first unread message if there is one, otherwise sends a message of its own.
    fn end_connection(&mut self, code: ErrorCode, uplink: &mut dyn Uplink) {
        self.enter(Event::Shutdown);
        uplink.unregister_connection(self.port);
        if let Some(unread) = self.queue.pop() {
            return self.respond(unread, code, uplink);
        }
        self.send_end(code, uplink);
    }

    /// Sends the peer a message that ends the connection.
    pub(super) fn send_end(&mut self, code: ErrorCode, uplink: &mut dyn Uplink) {
        let mut end = self.connection_message(&[], uplink.own_node());
        end.set_user(User::Critical);
        end.set_src_droppable(false);
        end.set_dest_droppable(false);
        end.set_error_code(code);
        // an unreachable node has learned of the lost contact
        let _ = uplink.submit(self.peer.node, end);
    }

    fn return_all(&mut self, code: ErrorCode, uplink: &mut dyn Uplink) {
        while let Some(msg) = self.queue.pop().or_else(|| self.full.pop()) {
            self.respond(msg, code, uplink);
        }
    }
}
