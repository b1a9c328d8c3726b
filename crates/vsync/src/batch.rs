//! Messages that the application has sent and that are not in a packet of the view yet. Small messages share a packet:
//! those sent between two turns of the caller's loop.

use std::collections::VecDeque;

use crate::config::MAX_PACKET;
use crate::wire::{Class, DATA_HEADER};

/// Messages of one class, encoded behind the space for a packet's header.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) class: Class,
    pub(crate) bytes: Vec<u8>,
    /// Number of messages.
    pub(crate) messages: u64,
}

/// The batches that wait for the window, the last one still open.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    queue: VecDeque<Batch>,
    /// Bytes of all batches.
    bytes: usize,
}

impl Batches {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a message to the last batch if that has space and the same class.
    pub(crate) fn push(&mut self, class: Class, message: &[u8]) {
        let size = 4 + message.len();
        let fits =
            |batch: &Batch| batch.class == class && batch.bytes.len() + size <= DATA_HEADER + MAX_PACKET;
        if !self.queue.back().is_some_and(fits) {
            let mut bytes = Vec::with_capacity(DATA_HEADER + size.max(256));
            bytes.resize(DATA_HEADER, 0);
            self.queue.push_back(Batch { class, bytes, messages: 0 });
        }
        if let Some(batch) = self.queue.back_mut() {
            batch.bytes.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
            batch.bytes.extend_from_slice(message);
            batch.messages += 1;
            self.bytes += size;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Batch> {
        let batch = self.queue.pop_front()?;
        self.bytes -= batch.bytes.len() - DATA_HEADER;
        Some(batch)
    }
}
