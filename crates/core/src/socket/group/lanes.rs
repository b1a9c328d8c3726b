//! Messages of a group that go by lanes: what an endpoint does when a lane has ended. Decision 39.

use super::{GroupCall, member_id};
use crate::addr::{NodeAddr, PortId, ServiceAddr};
use crate::group::CopyOf;
use crate::socket::endpoint::Endpoint;
use crate::socket::error::SendError;
use crate::socket::types::Destination;
use crate::socket::uplink::Uplink;
use crate::wire::{MULTICAST_HEADER, Message, blocks};

impl Endpoint {
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
            let message = self.base.keep_any(message, uplink);
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
}

impl GroupCall<'_> {
    /// Sends one copy of a message to the member at the end of a lane that has ended, whatever its window: copies for
    /// other members are in their lanes already. The receiver accepts one message beyond the window. To the range of
    /// all instances: a broadcast.
    pub(in crate::socket) fn send_copy(&mut self, data: &[u8], to: Destination) -> Result<usize, SendError> {
        let own = self.uplink.own_node();
        // As for any message to a socket that the caller has found, the answer is that socket.
        let found = self.uplink.resolve(self.group.request().member, NodeAddr::NONE);
        let found = found.ok_or(SendError::HostUnreachable)?;
        let member = member_id(PortId { port: found.port, node: found.node }, own);
        let copy_of = match to {
            Destination::Range(range) if (range.lower, range.upper) == (0, u32::MAX) => CopyOf::Broadcast,
            Destination::Range(_) => CopyOf::Multicast,
            Destination::Port(_) | Destination::Service { .. } => CopyOf::Unicast,
        };
        if !member.node.is_none() || !self.group.knows(member.port) {
            return Err(SendError::HostUnreachable);
        }
        if !data.is_empty() {
            self.submit_to_member(member, data, copy_of, blocks(MULTICAST_HEADER + data.len()))?;
            self.base.stats.sent_bytes += data.len() as u64;
        }
        Ok(data.len())
    }
}
