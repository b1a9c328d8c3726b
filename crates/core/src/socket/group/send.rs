//! Sending to members of a group. Spec: tipc.md §9.5.

use super::{GroupCall, member_id, wait_reason};
use crate::addr::{NodeAddr, PortId, ServiceAddr};
use crate::group::{CopyOf, Refused};
use crate::limits::MAX_USER_DATA;
use crate::socket::error::SendError;
use crate::socket::header::{Address, GroupAddress};
use crate::socket::types::Destination;
use crate::time::Time;
use crate::wire::{MULTICAST_HEADER, MessageType, blocks};

impl GroupCall<'_> {
    /// Sends `data` to members: without a destination to all, to a service address to one with that instance, to a
    /// range to all with its lower instance. The type of the address is that of the group. Spec: tipc.md §9.5.
    pub(in crate::socket) fn send(
        &mut self,
        now: Time,
        to: Option<Destination>,
        data: &[u8],
        key: u64,
    ) -> Result<usize, SendError> {
        self.group.set_now(now);
        if self.group.evicted_by().is_some() {
            return Err(SendError::Evicted);
        }
        if self.group.policy().never_waits() {
            return self.send_without_waiting(to, data, key);
        }
        let cost = blocks(MULTICAST_HEADER + data.len().min(MAX_USER_DATA));
        match to {
            None => self.send_to_all(None, data, cost),
            Some(Destination::Port(port)) => {
                self.send_to_member(member_id(port, self.call.own()), data, cost)
            }
            Some(Destination::Service { addr, .. }) => match self.choose(addr.instance, cost) {
                Ok(member) => self.send_to_member(member, data, cost),
                Err(refused) => self.refused(refused),
            },
            Some(Destination::Range(range)) if range.is_valid() => {
                let mut found = self.group.with_instance(range.lower);
                let first_two = (found.next(), found.next());
                drop(found);
                match first_two {
                    (None, _) => Err(SendError::HostUnreachable),
                    (Some(only), None) => self.send_to_member(only, data, cost),
                    _ => self.send_to_all(Some(range.lower), data, cost),
                }
            }
            Some(Destination::Range(_)) => Err(SendError::InvalidDestination),
        }
    }

    /// The member that gets an anycast.
    pub(super) fn choose(&mut self, instance: u32, cost: u32) -> Result<PortId, Refused> {
        let (own, congestion) = (self.call.own(), &self.call.base.congestion);
        self.group.choose(instance, cost, |node| congestion.contains(node.or(own)))
    }

    pub(super) fn send_to_member(
        &mut self,
        member: PortId,
        data: &[u8],
        cost: u32,
    ) -> Result<usize, SendError> {
        self.call.base.check_link(member.node.or(self.call.own()))?;
        if let Err(refused) = self.group.may_send_to(member, cost) {
            return self.refused(refused);
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.submit_to_member(member, data, CopyOf::Unicast, cost)?;
        Ok(self.call.base.sent(data))
    }

    /// Passes a message to one member on, whose window allows it.
    pub(super) fn submit_to_member(
        &mut self,
        member: PortId,
        data: &[u8],
        copy_of: CopyOf,
        cost: u32,
    ) -> Result<(), SendError> {
        let to = member.on(self.call.own());
        let after_loss = self.group.is_missing(member);
        let address = GroupAddress { copy_of, after_loss, ..self.address(MessageType::GroupUcast, 0) };
        let msg = self.call.message(to, Address::Group(address), data);
        let role_bytes = self.role_bytes();
        self.call.may_send(to.node, msg.size(), role_bytes)?;
        self.call.submit(to.node, msg)?;
        self.group.sent_to(member, cost);
        Ok(())
    }

    /// Sends to all members, for those with `instance` if it is given.
    pub(super) fn send_to_all(
        &mut self,
        instance: Option<u32>,
        data: &[u8],
        cost: u32,
    ) -> Result<usize, SendError> {
        self.call.base.check_links()?;
        if let Err(refused) = self.group.may_send_to_all(cost) {
            return self.refused(refused);
        }
        let (local, nodes) = self.group.nodes();
        let replicast = self.group.must_replicast();
        if !local && nodes.is_empty() {
            return Err(SendError::HostUnreachable);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let kind = if instance.is_some() { MessageType::GroupMcast } else { MessageType::GroupBcast };
        let address = self.address(kind, instance.unwrap_or(0));
        let msg = self.call.message(PortId::default(), Address::Group(address), data);
        let (size, role_bytes) = (msg.size(), self.role_bytes());
        self.call.may_send(NodeAddr::NONE, size, role_bytes)?;
        let submitted = self.call.uplink.submit_group(msg, local, &nodes, replicast)?;
        self.call.base.submitted(submitted, size);
        self.group.sent_to_all(cost);
        Ok(self.call.base.sent(data))
    }

    /// Sends one copy of a message to the member at the end of a lane that has ended, whatever its window: copies for
    /// other members are in their lanes already. The receiver accepts one message beyond the window. To the range of
    /// all instances: a broadcast.
    pub(in crate::socket) fn send_copy(&mut self, data: &[u8], to: Destination) -> Result<usize, SendError> {
        let own = self.call.own();
        // As for any message to a socket that the caller has found, the answer is that socket.
        let found = self.call.uplink.resolve(self.group.request().member, NodeAddr::NONE);
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
            self.call.base.stats.sent_bytes += data.len() as u64;
        }
        Ok(data.len())
    }

    fn address(&self, kind: MessageType, instance: u32) -> GroupAddress {
        let request = self.group.request();
        GroupAddress {
            kind,
            member: ServiceAddr { service: request.member.service, instance },
            scope: request.scope,
            seqno: self.group.next_broadcast(),
            ack_request: kind != MessageType::GroupUcast && self.group.must_replicast(),
            copy_of: CopyOf::Unicast,
            after_loss: false,
        }
    }

    pub(super) fn refused(&mut self, refused: Refused) -> Result<usize, SendError> {
        // The member may get more window, so that it does not wait for this socket in the same way.
        self.flush();
        match wait_reason(self.group) {
            Some(reason) if refused != Refused::NoMember => self.call.base.would_block(reason),
            _ => Err(SendError::HostUnreachable),
        }
    }
}
