//! Sending to members: which of them, and whether their windows allow it. Spec: tipc.md §9.5.

use super::Group;
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
pub(super) struct Blocked {
    pub(super) wanted: Wanted,
    pub(super) cost: u32,
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

impl Group {
    /// Checks that a message of `cost` blocks may be sent to a member.
    pub(crate) fn may_send_to(&mut self, to: PortId, cost: u32) -> Result<(), Refused> {
        self.attempt(Wanted::Member(to), cost)?;
        Ok(())
    }

    /// Checks that a message of `cost` blocks may be sent to all members.
    pub(crate) fn may_send_to_all(&mut self, cost: u32) -> Result<(), Refused> {
        self.attempt(Wanted::All, cost)?;
        Ok(())
    }

    /// Chooses the member with this instance that is least loaded; those that are equally loaded take turns. The links
    /// to `congested` nodes take nothing.
    pub(crate) fn choose(
        &mut self,
        instance: u32,
        cost: u32,
        congested: impl Fn(NodeAddr) -> bool,
    ) -> Result<PortId, Refused> {
        let chosen = self.attempt(Wanted::Instance(instance), cost)?;
        let open = self.with_instance(instance).filter(|(port, _)| !congested(port.node));
        let least = self.least_loaded(open, cost).unwrap_or(chosen);
        self.last_anycast = Some(least);
        Ok(least)
    }

    /// The members with an instance that messages are sent to.
    pub(crate) fn with_instance(&self, instance: u32) -> impl Iterator<Item = (PortId, u32)> + '_ {
        let receivers = self.members.iter().filter(|(_, member)| member.state.is_receiver());
        receivers.filter(move |(_, member)| member.instance == instance).map(|(port, m)| (*port, m.load))
    }

    fn least_loaded(&self, among: impl Iterator<Item = (PortId, u32)>, cost: u32) -> Option<PortId> {
        let open = among.filter(|(port, _)| self.has_window(*port, cost));
        // Those after the last one that got an anycast come first.
        open.min_by_key(|(port, load)| (Load::of_blocks(*load), Some(*port) <= self.last_anycast, *port))
            .map(|(port, _)| port)
    }

    fn has_window(&self, port: PortId, cost: u32) -> bool {
        self.members.get(&port).is_some_and(|member| member.has_room(cost))
    }

    /// The member that gets the message (of a broadcast: no special one), or why there is none now.
    fn evaluate(&self, wanted: Wanted, cost: u32) -> Result<PortId, Refused> {
        match wanted {
            Wanted::Member(port) => match self.members.get(&port) {
                Some(member) if !member.state.is_receiver() => Err(Refused::NoMember),
                Some(member) if u32::from(member.window) >= cost => Ok(port),
                Some(_) => Err(Refused::Window(port)),
                None => Err(Refused::NoMember),
            },
            Wanted::Instance(instance) => match self.least_loaded(self.with_instance(instance), cost) {
                Some(port) => Ok(port),
                // A member that has joined is the one to wait for.
                None => {
                    let is_unknown = |port: &PortId| {
                        self.members.get(port).is_some_and(|member| member.state == MemberState::Published)
                    };
                    let all = self.with_instance(instance).map(|(port, _)| port);
                    Err(all
                        .min_by_key(|port| (is_unknown(port), *port))
                        .map_or(Refused::NoMember, Refused::Window))
                }
            },
            Wanted::All => {
                if self.awaited > 0
                    && let Some((port, _)) = self.members.iter().find(|(_, member)| member.owes_ack)
                {
                    return Err(Refused::Ack(*port));
                }
                let mut receivers = self.members.iter().filter(|(_, member)| member.state.is_receiver());
                let full = receivers.find(|(_, member)| u32::from(member.window) < cost);
                full.map_or(Ok(self.own), |(port, _)| Err(Refused::Window(*port)))
            }
        }
    }

    pub(super) fn attempt(&mut self, wanted: Wanted, cost: u32) -> Result<PortId, Refused> {
        let result = self.evaluate(wanted, cost);
        match result {
            Err(reason @ (Refused::Window(_) | Refused::Ack(_))) => {
                self.blocked.retain(|blocked| blocked.wanted != wanted);
                if self.blocked.len() == MAX_BLOCKED {
                    self.blocked.remove(0);
                }
                self.blocked.push(Blocked { wanted, cost, reason });
                self.start_limits(wanted, cost);
            }
            _ => self.blocked.clear(),
        }
        if let Err(Refused::Window(port)) = result {
            // It may wait for this socket in the same way.
            self.advertise(port);
        }
        result
    }

    /// Something has changed about a member: a send that was refused because of it may be possible now. Then all that
    /// wait try again, because they have one descriptor.
    pub(super) fn recheck(&mut self, changed: PortId) {
        self.review_limit(changed);
        let mut blocked = core::mem::take(&mut self.blocked);
        for Blocked { wanted, cost, reason } in &mut blocked {
            let concerns = match (*wanted, *reason) {
                (Wanted::Instance(_), _) | (_, Refused::NoMember) => true,
                (_, Refused::Window(port) | Refused::Ack(port)) => port == changed,
            };
            if concerns {
                match self.evaluate(*wanted, *cost) {
                    Err(still @ (Refused::Window(_) | Refused::Ack(_))) => *reason = still,
                    _ => return,
                }
            }
        }
        self.blocked = blocked;
    }

    /// Why the last send was refused, if it still would be; with it, whether the member has joined, and its window.
    pub(crate) fn blocked_by(&self) -> Option<(Refused, bool, u16)> {
        let reason = self.blocked.last()?.reason;
        let (Refused::Window(port) | Refused::Ack(port)) = reason else { return None };
        let member = self.members.get(&port)?;
        Some((reason, member.state != MemberState::Published, member.window))
    }

    /// A message was sent to a member. The next broadcast must not overtake it.
    pub(crate) fn sent_to(&mut self, to: PortId, cost: u32) {
        if let Some(member) = self.members.get_mut(&to) {
            member.charge(cost);
            member.slow.is_missing = false;
        }
        self.must_replicast = true;
    }

    /// Whether the next broadcast is sent to each node and acknowledged.
    pub(crate) fn must_replicast(&self) -> bool {
        self.must_replicast
    }

    /// The socket's option asks for replicast.
    pub(crate) fn force_replicast(&mut self) {
        self.must_replicast = true;
    }

    /// A broadcast was sent to all members.
    pub(crate) fn sent_to_all(&mut self, cost: u32) {
        let wants_ack = core::mem::take(&mut self.must_replicast);
        for member in self.members.values_mut().filter(|member| member.state.is_receiver()) {
            member.charge(cost);
            if wants_ack && !core::mem::replace(&mut member.owes_ack, true) {
                self.awaited += 1;
            }
        }
        self.next = self.next.wrapping_add(1);
    }
}
