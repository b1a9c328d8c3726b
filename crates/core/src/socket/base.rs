//! What endpoints of all roles have: port, options, receive queue, congestion, memory and counters.

use super::account::Account;
use super::congestion::Congestion;
use super::error::SendError;
use super::header::{Address, header};
use super::queue::{ReceiveQueue, charge};
use super::settings::Settings;
use super::types::{Destination, EndpointStats, SocketKind, WaitReason};
use super::uplink::{BindError, SubmitError, Submitted, Uplink};
use crate::addr::{NodeAddr, PortId, Scope, ServiceRange};
use crate::limits::MESSAGE_OVERHEAD;
use crate::wire::{ErrorCode, Message, reverse};

/// How far the application has ended the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Open,
    /// Receives do not wait; a connection ends as soon as congestion allows.
    ShutDown,
    Closed,
}

/// The part of an endpoint that does not depend on its role.
#[derive(Debug)]
pub(super) struct Base {
    port: u32,
    kind: SocketKind,
    life: Life,
    /// Number of bindings.
    bindings: u32,
    /// Reason why the last call would have blocked.
    wait: Option<WaitReason>,
    pub(super) account: Account,
    pub(super) settings: Settings,
    pub(super) queue: ReceiveQueue,
    pub(super) congestion: Congestion,
    pub(super) stats: EndpointStats,
}

impl Base {
    pub(super) fn new(kind: SocketKind, port: u32) -> Self {
        Self {
            port,
            kind,
            life: Life::Open,
            bindings: 0,
            wait: None,
            account: Account::new(),
            settings: Settings::new(kind),
            queue: ReceiveQueue::default(),
            congestion: Congestion::default(),
            stats: EndpointStats::default(),
        }
    }

    #[inline]
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    #[inline]
    pub(super) fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Whether the application has shut the socket down or closed it.
    #[inline]
    pub(super) fn is_shut_down(&self) -> bool {
        self.life >= Life::ShutDown
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    pub(super) fn shut_down(&mut self) {
        self.life = self.life.max(Life::ShutDown);
    }

    /// Nothing delays the end of the socket any more.
    pub(super) fn close(&mut self) {
        self.life = Life::Closed;
        self.queue.clear();
        self.congestion = Congestion::default();
    }

    /// Number of bindings.
    #[inline]
    pub(super) fn bindings(&self) -> u32 {
        self.bindings
    }

    pub(super) fn bind(
        &mut self,
        range: ServiceRange,
        scope: Scope,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        uplink.bind(self.port, range, scope)?;
        self.bindings = self.bindings.saturating_add(1);
        Ok(())
    }

    /// Withdraws one binding, or all.
    pub(super) fn unbind(
        &mut self,
        which: Option<(ServiceRange, Scope)>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        uplink.unbind(self.port, which)?;
        self.bindings = if which.is_some() { self.bindings.saturating_sub(1) } else { 0 };
        Ok(())
    }

    /// Bytes of the queued messages, and of those that congested links have taken beyond their limits.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.queue.charged() as u64 + self.congestion.excess()
    }

    /// How many more bytes the messages may use; those that the role keeps have `kept` bytes.
    #[inline]
    pub(super) fn room(&self, kept: u64) -> u64 {
        self.account.room(self.bytes() + kept)
    }

    /// Whether there is memory to queue a message. Counts one that is refused.
    #[inline]
    pub(super) fn has_memory(&mut self, msg: &Message, kept: u64) -> bool {
        let has_memory = charge(msg) as u64 <= self.room(kept) && self.queue.has_place();
        if !has_memory {
            self.account.refuse();
        }
        has_memory
    }

    /// Queues a message, or rejects it for lack of room.
    pub(super) fn enqueue(&mut self, msg: Message, is_legacy: bool, kept: u64, uplink: &mut dyn Uplink) {
        let buffer = self.settings.receive_buffer;
        if self.has_memory(&msg, kept) && self.queue.has_room(&msg, buffer, is_legacy) {
            self.queue.push(msg);
        } else {
            self.respond_overload(msg, uplink);
        }
    }

    /// Moves a message that may have to wait to the memory of the socket's user.
    ///
    /// # Errors
    /// The message: there is no memory left.
    #[inline]
    pub(super) fn keep(&self, msg: Message, uplink: &mut dyn Uplink) -> Result<Message, Message> {
        match self.account.user() {
            Some(user) => msg.moved(|bytes| uplink.keep(user, bytes)),
            None => Ok(msg),
        }
    }

    /// As [`Self::keep`], or leaves the message where it is.
    pub(super) fn keep_any(&self, msg: Message, uplink: &mut dyn Uplink) -> Message {
        self.keep(msg, uplink).unwrap_or_else(|msg| msg)
    }

    /// The message with `data` to one socket, and that socket; port 0 leaves the lookup to the node.
    pub(super) fn addressed(
        &self,
        to: Destination,
        data: &[u8],
        uplink: &mut dyn Uplink,
    ) -> Result<(PortId, Message), SendError> {
        let (mut dest, address) = match to {
            Destination::Range(_) => return Err(SendError::InvalidDestination),
            Destination::Port(dest) => (dest, Address::Direct),
            Destination::Service { addr, domain } => {
                let found = uplink.resolve(addr, domain).ok_or(SendError::HostUnreachable)?;
                (PortId { port: found.port, node: found.node }, Address::Named(addr, found.scope))
            }
        };
        if dest.node.is_none() {
            dest.node = uplink.own_node();
        }
        Ok((dest, self.message(dest, address, data, uplink)))
    }

    /// A message of the socket, in recycled memory.
    pub(super) fn message(
        &self,
        to: PortId,
        address: Address,
        data: &[u8],
        uplink: &mut dyn Uplink,
    ) -> Message {
        let own = PortId { port: self.port, node: uplink.own_node() };
        let header = header(self.settings.send, own, to, address, data.len());
        header.with_data(uplink.memory(header.header_size() + data.len()), data)
    }

    /// A message on the connection to `peer`, in `memory`.
    pub(super) fn connection_message(
        &self,
        own: NodeAddr,
        peer: PortId,
        memory: Vec<u8>,
        data: &[u8],
    ) -> Message {
        let own = PortId { port: self.port, node: own };
        header(self.settings.send, own, peer, Address::Connection, data.len()).with_data(memory, data)
    }

    /// Checks that the user of the socket has memory left for a message that a congested link would take beyond its
    /// limit.
    #[inline]
    pub(super) fn may_send(
        &mut self,
        to: NodeAddr,
        size: usize,
        kept: u64,
        uplink: &dyn Uplink,
    ) -> Result<(), SubmitError> {
        let size = (size + MESSAGE_OVERHEAD) as u64;
        if self.room(kept) >= size || !uplink.is_congested(to, self.settings.send.importance) {
            return Ok(());
        }
        self.account.refuse();
        Err(SubmitError::NoBuffers)
    }

    /// Submits a message of the application, and records congestion.
    #[inline]
    pub(super) fn submit(
        &mut self,
        to: NodeAddr,
        msg: Message,
        uplink: &mut dyn Uplink,
    ) -> Result<(), SubmitError> {
        let size = msg.size();
        let submitted = uplink.submit(to, msg)?;
        self.submitted(submitted, size);
        Ok(())
    }

    /// Records that a message of the application of `size` bytes was submitted.
    #[inline]
    pub(super) fn submitted(&mut self, submitted: Submitted, size: usize) {
        self.stats.sent_messages += 1;
        self.congestion.submitted(submitted, size);
    }

    /// Counts the data of a send that has succeeded; returns its length.
    #[inline]
    pub(super) fn sent(&mut self, data: &[u8]) -> usize {
        self.stats.sent_bytes += data.len() as u64;
        data.len()
    }

    /// Rejects `msg` unless its sender does not want it back.
    pub(super) fn respond(&mut self, msg: Message, code: ErrorCode, uplink: &mut dyn Uplink) {
        let Some(back) = reverse(uplink.own_node(), msg, code) else {
            self.stats.dropped += 1;
            return;
        };
        let to = back.dest_node().unwrap_or(NodeAddr::NONE);
        // an unreachable sender does not need the rejected message
        let _ = uplink.submit(to, back);
        self.stats.rejected += 1;
    }

    /// Rejects a message for which there is no room.
    pub(super) fn respond_overload(&mut self, msg: Message, uplink: &mut dyn Uplink) {
        self.stats.overloads += 1;
        self.respond(msg, ErrorCode::Overload, uplink);
    }

    /// Rejects all queued messages.
    pub(super) fn return_all(&mut self, code: ErrorCode, uplink: &mut dyn Uplink) {
        while let Some(msg) = self.queue.pop() {
            self.respond(msg, code, uplink);
        }
    }

    /// Reason why the last call would have blocked. The caller checks whether it still holds.
    #[inline]
    pub(super) fn wait(&self) -> Option<WaitReason> {
        self.wait
    }

    #[inline]
    pub(super) fn set_wait(&mut self, reason: Option<WaitReason>) {
        self.wait = reason;
    }

    /// A send has to wait.
    pub(super) fn note_wait(&mut self, reason: WaitReason) {
        match reason {
            WaitReason::PeerWindow { .. }
            | WaitReason::ReceiversFull { .. }
            | WaitReason::MemberWindow { .. }
            | WaitReason::MemberAck { .. } => {
                self.stats.window_waits += 1;
            }
            _ => self.stats.link_waits += 1,
        }
        self.wait = Some(reason);
    }

    pub(super) fn would_block<T>(&mut self, reason: WaitReason) -> Result<T, SendError> {
        self.note_wait(reason);
        Err(SendError::WouldBlock)
    }

    pub(super) fn link_reason(&self, node: NodeAddr) -> WaitReason {
        WaitReason::LinkCongested { node, importance: self.settings.send.importance }
    }

    /// Checks that the endpoint does not wait for the link to `node`.
    #[inline]
    pub(super) fn check_link(&mut self, node: NodeAddr) -> Result<(), SendError> {
        if self.congestion.contains(node) { self.would_block(self.link_reason(node)) } else { Ok(()) }
    }

    /// Checks that the endpoint does not wait for any link: one congested link delays a multicast.
    pub(super) fn check_links(&mut self) -> Result<(), SendError> {
        match self.congestion.first() {
            Some(node) => self.would_block(self.link_reason(node)),
            None => Ok(()),
        }
    }
}
