//! The sending side of a group: the number of the next broadcast, acknowledgements, and the sends that were refused.
//! Spec: tipc.md §9.5.

use super::member::Member;
use super::members::Members;
use super::state::MemberState;
use crate::Load;
use crate::addr::{NodeAddr, PortId};

/// Maximum number of refused sends that are remembered. Ours: the threads of a program that wait for different members
/// at a time.
const MAX_BLOCKED: usize = 16;

/// A send that was refused because of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// To one member.
    Member(PortId),
    /// To any member with this instance.
    Instance(u32),
    /// To all.
    All,
}

/// A send that was refused.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    wanted: Wanted,
    cost: u32,
    reason: Refused,
}

/// Reason why a message cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no such member.
    NoMember,
    /// The window of this member is too small.
    Window(PortId),
    /// This member has not acknowledged the last broadcast.
    Ack(PortId),
}

/// What this socket sends.
#[derive(Debug)]
pub(super) struct Sending {
    /// Number of the next broadcast.
    next: u16,
    /// The next broadcast must be sent to each node, and acknowledged, so that it does not overtake what was sent
    /// before. Spec: tipc.md §9.5.
    must_replicast: bool,
    /// Members that owe an acknowledgement.
    awaited: usize,
    /// The member that got the last anycast.
    last_anycast: Option<PortId>,
    /// The sends that were refused since one was possible, and why, the latest last; one for each destination. Bounded
    /// by [`MAX_BLOCKED`].
    blocked: Vec<Blocked>,
}

impl Sending {
    pub(super) fn new() -> Self {
        Self { next: 0, must_replicast: true, awaited: 0, last_anycast: None, blocked: Vec::new() }
    }

    pub(super) fn next(&self) -> u16 {
        self.next
    }

    pub(super) fn must_replicast(&self) -> bool {
        self.must_replicast
    }

    /// The next broadcast must not overtake what was sent before.
    pub(super) fn replicast_next(&mut self) {
        self.must_replicast = true;
    }

    /// A broadcast was sent to all members.
    pub(super) fn sent_to_all(&mut self, members: &mut Members, cost: u32) {
        let wants_ack = core::mem::take(&mut self.must_replicast);
        for member in members.receivers_mut() {
            member.charge(cost);
            if wants_ack && !core::mem::replace(&mut member.owes_ack, true) {
                self.awaited += 1;
            }
        }
        self.next = self.next.wrapping_add(1);
    }

    /// A member does not owe an acknowledgement any more.
    pub(super) fn acknowledged(&mut self) {
        self.awaited -= 1;
    }

    /// Chooses the member with this instance that is least loaded; those that are equally loaded take turns. The links
    /// to `congested` nodes take nothing; `otherwise`: the member to take if that leaves none.
    pub(super) fn choose(
        &mut self,
        members: &Members,
        instance: u32,
        cost: u32,
        congested: impl Fn(NodeAddr) -> bool,
        otherwise: PortId,
    ) -> PortId {
        let open = members.with_instance(instance).filter(|(port, _)| !congested(port.node));
        let least = self.least_loaded(open, cost).unwrap_or(otherwise);
        self.last_anycast = Some(least);
        least
    }

    /// Whether a message can be sent now, and to which member (of a broadcast: to no special one). Remembers one that
    /// cannot because of a window.
    pub(super) fn attempt(
        &mut self,
        members: &Members,
        wanted: Wanted,
        cost: u32,
    ) -> Result<PortId, Refused> {
        let result = self.evaluate(members, wanted, cost);
        match result {
            Err(reason @ (Refused::Window(_) | Refused::Ack(_))) => {
                self.blocked.retain(|blocked| blocked.wanted != wanted);
                if self.blocked.len() == MAX_BLOCKED {
                    self.blocked.remove(0);
                }
                self.blocked.push(Blocked { wanted, cost, reason });
            }
            _ => self.blocked.clear(),
        }
        result
    }

    /// Something has changed about a member: a send that was refused because of it may be possible now. Then all that
    /// wait try again, because they have one descriptor.
    pub(super) fn recheck(&mut self, members: &Members, changed: PortId) {
        let mut blocked = core::mem::take(&mut self.blocked);
        for Blocked { wanted, cost, reason } in &mut blocked {
            let concerns = match (*wanted, *reason) {
                (Wanted::Instance(_), _) | (_, Refused::NoMember) => true,
                (_, Refused::Window(port) | Refused::Ack(port)) => port == changed,
            };
            if concerns {
                match self.evaluate(members, *wanted, *cost) {
                    Err(still @ (Refused::Window(_) | Refused::Ack(_))) => *reason = still,
                    _ => return,
                }
            }
        }
        self.blocked = blocked;
    }

    /// Forgets the sends that were refused: none of them waits.
    pub(super) fn forget_refused(&mut self) {
        self.blocked.clear();
    }

    /// The socket has left: there is no member.
    pub(super) fn leave(&mut self) {
        self.blocked.clear();
        self.awaited = 0;
    }

    /// Why the last send was refused.
    pub(super) fn last_refused(&self) -> Option<Refused> {
        self.blocked.last().map(|blocked| blocked.reason)
    }

    /// Whether a send that was refused waits for a member.
    pub(super) fn is_held_up_by(&self, port: PortId, member: &Member) -> bool {
        self.blocked.iter().any(|blocked| blocked.wanted.waits_for(blocked.cost, port, member))
    }

    /// Number of refused sends that are remembered.
    #[cfg(test)]
    pub(super) fn blocked_sends(&self) -> usize {
        self.blocked.len()
    }

    /// Number of members that owe an acknowledgement.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> usize {
        self.awaited
    }

    fn least_loaded<'a>(
        &self,
        among: impl Iterator<Item = (PortId, &'a Member)>,
        cost: u32,
    ) -> Option<PortId> {
        let open = among.filter(|(_, member)| member.has_room(cost));
        // Those after the last one that got an anycast come first.
        open.min_by_key(|(port, member)| {
            (Load::of_blocks(member.load), Some(*port) <= self.last_anycast, *port)
        })
        .map(|(port, _)| port)
    }

    fn evaluate(&self, members: &Members, wanted: Wanted, cost: u32) -> Result<PortId, Refused> {
        match wanted {
            Wanted::Member(port) => match members.get(port) {
                Some(member) if !member.state.is_receiver() => Err(Refused::NoMember),
                Some(member) if u32::from(member.window) >= cost => Ok(port),
                Some(_) => Err(Refused::Window(port)),
                None => Err(Refused::NoMember),
            },
            Wanted::Instance(instance) => match self.least_loaded(members.with_instance(instance), cost) {
                Some(port) => Ok(port),
                // A member that has joined is the one to wait for.
                None => {
                    let all = members.with_instance(instance);
                    let first =
                        all.min_by_key(|(port, member)| (member.state == MemberState::Published, *port));
                    Err(first.map_or(Refused::NoMember, |(port, _)| Refused::Window(port)))
                }
            },
            Wanted::All => {
                if self.awaited > 0
                    && let Some((port, _)) = members.iter().find(|(_, member)| member.owes_ack)
                {
                    return Err(Refused::Ack(*port));
                }
                let full = members.receivers().find(|(_, member)| u32::from(member.window) < cost);
                full.map_or(Ok(PortId::default()), |(port, _)| Err(Refused::Window(*port)))
            }
        }
    }
}

impl Wanted {
    /// Whether a member is one that a send of `cost` blocks waits for.
    pub(super) fn waits_for(self, cost: u32, port: PortId, member: &Member) -> bool {
        let is_meant = match self {
            Self::Member(wanted) => port == wanted,
            Self::Instance(instance) => member.instance == instance,
            Self::All => true,
        };
        let lacks_room = u32::from(member.window) < cost || self == Self::All && member.owes_ack;
        is_meant && member.state.is_receiver() && lacks_room
    }
}
