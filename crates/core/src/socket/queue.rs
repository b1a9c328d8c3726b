//! The receive queue and its limits. Spec: tipc.md §8.7.

use std::collections::VecDeque;

use super::connection::LEGACY_WINDOW;
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
    read: usize,
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

    /// The data of the first message that is not read yet.
    pub(super) fn unread(&self) -> &[u8] {
        self.front().and_then(|first| first.data().get(self.read..)).unwrap_or_default()
    }

    /// Bytes of the first message's data already read.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    pub(super) fn is_partly_read(&self) -> bool {
        self.read > 0
    }

    /// The application has read the first `read` bytes of the first message.
    pub(super) fn set_read(&mut self, read: usize) {
        self.read = read;
    }

    /// Drops the first message if a part of it is read.
    pub(super) fn drop_partly_read(&mut self) {
        if self.is_partly_read() {
            self.pop();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// Whether there is memory for the place of another message.
    pub(super) fn has_place(&mut self) -> bool {
        self.messages.try_reserve(1).is_ok()
    }

    #[inline]
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

    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{SHORT_HEADER, User};

    fn message(data: usize) -> Message {
        Message::build(User::Low, MessageType::Direct.into(), SHORT_HEADER, &vec![7; data])
    }

    #[test]
    fn message_that_is_read_in_part_leaves_as_a_whole() {
        let mut queue = ReceiveQueue::default();
        queue.push(message(10));
        queue.push(message(20));
        assert_eq!(queue.unread().len(), 10);
        queue.drop_partly_read();
        queue.set_read(4);
        assert_eq!((queue.unread().len(), queue.len()), (6, 2));
        queue.drop_partly_read();
        assert_eq!((queue.unread().len(), queue.len(), queue.taken()), (20, 1, 1));
    }

    #[test]
    fn charges_and_counts_follow_the_messages() {
        let mut queue = ReceiveQueue::default();
        let size = charge(&message(10));
        for _ in 0..3 {
            queue.push(message(10));
        }
        let first = queue.pop().unwrap();
        assert_eq!((queue.charged(), queue.taken(), queue.taken_bytes()), (2 * size, 1, size as u64));
        queue.put_back(first);
        assert_eq!((queue.charged(), queue.taken(), queue.taken_bytes()), (3 * size, 0, 0));
        queue.clear();
        assert_eq!((queue.charged(), queue.taken(), queue.is_empty()), (0, 3, true));
    }

    #[test]
    fn messages_are_inserted_before_later_ones_of_their_sender() {
        let mut queue = ReceiveQueue::default();
        for data in [1, 5, 2] {
            queue.push(message(data));
        }
        let at = queue.insert_before(vec![message(9)], 0, |later| later.data().len() == 2);
        assert_eq!(at, 2);
        let order: Vec<_> = queue.iter().map(|msg| msg.data().len()).collect();
        assert_eq!(order, [1, 5, 9, 2]);
    }
}
