//! Communication groups: the members of a socket's group, their windows, and the order of their messages.
//!
//! A [`Group`] belongs to one socket. It does not send: `take_controls` and `take_ready` return what
//! a call has produced, and the endpoint passes it on. Members on this node have the node [`NodeAddr::NONE`], because
//! the node's address may become known after they have joined. Spec: tipc.md §9.

mod by_lane;
mod member;
mod policy;
mod receive;
mod request;
mod send;
mod slow;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) use policy::Kept;
pub use policy::{CopyOf, GroupPolicy, JOIN_TIME, SlowCounters, SlowMember};
pub use request::{GroupRequest, JoinError, LeaveError, MemberInfo};
pub(crate) use send::Refused;
pub(crate) use slow::Spread;
pub use state::MemberState;

use crate::addr::{NodeAddr, PortId, Scope};
use crate::limits::{MAX_MESSAGE, MESSAGE_OVERHEAD};
use crate::time::Time;
use crate::wire::{EventKind, GroupControlKind, Message, blocks};
use member::{Again, Member};
use send::Blocked;
use state::{Event, Next};

/// Blocks that a member may send while it is idle: one message of any size. Spec: tipc.md §9.2.
pub const IDLE_WINDOW: u16 = blocks(MAX_MESSAGE + 60) as u16;
/// Blocks that an active member may send. Spec: tipc.md §9.2.
pub const ACTIVE_WINDOW: u16 = 12 * IDLE_WINDOW;
/// Fewest and most members that are active at a time. Spec: tipc.md §9.2.
const ACTIVE_MEMBERS: [usize; 2] = [16, 64];
/// Maximum number of members of a group, as one of them sees it. Ours.
pub const MAX_MEMBERS: usize = 16_384;
/// More members than this on one node learn in steps that another one leaves. Ours: less than 0.1 ms.
const MANY: usize = 32;
/// Memory of one of them, bytes: nodes of a B-tree are two thirds full.
const MEMBER_BYTES: usize = (size_of::<PortId>() + size_of::<Member>()) * 3 / 2;
/// Maximum number of members of another node whose binding is unknown: their JOIN has overtaken it. Ours: bounds what a
/// node can add without bindings, which are counted.
pub const MAX_JOINING: usize = 1024;

/// What a group has for the application, in order.
#[derive(Debug)]
pub(crate) enum Ready {
    /// A message; its instance is that of the sending member.
    Message(Message),
    /// A member has joined or left.
    Event { member: PortId, instance: u32, kind: EventKind, evicted: bool },
}

/// The group of a socket. Spec: tipc.md §9.
#[derive(Debug)]
pub struct Group {
    request: GroupRequest,
    /// The socket itself.
    own: PortId,
    members: BTreeMap<PortId, Member>,
    /// Members that the limits and the memory of the socket's user allow.
    most_members: usize,
    /// One has stayed unknown because its user has no memory left.
    has_refused: bool,
    /// Members whose binding is unknown, by node. Bounded by [`MAX_JOINING`] for each other node.
    joining: BTreeSet<(NodeAddr, u32)>,
    /// Members that are active, the least recently read first. Bounded by [`ACTIVE_MEMBERS`].
    active: VecDeque<PortId>,
    /// Members that wait for a place among them, the oldest first.
    pending: VecDeque<PortId>,
    /// Places taken: by the active members, and by those that give theirs back.
    places: usize,
    /// Number of the next broadcast.
    next: u16,
    /// The next broadcast must be sent to each node, and acknowledged, so that it does not overtake what was sent
    /// before. Spec: tipc.md §9.5.
    must_replicast: bool,
    /// Members that owe an acknowledgement.
    awaited: usize,
    /// The member that got the last anycast.
    last_anycast: Option<PortId>,
    /// The node, as last known, for reasons that name members.
    own_node: NodeAddr,
    /// A member has joined since this socket has.
    has_met: bool,
    /// The sends that were refused since one was possible, and why, the latest last; one for each destination. Bounded
    /// by [`send::MAX_BLOCKED`].
    blocked: Vec<Blocked>,
    controls: Vec<(PortId, GroupControlKind)>,
    ready: Vec<Ready>,
    deferred_bytes: usize,
    policy: GroupPolicy,
    /// The time of the call in progress.
    now: Time,
    /// When members become too late.
    late: BTreeSet<(Time, PortId)>,
    /// Members for which messages are kept.
    keeping: BTreeSet<PortId>,
    kept_bytes: usize,
    /// The member that has evicted this socket. It is in the group without members until it leaves.
    evicted_by: Option<PortId>,
    /// The endpoint has yet to learn it.
    is_evicted: bool,
    /// A member has come or gone since [`Self::take_change`].
    has_changed: bool,
}

impl Group {
    /// The group of the socket with this port; its members are still unknown.
    pub(crate) fn new(request: GroupRequest, port: u32) -> Self {
        Self {
            request,
            own: PortId { port, node: NodeAddr::NONE },
            members: BTreeMap::new(),
            most_members: MAX_MEMBERS,
            has_refused: false,
            joining: BTreeSet::new(),
            active: VecDeque::new(),
            pending: VecDeque::new(),
            places: 0,
            next: 0,
            must_replicast: true,
            awaited: 0,
            last_anycast: None,
            own_node: NodeAddr::NONE,
            has_met: false,
            blocked: Vec::new(),
            controls: Vec::new(),
            ready: Vec::new(),
            deferred_bytes: 0,
            policy: GroupPolicy::LINUX,
            now: Time::ZERO,
            late: BTreeSet::new(),
            keeping: BTreeSet::new(),
            kept_bytes: 0,
            evicted_by: None,
            is_evicted: false,
            has_changed: false,
        }
    }

    /// With a policy, before members are known.
    pub(crate) fn with_policy(self, policy: GroupPolicy) -> Self {
        Self { policy, ..self }
    }

    /// What the socket asked for when it joined.
    #[must_use]
    pub fn request(&self) -> GroupRequest {
        self.request
    }

    pub(crate) fn set_own_node(&mut self, node: NodeAddr) {
        self.own_node = node;
    }

    /// The address of a member with its node, also if that is this one.
    pub(crate) fn address(&self, member: PortId) -> PortId {
        member.on(self.own_node)
    }

    /// Whether a member has joined since this socket has. Before, the socket is not writable. Spec: tipc.md §9.5.
    pub(crate) fn has_met(&self) -> bool {
        self.has_met
    }

    /// The members, by address. Without loopback the socket itself is not among them.
    pub fn members(&self) -> impl Iterator<Item = MemberInfo> + '_ {
        self.members_from(PortId::default())
    }

    /// Number of members.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// The members from an address on.
    pub fn members_from(&self, first: PortId) -> impl Iterator<Item = MemberInfo> + '_ {
        self.members.range(first..).map(|(port, member)| MemberInfo {
            port: *port,
            instance: member.instance,
            state: member.state,
            window: member.window,
            advertised: member.advertised,
            unread: member.held,
            deferred: member.deferred_messages(),
            slow: member.slow_counters(),
        })
    }

    /// Number of the next broadcast.
    #[must_use]
    pub fn next_broadcast(&self) -> u16 {
        self.next
    }

    /// Memory of the members, of the messages that wait for earlier ones, and of those kept for slow members, bytes.
    /// Each of n sockets of a node knows n - 1 members.
    pub(crate) fn bytes(&self) -> usize {
        self.deferred_bytes + self.kept_bytes + self.members.len() * MEMBER_BYTES
    }

    /// Limits the number of members from now on: `room` is the memory that further ones may take, bytes.
    pub(crate) fn limit_members(&mut self, room: u64) {
        let further = usize::try_from(room / MEMBER_BYTES as u64).unwrap_or(MAX_MEMBERS);
        self.most_members = self.members.len().saturating_add(further).min(MAX_MEMBERS);
    }

    /// Whether the group may have another member.
    fn has_place(&mut self) -> bool {
        let has_place = self.members.len() < self.most_members;
        self.has_refused |= !has_place && self.most_members < MAX_MEMBERS;
        has_place
    }

    /// Whether a member has stayed unknown for lack of memory since the last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.has_refused)
    }

    /// The nodes of all members, ascending, without this one, and whether there are members on this one.
    pub(crate) fn nodes(&self) -> (bool, Vec<NodeAddr>) {
        let reached = self.members.iter().filter(|(_, member)| !member.state.is_left_out());
        let mut nodes: Vec<NodeAddr> = reached.map(|(port, _)| port.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let local = nodes.first() == Some(&NodeAddr::NONE);
        nodes.retain(|node| !node.is_none());
        (local, nodes)
    }

    /// The messages to members that the last calls have produced, in order.
    pub(crate) fn take_controls(&mut self) -> Vec<(PortId, GroupControlKind)> {
        core::mem::take(&mut self.controls)
    }

    /// The LEAVE that all members on this node get, if they are many.
    pub(crate) fn left_by_many(controls: &[(PortId, GroupControlKind)]) -> Option<GroupControlKind> {
        let mut here = controls.iter().filter(|(to, kind)| to.node.is_none() && kind.is_leave());
        let (_, first) = here.next()?;
        (here.count() >= MANY).then_some(*first)
    }

    /// What the last calls have produced for the application, in order.
    pub(crate) fn take_ready(&mut self) -> Vec<Ready> {
        core::mem::take(&mut self.ready)
    }

    /// A binding of the group's type and scope was published, or exists when the socket joins.
    pub(crate) fn published(&mut self, port: PortId, instance: u32) {
        if port == self.own && !self.request.loopback || self.evicted_by.is_some() {
            return;
        }
        let Some(member) = self.members.get_mut(&port) else {
            if self.has_place() {
                self.members.insert(port, Member::new(MemberState::Published, instance));
                self.has_changed = true;
                self.send_join(port);
                if self.policy.ignores_bindings {
                    self.set_late(port, JOIN_TIME);
                }
            }
            return;
        };
        match member.state {
            MemberState::Leaving => member.again.published = Some(instance),
            MemberState::Joining => {
                member.instance = instance;
                self.change(port, Event::Publish);
                self.begin_joining(port);
                self.send_join(port);
                self.joined(port);
            }
            _ => {}
        }
    }

    /// A binding was withdrawn. While its node is reachable, its LEAVE follows.
    pub(crate) fn withdrawn(&mut self, port: PortId, is_reachable: bool) {
        if is_reachable {
            if let Some(member) = self.members.get_mut(&port) {
                // A binding that was withdrawn before the end of the membership before was complete.
                member.again.published = None;
            }
            self.change(port, Event::Withdraw);
        } else {
            self.lose(port);
        }
    }

    /// Contact with a node is lost: its members are gone.
    pub(crate) fn node_lost(&mut self, node: NodeAddr) {
        let gone: Vec<PortId> = self.members.keys().filter(|port| port.node == node).copied().collect();
        for port in gone {
            self.lose(port);
        }
    }

    fn lose(&mut self, port: PortId) {
        let was_member = self.members.get(&port).is_some_and(|member| member.state.is_sender());
        if let Some(member) = self.members.get_mut(&port) {
            member.again = Again::default();
            let instance = member.instance;
            self.change(port, Event::Lose);
            if was_member {
                self.report(port, instance, EventKind::Withdrawn);
            }
        }
    }

    /// The socket leaves: its members learn it.
    pub(crate) fn leave(&mut self) {
        let sync_point = self.next;
        let all = self.members.keys();
        self.controls.extend(all.map(|port| (*port, GroupControlKind::Leave { sync_point })));
        self.members.clear();
        self.joining.clear();
        self.active.clear();
        self.pending.clear();
        self.blocked.clear();
        self.late.clear();
        self.keeping.clear();
        (self.places, self.awaited, self.deferred_bytes, self.kept_bytes) = (0, 0, 0, 0);
    }

    /// Applies an event to the state of a member; true if it has changed. All changes of state are made here.
    fn change(&mut self, port: PortId, event: Event) -> bool {
        let Some(member) = self.members.get_mut(&port) else { return false };
        let before = member.state;
        let next = before.next(event);
        match next {
            Next::Ignore => return false,
            Next::Enter(state) => member.state = state,
            Next::Remove => {}
        }
        let is_complete = next != Next::Remove && member.state.is_complete();
        self.has_changed |= next == Next::Remove || is_complete != before.is_complete();
        let is_active = next != Next::Remove && member.state.is_active();
        let leaves = next == Next::Remove || !member.state.is_receiver();
        if leaves && core::mem::take(&mut member.owes_ack) {
            self.awaited -= 1;
        }
        if member.state == MemberState::Evicted && next != Next::Remove {
            self.deferred_bytes -= member.deferred_bytes();
            member.drop_deferred();
        }
        if leaves || before == MemberState::Published {
            self.forget_slow(port);
        }
        let Some(member) = self.members.get_mut(&port) else { return false };
        if next == Next::Remove {
            self.deferred_bytes -= member.deferred_bytes();
            self.members.remove(&port);
        }
        match before {
            MemberState::Joining => {
                self.joining.remove(&(port.node, port.port));
            }
            MemberState::Active => self.active.retain(|other| *other != port),
            MemberState::Pending => self.pending.retain(|other| *other != port),
            _ => {}
        }
        match next {
            Next::Enter(MemberState::Active) => self.active.push_back(port),
            Next::Enter(MemberState::Pending) => self.pending.push_back(port),
            _ => {}
        }
        self.places = self.places + usize::from(is_active) - usize::from(before.is_active());
        self.recheck(port);
        if before.is_active() && !is_active {
            self.fill_place();
        }
        true
    }

    /// A member is complete: its binding and its JOIN are known.
    fn joined(&mut self, port: PortId) {
        self.has_met = true;
        if let Some(member) = self.members.get(&port) {
            let instance = member.instance;
            self.report(port, instance, EventKind::Published);
        }
    }

    fn report(&mut self, member: PortId, instance: u32, kind: EventKind) {
        if self.request.events {
            self.ready.push(Ready::Event { member, instance, kind, evicted: false });
        }
    }

    fn send_join(&mut self, port: PortId) {
        let sync_point = self.next;
        let Some(member) = self.members.get_mut(&port) else { return };
        let window = member.missing_window();
        member.advertised += u32::from(window);
        self.controls.push((port, GroupControlKind::Join { sync_point, window }));
    }

    /// Extends what a member may send to what its state allows.
    fn advertise(&mut self, port: PortId) {
        let Some(member) = self.members.get_mut(&port) else { return };
        let window = member.missing_window();
        if window > 0 {
            member.advertised += u32::from(window);
            self.controls.push((port, GroupControlKind::Advertise { window }));
        }
    }

    /// Maximum number of members that are active at a time. Spec: tipc.md §9.2.
    fn max_active(&self) -> usize {
        let [least, most] = ACTIVE_MEMBERS;
        ((self.members.len() + 1) / 8).clamp(least, most)
    }

    /// A place among the active members has become free: the member that has waited longest gets it.
    fn fill_place(&mut self) {
        if self.places <= self.max_active()
            && let Some(oldest) = self.pending.front().copied()
        {
            self.change(oldest, Event::Promote);
            self.advertise(oldest);
        }
    }

    /// Receive buffer that the windows of all members fill, bytes, for diagnosis. Spec: tipc.md §9.2.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        let members = self.members.len() + 1;
        let active = self.max_active();
        let all =
            active * usize::from(ACTIVE_WINDOW) + members.saturating_sub(active) * usize::from(IDLE_WINDOW);
        all * (1024 + MESSAGE_OVERHEAD)
    }

    /// Whether a message or a JOIN from this node belongs to the group.
    pub(crate) fn includes(&self, node: NodeAddr) -> bool {
        node.is_none() || self.request.scope == Scope::Cluster
    }
}
