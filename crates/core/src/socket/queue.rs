//! The receive queue and its limits. Spec: tipc.md §8.7.

use std::collections::VecDeque;

use super::flow::LEGACY_WINDOW;
use crate::collections::shrink;
use crate::limits::{MAX_MESSAGE, MESSAGE_OVERHEAD};
use crate::wire::{ErrorCode, Message, MessageType};

/// Importance level of returned messages. Spec: tipc.md §2.4.
const SYSTEM_LEVEL: u32 = 4;
/// Queue limit of connections to peers that count messages, bytes.
const LEGACY_LIMIT: usize = (2 * LEGACY_WINDOW as usize + 1) * (MAX_MESSAGE + MESSAGE_OVERHEAD);

/// Bytes of the receive buffer that a message is charged for.
pub(super) fn charge(msg: &Message) -> usize {
    msg.size() + MESSAGE_OVERHEAD
}

/// Messages for the application, oldest first.
#[derive(Debug, Default)]
pub(super) struct ReceiveQueue {
    messages: VecDeque<Message>,
    charged: usize,
    /// Messages that have left the queue since the socket was opened.
    taken: u64,
    /// Bytes charged for them.
    taken_bytes: u64,
    /// Bytes of the first message's data already read.
    pub(super) read: usize,
}

impl ReceiveQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes charged for all messages.
    pub(super) fn charged(&self) -> usize {
        self.charged
    }

    pub(super) fn front(&self) -> Option<&Message> {
        self.messages.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// Whether there is memory for the place of another message.
    pub(super) fn has_place(&mut self) -> bool {
        self.messages.try_reserve(1).is_ok()
    }

    pub(super) fn push(&mut self, msg: Message) {
        self.charged += charge(&msg);
        self.messages.push_back(msg);
    }

    /// Inserts messages before the first one behind `skip` others for which `is_later` is true; returns the place of
    /// the first of them.
    pub(super) fn insert_before(
        &mut self,
        messages: Vec<Message>,
        skip: usize,
        is_later: impl Fn(&Message) -> bool,
    ) -> usize {
        self.charged += messages.iter().map(charge).sum::<usize>();
        let later = self.messages.iter().skip(skip).position(is_later);
        let at = later.map_or(self.messages.len(), |later| skip + later);
        let behind = self.messages.split_off(at);
        self.messages.extend(messages);
        self.messages.extend(behind);
        at
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let msg = self.messages.pop_front()?;
        shrink(&mut self.messages);
        self.charged -= charge(&msg);
        self.taken += 1;
        self.taken_bytes += charge(&msg) as u64;
        self.read = 0;
        Some(msg)
    }

    /// Puts back the message that left the queue last.
    pub(super) fn put_back(&mut self, msg: Message) {
        self.charged += charge(&msg);
        self.taken_bytes = self.taken_bytes.saturating_sub(charge(&msg) as u64);
        self.messages.push_front(msg);
        self.taken -= 1;
        self.read = 0;
    }

    /// Messages that have left the queue since the socket was opened.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes charged for the messages that have left the queue.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Counts messages as taken that were to enter the queue and do not.
    pub(super) fn skip(&mut self, messages: usize) {
        self.taken += messages as u64;
    }

    pub(super) fn clear(&mut self) {
        let taken = self.taken + self.len() as u64;
        *self = Self { taken, taken_bytes: self.taken_bytes, ..Self::default() };
    }

    /// True if `msg` fits a receive buffer of `buffer` bytes.
    pub(super) fn has_room(&self, msg: &Message, buffer: usize, legacy_peer: bool) -> bool {
        self.charged + charge(msg) < limit(msg, buffer, legacy_peer)
    }
}

pub(super) fn limit(msg: &Message, buffer: usize, legacy_peer: bool) -> usize {
    match msg.message_type() {
        MessageType::Conn if legacy_peer => LEGACY_LIMIT,
        MessageType::Conn => buffer,
        _ if msg.error_code() != ErrorCode::Ok => buffer << SYSTEM_LEVEL,
        _ => buffer << msg.importance() as u32,
    }
}
