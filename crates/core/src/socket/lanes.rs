//! Messages that reach the application through a lane instead of [`Endpoint::recv`]: hands out whole messages,
//! and takes unread ones back. Decision 8.

use super::endpoint::{Endpoint, Role};
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
        let (own, base) = (uplink.own_node(), &mut self.base);
        while !base.queue.is_partly_read()
            && let Some(first) = base.queue.front()
            && first.error_code() == ErrorCode::Ok
            && (!matches!(self.role, Role::Datagram(_)) || is_remote(first, own))
            && take(first)
            && let Some(message) = base.queue.pop()
        {
            match &mut self.role {
                Role::Connection(connection) => connection.consumed(message, base, uplink),
                Role::Datagram(_) | Role::Listener => uplink.recycle(message),
            }
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
            if let Role::Connection(connection) = &mut self.role {
                // These were already acknowledged to the peer.
                connection.prepay(message.size());
            }
            let message = self.base.keep_any(message, uplink);
            self.base.queue.put_back(message);
            self.base.queue.set_read(read);
        }
        valid
    }

    /// True if [`Self::hand_out`] can hand out the next message of this connectionless socket on node `own`.
    #[must_use]
    pub fn next_is_remote(&self, own: NodeAddr) -> bool {
        !self.is_partly_read() && self.next_datagram().is_some_and(|first| is_remote(first, own))
    }

    /// The socket on node `own` that sent the next message of this connectionless socket, if one did.
    #[must_use]
    pub fn next_sender(&self, own: NodeAddr) -> Option<u32> {
        self.next_datagram().filter(|first| !is_remote(first, own)).map(|first| first.origin_port())
    }

    fn next_datagram(&self) -> Option<&Message> {
        self.datagram()?;
        self.base.queue.front().filter(|first| first.error_code() == ErrorCode::Ok)
    }

    fn was_handed_out(&self, message: &Message) -> bool {
        let fits = match (message.message_type(), &self.role) {
            (MessageType::Conn, Role::Connection(connection)) => {
                connection.remote_port() == Some(message.origin_port())
            }
            (MessageType::Direct | MessageType::Named | MessageType::Mcast, Role::Datagram(_)) => true,
            _ => false,
        };
        message.header_fits()
            && message.is_data()
            && fits
            && message.error_code() == ErrorCode::Ok
            && message.dest_port() == self.port()
            && self.taken() > 0
            && !self.is_closed()
    }

    /// True if the next item after the messages handed out is the end of the connection.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        let first = self.base.queue.front();
        first.map_or(self.is_over(), |first| first.error_code() != ErrorCode::Ok)
    }

    /// True if the application has read a part of the first message.
    #[must_use]
    pub fn is_partly_read(&self) -> bool {
        self.base.queue.is_partly_read()
    }
}

/// True if the message is from another node than `own`.
fn is_remote(message: &Message, own: NodeAddr) -> bool {
    let node = message.origin_node();
    !node.is_none() && node != own
}
