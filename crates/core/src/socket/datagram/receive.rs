//! Arriving datagrams and multicasts, and reading them. Spec: tipc.md §7.6, §8.7, §8.10.

use super::Datagram;
use super::multicast_sync::Filtered;
use crate::Load;
use crate::addr::Importance;
use crate::limits::MESSAGE_OVERHEAD;
use crate::socket::base::Base;
use crate::socket::call::Call;
use crate::socket::error::RecvError;
use crate::socket::group::{is_group, message_properties};
use crate::socket::reading::{copy, properties};
use crate::socket::types::{Received, RecvOptions, WaitReason};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, NAMED_HEADER, blocks};

impl Datagram {
    /// Handles a payload message for the port.
    #[inline]
    pub(in crate::socket) fn handle_data(&mut self, now: Time, msg: Message, call: &mut Call<'_>) {
        if let Some(mut call) = self.group_call(call) {
            call.handle_data(msg);
        } else {
            self.admit(now, msg, call);
        }
    }

    /// Handles a copy of a multicast, unless the socket is in a group.
    pub(in crate::socket) fn handle_multicast(&mut self, now: Time, msg: Message, call: &mut Call<'_>) {
        if self.group.is_some() || !msg.syn() && self.sync.is_empty() {
            return self.handle_data(now, msg, call);
        }
        let room = usize::try_from(call.base.room(self.bytes())).unwrap_or(usize::MAX);
        let limit = call.base.settings.receive_buffer.min(self.sync.bytes().saturating_add(room));
        match self.sync.filter(now, call.own(), msg, limit) {
            Filtered::Deliver(msg) => self.admit(now, msg, call),
            Filtered::Release(all) => {
                all.into_iter().for_each(|msg| self.admit(now, msg, call));
            }
            Filtered::Held => {}
            Filtered::Overflow(msg) => call.respond_overload(msg),
        }
    }

    /// Decides about a payload message: queues it, lets it wait, or rejects it.
    pub(super) fn admit(&mut self, now: Time, msg: Message, call: &mut Call<'_>) {
        if call.base.is_closed() || is_group(&msg) || msg.message_type() == MessageType::Conn {
            return call.respond(msg, ErrorCode::NoPort);
        }
        let is_returned = msg.error_code() != ErrorCode::Ok;
        if !is_returned && msg.data().is_empty() {
            return; // not delivered to the application
        }
        if !call.base.has_memory(&msg, self.bytes()) {
            return call.respond_overload(msg);
        }
        let buffer = call.base.settings.receive_buffer;
        let fits = call.base.queue.has_room(&msg, buffer, false);
        if fits && (is_returned || self.overflow.is_empty()) {
            call.base.stats.returned_to_us += u64::from(is_returned);
            return call.base.queue.push(msg);
        }
        let refused = match is_returned || call.base.is_shut_down() {
            true => Err(msg),
            false => self.overflow.keep(now, msg, &call.base.queue, buffer),
        };
        if let Err(msg) = refused {
            call.respond_overload(msg);
        }
    }

    /// Receives one message.
    #[inline]
    pub(in crate::socket) fn receive(
        &mut self,
        buffer: &mut [u8],
        options: RecvOptions,
        call: &mut Call<'_>,
    ) -> Result<Received, RecvError> {
        let Some(first) = call.base.queue.front() else {
            return match call.base.is_shut_down() {
                true => Err(RecvError::NotConnected),
                false => call.base.nothing_received(WaitReason::NothingReceived),
            };
        };
        let mut received = properties(first, None);
        (received.group, received.after_loss) = message_properties(first, self.group());
        if first.error_code() != ErrorCode::Ok {
            call.base.read_returned(&mut received, options);
            return Ok(received);
        }
        let read = if first.message_type() == MessageType::GroupEvent {
            received.truncated = copy(first.data(), buffer) < first.data().len();
            if options.peek { None } else { call.base.take_read() }
        } else {
            call.base.read_message(&mut received, buffer, options)
        };
        if let Some(msg) = read {
            if let Some(mut call) = self.group_call(call) {
                call.read(&msg);
            }
            call.uplink.recycle(msg);
        }
        Ok(received)
    }

    /// Number of messages that wait for room in the queue.
    pub(in crate::socket) fn overflowing(&self) -> usize {
        self.overflow.len()
    }

    /// Whether the receive queue is full and senders shall wait.
    pub(in crate::socket) fn is_full(&self) -> bool {
        self.overflow.is_full()
    }

    /// Moves waiting messages to the queue as far as there is room; ends the wait if the queue is half empty.
    pub(in crate::socket) fn refill(&mut self, now: Time, base: &mut Base) {
        self.overflow.refill(now, &mut base.queue, base.settings.receive_buffer);
    }

    /// The load as the sender of a message of so many bytes sees it, unless senders wait.
    pub(in crate::socket) fn load(&self, bytes: usize, importance: Importance, base: &Base) -> Load {
        let charged = base.queue.charged();
        let needed = bytes + NAMED_HEADER + MESSAGE_OVERHEAD;
        if charged + needed < base.settings.receive_buffer << importance as u32 {
            // As a lane counts them: a message is at least a block.
            let messages = u32::try_from(base.queue.len()).unwrap_or(u32::MAX);
            return Load::of_blocks(messages.max(blocks(charged)));
        }
        if self.overflow.has_room(&base.queue) { Load::Brimming } else { Load::Silent }
    }
}
