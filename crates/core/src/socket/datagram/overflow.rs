//! Messages that do not fit the receive queue of a connectionless socket: they wait for its reader, for a limited time,
//! and their senders wait too. Spec: tipc.md §8.7, decision 50.

use core::time::Duration;
use std::collections::VecDeque;

use crate::collections::shrink;
use crate::socket::queue::{ReceiveQueue, charge, limit};
use crate::time::Time;
use crate::waiting::Patience;
use crate::wire::Message;

/// Maximum number of bytes that wait for room, beside one message. Each local sender has one message here before it is
/// stopped, and so has the link to each node.
const MAX_WAITING: usize = 2 << 20;

/// The messages that wait for room, and how long they still may.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    messages: VecDeque<Message>,
    bytes: usize,
    /// When [`Self::expire`] is due, while senders wait.
    due: Option<Time>,
    /// The wait ends when the queue holds no more than this, bytes.
    resume_at: usize,
    /// Its wait begins in the first call of [`Self::expire`]. The call that makes the receiver full may process many
    /// messages, and the receiver cannot read before it returns.
    patience: Patience<Time>,
}

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Number of waiting messages.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes charged for them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether senders wait for the receiver.
    pub(super) fn is_full(&self) -> bool {
        self.due.is_some()
    }

    /// Whether a further message would wait, not return: the receiver of `queue` reads.
    pub(super) fn has_room(&self, queue: &ReceiveQueue) -> bool {
        self.bytes < MAX_WAITING && !self.patience.budget(queue.taken_bytes()).is_zero()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Keeps a message that does not fit `queue` with a receive buffer of `buffer` bytes until there is room.
    ///
    /// # Errors
    /// The message: its receiver does not read, or too many wait already.
    pub(super) fn keep(
        &mut self,
        now: Time,
        msg: Message,
        queue: &ReceiveQueue,
        buffer: usize,
    ) -> Result<(), Message> {
        let has_place = self.messages.try_reserve(1).is_ok();
        if self.bytes >= MAX_WAITING || !has_place {
            return Err(msg);
        }
        if self.due.is_none() {
            if !self.has_room(queue) {
                return Err(msg);
            }
            self.due = Some(now + Duration::from_nanos(1));
            // Not as soon as one message fits: otherwise sender and receiver would wait for each other at each message.
            self.resume_at = limit(&msg, buffer, false) / 2;
        }
        self.bytes += charge(&msg);
        self.messages.push_back(msg);
        Ok(())
    }

    /// Moves waiting messages to the queue as far as there is room; ends the wait if the queue is half empty.
    pub(super) fn refill(&mut self, now: Time, queue: &mut ReceiveQueue, buffer: usize) {
        while let Some(first) = self.messages.front()
            && queue.has_room(first, buffer, false)
            && let Some(first) = self.pop()
        {
            queue.push(first);
        }
        if self.messages.is_empty() && queue.charged() <= self.resume_at {
            self.due = None;
            self.patience.end(now, queue.taken_bytes());
        }
    }

    /// Ends a wait whose time is over. Returns the messages that waited: they are rejected, as TIPC defines it for a
    /// full queue.
    pub(super) fn expire(&mut self, now: Time, queue: &mut ReceiveQueue) -> VecDeque<Message> {
        if self.due.is_none_or(|due| due > now) {
            return VecDeque::new();
        }
        let read = queue.taken_bytes();
        self.patience.end(now, read);
        let left = self.patience.budget(read);
        if !left.is_zero() {
            self.patience.begin(now);
            self.due = Some(now + left);
            return VecDeque::new();
        }
        self.due = None;
        // They count as received: a lane may open only after all messages that arrived before it.
        queue.skip(self.messages.len());
        self.take_all()
    }

    /// Takes all waiting messages.
    pub(super) fn take_all(&mut self) -> VecDeque<Message> {
        self.bytes = 0;
        core::mem::take(&mut self.messages)
    }

    fn pop(&mut self) -> Option<Message> {
        let msg = self.messages.pop_front()?;
        shrink(&mut self.messages);
        self.bytes -= charge(&msg);
        Some(msg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::MAX_WAIT;
    use crate::wire::{MessageType, SHORT_HEADER, User};

    const BUFFER: usize = 64 << 10;

    fn message() -> Message {
        Message::build(User::Low, MessageType::Direct.into(), SHORT_HEADER, &[7; 1000])
    }

    fn full_queue() -> ReceiveQueue {
        let mut queue = ReceiveQueue::default();
        while queue.has_room(&message(), BUFFER, false) {
            queue.push(message());
        }
        queue
    }

    #[test]
    fn messages_wait_until_the_queue_is_half_empty() {
        let (mut overflow, mut queue, now) = (Overflow::default(), full_queue(), Time::ZERO);
        overflow.keep(now, message(), &queue, BUFFER).unwrap();
        assert_eq!((overflow.is_full(), overflow.bytes()), (true, charge(&message())));
        queue.pop();
        overflow.refill(now, &mut queue, BUFFER);
        assert!(overflow.is_full() && overflow.is_empty(), "it fits, and senders still wait");
        while queue.charged() > BUFFER / 2 {
            queue.pop();
        }
        overflow.refill(now, &mut queue, BUFFER);
        assert_eq!((overflow.is_full(), overflow.bytes(), overflow.deadline()), (false, 0, None));
    }

    #[test]
    fn receiver_that_does_not_read_gets_its_messages_rejected_and_later_ones_at_once() {
        let (mut overflow, mut queue, mut now) = (Overflow::default(), full_queue(), Time::ZERO);
        overflow.keep(now, message(), &queue, BUFFER).unwrap();
        let begin = now;
        let mut rejected = VecDeque::new();
        while rejected.is_empty() {
            now = overflow.deadline().unwrap();
            rejected = overflow.expire(now, &mut queue);
        }
        assert!(now.since(begin) <= MAX_WAIT);
        assert_eq!((rejected.len(), queue.taken(), overflow.is_full()), (1, 1, false));
        assert!(!overflow.has_room(&queue));
        assert!(overflow.keep(now, message(), &queue, BUFFER).is_err());
    }

    #[test]
    fn waiting_bytes_are_limited() {
        let (mut overflow, queue) = (Overflow::default(), full_queue());
        while overflow.keep(Time::ZERO, message(), &queue, BUFFER).is_ok() {}
        assert!((MAX_WAITING..MAX_WAITING + charge(&message())).contains(&overflow.bytes()));
    }
}
