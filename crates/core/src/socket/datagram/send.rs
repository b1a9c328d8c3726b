//! Sending without a connection. Spec: tipc.md §2.2, §7.7, §8.8.

use super::Datagram;
use crate::addr::{NodeAddr, PortId, ServiceRange};
use crate::limits::{MAX_RETURNED_DATA, MAX_USER_DATA};
use crate::socket::call::Call;
use crate::socket::error::SendError;
use crate::socket::header::Address;
use crate::socket::types::Destination;
use crate::socket::uplink::SubmitError;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, reverse};

impl Datagram {
    /// Sends `data`; in a group, `key` marks messages that replace one another for a slow member.
    #[inline]
    pub(in crate::socket) fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        if let Some(mut call) = self.group_call(call) {
            return call.send(now, to, data, key);
        }
        match to.or(self.default_to).ok_or(SendError::DestinationRequired)? {
            Destination::Range(range) => self.send_multicast(range, data, call),
            to => self.send_to(to, data, call),
        }
    }

    fn send_to(&mut self, to: Destination, data: &[u8], call: &mut Call<'_>) -> Result<usize, SendError> {
        if call.base.congestion.holds_all() {
            return call.base.would_block(call.base.link_reason(call.own()));
        }
        let (dest, msg) = call.addressed(to, data)?;
        if !self.chooses_receiver(call.base) {
            call.base.check_link(dest.node)?;
            if call.uplink.must_wait(call.base.port(), dest) {
                call.base.congestion.begin(dest.node);
                call.base.check_link(dest.node)?;
            }
        }
        call.may_send(dest.node, msg.size(), self.bytes())?;
        call.submit(dest.node, msg)?;
        Ok(call.base.sent(data))
    }

    fn send_multicast(
        &mut self,
        range: ServiceRange,
        data: &[u8],
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        if !range.is_valid() {
            return Err(SendError::InvalidDestination);
        }
        call.base.check_links()?;
        self.submit_multicast(range, data, call)
    }

    fn submit_multicast(
        &mut self,
        range: ServiceRange,
        data: &[u8],
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        let msg = call.message(PortId::default(), Address::Multicast(range), data);
        let size = msg.size();
        call.may_send(NodeAddr::NONE, size, self.bytes())?;
        let submitted = call.uplink.submit_multicast(msg)?;
        call.base.submitted(submitted, size);
        Ok(call.base.sent(data))
    }

    /// Sends `data` to one socket of a service, to which `uplink` resolves. An anycast is sent as by [`Self::send`]; of
    /// a multicast one copy goes to a local socket, which no congested link delays.
    pub(in crate::socket) fn send_found(
        &mut self,
        data: &[u8],
        to: Destination,
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        if data.len() > MAX_USER_DATA {
            return Err(SendError::MessageSize);
        }
        if let Some(mut call) = self.group_call(call) {
            return call.send_copy(data, to);
        }
        match to {
            Destination::Range(range) if range.is_valid() => self.submit_multicast(range, data, call),
            Destination::Service { .. } => self.send_to(to, data, call),
            _ => Err(SendError::InvalidDestination),
        }
    }

    /// Sends a multicast to the other nodes; its process has sent it to the sockets of this one. If none is left that
    /// has a receiver, it is lost like one that was under way to them.
    pub(in crate::socket) fn send_built_to_all(msg: Message, call: &mut Call<'_>) {
        let (len, size) = (msg.data().len(), msg.size());
        if let Ok(submitted) = call.uplink.submit_multicast_elsewhere(msg) {
            call.base.submitted(submitted, size);
            call.base.stats.sent_bytes += len as u64;
        }
    }

    /// Sends a message to one node. Returns it, as it comes back, if it cannot be sent and is not droppable.
    pub(in crate::socket) fn send_built(
        node: NodeAddr,
        msg: Message,
        call: &mut Call<'_>,
    ) -> Option<Message> {
        let head = (!msg.dest_droppable()).then(|| msg.head(MAX_RETURNED_DATA));
        let len = msg.data().len() as u64;
        let Err(error) = call.submit(node, msg) else {
            call.base.stats.sent_bytes += len;
            return None;
        };
        let code = match error {
            SubmitError::Unreachable => ErrorCode::NoNode,
            SubmitError::TooLarge | SubmitError::NoBuffers => ErrorCode::Overload,
        };
        reverse(call.own(), head?, code)
    }
}
