//! A full receiver: messages that do not fit the receive queue of a connectionless socket wait for its reader, for a
//! limited time, and their senders wait too. Spec: tipc.md §8.7, decision 22.

use core::time::Duration;
use std::collections::VecDeque;

use super::endpoint::Endpoint;
use super::patience::Patience;
use super::queue::{charge, limit};
use super::uplink::Uplink;
use crate::Load;
use crate::addr::{Importance, NodeAddr};
use crate::collections::shrink;
use crate::limits::MESSAGE_OVERHEAD;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, NAMED_HEADER, blocks};

/// Maximum number of bytes that wait for room, beside one message. Each local sender has one message here before it is
/// stopped, and so has the link to each node.
const MAX_WAITING: usize = 2 << 20;

/// The messages that wait for room, and how long they still may.
#[derive(Debug, Default)]
pub(super) struct Full {
    messages: VecDeque<Message>,
    bytes: usize,
    wait: Option<Wait>,
    /// The wait ends when the queue holds no more than this, bytes.
    resume_at: usize,
    patience: Patience,
}

/// The present wait.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Time,
    /// Its end; `None` before the first timeout after it began. The call that makes the receiver full may process many
    /// messages, and the receiver cannot read before it returns.
    until: Option<Time>,
}

impl Wait {
    /// When [`Endpoint::wait_timeout`] is due: if the end is unknown, in the next call that is later.
    fn due(&self) -> Time {
        self.until.unwrap_or(self.since + Duration::from_nanos(1))
    }
}

impl Full {
    /// Number of waiting messages.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes charged for them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.wait.map(|wait| wait.due())
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let msg = self.messages.pop_front()?;
        shrink(&mut self.messages);
        self.bytes -= charge(&msg);
        Some(msg)
    }
}

impl Endpoint {
    /// Whether the receive queue is full and senders shall wait: until [`Self::handle_timeout`] or a receive changes
    /// it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.wait.is_some()
    }

    /// Bytes charged for the queue, and their limit for messages of the lowest importance.
    pub(crate) fn queue_usage(&self) -> (usize, usize) {
        (self.queue.charged(), self.settings.receive_buffer)
    }

    /// Its load as the sender of a message of so many bytes without a connection sees it, unless senders wait for it.
    pub(crate) fn load(&self, bytes: usize, importance: Importance) -> Load {
        if self.kind.is_connection_oriented() {
            return Load::IDLE;
        }
        let charged = self.queue.charged();
        let needed = bytes + NAMED_HEADER + MESSAGE_OVERHEAD;
        if charged + needed < self.settings.receive_buffer << importance as u32 {
            // As a lane counts them: a message is at least a block.
            let messages = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
            return Load::of_blocks(messages.max(blocks(charged)));
        }
        let is_waited_for = !self.full.patience.left(self.queue.taken_bytes()).is_zero();
        if is_waited_for && self.full.bytes < MAX_WAITING { Load::Brimming } else { Load::Silent }
    }

    /// A local receiver of the last message is full: this socket waits for [`Self::wakeup`] with its own node.
    pub fn wait_for_receiver(&mut self, own: NodeAddr) {
        self.congested.insert(own);
    }

    /// Copies of the last multicast for sockets of the own node are still to be made, or not any more: meanwhile this
    /// socket sends nothing to its own node, and no other multicast.
    pub(crate) fn set_spreading(&mut self, own: NodeAddr, on: bool) {
        self.spreads = on;
        if on {
            self.congested.insert(own);
        }
    }

    /// The receivers of the last multicast are being collected, on this node and on others, or not any more: meanwhile
    /// this socket sends nothing.
    pub(crate) fn set_collecting(&mut self, on: bool) {
        self.collects_receivers = on;
    }

    /// Keeps a message that does not fit the queue until there is room.
    ///
    /// # Errors
    /// The message: its receiver does not read, or too many wait already.
    pub(super) fn keep_waiting(&mut self, now: Time, msg: Message) -> Result<(), Message> {
        let has_place = self.full.messages.try_reserve(1).is_ok();
        if self.full.bytes >= MAX_WAITING || self.shut || self.closed || !has_place {
            return Err(msg);
        }
        if self.full.wait.is_none() {
            if self.full.patience.left(self.queue.taken_bytes()).is_zero() {
                return Err(msg);
            }
            self.full.wait = Some(Wait { since: now, until: None });
            // Not as soon as one message fits: otherwise sender and receiver would wait for each other at each message.
            self.full.resume_at = limit(&msg, self.settings.receive_buffer, false) / 2;
        }
        self.full.bytes += charge(&msg);
        self.full.messages.push_back(msg);
        Ok(())
    }

    /// Moves waiting messages to the queue as far as there is room; ends the wait if the queue is half empty.
    pub(crate) fn refill(&mut self, now: Time) {
        while let Some(first) = self.full.messages.front()
            && self.queue.has_room(first, self.settings.receive_buffer, false)
            && let Some(first) = self.full.pop()
        {
            self.queue.push(first);
        }
        if self.full.messages.is_empty() && self.queue.charged() <= self.full.resume_at {
            self.end_wait(now);
        }
    }

    /// Ends a wait whose time is over: waiting messages are rejected, as TIPC defines it for a full queue.
    pub(super) fn wait_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {
        let Some(wait) = self.full.wait.filter(|wait| wait.due() <= now) else { return };
        let read = self.queue.taken_bytes();
        if wait.until.is_some() {
            self.full.patience.spend(now.since(wait.since), read);
        }
        let left = self.full.patience.left(read);
        if !left.is_zero() {
            self.full.wait = Some(Wait { since: now, until: Some(now + left) });
            return;
        }
        self.full.wait = None;
        // They count as received: a lane may open only after all messages that arrived before it.
        self.queue.skip(self.full.len());
        while let Some(msg) = self.full.pop() {
            self.stats.overloads += 1;
            self.respond(msg, ErrorCode::Overload, uplink);
        }
    }

    fn end_wait(&mut self, now: Time) {
        if let Some(Wait { since, until: Some(_) }) = self.full.wait.take() {
            self.full.patience.spend(now.since(since), self.queue.taken_bytes());
        }
    }
}
