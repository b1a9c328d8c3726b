//! Sending. Spec: tipc.md §2.2, §7.7, §8.5, §8.6, §8.8.

use std::collections::VecDeque;

use super::endpoint::Endpoint;
use super::error::{ConnectError, SendError};
use super::header::{Address, SendOptions, header};
use super::nagle::Collected;
use super::state::State;
use super::types::{Destination, SocketKind, WaitReason};
use super::uplink::Uplink;
use crate::addr::{NodeAddr, PortId, ServiceRange};
use crate::limits::{MAX_MESSAGE, MAX_USER_DATA};
use crate::time::Time;
use crate::wire::{DataHeader, Message, SHORT_HEADER};

impl Endpoint {
    /// Sends `data` and returns the number of bytes accepted; on a STREAM this may be fewer than given. If a
    /// destination is given on an open socket of a connection-oriented kind, sends a connection request that carries
    /// `data`; on a connected socket the destination is ignored. Spec: tipc.md §8.2.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.send_keyed(now, data, to, 0, uplink)
    }

    /// [`Self::send`] with the key that [`SlowMember::Conflate`](crate::group::SlowMember::Conflate) uses: for a slow
    /// member the message replaces the one with the same key. Messages sent without a key have key 0; outside of such a
    /// group it has no effect.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_keyed(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.blocked = None;
        if data.len() > MAX_USER_DATA && self.kind != SocketKind::Stream {
            return Err(SendError::MessageSize);
        }
        if let Some(group) = &mut self.group {
            group.set_now(now);
            return self.send_to_group(to, data, key, uplink);
        }
        if !self.kind.is_connection_oriented() {
            let to = to.or(self.default_to).ok_or(SendError::DestinationRequired)?;
            return self.send_to(to, data, uplink);
        }
        match (self.state, to) {
            _ if self.shut || self.closing.is_some() => Err(SendError::Broken),
            (State::Open, Some(to)) => self.request(now, to, data, uplink),
            (State::Open | State::Connecting, _) => Err(SendError::NotConnected),
            (State::Established, _) => self.send_connected(data, uplink),
            (State::Listen, _) => Err(SendError::Broken),
            (State::Disconnecting, _) => Err(match self.error.take() {
                Some(ConnectError::Send(e)) => e,
                Some(ConnectError::TimedOut) => SendError::TimedOut,
                Some(ConnectError::Aborted) => SendError::Aborted,
                Some(ConnectError::Refused) => SendError::Refused,
                _ => SendError::Broken,
            }),
        }
    }

    fn send_to(&mut self, to: Destination, data: &[u8], uplink: &mut dyn Uplink) -> Result<usize, SendError> {
        if let Destination::Range(range) = to {
            return self.send_multicast(range, data, uplink);
        }
        if self.collects_receivers {
            return self.would_block(self.link_reason(uplink.own_node()));
        }
        let (dest, msg) = self.addressed(to, data, uplink)?;
        // A receiver that was chosen among several takes the message.
        if !self.chooses || self.spreads {
            if self.congested.contains(&dest.node) {
                return self.would_block(self.link_reason(dest.node));
            }
            if uplink.must_wait(self.port, dest) {
                self.congested.insert(dest.node);
                return self.would_block(self.link_reason(dest.node));
            }
        }
        self.may_send(dest.node, msg.size(), uplink)?;
        self.submit(dest.node, msg, uplink)?;
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    fn send_multicast(
        &mut self,
        range: ServiceRange,
        data: &[u8],
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        if !range.is_valid() {
            return Err(SendError::InvalidDestination);
        }
        if let Some(node) = self.congested.first() {
            return self.would_block(self.link_reason(*node));
        }
        self.submit_multicast(range, data, uplink)
    }

    fn submit_multicast(
        &mut self,
        range: ServiceRange,
        data: &[u8],
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        let msg = self.message(PortId::default(), Address::Multicast(range), data, uplink);
        let size = msg.size();
        self.may_send(NodeAddr::NONE, size, uplink)?;
        let submitted = uplink.submit_multicast(msg)?;
        self.submitted(submitted, size);
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Sends `data` to a service of which the caller has found one socket; `uplink` resolves to that socket only. An
    /// anycast is sent as by [`Self::send`]; of a multicast one copy goes to a local socket, which no congested link
    /// delays.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn send_found(
        &mut self,
        data: &[u8],
        to: Destination,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.blocked = None;
        if data.len() > MAX_USER_DATA {
            return Err(SendError::MessageSize);
        }
        match to {
            _ if self.kind.is_connection_oriented() => Err(SendError::NotConnected),
            _ if self.group.is_some() => self.send_copy_to_member(data, to, uplink),
            Destination::Range(range) if range.is_valid() => self.submit_multicast(range, data, uplink),
            Destination::Service { .. } => self.send_to(to, data, uplink),
            _ => Err(SendError::InvalidDestination),
        }
    }

    /// The message with `data` to one socket, and that socket; port 0 leaves the lookup to the node.
    pub(super) fn addressed(
        &mut self,
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
        let header = self.template(uplink.own_node()).header(to, address, data.len());
        header.with_data(uplink.memory(header.header_size() + data.len()), data)
    }

    /// A message on the connection.
    pub(super) fn connection_message(&self, data: &[u8], own: NodeAddr) -> Message {
        self.template(own).connection_message(Vec::new(), data)
    }

    fn template(&self, own: NodeAddr) -> Template {
        Template {
            options: self.settings.send_options(),
            origin: PortId { port: self.port, node: own },
            peer: self.peer,
        }
    }

    fn send_connected(&mut self, data: &[u8], uplink: &mut dyn Uplink) -> Result<usize, SendError> {
        if self.kind == SocketKind::Stream && data.is_empty() {
            return Ok(0);
        }
        let mut rest = data;
        let mut sent = 0;
        loop {
            if let Some(reason) = self.connection_blocked() {
                let refused = self.would_block(reason);
                return if sent > 0 { Ok(sent) } else { refused };
            }
            let (chunk, later) = rest.split_at(rest.len().min(MAX_USER_DATA));
            match self.send_chunk(chunk, uplink) {
                Ok(()) => {}
                Err(_) if sent > 0 => return Ok(sent),
                Err(e) => return Err(e),
            }
            self.stats.sent_bytes += chunk.len() as u64;
            sent += chunk.len();
            rest = later;
            if rest.is_empty() {
                return Ok(sent);
            }
        }
    }

    fn send_chunk(&mut self, chunk: &[u8], uplink: &mut dyn Uplink) -> Result<(), SendError> {
        if self.collects(chunk.len()) {
            return self.collect(chunk, uplink);
        }
        let memory = uplink.memory(SHORT_HEADER + chunk.len());
        let msg = self.template(uplink.own_node()).connection_message(memory, chunk);
        self.submit_on_connection(msg, uplink)
    }

    /// Sends a message that was built for the connection, unless Nagle's algorithm collects its data.
    pub(super) fn send_on_connection(
        &mut self,
        msg: Message,
        uplink: &mut dyn Uplink,
    ) -> Result<(), SendError> {
        if !self.collects(msg.data().len()) {
            return self.submit_on_connection(msg, uplink);
        }
        let collected = self.collect(msg.data(), uplink);
        uplink.recycle(msg);
        collected
    }

    /// Whether Nagle's algorithm collects a write, and the user of the socket has memory left for it.
    fn collects(&mut self, len: usize) -> bool {
        self.nagle.wants(len) && self.room() >= (len + MAX_MESSAGE) as u64
    }

    fn collect(&mut self, chunk: &[u8], uplink: &mut dyn Uplink) -> Result<(), SendError> {
        let template = self.template(uplink.own_node());
        match self.nagle.collect(chunk, |room| template.connection_message(uplink.memory(room), &[])) {
            Collected::Hold => Ok(()),
            Collected::FlushFull => {
                let full = self.nagle.take_full();
                self.submit_collected(full, uplink)
            }
            Collected::Flush => self.send_collected(uplink),
        }
    }

    fn submit_on_connection(&mut self, msg: Message, uplink: &mut dyn Uplink) -> Result<(), SendError> {
        // an empty message is never acknowledged
        let cost = if msg.data().is_empty() { 0 } else { self.flow.cost(msg.size()) };
        self.may_send(self.peer.node, msg.size(), uplink)?;
        self.send_collected(uplink)?;
        self.submit(self.peer.node, msg, uplink)?;
        self.flow.sent(cost);
        Ok(())
    }

    /// Sends everything that Nagle has collected, regardless of the window, which was checked when it was collected.
    fn send_collected(&mut self, uplink: &mut dyn Uplink) -> Result<(), SendError> {
        if self.nagle.is_empty() {
            return Ok(());
        }
        let all = self.nagle.take();
        self.submit_collected(all, uplink)
    }

    fn submit_collected(
        &mut self,
        (messages, blocks): (VecDeque<Message>, u32),
        uplink: &mut dyn Uplink,
    ) -> Result<(), SendError> {
        self.flow.sent(if self.flow.is_legacy() { messages.len() as u32 } else { blocks });
        for msg in messages {
            self.submit(self.peer.node, msg, uplink)?;
        }
        Ok(())
    }

    /// Sends collected data after a message from the peer or a wake-up of the link, unless the link is congested.
    pub(super) fn push_collected(&mut self, uplink: &mut dyn Uplink) {
        if self.nagle.is_empty() || !self.congested.is_empty() {
            return;
        }
        self.nagle.pushed();
        if self.send_collected(uplink).is_err() {
            // data of the stream is lost: the connection cannot continue
            self.lost_peer(crate::wire::ErrorCode::NoNode, uplink);
        }
    }

    pub(super) fn connection_blocked(&self) -> Option<WaitReason> {
        if let Some(node) = self.congested.first() {
            return Some(self.link_reason(*node));
        }
        self.flow.is_congested().then(|| self.window_reason())
    }

    pub(super) fn would_block(&mut self, reason: WaitReason) -> Result<usize, SendError> {
        self.note_blocked(reason);
        Err(SendError::WouldBlock)
    }

    pub(super) fn note_blocked(&mut self, reason: WaitReason) {
        match reason {
            WaitReason::PeerWindow { .. }
            | WaitReason::ReceiversFull { .. }
            | WaitReason::MemberWindow { .. }
            | WaitReason::MemberAck { .. } => {
                self.stats.window_waits += 1;
            }
            _ => self.stats.link_waits += 1,
        }
        self.blocked = Some(reason);
    }
}

/// The header fields common to all messages of a socket.
struct Template {
    options: SendOptions,
    origin: PortId,
    peer: PortId,
}

impl Template {
    fn header(&self, to: PortId, address: Address, data: usize) -> DataHeader {
        header(self.options, self.origin, to, address, data)
    }

    fn connection_message(&self, memory: Vec<u8>, data: &[u8]) -> Message {
        self.header(self.peer, Address::Connection, data.len()).with_data(memory, data)
    }
}
