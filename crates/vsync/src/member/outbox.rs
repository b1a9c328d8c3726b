//! Messages for the transport.

use std::collections::VecDeque;

use super::Transmit;

/// Messages that the transport has not taken.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Transmit>,
    bytes: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, transmit: Transmit) {
        self.bytes += transmit.bytes.len();
        self.queue.push_back(transmit);
    }

    pub(super) fn pop(&mut self) -> Option<Transmit> {
        let next = self.queue.pop_front()?;
        self.bytes -= next.bytes.len();
        Some(next)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of all messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
