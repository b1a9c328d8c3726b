//! The members of a group, and what changes when one changes its state. Spec: tipc.md §9.3.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use super::MAX_MEMBERS;
use super::member::{Arrived, Member};
use super::state::{Event, MemberState, Next};
use crate::addr::{NodeAddr, PortId};
use crate::wire::seq;

/// Memory of one of them, bytes: nodes of a B-tree are two thirds full.
const MEMBER_BYTES: usize = (size_of::<PortId>() + size_of::<Member>()) * 3 / 2;

/// Maximum number of members of another node whose binding is unknown: their JOIN has overtaken it. Ours: bounds what a
/// node can add without bindings, which are counted.
pub const MAX_JOINING: usize = 1024;

/// The members, by address.
#[derive(Debug)]
pub(super) struct Members {
    all: BTreeMap<PortId, Member>,
    /// Members that the limits and the memory of the socket's user allow.
    most: usize,
    /// One has stayed unknown because its user has no memory left.
    has_refused: bool,
    /// Members whose binding is unknown, by node. Bounded by [`MAX_JOINING`] for each other node.
    joining: BTreeSet<(NodeAddr, u32)>,
    /// Memory of the messages that wait for earlier ones, bytes.
    deferred_bytes: usize,
    /// A member has joined since this socket has.
    has_met: bool,
    /// A member has come or gone since [`Self::take_change`].
    has_changed: bool,
}

/// What a change of a member's state has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) before: MemberState,
    /// `None`: it was removed.
    pub(super) after: Option<MemberState>,
    /// It owed an acknowledgement, which is not awaited any more.
    pub(super) owed_ack: bool,
    /// Bytes that were kept for it, if it gets no more messages.
    pub(super) forgotten: Option<usize>,
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            most: MAX_MEMBERS,
            has_refused: false,
            joining: BTreeSet::new(),
            deferred_bytes: 0,
            has_met: false,
            has_changed: false,
        }
    }

    pub(super) fn get(&self, port: PortId) -> Option<&Member> {
        self.all.get(&port)
    }

    pub(super) fn get_mut(&mut self, port: PortId) -> Option<&mut Member> {
        self.all.get_mut(&port)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, PortId, Member> {
        self.all.iter()
    }

    /// The members from an address on.
    pub(super) fn iter_from(&self, first: PortId) -> btree_map::Range<'_, PortId, Member> {
        self.all.range(first..)
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.all.keys().copied()
    }

    /// Those that messages are sent to.
    pub(super) fn receivers(&self) -> impl Iterator<Item = (&PortId, &Member)> {
        self.all.iter().filter(|(_, member)| member.state.is_receiver())
    }

    pub(super) fn receivers_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.all.values_mut().filter(|member| member.state.is_receiver())
    }

    /// Those with an instance that messages are sent to.
    pub(super) fn with_instance(&self, instance: u32) -> impl Iterator<Item = (PortId, &Member)> {
        let all = self.receivers().filter(move |(_, member)| member.instance == instance);
        all.map(|(port, member)| (*port, member))
    }

    /// Memory of the members, and of their messages that wait for earlier ones, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.deferred_bytes + self.all.len() * MEMBER_BYTES
    }

    /// Limits the number of members from now on: `room` is the memory that further ones may take, bytes.
    pub(super) fn limit(&mut self, room: u64) {
        let further = usize::try_from(room / MEMBER_BYTES as u64).unwrap_or(MAX_MEMBERS);
        self.most = self.all.len().saturating_add(further).min(MAX_MEMBERS);
    }

    /// Adds a member; false if there is no place for it.
    pub(super) fn add(&mut self, port: PortId, member: Member) -> bool {
        if self.all.len() >= self.most {
            self.has_refused |= self.most < MAX_MEMBERS;
            return false;
        }
        if member.state == MemberState::Joining {
            self.joining.insert((port.node, port.port));
        }
        self.all.insert(port, member);
        self.has_changed = true;
        true
    }

    /// A member has joined.
    pub(super) fn meet(&mut self) {
        self.has_met = true;
    }

    pub(super) fn has_met(&self) -> bool {
        self.has_met
    }

    /// Whether a member has stayed unknown for lack of memory since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.has_refused)
    }

    /// Whether a member has come or gone since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// If a node has as many members without bindings as it may have: one of them.
    pub(super) fn excess_joining(&self, node: NodeAddr) -> Option<PortId> {
        let of_node = self.joining.range((node, 0)..=(node, u32::MAX));
        if of_node.clone().count() < MAX_JOINING {
            return None;
        }
        of_node.copied().next().map(|(node, port)| PortId { port, node })
    }

    /// Applies an event to the state of a member. All changes of state are made here.
    pub(super) fn apply(&mut self, port: PortId, event: Event) -> Option<Changed> {
        let member = self.all.get_mut(&port)?;
        let before = member.state;
        let after = match before.next(event) {
            Next::Ignore => return None,
            Next::Enter(state) => Some(state),
            Next::Remove => None,
        };
        member.state = after.unwrap_or(before);
        let is_complete = after.is_some_and(MemberState::is_complete);
        self.has_changed |= after.is_none() || is_complete != before.is_complete();
        let leaves = after.is_none_or(|state| !state.is_receiver());
        let owed_ack = leaves && core::mem::take(&mut member.owes_ack);
        let forgotten = (leaves || before == MemberState::Published).then(|| member.slow.forget_kept());
        if matches!(after, None | Some(MemberState::Evicted)) {
            self.deferred_bytes -= member.deferred_bytes();
            member.drop_deferred();
        }
        if after.is_none() {
            self.all.remove(&port);
        }
        if before == MemberState::Joining {
            self.joining.remove(&(port.node, port.port));
        }
        Some(Changed { before, after, owed_ack, forgotten })
    }

    /// Takes a message of a member, unless it is old or beyond what the member may send; false if it is not accepted.
    pub(super) fn accept(&mut self, from: PortId, arrived: Arrived) -> bool {
        let Some(member) = self.all.get_mut(&from).filter(|member| member.state.is_sender()) else {
            return false;
        };
        if seq::lt(arrived.seqno(), member.next) || !member.may_send(arrived.cost) {
            return false;
        }
        let before = member.deferred_bytes();
        member.defer(arrived);
        self.deferred_bytes += member.deferred_bytes() - before;
        true
    }

    /// The next message of a member, if it need not wait for another one.
    pub(super) fn next_in_order(&mut self, from: PortId) -> Option<(&mut Member, Arrived)> {
        let member = self.all.get_mut(&from)?;
        let before = member.deferred_bytes();
        let arrived = member.next_in_order()?;
        self.deferred_bytes -= before - member.deferred_bytes();
        Some((member, arrived))
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.joining.clear();
        self.deferred_bytes = 0;
    }

    /// Number of members whose binding is unknown, and the memory of deferred messages, bytes.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.joining.len(), self.deferred_bytes)
    }
}
