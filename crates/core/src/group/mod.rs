//! Communication groups: the members of a socket's group, their windows, and the order of their messages.
//!
//! A [`Group`] belongs to one socket. It does not send: `take_controls` and `take_ready` return what
//! a call has produced, and the endpoint passes it on. Members on this node have the node [`NodeAddr::NONE`], because
//! the node's address may become known after they have joined. Spec: tipc.md §9.
//!
//! | What | Where |
//! |---|---|
//! | the members; the state of one | `members.rs`, `member.rs`; the table of states in `state.rs` |
//! | what this socket sends, and what its sends wait for | `sending.rs`, `send.rs` |
//! | what arrives, and which members may send much | `receive.rs`, `places.rs` |
//! | slow members and the policy for them | `slow_members.rs`, `slow.rs`, `policy.rs` |

mod by_lane;
mod member;
mod members;
mod places;
mod policy;
mod receive;
mod request;
mod send;
mod sending;
mod slow;
mod slow_members;
mod state;
#[cfg(test)]
mod tests;

pub use members::MAX_JOINING;
pub(crate) use policy::Kept;
pub use policy::{CopyOf, GroupPolicy, JOIN_TIME, SlowCounters, SlowMember};
pub use request::{GroupRequest, JoinError, LeaveError, MemberInfo};
pub(crate) use sending::Refused;
pub(crate) use slow::Spread;
pub use state::MemberState;

use crate::addr::{NodeAddr, PortId, Scope};
use crate::limits::{MAX_MESSAGE, MESSAGE_OVERHEAD};
use crate::wire::{EventKind, GroupControlKind, Message, blocks};
use member::{Again, Member};
use members::Members;
use places::Places;
use sending::Sending;
use slow_members::SlowMembers;
use state::Event;

/// Blocks that a member may send while it is idle: one message of any size. Spec: tipc.md §9.2.
pub const IDLE_WINDOW: u16 = blocks(MAX_MESSAGE + 60) as u16;
/// Blocks that an active member may send. Spec: tipc.md §9.2.
pub const ACTIVE_WINDOW: u16 = 12 * IDLE_WINDOW;
/// Maximum number of members of a group, as one of them sees it. Ours.
pub const MAX_MEMBERS: usize = 16_384;
/// More members than this on one node learn in steps that another one leaves. Ours: less than 0.1 ms.
const MANY: usize = 32;

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
    /// The node, as last known, for reasons that name members.
    own_node: NodeAddr,
    members: Members,
    places: Places,
    sending: Sending,
    slow: SlowMembers,
    /// Messages to members that the last calls have produced.
    controls: Vec<(PortId, GroupControlKind)>,
    /// What they have produced for the application.
    ready: Vec<Ready>,
}

impl Group {
    /// The group of the socket with this port; its members are still unknown.
    pub(crate) fn new(request: GroupRequest, port: u32) -> Self {
        Self {
            request,
            own: PortId { port, node: NodeAddr::NONE },
            own_node: NodeAddr::NONE,
            members: Members::new(),
            places: Places::default(),
            sending: Sending::new(),
            slow: SlowMembers::new(GroupPolicy::LINUX),
            controls: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// With a policy, before members are known.
    pub(crate) fn with_policy(self, policy: GroupPolicy) -> Self {
        Self { slow: SlowMembers::new(policy), ..self }
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
        self.members.has_met()
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
        self.members.iter_from(first).map(|(port, member)| MemberInfo {
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
        self.sending.next()
    }

    /// Memory of the members, of the messages that wait for earlier ones, and of those kept for slow members, bytes.
    /// Each of n sockets of a node knows n - 1 members.
    pub(crate) fn bytes(&self) -> usize {
        self.members.bytes() + self.slow.kept_bytes()
    }

    /// Limits the number of members from now on: `room` is the memory that further ones may take, bytes.
    pub(crate) fn limit_members(&mut self, room: u64) {
        self.members.limit(room);
    }

    /// Whether a member has stayed unknown for lack of memory since the last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        self.members.take_refused()
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
        if port == self.own && !self.request.loopback || self.slow.evicted_by().is_some() {
            return;
        }
        let Some(member) = self.members.get_mut(port) else {
            if self.members.add(port, Member::new(MemberState::Published, instance)) {
                self.send_join(port);
                if self.slow.policy().ignores_bindings {
                    self.slow.limit(port, JOIN_TIME);
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
            if let Some(member) = self.members.get_mut(port) {
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
        let gone: Vec<PortId> = self.members.ports().filter(|port| port.node == node).collect();
        for port in gone {
            self.lose(port);
        }
    }

    fn lose(&mut self, port: PortId) {
        if let Some(member) = self.members.get_mut(port) {
            member.again = Again::default();
            let (instance, was_member) = (member.instance, member.state.is_sender());
            self.change(port, Event::Lose);
            if was_member {
                self.report(port, instance, EventKind::Withdrawn);
            }
        }
    }

    /// The socket leaves: its members learn it.
    pub(crate) fn leave(&mut self) {
        let sync_point = self.sending.next();
        self.controls.extend(self.members.ports().map(|port| (port, GroupControlKind::Leave { sync_point })));
        self.members.clear();
        self.places = Places::default();
        self.sending.leave();
        self.slow.leave();
    }

    /// Applies an event to the state of a member; true if it has changed.
    fn change(&mut self, port: PortId, event: Event) -> bool {
        let Some(changed) = self.members.apply(port, event) else { return false };
        if changed.owed_ack {
            self.sending.acknowledged();
        }
        if let Some(kept) = changed.forgotten {
            self.slow.forget(port, kept);
        }
        let is_free = self.places.change(port, changed.before, changed.after);
        self.recheck(port);
        if is_free {
            self.fill_place();
        }
        true
    }

    /// A member is complete: its binding and its JOIN are known.
    fn joined(&mut self, port: PortId) {
        self.members.meet();
        if let Some(member) = self.members.get(port) {
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
        let sync_point = self.sending.next();
        let Some(member) = self.members.get_mut(port) else { return };
        let window = member.missing_window();
        member.advertised += u32::from(window);
        self.controls.push((port, GroupControlKind::Join { sync_point, window }));
    }

    /// Extends what a member may send to what its state allows.
    fn advertise(&mut self, port: PortId) {
        let Some(member) = self.members.get_mut(port) else { return };
        let window = member.missing_window();
        if window > 0 {
            member.advertised += u32::from(window);
            self.controls.push((port, GroupControlKind::Advertise { window }));
        }
    }

    /// A place among the active members has become free: the member that has waited longest gets it.
    fn fill_place(&mut self) {
        if self.places.taken() <= places::most(self.members.len())
            && let Some(longest) = self.places.longest_pending()
        {
            self.change(longest, Event::Promote);
            self.advertise(longest);
        }
    }

    /// Receive buffer that the windows of all members fill, bytes, for diagnosis. Spec: tipc.md §9.2.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        let members = self.members.len() + 1;
        let active = places::most(self.members.len());
        let all =
            active * usize::from(ACTIVE_WINDOW) + members.saturating_sub(active) * usize::from(IDLE_WINDOW);
        all * (1024 + MESSAGE_OVERHEAD)
    }

    /// Whether a message or a JOIN from this node belongs to the group.
    pub(crate) fn includes(&self, node: NodeAddr) -> bool {
        node.is_none() || self.request.scope == Scope::Cluster
    }
}
