//! Messages for sockets of this node, and announcements to the sockets of a group: at once as far as the turn allows;
//! the rest waits in order with what its origin sends ([`crate::switch::Origin`]), and follows in steps of the user who
//! has caused it. Local senders of a full receiver wait and take turns, and links from its remote senders are held,
//! until it has room again or the time for it is over. Spec: tipc.md §8.7, decision 50.

use std::collections::BTreeSet;

use super::Stack;
use super::endpoints::room;
use super::uplink::Direct;
use crate::addr::{NodeAddr, Scope};
use crate::limits::MESSAGE_OVERHEAD;
use crate::names::{Change, Walk};
use crate::quota::{Resource, UserId};
use crate::socket::{Endpoint, SubmitError, Submitted};
use crate::switch::{ANNOUNCEMENT_MEMORY, Announcement, Collecting, Copy, Origin, SPREAD_STEP, Told, Waits};
use crate::time::Time;
use crate::wire::{Envelope, ErrorCode, GroupControl, INTERNAL_HEADER, Message};

/// Sockets that one step of an announcement visits. Ours: less than 0.1 ms.
pub(super) const STEP_MEMBERS: usize = 32;
/// Visits of subscriptions that one of them counts as.
const MEMBER_VISITS: usize = 16;
/// Members that a socket looks at in the time of a visit, if a node is lost.
const SCANNED: usize = 256;

impl Stack {
    /// The sender of a multicast that takes more than one step, or of what the members of a group are told, and the
    /// user who is charged: the caller goes on with [`Self::continue_spread`]. Only if turns are limited
    /// ([`Self::begin_turn`]).
    pub fn take_spread(&mut self) -> Option<(Origin, UserId)> {
        let (origin, user) = self.switch.spreads.next_report()?;
        Some((origin, user.unwrap_or(UserId::NETWORK)))
    }

    /// Whether messages or announcements of a socket wait for further steps.
    #[must_use]
    pub fn is_spreading(&self, port: u32) -> bool {
        self.switch.spreads.contains(Origin::Socket(port))
    }

    /// Whether the receivers of the last message of a socket are not all known yet; [`Self::take_collected`] tells when
    /// they are.
    #[must_use]
    pub fn is_collecting(&self, port: u32) -> bool {
        self.switch.spreads.is_collecting(Origin::Socket(port))
    }

    /// After [`Self::continue_spread`]: the socket of which all receivers are known now, and those of them that the
    /// message must reach over a lane, as [`Self::take_diverted`].
    pub fn take_collected(&mut self) -> Option<(u32, Vec<u32>)> {
        self.switch.spreads.take_collected()
    }

    /// Collects some receivers of a sender's multicast, or makes some copies; false if all are made.
    pub fn continue_spread(&mut self, now: Time, origin: Origin) -> bool {
        if let Some(collecting) = self.switch.spreads.take_collecting(origin) {
            self.collect(now, origin, collecting);
            self.process_pending(now);
            return true;
        }
        if let Some(announcement) = self.switch.spreads.take_announcement(origin) {
            self.continue_announcement(now, origin, announcement);
            self.process_pending(now);
            return true;
        }
        let mut left = SPREAD_STEP;
        while left > 0 {
            let Some(copy) = self.switch.spreads.next(origin) else {
                let has_more = self.switch.spreads.contains(origin);
                if !has_more {
                    self.end_spread(now, origin);
                }
                self.process_pending(now);
                return has_more;
            };
            left = left.saturating_sub(copy.cost());
            let Copy { port, message, charge } = copy;
            if let Some((user, memory)) = charge {
                self.ledger.release(user, Resource::Memory, memory);
            }
            self.handle_local(now, port, message);
        }
        self.process_pending(now);
        true
    }

    /// Collects some receivers; when all are known, sends the multicast to other nodes, and has the copies made.
    fn collect(&mut self, now: Time, origin: Origin, mut collecting: Box<Collecting>) {
        let before = collecting.memory();
        let is_over = self.switch.collect(&mut collecting);
        let more = collecting.memory() - before;
        let mut sent = Ok(Submitted::Done);
        if let Some((user, charged)) = &mut collecting.charge {
            match self.ledger.try_charge(*user, Resource::Memory, more) {
                Ok(()) => *charged += more,
                Err(_) => sent = Err(SubmitError::NoBuffers),
            }
        }
        if !is_over && sent.is_ok() {
            return self.switch.spreads.put_back(origin, collecting);
        }
        if sent.is_ok() {
            sent = self.switch.send_collected(now, &collecting);
        }
        let size = collecting.message.size();
        if let Origin::Socket(port) = origin {
            self.with_endpoint(now, port, |sender, _| {
                sender.congestion_mut().release_others();
                sender.congestion_mut().submitted(sent.unwrap_or(Submitted::Done), size);
            });
        }
        let unused = match sent {
            Ok(_) => {
                self.switch.spreads.note_collected(origin, core::mem::take(&mut collecting.diverted));
                self.switch.spreads.put_collected(origin, *collecting)
            }
            Err(error) => {
                let code = match error {
                    SubmitError::Unreachable => ErrorCode::NoName,
                    _ => ErrorCode::Overload,
                };
                self.switch.spreads.note_collected(origin, BTreeSet::new());
                self.switch.reject(now, collecting.message, code);
                collecting.charge
            }
        };
        if let Some((user, memory)) = unused {
            self.ledger.release(user, Resource::Memory, memory);
        }
    }

    /// A multicast begins to wait: its user is charged, and its sender waits until all copies are made. False if there
    /// is none.
    pub(super) fn begin_spread(&mut self, now: Time) -> bool {
        let Some((origin, is_first, memory)) = self.switch.spreads.next_begun() else { return false };
        let user = match origin {
            Origin::Socket(port) => self.user_of(port),
            Origin::Node(_) => None,
        };
        let charged =
            user.map(|user| self.ledger.try_charge(user, Resource::Memory, memory).map(|()| (user, memory)));
        if let Some(refused) = self.switch.spreads.settle(origin, charged.transpose().map_err(|_| ())) {
            self.switch.reject(now, refused, ErrorCode::Overload);
            return true;
        }
        if is_first {
            self.switch.spreads.report(origin, user);
        }
        let collects = self.switch.spreads.collects_for_others(origin);
        self.let_sender_wait(now, origin, collects);
        true
    }

    /// The sender waits for this node until what it has sent has reached all; it may not send to others either while
    /// `collects`.
    pub(super) fn let_sender_wait(&mut self, now: Time, origin: Origin, collects: bool) {
        let own = self.own_node();
        match origin {
            Origin::Socket(port) => {
                self.with_endpoint(now, port, |sender, _| sender.congestion_mut().hold(own, collects));
            }
            Origin::Node(node) => self.switch.hold(node),
        }
    }

    /// All messages of a sender are passed on: it may send again.
    fn end_spread(&mut self, now: Time, origin: Origin) {
        match origin {
            Origin::Socket(port) => {
                let own = self.own_node();
                self.with_endpoint(now, port, |sender, _| sender.congestion_mut().release());
                self.switch.senders.wake(port, own);
            }
            Origin::Node(node) if !self.waits_for_room(node) => self.switch.resume(node),
            Origin::Node(_) => {}
        }
    }

    /// Passes a message to a socket of this node. If the socket is full, the sender waits, or the link from its node.
    pub(super) fn handle_local(&mut self, now: Time, port: u32, message: Message) {
        let (node, from) = (message.prev_node(), message.origin_port());
        let (is_sent, charge) = (message.error_code() == ErrorCode::Ok, message.size() + MESSAGE_OVERHEAD);
        let room = self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.handle_message(now, message, uplink);
            room(endpoint)
        });
        let Some(room) = room else { return };
        let own = self.own_node();
        if !node.is_none() && node != own {
            if room.is_full {
                self.switch.senders.receivers.hold(node, port);
                self.switch.hold(node);
            }
        } else if is_sent
            && (room.is_full || self.switch.senders.receivers.has_senders())
            && let Some(sender) = self.endpoints.get(from)
            && !sender.kind().is_connection_oriented()
        {
            // The next anycast may go to another receiver.
            let waits = if sender.chooses() { Waits::ForAny } else { Waits::ForAll };
            if self.switch.senders.receivers.sent(now, (from, waits), port, charge, room)
                && waits == Waits::ForAll
            {
                self.with_endpoint(now, from, |sender, _| sender.congestion_mut().begin(own));
            }
        }
    }

    /// Wakes senders to one receiver that has room again; false if there is no such receiver.
    pub(super) fn release_next(&mut self, now: Time) -> bool {
        if let Some(senders) = self.switch.senders.receivers.next_turn(now) {
            self.wake_senders(senders);
            return true;
        }
        let Some(nodes) = self.switch.senders.receivers.next_relieved() else { return false };
        for node in nodes {
            if !self.waits_for_room(node) && !self.switch.spreads.contains(Origin::Node(node)) {
                self.switch.resume(node);
            }
        }
        true
    }

    /// Whether messages of another node wait for a full receiver.
    pub(super) fn waits_for_room(&self, node: NodeAddr) -> bool {
        self.switch.senders.receivers.holds(node)
    }

    /// Ends turns of senders whose time is over.
    pub(super) fn receivers_timeout(&mut self, now: Time) {
        while let Some(senders) = self.switch.senders.receivers.handle_timeout(now) {
            self.wake_senders(senders);
        }
    }

    fn wake_senders(&mut self, senders: Vec<u32>) {
        let own = self.own_node();
        senders.into_iter().for_each(|sender| self.switch.senders.wake(sender, own));
    }

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
