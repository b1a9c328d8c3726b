//! One call of an endpoint by its application or its node: messages that it builds, submits, keeps and rejects.

use super::base::Base;
use super::error::SendError;
use super::header::{Address, header};
use super::types::Destination;
use super::uplink::{BindError, SubmitError, Uplink};
use crate::addr::{NodeAddr, PortId, Scope, ServiceRange};
use crate::limits::MESSAGE_OVERHEAD;
use crate::wire::{ErrorCode, Message, reverse};

/// What the role of an endpoint needs for a call.
pub(super) struct Call<'a> {
    pub(super) base: &'a mut Base,
    pub(super) uplink: &'a mut dyn Uplink,
}

impl<'a> Call<'a> {
    pub(super) fn new(base: &'a mut Base, uplink: &'a mut dyn Uplink) -> Self {
        Self { base, uplink }
    }

    /// Address of the node.
    pub(super) fn own(&self) -> NodeAddr {
        self.uplink.own_node()
    }

    pub(super) fn bind(&mut self, range: ServiceRange, scope: Scope) -> Result<(), BindError> {
        self.uplink.bind(self.base.port(), range, scope)?;
        self.base.set_bindings(self.base.bindings().saturating_add(1));
        Ok(())
    }

    /// Withdraws one binding, or all.
    pub(super) fn unbind(&mut self, which: Option<(ServiceRange, Scope)>) -> Result<(), BindError> {
        self.uplink.unbind(self.base.port(), which)?;
        let left = if which.is_some() { self.base.bindings().saturating_sub(1) } else { 0 };
        self.base.set_bindings(left);
        Ok(())
    }

    /// The message with `data` to one socket, and that socket; port 0 leaves the lookup to the node.
    pub(super) fn addressed(&mut self, to: Destination, data: &[u8]) -> Result<(PortId, Message), SendError> {
        let (mut dest, address) = match to {
            Destination::Range(_) => return Err(SendError::InvalidDestination),
            Destination::Port(dest) => (dest, Address::Direct),
            Destination::Service { addr, domain } => {
                let found = self.uplink.resolve(addr, domain).ok_or(SendError::HostUnreachable)?;
                (PortId { port: found.port, node: found.node }, Address::Named(addr, found.scope))
            }
        };
        if dest.node.is_none() {
            dest.node = self.own();
        }
        Ok((dest, self.message(dest, address, data)))
    }

    /// A message of the socket, in recycled memory.
    pub(super) fn message(&mut self, to: PortId, address: Address, data: &[u8]) -> Message {
        let own = PortId { port: self.base.port(), node: self.own() };
        let header = header(self.base.settings.send, own, to, address, data.len());
        header.with_data(self.uplink.memory(header.header_size() + data.len()), data)
    }

    /// A message on the connection to `peer`, in `memory`.
    pub(super) fn connection_message(&self, peer: PortId, memory: Vec<u8>, data: &[u8]) -> Message {
        let own = PortId { port: self.base.port(), node: self.own() };
        header(self.base.settings.send, own, peer, Address::Connection, data.len()).with_data(memory, data)
    }

    /// Checks that the user of the socket has memory left for a message that a congested link would take beyond its
    /// limit.
    #[inline]
    pub(super) fn may_send(&mut self, to: NodeAddr, size: usize, role_bytes: u64) -> Result<(), SubmitError> {
        let size = (size + MESSAGE_OVERHEAD) as u64;
        let importance = self.base.settings.send.importance;
        if self.base.room(role_bytes) >= size || !self.uplink.is_congested(to, importance) {
            return Ok(());
        }
        self.base.account.refuse();
        Err(SubmitError::NoBuffers)
    }

    /// Submits a message of the application, and records congestion.
    #[inline]
    pub(super) fn submit(&mut self, to: NodeAddr, msg: Message) -> Result<(), SubmitError> {
        let size = msg.size();
        let submitted = self.uplink.submit(to, msg)?;
        self.base.submitted(submitted, size);
        Ok(())
    }

    /// Moves a message that may have to wait to the memory of the socket's user.
    ///
    /// # Errors
    /// The message: there is no memory left.
    #[inline]
    pub(super) fn keep(&mut self, msg: Message) -> Result<Message, Message> {
        match self.base.account.user() {
            Some(user) => msg.moved(|bytes| self.uplink.keep(user, bytes)),
            None => Ok(msg),
        }
    }

    /// As [`Self::keep`], or leaves the message where it is.
    pub(super) fn keep_any(&mut self, msg: Message) -> Message {
        self.keep(msg).unwrap_or_else(|msg| msg)
    }

    /// Queues a message, or rejects it for lack of room.
    pub(super) fn enqueue(&mut self, msg: Message, is_legacy: bool, role_bytes: u64) {
        let base = &mut *self.base;
        let buffer = base.settings.receive_buffer;
        if base.has_memory(&msg, role_bytes) && base.queue.has_room(&msg, buffer, is_legacy) {
            base.queue.push(msg);
        } else {
            self.respond_overload(msg);
        }
    }

    /// Rejects `msg` unless its sender does not want it back.
    pub(super) fn respond(&mut self, msg: Message, code: ErrorCode) {
        let Some(back) = reverse(self.own(), msg, code) else {
            self.base.stats.dropped += 1;
            return;
        };
        let to = back.dest_node().unwrap_or(NodeAddr::NONE);
        // an unreachable sender does not need the rejected message
        let _ = self.uplink.submit(to, back);
        self.base.stats.rejected += 1;
    }

    /// Rejects a message for which there is no room.
    pub(super) fn respond_overload(&mut self, msg: Message) {
        self.base.stats.overloads += 1;
        self.respond(msg, ErrorCode::Overload);
    }

    /// Rejects all queued messages.
    pub(super) fn return_all(&mut self, code: ErrorCode) {
        while let Some(msg) = self.base.queue.pop() {
            self.respond(msg, code);
        }
    }
}
