//! Messages that reach the application through a lane instead of [`Endpoint::recv`]: hands out whole messages,
//! and takes unread ones back. Decisions 8 and 50.

use super::call::Call;
use super::endpoint::{Endpoint, Role};
use super::group::member_id;
use super::uplink::Uplink;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::wire::{ErrorCode, Message, MessageType, blocks};

impl Endpoint {
    /// Passes queued data to `take`, oldest message first, until it returns false; returns the number of
    /// messages taken. They are acknowledged to the peer as consumed; the owner of `take` limits how many wait
    /// there. A message that was read in part, and the end of the connection, stay for [`Self::recv`]. On a
    /// connectionless socket, messages from this node (which have lanes of their own) and all messages behind
    /// them stay too.
    pub fn hand_out(&mut self, take: &mut dyn FnMut(&Message) -> bool, uplink: &mut dyn Uplink) -> usize {
        let mut count = 0;
        let own = uplink.own_node();
        let call = &mut Call::new(&mut self.base, uplink);
        while !call.base.queue.is_partly_read()
            && let Some(first) = call.base.queue.front()
            && first.error_code() == ErrorCode::Ok
            && (!matches!(self.role, Role::Datagram(_)) || is_remote(first, own))
            && take(first)
            && let Some(message) = call.base.queue.pop()
        {
            match &mut self.role {
                Role::Connection(connection) => connection.consumed(message, call),
                Role::Datagram(_) | Role::Listener => call.uplink.recycle(message),
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
            if let Some(session) = self.session_mut() {
                // These were already acknowledged to the peer.
                session.prepay(message.size());
            }
            let message = Call::new(&mut self.base, uplink).keep_any(message);
            self.base.queue.put_back(message);
            self.base.queue.set_read(read);
        }
        valid
    }

    /// Queues messages that `member` sent and this socket did not read in its lane, oldest first: before what the same
    /// socket has sent through the node since, which is behind the first `skip` messages of the queue. The application
    /// has read the first `read` bytes of the first message. Returns [`Self::taken`] once all of these are received.
    pub(crate) fn adopt_of_member(
        &mut self,
        member: ServiceAddr,
        messages: Vec<Message>,
        (skip, read): (usize, usize),
        uplink: &mut dyn Uplink,
    ) -> u64 {
        let own = uplink.own_node();
        let Some(from) = messages.first().map(|first| member_id(first.origin(), own)) else {
            return self.taken() + skip as u64;
        };
        let (mut adopted, mut is_read_in_part) = (Vec::with_capacity(messages.len()), false);
        for (index, mut message) in messages.into_iter().enumerate() {
            let read = if index == 0 { read } else { 0 };
            if message.data().is_empty() || read >= message.data().len() {
                continue; // all of it was read
            }
            is_read_in_part |= read > 0;
            message.set_name_type(member.service);
            message.set_name_instance(member.instance);
            // No number counts on a lane, and no copy stands for something else.
            message.set_word(10, 0);
            // Its sender was told that it is sent: it waits where there is room.
            let message = Call::new(&mut self.base, uplink).keep_any(message);
            if let Some(group) = self.group_mut() {
                group.adopted(from, blocks(message.size()));
            }
            adopted.push(message);
        }
        let count = adopted.len() as u64;
        let is_later = |later: &Message| member_id(later.origin(), own) == from;
        let at = self.base.queue.insert_before(adopted, skip, is_later);
        if is_read_in_part && at == 0 {
            self.base.queue.set_read(read);
        }
        self.taken() + at as u64 + count
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
