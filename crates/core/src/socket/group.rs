//! Membership of a socket in a group: joining, sending to members, and what arrives from them. Spec: tipc.md §9.

use super::endpoint::Endpoint;
use super::error::SendError;
use super::header::{AFTER_LOSS, Address, COPY_OF_BROADCAST, COPY_OF_MULTICAST, GroupAddress};
use super::queue::charge;
use super::types::{Destination, GroupMessage, GroupMessageKind, WaitReason};
use super::uplink::Uplink;
use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::group::{CopyOf, Group, GroupPolicy, GroupRequest, JoinError, LeaveError, Ready, Refused};
use crate::limits::{MAX_USER_DATA, RESERVED_TYPES};
use crate::time::Time;
use crate::wire::{
    ByteOrder, Envelope, ErrorCode, EventKind, Filter, GroupControl, GroupControlKind, INTERNAL_HEADER,
    MULTICAST_HEADER, Message, MessageType, Subscription, TopologyEvent, User, blocks,
};

impl Endpoint {
    /// Joins a group. From then on the socket sends to members and receives from them only, until it leaves or closes.
    /// It does not wait for the answers of members: messages to them wait. Spec: tipc.md §9.1.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&mut self, request: GroupRequest, uplink: &mut dyn Uplink) -> Result<(), JoinError> {
        self.join_with(Time::ZERO, request, GroupPolicy::LINUX, uplink)
    }

    /// [`Self::join`] with a policy for slow members, which concerns what this socket sends. Spec: tipc.md §9.8.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_with(
        &mut self,
        now: Time,
        request: GroupRequest,
        policy: GroupPolicy,
        uplink: &mut dyn Uplink,
    ) -> Result<(), JoinError> {
        if !policy.is_valid() {
            return Err(JoinError::Policy);
        }
        if request.member.service < RESERVED_TYPES {
            return Err(JoinError::Reserved);
        }
        if self.group.is_some() {
            return Err(JoinError::AlreadyJoined);
        }
        if self.kind.is_connection_oriented() {
            return Err(JoinError::WrongKind);
        }
        let mut group = Group::new(request, self.port).with_policy(policy);
        group.set_now(now);
        group.limit_members(self.room());
        let own = uplink.own_node();
        for (member, instance) in uplink.group_bindings(self.port, request.member.service, request.scope) {
            group.published(member_id(member, own), instance);
        }
        // Before the JOINs, so that members know the binding when they answer.
        self.bind(request.member.into(), request.scope, uplink)?;
        self.settings.dest_droppable = true;
        self.group = Some(Box::new(group));
        self.settle_group(uplink);
        Ok(())
    }

    /// Leaves the group. Messages that have arrived before can still be received.
    ///
    /// # Errors
    /// See [`LeaveError`].
    pub fn leave(&mut self, uplink: &mut dyn Uplink) -> Result<(), LeaveError> {
        let Some(group) = &mut self.group else { return Err(LeaveError::NotJoined) };
        let (request, was_evicted) = (group.request(), group.evicted_by().is_some());
        group.leave();
        self.settle_group(uplink);
        self.group = None;
        if !was_evicted {
            let _ = self.unbind(Some((request.member.into(), request.scope)), uplink);
        }
        Ok(())
    }

    /// The group of the socket.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_deref()
    }

    /// A binding of the group's type was published or withdrawn.
    pub(crate) fn group_changed(
        &mut self,
        range: ServiceRange,
        (port, scope): (PortId, Scope),
        up: bool,
        uplink: &mut dyn Uplink,
    ) {
        let Some(group) = &mut self.group else { return };
        let request = group.request();
        if range.service != request.member.service || scope != request.scope {
            return;
        }
        let member = member_id(port, uplink.own_node());
        if up {
            group.published(member, range.lower);
        } else {
            group.withdrawn(member, uplink.is_reachable(port.node));
        }
        self.settle_group(uplink);
    }

    /// Bindings of the group's type that existed when the socket joined.
    pub(crate) fn group_found(&mut self, found: &[(PortId, u32)], uplink: &mut dyn Uplink) {
        let own = uplink.own_node();
        let Some(group) = &mut self.group else { return };
        for (port, instance) in found {
            group.published(member_id(*port, own), *instance);
        }
        self.settle_group(uplink);
    }

    /// Contact with a node is lost.
    pub(crate) fn group_node_lost(&mut self, node: NodeAddr, uplink: &mut dyn Uplink) {
        if let Some(group) = &mut self.group {
            group.node_lost(node);
            self.settle_group(uplink);
        }
    }

    /// Handles GROUP_PROTOCOL.
    pub(super) fn group_control(&mut self, msg: &Message, uplink: &mut dyn Uplink) {
        let from = member_id(msg.origin(), uplink.own_node());
        let parsed = GroupControl::parse(msg.view());
        match (&mut self.group, parsed) {
            (Some(group), Ok(control)) if group.includes(from.node) => {
                group.control_with(from, control.kind, control.extension);
                self.settle_group(uplink);
            }
            _ => self.stats.dropped += 1,
        }
    }

    /// Handles a payload message for a socket in a group: only those of members count.
    pub(super) fn group_data(&mut self, msg: Message, uplink: &mut dyn Uplink) {
        let own = uplink.own_node();
        let from = member_id(msg.origin(), own);
        let room = self.room();
        let Some(group) = &mut self.group else { return };
        if from == member_id(PortId { port: self.port, node: own }, own) && !group.request().loopback {
            return; // the copy of an own broadcast
        }
        let belongs = GroupMessageKind::of(msg.message_type()).is_some()
            && msg.name_type() == group.request().member.service
            && msg.error_code() == ErrorCode::Ok
            && group.includes(from.node);
        if belongs && charge(&msg) as u64 > room {
            self.over_memory_by_group();
        }
        let Some(group) = self.group.as_mut().filter(|_| belongs) else {
            self.stats.dropped += 1;
            return;
        };
        if !group.receive(from, msg, room) {
            self.stats.dropped += 1;
        }
        self.settle_group(uplink);
    }

    fn over_memory_by_group(&mut self) {
        self.count_over_memory();
        self.stats.overloads += 1;
    }

    /// Sends what the group has produced, and queues what it has for the application.
    pub(super) fn settle_group(&mut self, uplink: &mut dyn Uplink) {
        let own = uplink.own_node();
        let Some(group) = &mut self.group else { return };
        group.set_own_node(own);
        let request = group.request();
        let (service, is_evicted) = (request.member.service, group.take_eviction());
        let (ready, has_refused) = (group.take_ready(), group.take_refused());
        let mut controls = group.take_controls();
        if let Some(kind) = Group::left_by_many(&controls) {
            let control = control_of(self.port, 0, (kind, group.extension(kind)));
            if uplink.tell_group(service, request.scope, control) {
                controls.retain(|(to, kind)| !to.node.is_none() || !kind.is_leave());
            }
        }
        let controls: Vec<_> =
            controls.into_iter().map(|(to, kind)| (to, kind, group.extension(kind))).collect();
        for item in ready {
            match item {
                Ready::Message(message) => self.queue.push(message),
                Ready::Event { member, instance, kind, evicted } => {
                    let address = ServiceAddr { service, instance };
                    let member = member.on(own);
                    let news = if evicted { News::Evicted } else { News::of(kind) };
                    self.queue.push(member_event(member, address, news, (self.port, own)));
                }
            }
        }
        for (to, kind, extension) in controls {
            let node = to.node.or(own);
            let control = control_of(self.port, to.port, (kind, extension));
            // A member that is not reachable is gone, which is reported otherwise.
            let _ = uplink.submit(node, control.to_message(&Envelope::between(own, node, INTERNAL_HEADER)));
        }
        if has_refused {
            self.count_over_memory();
        }
        if is_evicted {
            self.withdraw_membership(request, uplink);
        }
        self.send_kept(uplink);
    }

    /// Sends `data` to members: without a destination to all, to a service address to one with that instance, to a
    /// range to all with its lower instance. The type of the address is that of the group. Spec: tipc.md §9.5.
    pub(super) fn send_to_group(
        &mut self,
        to: Option<Destination>,
        data: &[u8],
        key: u64,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        if self.group.as_ref().is_some_and(|group| group.evicted_by().is_some()) {
            return Err(SendError::Evicted);
        }
        if self.group.as_ref().is_some_and(|group| group.policy().never_waits()) {
            return self.send_without_waiting(to, data, key, uplink);
        }
        let cost = blocks(MULTICAST_HEADER + data.len().min(MAX_USER_DATA));
        let own = uplink.own_node();
        match to {
            None => self.send_to_members(None, data, cost, uplink),
            Some(Destination::Port(port)) => self.send_to_member(member_id(port, own), data, cost, uplink),
            Some(Destination::Service { addr, .. }) => {
                let Some(group) = &mut self.group else { return Err(SendError::HostUnreachable) };
                let congested = &self.congested;
                let is_congested = |node: NodeAddr| congested.contains(&node.or(own));
                let chosen = group.choose(addr.instance, cost, is_congested);
                match chosen {
                    Ok(member) => self.send_to_member(member, data, cost, uplink),
                    Err(refused) => self.refused_by_group(refused, uplink),
                }
            }
            Some(Destination::Range(range)) if range.is_valid() => {
                let Some(group) = &self.group else { return Err(SendError::HostUnreachable) };
                let mut found = group.with_instance(range.lower).map(|(port, _)| port);
                let first_two = (found.next(), found.next());
                drop(found);
                match first_two {
                    (None, _) => Err(SendError::HostUnreachable),
                    (Some(only), None) => self.send_to_member(only, data, cost, uplink),
                    _ => self.send_to_members(Some(range.lower), data, cost, uplink),
                }
            }
            Some(Destination::Range(_)) => Err(SendError::InvalidDestination),
        }
    }

    pub(super) fn send_to_member(
        &mut self,
        member: PortId,
        data: &[u8],
        cost: u32,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        let own = uplink.own_node();
        let to = member.on(own);
        if self.congested.contains(&to.node) {
            return self.would_block(self.link_reason(to.node));
        }
        let Some(group) = &mut self.group else { return Err(SendError::HostUnreachable) };
        if let Err(refused) = group.may_send_to(member, cost) {
            return self.refused_by_group(refused, uplink);
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.submit_to_member(member, data, CopyOf::Unicast, cost, uplink)?;
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Passes a message to one member on, whose window allows it.
    pub(super) fn submit_to_member(
        &mut self,
        member: PortId,
        data: &[u8],
        copy_of: CopyOf,
        cost: u32,
        uplink: &mut dyn Uplink,
    ) -> Result<(), SendError> {
        let own = uplink.own_node();
        let to = member.on(own);
        let mut address = self.group_address(MessageType::GroupUcast, None);
        if let (Address::Group(address), Some(group)) = (&mut address, &self.group) {
            (address.copy_of, address.after_loss) = (copy_of, group.is_missing(member));
        }
        let msg = self.message(to, address, data, uplink);
        self.may_send(to.node, msg.size(), uplink)?;
        self.submit(to.node, msg, uplink)?;
        if let Some(group) = &mut self.group {
            group.sent_to(member, cost);
        }
        Ok(())
    }

    /// Sends to all members, for those with `instance` if it is given.
    pub(super) fn send_to_members(
        &mut self,
        instance: Option<u32>,
        data: &[u8],
        cost: u32,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        if let Some(node) = self.congested.first() {
            return self.would_block(self.link_reason(*node));
        }
        let Some(group) = &mut self.group else { return Err(SendError::HostUnreachable) };
        if let Err(refused) = group.may_send_to_all(cost) {
            return self.refused_by_group(refused, uplink);
        }
        let (local, nodes) = group.nodes();
        let replicast = group.must_replicast();
        if !local && nodes.is_empty() {
            return Err(SendError::HostUnreachable);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let kind = if instance.is_some() { MessageType::GroupMcast } else { MessageType::GroupBcast };
        let address = self.group_address(kind, instance);
        let msg = self.message(PortId::default(), address, data, uplink);
        let size = msg.size();
        self.may_send(NodeAddr::NONE, size, uplink)?;
        let submitted = uplink.submit_group(msg, local, &nodes, replicast)?;
        self.submitted(submitted, size);
        if let Some(group) = &mut self.group {
            group.sent_to_all(cost);
        }
        self.stats.sent_bytes += data.len() as u64;
        Ok(data.len())
    }

    fn group_address(&self, kind: MessageType, instance: Option<u32>) -> Address {
        let Some(group) = &self.group else { return Address::Direct };
        let request = group.request();
        Address::Group(GroupAddress {
            kind,
            member: ServiceAddr { service: request.member.service, instance: instance.unwrap_or(0) },
            scope: request.scope,
            seqno: group.next_broadcast(),
            ack_request: kind != MessageType::GroupUcast && group.must_replicast(),
            copy_of: CopyOf::Unicast,
            after_loss: false,
        })
    }

    pub(super) fn refused_by_group(
        &mut self,
        refused: Refused,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        // The member may get more window, so that it does not wait for this socket in the same way.
        self.settle_group(uplink);
        match self.group_reason() {
            Some(reason) if refused != Refused::NoMember => self.would_block(reason),
            _ => Err(SendError::HostUnreachable),
        }
    }

    /// Why the group takes no message like the last one that it refused.
    pub(super) fn group_reason(&self) -> Option<WaitReason> {
        let group = self.group.as_ref()?;
        let (refused, joined, window) = group.blocked_by()?;
        Some(match refused {
            Refused::Window(member) => {
                WaitReason::MemberWindow { member: group.address(member), joined, window }
            }
            Refused::Ack(member) => WaitReason::MemberAck { member: group.address(member) },
            Refused::NoMember => return None,
        })
    }

    /// Whether there is, or was, a member to send to, and no send waits for one.
    pub(super) fn is_group_open(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.has_met() && group.blocked_by().is_none())
    }

    /// The application has read a message of a member.
    pub(super) fn group_read(&mut self, msg: &Message, uplink: &mut dyn Uplink) {
        let from = member_id(msg.origin(), uplink.own_node());
        if let Some(group) = &mut self.group
            && is_group(msg)
            && msg.message_type() != MessageType::GroupEvent
        {
            group.read(from, msg.size());
            self.settle_group(uplink);
        }
    }
}

/// A protocol message of a member to another one.
fn control_of(from: u32, to: u32, (kind, extension): (GroupControlKind, u32)) -> GroupControl {
    GroupControl { kind, extension, origin_port: from, dest_port: to, dest_droppable: true }
}

/// The identity of a member: sockets of this node have no node, because its address may become known later.
pub(super) fn member_id(port: PortId, own: NodeAddr) -> PortId {
    PortId { node: if port.node == own { NodeAddr::NONE } else { port.node }, ..port }
}

/// Whether a message is one of a group's.
pub(super) fn is_group(msg: &Message) -> bool {
    let kind = msg.message_type();
    kind == MessageType::GroupEvent || GroupMessageKind::of(kind).is_some()
}

/// The properties of a message of a group. Its instance is that of the sending member.
pub(super) fn describe(msg: &Message) -> Option<GroupMessage> {
    let kind = match msg.message_type() {
        MessageType::GroupUcast if msg.word(10) & COPY_OF_BROADCAST != 0 => GroupMessageKind::Broadcast,
        MessageType::GroupUcast if msg.word(10) & COPY_OF_MULTICAST != 0 => GroupMessageKind::Multicast,
        MessageType::GroupEvent => match msg.word(10) {
            LEFT => GroupMessageKind::Left,
            EVICTED => GroupMessageKind::Evicted,
            _ => GroupMessageKind::Joined,
        },
        payload => GroupMessageKind::of(payload)?,
    };
    Some(GroupMessage { member: msg.service(), kind })
}

/// Whether messages of its sender to this socket are missing before it.
pub(super) fn is_after_loss(msg: &Message) -> bool {
    msg.is_data() && msg.message_type() == MessageType::GroupUcast && msg.word(10) & AFTER_LOSS != 0
}

/// Kind of the event that a member has left, in word 10. Spec: tipc.md §2.1.
const LEFT: u32 = 2;
/// Kind of the event that a member has joined.
const JOINED: u32 = 1;
/// Kind of the event that a member was evicted. Ours; no other node sees it.
const EVICTED: u32 = 3;

/// News of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Joined,
    Left,
    Evicted,
}

impl News {
    fn of(kind: EventKind) -> Self {
        if kind == EventKind::Withdrawn { Self::Left } else { Self::Joined }
    }
}

/// The message by which a socket learns that a member has joined or left. Spec: tipc.md §9.7.
fn member_event(from: PortId, member: ServiceAddr, news: News, (port, own): (u32, NodeAddr)) -> Message {
    let kind = if news == News::Joined { EventKind::Published } else { EventKind::Withdrawn };
    let range: ServiceRange = member.into();
    let subscription = Subscription { range, timeout_ms: 0, filter: Filter::default(), handle: [0; 8] };
    let event = TopologyEvent { kind, found: range, port: from, subscription };
    let data = event.to_bytes(ByteOrder::NATIVE);
    let mut msg = Message::build(User::Critical, MessageType::GroupEvent.into(), MULTICAST_HEADER, &data);
    msg.set_dest_droppable(true);
    msg.set_prev_node(from.node);
    msg.set_origin_node(from.node);
    msg.set_origin_port(from.port);
    msg.set_dest_node(own);
    msg.set_dest_port(port);
    msg.set_name_type(member.service);
    msg.set_name_instance(member.instance);
    msg.set_word(
        10,
        match news {
            News::Joined => JOINED,
            News::Left => LEFT,
            News::Evicted => EVICTED,
        },
    );
    msg
}
