//! Reading the first message of the receive queue. Spec: tipc.md §8.10.

use super::base::Base;
use super::error::{ConnectError, RecvError};
use super::types::{Received, RecvOptions, Returned, WaitReason};
use crate::addr::{ServiceAddr, ServiceRange};
use crate::wire::{Message, MessageType};

impl Base {
    /// Reads the first message as a unit. Returns it if nothing of it stays in the queue.
    #[inline]
    pub(super) fn read_message(
        &mut self,
        received: &mut Received,
        buffer: &mut [u8],
        options: RecvOptions,
    ) -> Option<Message> {
        let unread = self.queue.unread();
        received.len = copy(unread, buffer);
        let is_whole = received.len == unread.len();
        received.truncated = !is_whole && !options.keep_remainder;
        received.end_of_record = is_whole && options.keep_remainder;
        if options.peek {
            return None;
        }
        self.stats.received_bytes += received.len as u64;
        if is_whole || !options.keep_remainder {
            return self.take_read();
        }
        self.queue.set_read(self.queue.read() + received.len);
        None
    }

    /// Takes the first message, which is a returned one or the end of a connection.
    pub(super) fn read_returned(&mut self, received: &mut Received, options: RecvOptions) {
        let Some(msg) = self.queue.front() else { return };
        let (code, data) = (msg.error_code(), msg.data().to_vec());
        if data.is_empty() {
            received.destination = None;
        }
        received.returned = Some(Returned { code, data });
        if !options.peek {
            self.take_read();
        }
    }

    /// Takes the first message, which is read completely.
    #[inline]
    pub(super) fn take_read(&mut self) -> Option<Message> {
        let msg = self.queue.pop()?;
        self.stats.received_messages += 1;
        Some(msg)
    }

    /// A receive would have to wait.
    pub(super) fn nothing_received(&mut self, reason: WaitReason) -> Result<Received, RecvError> {
        self.set_wait(Some(reason));
        Err(RecvError::WouldBlock)
    }
}

/// The properties of a message that a receive returns. `service`: the address by which its connection was set up.
#[inline]
pub(super) fn properties(msg: &Message, service: Option<ServiceAddr>) -> Received {
    let destination = match msg.message_type() {
        MessageType::Named => Some(msg.service().into()),
        MessageType::Mcast => Some(msg.service_range()),
        MessageType::Conn => service.map(ServiceRange::from),
        _ => None,
    };
    Received { source: msg.origin(), destination, importance: msg.importance(), ..Received::default() }
}

/// Copies as much as fits and returns the number of bytes.
#[inline]
pub(super) fn copy(from: &[u8], to: &mut [u8]) -> usize {
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
