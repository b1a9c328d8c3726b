//! Messages that reach the application through a lane instead of [`Endpoint::recv`]: hands out whole messages,
//! and takes unread ones back. Decision 8.

use super::endpoint::Endpoint;
use super::uplink::Uplink;
use crate::addr::NodeAddr;
use crate::wire::{ErrorCode, Message, MessageType};

impl Endpoint {
    /// Passes queued data to `take`, oldest message first, until it returns false; returns the number of
    /// messages taken. They are acknowledged to the peer as consumed; the owner of `take` limits how many wait
    /// there. A message that was read in part, and the end of the connection, stay for [`Self::recv`]. On a
    /// connectionless socket, messages from this node (which have lanes of their own) and all messages behind
    /// them stay too.
    pub fn hand_out(&mut self, take: &mut dyn FnMut(&Message) -> bool, uplink: &mut dyn Uplink) -> usize {
        let mut count = 0;
        let (own, connected) = (uplink.own_node(), self.kind.is_connection_oriented());
        while self.queue.read == 0
            && let Some(first) = self.queue.front()
            && first.error_code() == ErrorCode::Ok
            && (connected || is_remote(first, own))
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

    /// Takes back the messages handed out last, oldest first; the application has read the first `read` bytes
    /// of the first one's data. The messages come from memory that other processes can write: one that this
    /// socket cannot have handed out is dropped, and the result is false.
    pub fn take_back(&mut self, messages: Vec<Vec<u8>>, read: usize, uplink: &mut dyn Uplink) -> bool {
        let mut valid = true;
        for (index, bytes) in messages.into_iter().enumerate().rev() {
            let Some(message) = Message::from_vec(bytes).ok().filter(|m| self.was_handed_out(m)) else {
                valid = false;
                continue;
            };
            let read = if index == 0 { read } else { 0 };
            if read > 0 && read >= message.data().len() {
                continue; // all of it was read
            }
            if self.kind.is_connection_oriented() {
                // These were already acknowledged to the peer.
                self.flow.prepay(message.size());
            }
            let message = self.keep_any(message, uplink);
            self.queue.put_back(message);
            self.queue.read = read;
        }
        valid
    }

    /// True if [`Self::hand_out`] can hand out the next message of this connectionless socket on node `own`.
    #[must_use]
    pub fn next_is_remote(&self, own: NodeAddr) -> bool {
        let remote = |first: &Message| first.error_code() == ErrorCode::Ok && is_remote(first, own);
        !self.kind.is_connection_oriented() && self.queue.read == 0 && self.queue.front().is_some_and(remote)
    }

    /// The socket on node `own` that sent the next message of this connectionless socket, if one did.
    #[must_use]
    pub fn next_sender(&self, own: NodeAddr) -> Option<u32> {
        let first = self.queue.front().filter(|_| !self.kind.is_connection_oriented())?;
        let here = first.error_code() == ErrorCode::Ok && !is_remote(first, own);
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

    /// True if the next item after the messages handed out is the end of the connection.
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

/// True if the message is from another node than `own`.
fn is_remote(message: &Message, own: NodeAddr) -> bool {
    let node = message.origin_node();
    !node.is_none() && node != own
}
