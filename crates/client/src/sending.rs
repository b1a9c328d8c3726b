//! Sending: by lanes where there are some, else by commands.

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, LaneEnd, LaneId, Reply, Request};
use utipc_core::addr::{Importance, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::limits::{MAX_RETURNED_DATA, MAX_USER_DATA};
use utipc_core::names::Lookup;
use utipc_core::socket::{Destination, Received, Returned, SendError, SocketKind, SocketOption};
use utipc_core::stack::Stack;
use utipc_core::wire::ErrorCode;

use crate::attachment::lock;
use crate::lanes::head::Address;
use crate::lanes::outbound::{Growth, OutLane};
use crate::lanes::send::{Sender, Step};
use crate::shared::{Half, Letter};
use crate::socket::{Socket, unless_blocked};
use crate::{Error, Wait};

/// Lanes to one receiver, each over when the message gets there, before the message is given up as to one that is gone.
const COPY_ATTEMPTS: u32 = 8;

impl Socket {
    /// Sends `data`; the bytes taken, or `None` if none could be within `wait`.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA && self.kind() != SocketKind::Stream {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        let sent = self.block(Half::Send, wait, data.len(), || self.try_send(data, to))?;
        if sent.is_none() {
            self.was_blocked(data.len())?;
        }
        Ok(sent)
    }

    fn try_send(&self, data: &[u8], to: Option<Destination>) -> Result<Option<usize>, Error> {
        let mut sender = lock(&self.shared.sender);
        let sent = self.send_on(&mut sender, data, to);
        let tell = sender.take_tell();
        drop(sender);
        self.tell(tell)?;
        if self.shared.to_receiver.has_some() {
            // The answer came with a lane to read: who polls is not told of what is in it before it is armed.
            self.settle(true)?;
        }
        sent
    }

    fn send_on(
        &self,
        sender: &mut Sender,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Option<usize>, Error> {
        let by_node = Request::Send { port: self.port(), to };
        if self.kind().is_connection_oriented() {
            return self.send_connected(sender, data, to, &by_node);
        }
        match to.or(sender.default_to) {
            Some(Destination::Port(port)) if self.is_here(port.node) => {
                self.send_one(sender, port.port, Address::Direct, data, &by_node)
            }
            Some(Destination::Port(port)) => self.send_far(sender, port, Address::Direct, data, &by_node),
            Some(Destination::Service { addr, domain }) if self.may_look() => {
                self.send_anycast(sender, addr, domain, data, &by_node)
            }
            Some(Destination::Range(range)) if range.is_valid() && self.may_look() => {
                self.send_multicast(sender, range, data, &by_node)
            }
            _ => self.send_by_node(sender, data, &by_node),
        }
    }

    pub(crate) fn is_here(&self, node: NodeAddr) -> bool {
        node.is_none() || node == self.attachment.address()
    }

    /// A socket whose messages all go by the node leaves it to the node whose turn it is, too.
    fn may_look(&self) -> bool {
        !self.shared.hosted.load(Relaxed)
    }

    fn send_connected(
        &self,
        sender: &mut Sender,
        data: &[u8],
        to: Option<Destination>,
        by_node: &Request,
    ) -> Result<Option<usize>, Error> {
        loop {
            if self.shared.to_sender.has_some() {
                self.read_letters_to_sender(sender)?;
            }
            match sender.step_connected(self.own(), self.shared.style(), data) {
                Step::Sent(bytes) => return Ok(Some(bytes)),
                Step::Blocked | Step::Overload => return Ok(None),
                Step::Grow(growth) => {
                    if !self.grow(sender, growth)? {
                        sender.block();
                        return Ok(None);
                    }
                }
                Step::Corrupt(lane) => self.report_written(sender, lane)?,
                Step::Node => {
                    let sent = self.send_by_node(sender, data, by_node);
                    if matches!(sent, Ok(Some(_))) {
                        self.connects_to(to);
                    }
                    return sent;
                }
            }
        }
    }

    /// To one local socket: by its lane, else by the command, and by a lane the next time.
    fn send_one(
        &self,
        sender: &mut Sender,
        other: u32,
        address: Address,
        data: &[u8],
        by_node: &Request,
    ) -> Result<Option<usize>, Error> {
        if self.send_by_lane(sender, other, address, data)? {
            return Ok(Some(data.len()));
        }
        let sent = self.send_by_node(sender, data, by_node)?;
        if sent.is_some() && sender.wants_lane(other) {
            self.ask_for_lane(other)?;
        }
        Ok(sent)
    }

    /// To a socket of another node: by the lane to the own one, else by the command, and by a lane the next time.
    fn send_far(
        &self,
        sender: &mut Sender,
        to: PortId,
        address: Address,
        data: &[u8],
        by_node: &Request,
    ) -> Result<Option<usize>, Error> {
        loop {
            if self.shared.to_sender.has_some() {
                self.read_letters_to_sender(sender)?;
            }
            if !sender.has_node_lane() {
                break;
            }
            let level = Stack::level(self.port(), self.shared.style().importance);
            if self.attachment.is_congested(to.node, level)? {
                if self.is_polled() {
                    // The node holds the next one back, and knows when the descriptor is writable again.
                    break;
                }
                sender.wait_for(to.node, level);
                return Ok(None);
            }
            match sender.step_far(self.own(), self.shared.style(), to, address, data) {
                Step::Sent(bytes) => return Ok(Some(bytes)),
                Step::Blocked | Step::Overload => return Ok(None),
                Step::Grow(growth) => drop(self.grow(sender, growth)?),
                Step::Corrupt(lane) => self.report_written(sender, lane)?,
                Step::Node => break,
            }
        }
        let sent = self.send_by_node(sender, data, by_node)?;
        if sent.is_some() && self.may_look() && sender.wants_node_lane() {
            // From the reply on, messages to other nodes go by the lane.
            self.ask_for_lane(0)?;
        }
        Ok(sent)
    }

    /// To one of those that are bound to a service.
    fn send_anycast(
        &self,
        sender: &mut Sender,
        addr: ServiceAddr,
        domain: NodeAddr,
        data: &[u8],
        by_node: &Request,
    ) -> Result<Option<usize>, Error> {
        let Some(found) = self.attachment.find_again(&mut sender.alone, addr, domain)? else {
            return self.send_by_node(sender, data, by_node);
        };
        let Some(Lookup { port, node, scope }) = found else {
            return Err(Failure::Send(SendError::HostUnreachable).into());
        };
        let found = PortId { port, node };
        let to = Destination::Service { addr, domain };
        // Its turn is taken: the node does not look again.
        let by_node = Request::SendFound { port: self.port(), to, found };
        if port != 0 && self.is_here(node) {
            self.send_one(sender, port, Address::Named(addr, scope), data, &by_node)
        } else if node.is_none() {
            self.send_by_node(sender, data, &by_node)
        } else {
            self.send_far(sender, found, Address::Named(addr, scope), data, &by_node)
        }
    }

    /// To all that are bound to a range. One command serves all those to whom no lane leads, and says to whom it does.
    fn send_multicast(
        &self,
        sender: &mut Sender,
        range: ServiceRange,
        data: &[u8],
        by_node: &Request,
    ) -> Result<Option<usize>, Error> {
        let Some(group) = self.attachment.group(range, sender.group.take())? else {
            return self.send_by_node(sender, data, by_node);
        };
        if self.shared.to_sender.has_some() {
            self.read_letters_to_sender(sender)?;
        }
        let sent = if group.remote || group.ports.is_empty() || !sender.reaches_all(&group.ports) {
            let sent = self.send_by_node(sender, data, by_node);
            if matches!(sent, Ok(Some(_))) {
                for other in &group.ports {
                    if sender.wants_lane(*other) {
                        self.ask_for_lane(*other)?;
                    }
                }
            }
            sent
        } else {
            let to = Destination::Range(range);
            let before = (sender.messages, sender.bytes);
            for other in &group.ports {
                self.send_copy(sender, *other, data, to)?;
            }
            // It is one message, whoever gets it.
            (sender.messages, sender.bytes) = (before.0 + 1, before.1 + data.len() as u64);
            Ok(Some(data.len()))
        };
        sender.group = Some(group);
        sent
    }

    /// Whether the message has gone by a lane, or has come back from there.
    #[inline]
    fn send_by_lane(
        &self,
        sender: &mut Sender,
        other: u32,
        address: Address,
        data: &[u8],
    ) -> Result<bool, Error> {
        loop {
            if self.shared.to_sender.has_some() {
                self.read_letters_to_sender(sender)?;
            }
            match sender.step_to(self.own(), self.shared.style(), other, address, data) {
                Step::Sent(_) => return Ok(true),
                Step::Grow(growth) => drop(self.grow(sender, growth)?),
                Step::Corrupt(lane) => self.report_written(sender, lane)?,
                Step::Overload => {
                    self.overloaded(other, address, data);
                    return Ok(true);
                }
                Step::Blocked | Step::Node => return Ok(false),
            }
        }
    }

    /// Asks for a larger ring; whether the lane has one now.
    fn grow(&self, sender: &mut Sender, growth: Growth) -> Result<bool, Error> {
        let importance = self.shared.style().importance as u8;
        let request = Request::Grow { lane: growth.lane, log2: growth.log2(), importance };
        match self.command(&request) {
            Ok(()) => {
                self.attachment.watch_rings();
                Ok(sender.granted(growth, true))
            }
            Err(Error::Failed(_)) => Ok(sender.granted(growth, false)),
            Err(error) => Err(error),
        }
    }

    /// The receiver takes no more: its sender gets the message back, unless it does not want it.
    #[cold]
    fn overloaded(&self, other: u32, address: Address, data: &[u8]) {
        if !self.shared.style().dest_droppable {
            let port = PortId { port: other, node: self.attachment.address() };
            let data = data.get(..MAX_RETURNED_DATA).unwrap_or(data).to_vec();
            let returned = Some(Returned { code: ErrorCode::Overload, data });
            let destination = match address {
                Address::Named(service, _) => Some(service.into()),
                Address::Multicast(range) => Some(range),
                Address::Connection | Address::Direct => None,
            };
            self.shared.give_back(Received { source: port, returned, destination, ..Received::default() });
            self.attachment.ring();
        }
    }

    fn report_written(&self, sender: &mut Sender, lane: LaneId) -> Result<(), Error> {
        drop(sender.remove(lane));
        self.report(lane)
    }

    pub(crate) fn report(&self, lane: LaneId) -> Result<(), Error> {
        match self.command(&Request::Report { lane }) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    /// One command; what it leaves to lanes goes there.
    fn send_by_node(
        &self,
        sender: &mut Sender,
        data: &[u8],
        request: &Request,
    ) -> Result<Option<usize>, Error> {
        let Some((bytes, lanes, part)) = self.give_to_node(data, request)? else {
            self.was_filled()?;
            return Ok(None);
        };
        if self.kind().is_connection_oriented() {
            return Ok(Some((bytes as usize).min(part)));
        }
        let to = match request {
            Request::SendFound { to, .. } => Some(*to),
            Request::Send { to, .. } => to.or(sender.default_to),
            _ => None,
        };
        // The node has counted a message that has other receivers too.
        let counted = (bytes > 0).then_some((sender.messages, sender.bytes));
        for other in lanes {
            let Some(to) = to else { break };
            self.send_copy(sender, other, data, to)?;
        }
        (sender.messages, sender.bytes) = counted.unwrap_or((sender.messages, sender.bytes));
        Ok(Some(data.len()))
    }

    /// What the node has taken, the sockets that it leaves to lanes, and what it was given; `None` if it takes nothing now.
    fn give_to_node(&self, data: &[u8], request: &Request) -> Result<Option<(u32, Vec<u32>, usize)>, Error> {
        // What one command of a stream carries; the rest is for the next call.
        let part = data.get(..MAX_USER_DATA).unwrap_or(data);
        unless_blocked(self.attachment.call(request, part, |reply, _| match reply {
            Reply::Sent { bytes, lanes } => Some((bytes, lanes, part.len())),
            _ => None,
        }))
    }

    /// A message, or the copy of one, for a local socket to which a lane leads. If the lane is over by now, the node takes
    /// it to that socket, wherever it reads now.
    fn send_copy(&self, sender: &mut Sender, other: u32, data: &[u8], to: Destination) -> Result<(), Error> {
        let address = match to {
            Destination::Service { addr, domain } => {
                Address::Named(addr, if domain.is_none() { Scope::Cluster } else { Scope::Node }.number())
            }
            Destination::Range(range) => Address::Multicast(range),
            Destination::Port(_) => Address::Direct,
        };
        for _ in 0..COPY_ATTEMPTS {
            if self.send_by_lane(sender, other, address, data)? {
                return Ok(());
            }
            let found = PortId { port: other, node: self.attachment.address() };
            let request = match to {
                Destination::Port(_) => Request::Send { port: self.port(), to: Some(to) },
                to => Request::SendFound { port: self.port(), to, found },
            };
            match self.give_to_node(data, &request) {
                // There is another lane.
                Ok(Some((_, lanes, _))) if lanes.contains(&other) => {}
                // It is gone, or has taken it.
                Ok(_) | Err(Error::Failed(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// From the reply on, messages to `other` go by the lane, if it takes one.
    pub(crate) fn ask_for_lane(&self, other: u32) -> Result<(), Error> {
        match self.command(&Request::WantLane { port: self.port(), to: other }) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    #[cold]
    fn read_letters_to_sender(&self, sender: &mut Sender) -> Result<(), Error> {
        for letter in self.shared.to_sender.take() {
            match letter {
                Letter::Lane { other, lane, .. } => {
                    let pair = self.attachment.pair(lane, LaneEnd::Writer)?;
                    match OutLane::new(lane, pair, other) {
                        Ok(new) => sender.add(new, self.kind()),
                        Err(_) => self.report(lane)?,
                    }
                    if self.shared.accepted {
                        self.learn_importance()?;
                    }
                }
                Letter::Over(lane) => {
                    let gone = sender.remove(lane);
                    self.attachment.lane_done(lane, LaneEnd::Writer)?;
                    match gone {
                        Some(gone) => gone.writer.retire(),
                        // It was given back before.
                        None => self.attachment.retire(lane),
                    }
                }
                Letter::Ready => {}
            }
        }
        Ok(())
    }

    /// The importance of an accepted socket is that of the request.
    fn learn_importance(&self) -> Result<(), Error> {
        let mut style = self.shared.style();
        let number = self.option(SocketOption::Importance)?;
        style.importance = Importance::from_number(number).unwrap_or(style.importance);
        self.shared.set_style(style);
        Ok(())
    }
}
