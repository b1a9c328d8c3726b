//! What the sockets of a group are told: changes of bindings, lost nodes, and that a member joins or leaves. At once as
//! far as the turn allows; the rest waits in order with what its origin sends ([`crate::switch::Origin`]), and is told
//! in steps of the user who has caused it.

use super::Stack;
use super::uplink::Direct;
use crate::addr::{NodeAddr, Scope};
use crate::names::{Change, Walk};
use crate::quota::Resource;
use crate::socket::Endpoint;
use crate::switch::{ANNOUNCEMENT_MEMORY, Announcement, Origin, Told};
use crate::time::Time;
use crate::wire::{Envelope, GroupControl, INTERNAL_HEADER};

/// Sockets that one step visits. Ours: less than 0.1 ms.
pub(super) const STEP_MEMBERS: usize = 32;
/// Visits of subscriptions that one of them counts as.
const MEMBER_VISITS: usize = 16;
/// Members that a socket looks at in the time of a visit, if a node is lost.
const SCANNED: usize = 256;

impl Stack {
    /// Tells the members of a group that a binding of its type has changed.
    pub(super) fn tell_group(&mut self, now: Time, change: &Change) {
        let port = change.binding.port;
        if !self.groups.contains(change.binding.range.service) {
            return;
        }
        let is_here = port.node.is_none() || port.node == self.own_node();
        let origin = if is_here { Origin::Socket(port.port) } else { Origin::Node(port.node) };
        self.tell_or_wait(now, origin, Told::Changed(*change));
    }

    /// Tells all sockets in groups that contact with a node is lost.
    pub(super) fn tell_groups_of_loss(&mut self, now: Time, node: NodeAddr) {
        self.tell_or_wait(now, Origin::Node(node), Told::Lost(node));
    }

    fn tell_or_wait(&mut self, now: Time, origin: Origin, told: Told) {
        let mut announcement = self.groups.announcement(told);
        if !self.switch.spreads.contains(origin) {
            let members = self.switch.work.visits().div_ceil(MEMBER_VISITS);
            let mut left = members;
            let is_over = self.tell(now, &mut announcement, &mut left);
            self.switch.work.charge_visits((members - left) * MEMBER_VISITS);
            if is_over {
                return;
            }
        }
        self.let_announcement_wait(now, origin, announcement);
    }

    /// Takes what a socket has to tell its group; false if there is nothing.
    pub(super) fn begin_announcement(&mut self, now: Time) -> bool {
        let Some((port, told)) = self.switch.spreads.next_noted() else { return false };
        let announcement = self.groups.announcement(told);
        self.let_announcement_wait(now, Origin::Socket(port), announcement);
        true
    }

    fn let_announcement_wait(&mut self, now: Time, origin: Origin, mut announcement: Announcement) {
        let user = match origin {
            Origin::Socket(port) => self.user_of(port).or_else(|| self.groups.closed_by(port)),
            Origin::Node(_) => None,
        };
        if let Some(user) = user {
            self.ledger.charge(user, Resource::Memory, ANNOUNCEMENT_MEMORY);
            announcement.charge = Some((user, ANNOUNCEMENT_MEMORY));
        }
        if self.switch.spreads.add_announcement(origin, announcement) {
            self.switch.spreads.report(origin, user);
            self.let_sender_wait(now, origin, false);
        }
    }

    /// Does one step of an announcement.
    pub(super) fn continue_announcement(
        &mut self,
        now: Time,
        origin: Origin,
        mut announcement: Box<Announcement>,
    ) {
        if !self.tell(now, &mut announcement, &mut STEP_MEMBERS.clone()) {
            self.switch.spreads.put_announcement_back(origin, announcement);
        } else if let Some((user, memory)) = announcement.charge {
            self.ledger.release(user, Resource::Memory, memory);
        }
    }

    /// Tells a socket that has joined about further bindings; true if there are no more. Its JOINs do not wait.
    fn tell_found(&mut self, now: Time, (port, scope): (u32, Scope), walk: &mut Walk) -> bool {
        let mut found = Vec::new();
        let is_over = self.switch.table().walk(walk, &mut STEP_MEMBERS.clone(), |_, binding| {
            if binding.scope == scope {
                found.push((binding.port, binding.range.lower));
            }
        });
        self.switch.spreads.let_pass(Some(Origin::Socket(port)));
        self.tell_one(now, port, |endpoint, uplink| endpoint.group_found(&found, uplink));
        self.switch.spreads.let_pass(None);
        is_over
    }

    /// Visits the next sockets that an announcement concerns; true if it has reached all.
    fn tell(&mut self, now: Time, announcement: &mut Announcement, budget: &mut usize) -> bool {
        if let Told::Found { port, scope, walk } = &mut announcement.told {
            return self.tell_found(now, (*port, *scope), walk);
        }
        while let Some(((group, port), joined)) = self.groups.after(announcement) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            announcement.last = Some((group, port));
            if joined < announcement.before {
                self.tell_socket(now, port, &announcement.told, budget);
            }
        }
        true
    }

    fn tell_socket(&mut self, now: Time, port: u32, told: &Told, budget: &mut usize) {
        let Some(group) = self.endpoint(port).and_then(Endpoint::group) else { return };
        match told {
            Told::Changed(Change { binding, up, .. }) => {
                self.tell_one(now, port, |endpoint, uplink| {
                    endpoint.group_changed(binding.range, binding.port, binding.scope, *up, uplink);
                });
            }
            Told::Lost(node) => {
                *budget = budget.saturating_sub(group.member_count() / SCANNED);
                self.tell_one(now, port, |endpoint, uplink| endpoint.group_node_lost(*node, uplink));
            }
            Told::Left { scope, control, .. } if group.request().scope == *scope => {
                let own = self.own_node();
                let control = GroupControl { dest_port: port, ..*control };
                let message = control.to_message(&Envelope::between(own, own, INTERNAL_HEADER));
                self.handle_local(now, port, message);
            }
            Told::Left { .. } | Told::Found { .. } => {}
        }
    }

    fn tell_one(&mut self, now: Time, port: u32, told: impl FnOnce(&mut Endpoint, &mut Direct<'_>)) {
        let tell = |endpoint: &mut Endpoint, uplink: &mut Direct<'_>| {
            endpoint.group_now(now);
            told(endpoint, uplink);
        };
        self.change_endpoint(now, port, tell, |()| false);
    }
}
