//! A view change at each of its members.

use super::{Member, Target};
use crate::config::{Components, Founding};
use crate::event::{Cause, Event, ViewChange};
use crate::log::Log;
use crate::planted::{Fault, active};
use crate::state::{Event as Step, State};
use crate::view::{Ballot, MemberId};
use crate::wire::{Cut, Hello, Message, Proposal, Refusal, Report, Status};

/// Windows that the application may leave untaken at a view change, beyond what stops its acknowledgements.
const MAX_BACKLOG: usize = 3;
/// Views and notices that the application may leave untaken at a view change.
pub(super) const MAX_UNTAKEN: usize = 1024;

impl Member {
    /// Answers a coordinator.
    pub(super) fn receive_collect(&mut self, from: MemberId, ballot: Ballot) {
        if self.state == State::Idle || ballot.coordinator != from {
            return;
        }
        self.ballots.see(ballot.round);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.out_until = utipc_core::Time::ZERO;
        }
        let refusal = if self.coordinator() != from && !self.follows_anyone() {
            Some(Refusal::Deferred)
        } else if ballot <= self.ballots.promised() {
            Some(Refusal::Outdated)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let round = self.ballots.promised().round;
            return self.transmit(Target::One(from), &Message::Refuse { ballot, round, refusal });
        }
        self.round = None;
        self.promise(ballot);
        let status = Box::new(self.status());
        self.transmit(Target::One(from), &Message::Status { ballot, status });
    }

    /// Promises a ballot: from now on the view takes no messages.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        if !self.step(Step::Promise) {
            return;
        }
        self.ballots.promise(ballot);
        self.losses.forget();
        self.order.stop();
        if ballot.coordinator != self.me {
            self.times.patience = Some(self.times.now + self.config.patience + self.config.settle);
        }
    }

    pub(super) fn status(&self) -> Status {
        Status {
            hello: self.hello(),
            view: self.view().cloned(),
            accepted: self.ballots.accepted().map(|accepted| (accepted.ballot, accepted.proposal.clone())),
            report: self.history.log().map_or_else(Report::default, Log::report),
        }
    }

    /// Takes a proposal; it is accepted once all messages up to the cut have arrived.
    pub(super) fn receive_proposal(&mut self, ballot: Ballot, proposal: Proposal, holders: &[MemberId]) {
        let promised = ballot == self.ballots.promised() || active(Fault::PromiseBroken);
        if !matches!(self.state, State::Flushing | State::Prepared) || !promised {
            return;
        }
        if let (Some(cut), Some(log)) = (proposal.cut_of(self.view_id(), self.me), self.history.log()) {
            if !log.fits(cut) {
                self.stats.refused += 1;
                return self.give_up(Cause::Protocol);
            }
            let missing: Vec<_> = log
                .received()
                .zip(&cut.ends)
                .enumerate()
                .filter(|(_, (received, end))| received < *end)
                .map(|(rank, (received, end))| (rank, received, *end))
                .collect();
            let view = cut.view;
            for (rank, after, end) in missing {
                let holder = holders.get(rank).copied().unwrap_or_default();
                self.transmit(Target::One(holder), &Message::Fetch { view, rank: rank as u8, after, end });
            }
        }
        self.ballots.set_pending(ballot, proposal);
        self.accept_if_complete();
    }

    /// Accepts the pending proposal if nothing is missing.
    pub(super) fn accept_if_complete(&mut self) {
        let Some(pending) = self.ballots.pending() else { return };
        let cut = pending.proposal.cut_of(self.view_id(), self.me);
        let complete = cut.is_none_or(|cut| self.history.log().is_some_and(|log| log.has_all(cut)));
        let ballot = pending.ballot;
        if !complete && !active(Fault::AcceptedTooEarly) || !self.step(Step::Accept) {
            return;
        }
        self.ballots.accept();
        if ballot.coordinator == self.me {
            self.receive_accepted(self.me, ballot);
        } else {
            self.transmit(Target::One(ballot.coordinator), &Message::Accepted { ballot });
        }
    }

    /// A peer asks for packets that it lacks.
    pub(super) fn receive_fetch(&mut self, from: MemberId, fetch: (crate::ViewId, u8, u64, u64)) {
        let (view, rank, after, end) = fetch;
        let Some(log) = self.history.log().filter(|log| log.view.id == view) else { return };
        let packets: Vec<_> = log.packets(usize::from(rank), after, end).map(|p| p.bytes.clone()).collect();
        for packet in packets {
            self.transmit(Target::One(from), &Message::Relay { rank, packet: &packet });
        }
    }

    /// Installs the accepted view: ends the old one by its cut and starts the new one.
    pub(super) fn install(&mut self) {
        let Some(proposal) = self.ballots.install() else { return };
        self.round = None;
        self.times.patience = None;
        self.blocked = false;
        self.hello_due = true;
        self.stats.views += 1;
        let cut = proposal.cut_of(self.view_id(), self.me).cloned();
        let previous = self.view().map(|view| view.id).filter(|_| cut.is_some());
        match &cut {
            Some(cut) => self.seal(cut),
            None => self.abandon_view(),
        }
        if !proposal.view.contains(self.me) {
            if self.leaving {
                // The others install the view when they hear from a member that has done so. A coordinator may be the
                // only such member; without it the others may lack a majority of the old view.
                let hello = Hello { view: proposal.view.id, ..self.hello() };
                self.transmit(Target::All, &Message::Hello(hello));
                self.depart(Event::Left);
            } else {
                let excluded = self.step(Step::Exclude);
                debug_assert!(excluded);
                if cut.is_some() {
                    self.has_state = false;
                    self.history.push(Event::Excluded(Cause::Superseded));
                }
                self.times.joined = self.times.now;
            }
            return;
        }
        let together = cut.map_or_else(|| vec![self.me], |cut| cut.together);
        self.enter(proposal, previous, together);
    }

    fn enter(&mut self, proposal: Proposal, previous: Option<crate::ViewId>, together: Vec<MemberId>) {
        let Proposal { view, joining, .. } = proposal;
        let wait = self.config.state_transfer && joining.contains(&self.me);
        let stepped = self.step(if wait { Step::InstallWithoutState } else { Step::Install });
        debug_assert!(stepped);
        self.has_state = !wait;
        if self.config.components == Components::Primary {
            // A founder that the group has left behind must not found a second group.
            self.config.founding = Founding::Never;
        }
        self.losses.begin(&view, self.me, |id| self.peers.contains_key(&id));
        self.times.installed = self.times.now;
        self.order.begin(view.seats.len());
        self.start_transfer(&view, &joining);
        self.history.begin(ViewChange { view, previous, together, joining }, !wait);
        self.refuse_backlog();
    }

    /// Ends the old view for this member and those that move on with it.
    fn seal(&mut self, cut: &Cut) {
        let rank = self.rank();
        if let Some(log) = self.history.log_mut() {
            if active(Fault::SentAgain)
                && let Some(packet) = log.packets(rank, 0, u64::MAX).last().cloned()
                && let Some(range) = crate::wire::next_message(&packet.bytes, crate::wire::DATA_HEADER)
            {
                let class = packet.class;
                log.seal(cut);
                return self.batches.push(class, packet.bytes.get(range).unwrap_or_default());
            }
            log.seal(cut);
        }
    }

    /// The group continues without this member's part of the old view.
    fn abandon_view(&mut self) {
        let had_state = self.has_state;
        let leaving = self.leaving;
        self.drop_view();
        if had_state && !leaving {
            self.history.push(Event::Excluded(Cause::Superseded));
        }
    }

    /// A member leaves if its application does not take its messages.
    fn refuse_backlog(&mut self) {
        let backlog = self.history.undelivered();
        let limit = self.reading_room() + MAX_BACKLOG * self.config.window as usize;
        if backlog > limit || self.history.untaken() > MAX_UNTAKEN {
            self.give_up(Cause::SlowConsumer);
        }
    }
}
