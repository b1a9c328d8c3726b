//! Receiving. Spec: tipc.md §8.3, §8.10.

use super::endpoint::Endpoint;
use super::error::{ConnectError, RecvError};
use super::state::State;
use super::types::{Received, RecvOptions, Returned, SocketKind, WaitReason};
use super::uplink::Uplink;
use crate::addr::ServiceRange;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType};

impl Endpoint {
    /// Receives into `buffer`: one message, or on a STREAM all available bytes. After the orderly end of a connection
    /// every call returns 0 bytes. After [`Self::shutdown`] of a connectionless socket a call that would wait fails.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(
        &mut self,
        _now: Time,
        buffer: &mut [u8],
        options: RecvOptions,
        uplink: &mut dyn Uplink,
    ) -> Result<Received, RecvError> {
        self.blocked = None;
        if buffer.is_empty() {
            return Err(RecvError::EmptyBuffer);
        }
        let open = matches!(self.state, State::Open | State::Listen);
        if self.kind.is_connection_oriented() && open || self.closed {
            return Err(RecvError::NotConnected);
        }
        if let Some(error) = self.error.take() {
            return Err(RecvError::from(error));
        }
        let Some(first) = self.queue.front() else {
            return self.nothing_received();
        };
        if first.error_code() != ErrorCode::Ok {
            return self.receive_error(options);
        }
        if self.kind != SocketKind::Stream {
            return Ok(self.receive_message(buffer, options, uplink));
        }
        let mut received = self.describe(first);
        received.len = if options.peek { self.peek_stream(buffer) } else { self.read_stream(buffer, uplink) };
        Ok(received)
    }

    /// Bytes of data that the next [`Self::recv`] can return: of the first message; on a STREAM, of all messages.
    #[must_use]
    pub fn available(&self) -> usize {
        let of = |msg: &Message| msg.data().len();
        let queued = match self.kind {
            SocketKind::Stream => self.queue.iter().map(of).sum(),
            _ => self.queue.front().map_or(0, of),
        };
        queued.saturating_sub(self.queue.read)
    }

    fn nothing_received(&mut self) -> Result<Received, RecvError> {
        if self.shut {
            return Err(RecvError::NotConnected);
        }
        if self.state == State::Disconnecting {
            return match self.end {
                Some(ErrorCode::ConnShutdown) => Ok(Received { source: self.peer, ..Received::default() }),
                _ => Err(RecvError::NotConnected),
            };
        }
        self.blocked = Some(match self.state {
            State::Connecting => self.setup_reason(),
            _ => WaitReason::NothingReceived,
        });
        Err(RecvError::WouldBlock)
    }

    /// The properties of the message that a call returns first.
    fn describe(&self, msg: &Message) -> Received {
        let destination = match msg.message_type() {
            MessageType::Named => Some(msg.service().into()),
            MessageType::Mcast => Some(msg.service_range()),
            MessageType::Conn => self.service.map(ServiceRange::from),
            _ => None,
        };
        let (source, importance) = (msg.origin(), msg.importance());
        let (group, after_loss) = self.told(msg);
        Received { source, destination, importance, group, after_loss, ..Received::default() }
    }

    /// Handles a message with an error code at the front of the queue.
    fn receive_error(&mut self, options: RecvOptions) -> Result<Received, RecvError> {
        let Some(msg) = self.queue.front() else { return Err(RecvError::WouldBlock) };
        let code = msg.error_code();
        let connected = self.kind.is_connection_oriented();
        if connected && code != ErrorCode::ConnShutdown && !options.control {
            return Err(RecvError::ConnectionReset); // stays queued, so that every call returns the error
        }
        let mut received = self.describe(msg);
        if msg.data().is_empty() {
            received.destination = None;
        }
        received.returned = Some(Returned { code, data: msg.data().to_vec() });
        if !options.peek {
            self.queue.pop();
            self.stats.received_messages += 1;
        }
        Ok(received)
    }

    /// Receives one message, on all kinds except STREAM.
    fn receive_message(
        &mut self,
        buffer: &mut [u8],
        options: RecvOptions,
        uplink: &mut dyn Uplink,
    ) -> Received {
        let offset = self.queue.read;
        let Some(msg) = self.queue.front() else { return Received::default() };
        let mut received = self.describe(msg);
        if msg.message_type() == MessageType::GroupEvent {
            received.truncated = copy(msg.data(), buffer) < msg.data().len();
            if !options.peek {
                self.consume_first(uplink);
            }
            return received;
        }
        let unread = msg.data().get(offset..).unwrap_or_default();
        received.len = copy(unread, buffer);
        let rest_stays = received.len < unread.len() && options.keep_remainder;
        received.truncated = received.len < unread.len() && !options.keep_remainder;
        received.end_of_record = received.len == unread.len() && options.keep_remainder;
        if !options.peek {
            self.stats.received_bytes += received.len as u64;
            if rest_stays {
                self.queue.read = offset + received.len;
            } else {
                self.consume_first(uplink);
            }
        }
        received
    }

    fn read_stream(&mut self, buffer: &mut [u8], uplink: &mut dyn Uplink) -> usize {
        let mut copied = 0;
        while let Some(msg) = self.queue.front() {
            let room = buffer.get_mut(copied..).unwrap_or_default();
            if msg.error_code() != ErrorCode::Ok || room.is_empty() {
                break;
            }
            let unread = msg.data().get(self.queue.read..).unwrap_or_default();
            let n = copy(unread, room);
            copied += n;
            if n < unread.len() {
                self.queue.read += n;
                break;
            }
            self.consume_first(uplink);
        }
        self.stats.received_bytes += copied as u64;
        copied
    }

    fn peek_stream(&self, buffer: &mut [u8]) -> usize {
        let mut copied = 0;
        let mut read = self.queue.read;
        for msg in self.queue.iter().take_while(|m| m.error_code() == ErrorCode::Ok) {
            let room = buffer.get_mut(copied..).unwrap_or_default();
            copied += copy(msg.data().get(read..).unwrap_or_default(), room);
            read = 0;
        }
        copied
    }

    /// Removes the first message, which was read completely.
    fn consume_first(&mut self, uplink: &mut dyn Uplink) {
        let Some(msg) = self.queue.pop() else { return };
        self.stats.received_messages += 1;
        if self.kind.is_connection_oriented() && self.flow.consume(msg.size()) {
            self.acknowledge(false, uplink);
        }
        self.group_read(&msg, uplink);
        uplink.recycle(msg);
    }
}

/// Copies as much as fits and returns the number of bytes.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let n = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..n), to.get_mut(..n)) {
        to.copy_from_slice(from);
    }
    n
}

impl From<ConnectError> for RecvError {
    fn from(e: ConnectError) -> Self {
        match e {
            ConnectError::TimedOut => Self::TimedOut,
            ConnectError::Refused => Self::Refused,
            ConnectError::Aborted => Self::Aborted,
            ConnectError::Already | ConnectError::Send(_) | ConnectError::InGroup => Self::NotConnected,
        }
    }
}
