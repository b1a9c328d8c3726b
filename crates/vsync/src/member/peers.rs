//! Peers, and whether the view must change and which member does so.

use utipc_core::Time;

use super::{Member, Target};
use crate::config::{Components, Founding};
use crate::event::Event;
use crate::plan::{clique, priority};
use crate::state::State;
use crate::view::MemberId;
use crate::wire::{Hello, Message};

/// A member that the transport reaches.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The last status that it sent.
    pub(super) hello: Option<Hello>,
    /// It is left out until this time, because it does not answer or waits for another coordinator.
    pub(super) out_until: Time,
    incompatible: bool,
}

/// Maximum number of peers that one member knows: all members, and as many about to join.
const MAX_PEERS: usize = 4 * crate::MAX_MEMBERS;

impl Member {
    /// The transport reaches a member.
    pub fn peer_up(&mut self, now: Time, peer: MemberId) {
        self.times.now = now;
        if peer == self.me || self.peers.len() >= MAX_PEERS {
            return;
        }
        self.peers.insert(peer, Peer::default());
        self.hello_due = true;
        self.reconsider();
    }

    /// The transport no longer reaches a member; messages may be lost in both directions.
    pub fn peer_down(&mut self, now: Time, peer: MemberId) {
        self.times.now = now;
        if self.peers.remove(&peer).is_none() {
            return;
        }
        self.losses.note(peer, MAX_PEERS);
        if self.view().is_some_and(|view| view.contains(peer)) {
            self.losses.set_broken();
        }
        self.hello_due = true;
        if self.round.as_ref().is_some_and(|round| round.concerns(peer)) {
            self.round = None;
        }
        if self.ballots.promised().coordinator == peer {
            self.ballots.drop_pending();
            self.times.patience = None;
        }
        self.transfer_lost(peer);
        self.reconsider();
    }

    /// The status that this member sends.
    pub(super) fn hello(&self) -> Hello {
        let mut reaches: Vec<MemberId> = self.peers.keys().copied().take(crate::MAX_MEMBERS - 1).collect();
        reaches.push(self.me);
        Hello {
            config: self.config.word(),
            round: self.ballots.round(),
            view: self.view_id(),
            rank: self.rank() as u8,
            weight: self.config.weight,
            fresh: !self.has_state,
            leaving: self.leaving,
            // The view cannot continue without a member that has stopped for a ballot.
            broken: self.losses.is_broken() || !self.state.is_in_view(),
            reaches,
        }
    }

    pub(super) fn receive_hello(&mut self, from: MemberId, hello: Hello) {
        self.ballots.see(hello.round);
        let same = hello.config == self.config.word();
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.out_until = Time::ZERO;
        if self.round.as_ref().is_some_and(|round| round.is_outdated(from, hello.view)) {
            self.round = None;
        }
        if self.blocked {
            self.times.not_before = self.times.now + self.config.settle;
        }
        peer.hello = same.then_some(hello);
        // One notice more or less does not matter to an application with this many unread.
        if !same && !std::mem::replace(&mut peer.incompatible, true) && self.is_attentive() {
            self.history.notify(Event::Incompatible(from));
        }
    }

    /// Whether the application has taken enough of its events to get more notices.
    fn is_attentive(&self) -> bool {
        self.history.untaken() + self.history.untaken_before() < super::change::MAX_UNTAKEN
    }

    pub(super) fn receive_bye(&mut self, from: MemberId) {
        self.peer_down(self.times.now, from);
    }

    /// Peers that take part in view changes, with their last status.
    pub(super) fn participants(&self) -> impl Iterator<Item = (MemberId, &Hello)> {
        self.peers.iter().filter_map(|(id, peer)| {
            let hello = peer.hello.as_ref()?;
            (peer.out_until <= self.times.now && hello.reaches.contains(&self.me)).then_some((*id, hello))
        })
    }

    /// Whether no member in contact has a view, in a group that only its founder can begin.
    fn waits_for_founder(&self) -> bool {
        self.config.components == Components::Primary
            && self.view().is_none()
            && self.participants().all(|(_, hello)| hello.view == crate::ViewId::default())
    }

    /// Whether this member answers any coordinator: only the founder asks, and does not announce that.
    pub(super) fn follows_anyone(&self) -> bool {
        self.config.founding == Founding::Never && self.waits_for_founder()
    }

    /// The member that should coordinate, as far as this member knows.
    pub(super) fn coordinator(&self) -> MemberId {
        if self.config.founding == Founding::Alone && self.waits_for_founder() {
            return self.me;
        }
        let asked = self.ballots.promised().coordinator;
        if self.follows_anyone() && self.participants().any(|(id, _)| id == asked) {
            return asked;
        }
        let own = self.hello();
        let best = self.participants().map(|(id, hello)| (priority(id, hello), id)).min();
        match best {
            Some((key, id)) if key < priority(self.me, &own) => id,
            _ => self.me,
        }
    }

    /// Members of the next view if this member coordinated.
    pub(super) fn candidates(&self) -> Vec<MemberId> {
        let own = self.hello();
        let all = self.participants().chain(std::iter::once((self.me, &own)));
        clique(self.me, all).into_iter().map(|(id, _)| id).collect()
    }

    /// Whether the view must change.
    fn wants_change(&self) -> bool {
        match self.state {
            State::Idle => false,
            State::Joining => {
                let found = self.config.founding == Founding::Alone;
                found || self.participants().any(|(_, hello)| hello.view != crate::ViewId::default())
            }
            State::Flushing | State::Prepared | State::Blocked => true,
            State::Operational | State::Transferring => self.view_is_broken() || self.can_admit(),
        }
    }

    /// Whether the view that this member works in has lost a member or messages, or a member wants to leave.
    fn view_is_broken(&self) -> bool {
        let Some(view) = self.view() else { return true };
        let settled = self.times.installed + self.config.patience <= self.times.now;
        let missing = |id: MemberId| {
            let participant = self.participants().find(|(participant, _)| *participant == id);
            match participant {
                None => !self.peers.get(&id).is_some_and(|peer| peer.hello.is_none() && !settled),
                // It installs this view a moment later, or it never will.
                Some((_, hello)) if hello.view != view.id => settled || hello.view > view.id,
                Some((_, hello)) => hello.broken || hello.leaving && self.can_leave(id),
            }
        };
        self.losses.is_broken()
            || self.leaving && self.can_leave(self.me)
            || view.members().any(|id| id != self.me && missing(id))
    }

    /// Whether members outside the view can be admitted.
    fn can_admit(&self) -> bool {
        let Some(view) = self.view() else { return true };
        let outside = |id: &MemberId| {
            !view.contains(*id)
                && !self.peers.get(id).and_then(|p| p.hello.as_ref()).is_some_and(|h| h.leaving)
        };
        view.seats.len() < crate::MAX_MEMBERS && self.candidates().iter().any(outside)
    }

    /// The last member with the state does not leave while others wait for it.
    fn can_leave(&self, id: MemberId) -> bool {
        let Some(view) = self.view() else { return true };
        let stays = |other: MemberId| {
            let theirs = self.peers.get(&other).and_then(|peer| peer.hello.as_ref());
            let fresh =
                if other == self.me { !self.has_state } else { theirs.is_none_or(|hello| hello.fresh) };
            let leaving =
                if other == self.me { self.leaving } else { theirs.is_some_and(|hello| hello.leaving) };
            (fresh, leaving)
        };
        let others = || view.members().filter(|other| *other != id).map(stays);
        let (fresh, _) = stays(id);
        fresh || others().any(|(fresh, leaving)| !fresh && !leaving) || others().all(|(_, leaving)| leaving)
    }

    /// If the view must change, starts that, or waits for the member that should.
    pub(super) fn reconsider(&mut self) {
        if self.round.is_some() {
            return;
        }
        if !self.wants_change() {
            self.times.patience = None;
            return;
        }
        let coordinator = self.coordinator();
        if coordinator != self.me {
            // A working member lets the coordinator decide which members to admit.
            if self.state.is_in_view() && !self.view_is_broken() {
                self.times.patience = None;
                return;
            }
            let times = if self.blocked { 8 } else { 1 };
            let wait = self.times.now + self.config.patience * times + self.config.settle;
            self.times.patience = self.times.patience.or(Some(wait));
            return;
        }
        self.times.patience = None;
        let settle = match self.state {
            State::Joining => self.times.joined + self.config.settle * 2,
            State::Operational | State::Transferring if !self.losses.is_broken() => {
                self.times.installed + self.config.settle
            }
            _ => self.times.now,
        };
        let earliest = self.times.not_before.max(settle);
        if earliest <= self.times.now {
            self.start_round();
        }
    }

    /// Leaves a member out for a while.
    pub(super) fn leave_out(&mut self, id: MemberId) {
        let until = self.times.now + self.config.patience * 2;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.out_until = until;
        }
    }

    /// The next time at which [`Member::handle_timeout`] has work; [`Time::NEVER`] if none.
    #[must_use]
    pub fn deadline(&self) -> Time {
        if self.state == State::Idle {
            return Time::NEVER;
        }
        let (times, later) = (&self.times, |at| self.times.later(at));
        let peers = self.peers.values().filter_map(|peer| later(peer.out_until)).min();
        let settle = match self.state {
            State::Joining => later(times.joined + self.config.settle * 2),
            State::Operational | State::Transferring => {
                later(times.installed + self.config.settle).or(later(times.installed + self.config.patience))
            }
            _ => None,
        };
        let round = self.round.as_ref().map(|round| round.deadline);
        [peers, settle, round, later(times.not_before), times.patience, self.order.due(), times.leave_by]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.times.now = now;
        if self.state == State::Idle {
            return;
        }
        if self.times.is_due(self.times.leave_by) {
            return self.depart(Event::Left);
        }
        if self.times.is_due(self.times.patience) {
            self.times.patience = None;
            self.hello_due = true;
            self.leave_out(self.coordinator());
        }
        if self.round.as_ref().is_some_and(|round| round.deadline <= now) {
            self.round_is_late();
        }
        self.acknowledge_late();
        self.reconsider();
    }

    /// Tells all peers about a change.
    pub(super) fn say_hello(&mut self) {
        if std::mem::take(&mut self.hello_due) && self.state != State::Idle {
            let hello = Message::Hello(self.hello());
            self.transmit(Target::All, &hello);
        }
    }
}
