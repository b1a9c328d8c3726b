//! Messages of a connection that travel the last stretch to the application by another way than [`Endpoint::recv`]: they
//! are handed out whole, and what the application has not read there comes back. Decision 8.

use super::endpoint::Endpoint;
use super::types::Destination;
use super::uplink::Uplink;
use crate::addr::NodeAddr;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, reverse};

impl Endpoint {
    /// Hands the data that waits to `take`, oldest message first, until it takes no more: how many it took. The peer is
    /// told that they were consumed; whoever takes them bounds how many wait with it. A message that was begun, and the
    /// end of the connection, stay for [`Self::recv`]; without a connection so do messages of this node, which have a way
    /// of their own, and whatever comes after them.
    pub fn hand_out(&mut self, take: &mut dyn FnMut(&Message) -> bool, uplink: &mut dyn Uplink) -> usize {
        let mut count = 0;
        let (own, connected) = (uplink.own_node(), self.kind.is_connection_oriented());
        while self.queue.read == 0
            && let Some(first) = self.queue.front()
            && first.error_code() == ErrorCode::Ok
            && (connected || is_far(first, own))
            && take(first)
            && let Some(message) = self.queue.pop()
        {
            if !connected {
                uplink.recycle(message);
                count += 1;
                continue;
            }
            if self.flow.consume(message.size()) {
                self.acknowledge(false, uplink);
            }
            uplink.recycle(message);
            count += 1;
        }
        count
    }

    /// Takes back the last messages that were handed out, oldest first; of the first one's data the application has had
    /// `read` bytes. They come from memory that others could write: false if one was not the peer's, and is lost.
    pub fn take_back(&mut self, messages: Vec<Vec<u8>>, read: usize) -> bool {
        let mut honest = true;
        for (index, bytes) in messages.into_iter().enumerate().rev() {
            let Some(message) = Message::from_vec(bytes).ok().filter(|m| self.was_handed_out(m)) else {
                honest = false;
                continue;
            };
            let read = if index == 0 { read } else { 0 };
            if read > 0 && read >= message.data().len() {
                continue; // nothing is left of it
            }
            if self.kind.is_connection_oriented() {
                // The peer was told already.
                self.flow.prepay(message.size());
            }
            self.queue.put_back(message);
            self.queue.read = read;
        }
        honest
    }

    /// True if the next message is one that [`Self::hand_out`] hands out to a socket without a connection on node `own`.
    #[must_use]
    pub fn next_is_far(&self, own: NodeAddr) -> bool {
        let far = |first: &Message| first.error_code() == ErrorCode::Ok && is_far(first, own);
        !self.kind.is_connection_oriented() && self.queue.read == 0 && self.queue.front().is_some_and(far)
    }

    /// The socket of node `own` that sent the next message, if one did, and this is a socket without a connection.
    #[must_use]
    pub fn next_sender(&self, own: NodeAddr) -> Option<u32> {
        let first = self.queue.front().filter(|_| !self.kind.is_connection_oriented())?;
        let here = first.error_code() == ErrorCode::Ok && !is_far(first, own);
        here.then(|| first.origin_port())
    }

    fn was_handed_out(&self, message: &Message) -> bool {
        let fits = match message.message_type() {
            MessageType::Conn => {
                self.kind.is_connection_oriented() && message.origin_port() == self.peer.port
            }
            MessageType::Direct | MessageType::Named | MessageType::Mcast => {
                !self.kind.is_connection_oriented()
            }
            _ => false,
        };
        message.header_fits()
            && message.is_data()
            && fits
            && message.error_code() == ErrorCode::Ok
            && message.dest_port() == self.port
            && self.queue.taken() > 0
            && !self.closed
    }

    /// A message that was taken for sending and can go nowhere comes back, unless its sender does not want it.
    pub(crate) fn fail_to_send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Destination,
        code: ErrorCode,
        uplink: &mut dyn Uplink,
    ) {
        if let Ok((_, message)) = self.addressed(to, data, uplink)
            && let Some(returned) = reverse(uplink.own_node(), message, code)
        {
            self.handle_message(now, returned, uplink);
        }
    }

    /// True if what follows what was handed out is not data: the end of the connection.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.queue.front().map_or(self.is_over(), |first| first.error_code() != ErrorCode::Ok)
    }

    /// True if the application has read a part of the first message.
    #[must_use]
    pub fn is_partly_read(&self) -> bool {
        self.queue.read > 0
    }
}

/// True if the message came from another node than `own`.
fn is_far(message: &Message, own: NodeAddr) -> bool {
    let node = message.origin_node();
    !node.is_none() && node != own
}
