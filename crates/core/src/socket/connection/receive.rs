//! What arrives on a connection, and reading it. Spec: tipc.md §8.3 to §8.6, §8.10.

use super::ending::Ended;
use super::session::Session;
use super::{Connection, Phase};
use crate::socket::base::Base;
use crate::socket::call::Call;
use crate::socket::error::RecvError;
use crate::socket::group::is_group;
use crate::socket::reading::{copy, properties};
use crate::socket::state::Event;
use crate::socket::types::{Received, RecvOptions, SocketKind, WaitReason};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType};

/// Decision about a payload message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Queue,
    /// Processed completely.
    Done,
    Reject,
}

impl Connection {
    pub(in crate::socket) fn receive(
        &mut self,
        buffer: &mut [u8],
        options: RecvOptions,
        call: &mut Call<'_>,
    ) -> Result<Received, RecvError> {
        if matches!(self.phase, Phase::Open) {
            return Err(RecvError::NotConnected);
        }
        if let Some(error) = self.take_error() {
            return Err(error.into());
        }
        let Some(first) = call.base.queue.front() else { return self.nothing_received(call.base) };
        let code = first.error_code();
        let is_reset = !matches!(code, ErrorCode::Ok | ErrorCode::ConnShutdown);
        if is_reset && !options.control {
            return Err(RecvError::ConnectionReset); // stays queued, so that every call returns the error
        }
        let mut received = properties(first, self.service());
        if code != ErrorCode::Ok {
            call.base.read_returned(&mut received, options);
        } else if call.base.kind() != SocketKind::Stream {
            if let Some(msg) = call.base.read_message(&mut received, buffer, options) {
                self.consumed(msg, call);
            }
        } else if options.peek {
            received.len = peek_stream(buffer, call.base);
        } else {
            received.len = self.read_stream(buffer, call);
        }
        Ok(received)
    }

    fn nothing_received(&self, base: &mut Base) -> Result<Received, RecvError> {
        match &self.phase {
            _ if base.is_shut_down() => Err(RecvError::NotConnected),
            Phase::Ended(Ended { code: Some(ErrorCode::ConnShutdown), peer, .. }) => {
                Ok(Received { source: *peer, ..Received::default() })
            }
            Phase::Ended(_) => Err(RecvError::NotConnected),
            Phase::Connecting(request) => base.nothing_received(request.wait(base)),
            Phase::Open | Phase::Established(_) => base.nothing_received(WaitReason::NothingReceived),
        }
    }

    fn read_stream(&mut self, buffer: &mut [u8], call: &mut Call<'_>) -> usize {
        let mut copied = 0;
        while let Some(msg) = call.base.queue.front() {
            let room = buffer.get_mut(copied..).unwrap_or_default();
            if msg.error_code() != ErrorCode::Ok || room.is_empty() {
                break;
            }
            let unread = call.base.queue.unread();
            let n = copy(unread, room);
            copied += n;
            if n < unread.len() {
                call.base.queue.set_read(call.base.queue.read() + n);
                break;
            }
            if let Some(msg) = call.base.take_read() {
                self.consumed(msg, call);
            }
        }
        call.base.stats.received_bytes += copied as u64;
        copied
    }

    /// The application has consumed a message.
    pub(in crate::socket) fn consumed(&mut self, msg: Message, call: &mut Call<'_>) {
        if let Some(session) = self.session_mut() {
            session.consumed(msg.size(), call);
        }
        call.uplink.recycle(msg);
    }

    /// Handles a payload message for the port.
    pub(in crate::socket) fn handle_data(&mut self, now: Time, msg: Message, call: &mut Call<'_>) {
        let verdict = match &self.phase {
            _ if call.base.is_closed() || is_group(&msg) => Verdict::Reject,
            Phase::Open | Phase::Ended(_) => Verdict::Reject,
            Phase::Connecting(_) => self.filter_connecting(now, &msg, call),
            Phase::Established(_) => self.filter_established(&msg, call),
        };
        let is_end = msg.error_code() != ErrorCode::Ok;
        match verdict {
            Verdict::Done => {}
            Verdict::Reject => call.respond(msg, ErrorCode::NoPort),
            // not delivered to the application
            Verdict::Queue if !is_end && msg.data().is_empty() => {}
            // the end of a connection must not be lost; there is only one
            Verdict::Queue if is_end => {
                call.base.stats.returned_to_us += 1;
                call.base.queue.push(msg);
            }
            Verdict::Queue => {
                let is_legacy = self.session().is_some_and(Session::is_legacy);
                call.enqueue(msg, is_legacy, self.bytes());
            }
        }
    }

    fn filter_established(&mut self, msg: &Message, call: &mut Call<'_>) -> Verdict {
        if let Some(session) = self.session_mut() {
            session.note_payload();
        }
        self.push_collected(call);
        let own = call.own();
        let Some(session) = self.session_mut().filter(|session| session.is_from_peer(msg, own)) else {
            return Verdict::Reject;
        };
        if msg.error_code() != ErrorCode::Ok {
            self.end(Event::PeerEnd, Some(msg.error_code()), None, call);
            self.continue_closing(call);
            return if call.base.is_closed() { Verdict::Done } else { Verdict::Queue };
        }
        if msg.message_type() != MessageType::Conn {
            return Verdict::Reject;
        }
        if msg.ack_required() {
            session.acknowledge(true, call);
        }
        Verdict::Queue
    }

    /// Handles a CONN_MANAGER message for the port.
    pub(in crate::socket) fn handle_control(&mut self, msg: Message, call: &mut Call<'_>) {
        let own = call.own();
        let Some(session) = self.session_mut().filter(|session| session.is_from_peer(&msg, own)) else {
            call.base.stats.dropped += 1;
            return;
        };
        if msg.error_code() != ErrorCode::Ok {
            call.base.stats.returned_to_us += 1;
            self.lose_peer(msg.error_code(), call);
            return;
        }
        if session.control(msg, call).is_err() {
            self.lose_peer(ErrorCode::NoNode, call);
        }
        self.continue_closing(call);
    }

    /// Sends collected data, unless a link is congested.
    pub(super) fn push_collected(&mut self, call: &mut Call<'_>) {
        if self.session_mut().is_some_and(|session| session.push_collected(call).is_err()) {
            self.lose_peer(ErrorCode::NoNode, call);
        }
    }

    /// A link accepts messages again.
    pub(in crate::socket) fn wakeup(&mut self, call: &mut Call<'_>) {
        self.push_collected(call);
        self.continue_closing(call);
    }
}

fn peek_stream(buffer: &mut [u8], base: &Base) -> usize {
    let mut copied = 0;
    let mut read = base.queue.read();
    for msg in base.queue.iter().take_while(|m| m.error_code() == ErrorCode::Ok) {
        let room = buffer.get_mut(copied..).unwrap_or_default();
        copied += copy(msg.data().get(read..).unwrap_or_default(), room);
        read = 0;
    }
    copied
}
