//! A view change at its coordinator.

use std::collections::BTreeSet;

use utipc_core::Time;

use super::{Member, Target};
use crate::event::Event;
use crate::plan::{self, Plan, Statuses};
use crate::planted::{Fault, active};
use crate::state::{Event as Step, State};
use crate::view::{Ballot, MemberId};
use crate::wire::{Message, Refusal, Status};

/// A ballot that this member conducts.
#[derive(Debug)]
pub(super) struct Round {
    ballot: Ballot,
    asked: BTreeSet<MemberId>,
    statuses: Statuses,
    /// Members whose acceptance is awaited, once the view is proposed.
    awaited: Option<BTreeSet<MemberId>>,
    recipients: usize,
    pub(super) deadline: Time,
}

impl Round {
    /// Whether a member has changed its view since it answered.
    pub(super) fn is_outdated(&self, member: MemberId, view: crate::ViewId) -> bool {
        self.statuses.get(&member).is_some_and(|status| status.hello.view != view)
    }

    pub(super) fn concerns(&self, member: MemberId) -> bool {
        self.asked.contains(&member)
    }
}

impl Member {
    /// Asks all candidates for their status.
    pub(super) fn start_round(&mut self) {
        let asked: BTreeSet<MemberId> = self.candidates().into_iter().collect();
        let round = self.ballots.round() + 1;
        let ballot = Ballot { round, coordinator: self.me };
        self.stats.ballots += 1;
        self.ballots.see(round);
        let deadline = self.times.now + self.config.patience / 2;
        let statuses = Statuses::new();
        self.say_hello();
        for member in &asked {
            if *member != self.me {
                self.transmit(Target::One(*member), &Message::Collect { ballot });
            }
        }
        self.round = Some(Round { ballot, asked, statuses, awaited: None, recipients: 0, deadline });
        self.promise(ballot);
        let own = self.status();
        self.receive_status(self.me, ballot, own);
    }

    pub(super) fn receive_status(&mut self, from: MemberId, ballot: Ballot, status: Status) {
        let Some(round) = self.round.as_mut() else { return };
        if round.ballot != ballot || round.awaited.is_some() || !round.asked.contains(&from) {
            return;
        }
        round.statuses.insert(from, status);
        if round.statuses.len() == round.asked.len() {
            self.propose();
        }
    }

    fn propose(&mut self) {
        let deadline = self.times.now + self.config.patience / 2;
        let Some(round) = self.round.as_mut() else { return };
        round.deadline = deadline;
        let ballot = round.ballot;
        let Plan::Propose { proposal, recipients } =
            plan::plan(&self.config, self.me, ballot, &round.statuses)
        else {
            return self.no_majority();
        };
        round.awaited = Some(recipients.iter().copied().collect());
        round.recipients = recipients.len();
        let messages: Vec<_> = recipients
            .iter()
            .map(|id| {
                let view = round.statuses.get(id).map(|status| status.hello.view).unwrap_or_default();
                (*id, plan::holders(&proposal, view, &round.statuses))
            })
            .collect();
        for (id, holders) in messages {
            if id == self.me {
                self.receive_proposal(ballot, proposal.clone(), &holders);
            } else {
                let proposal = Box::new(proposal.clone());
                self.transmit(Target::One(id), &Message::Propose { ballot, proposal, holders });
            }
        }
        // This member may be missing from a view that is proposed again.
        self.check_accepted();
    }

    fn no_majority(&mut self) {
        let Some(round) = self.round.take() else { return };
        for member in round.statuses.into_keys() {
            if member != self.me {
                self.transmit(Target::One(member), &Message::NoMajority { ballot: round.ballot });
            }
        }
        self.times.not_before = self.times.now + self.config.patience * 2;
        self.receive_no_majority(round.ballot);
    }

    pub(super) fn receive_no_majority(&mut self, ballot: Ballot) {
        if ballot != self.ballots.promised() || !self.step(Step::NoMajority) {
            return;
        }
        self.hello_due = true;
        if !std::mem::replace(&mut self.blocked, true) && self.has_state {
            self.history.push(Event::Blocked);
        }
        self.times.patience = None;
        if self.leaving {
            self.depart(Event::Left);
        }
    }

    pub(super) fn receive_accepted(&mut self, from: MemberId, ballot: Ballot) {
        let Some(round) = self.round.as_mut().filter(|round| round.ballot == ballot) else { return };
        if let Some(awaited) = round.awaited.as_mut() {
            awaited.remove(&from);
        }
        self.check_accepted();
    }

    /// Installs the proposed view once all recipients have accepted it. The others follow when they hear from a
    /// member that has installed it.
    fn check_accepted(&mut self) {
        let Some(round) = self.round.as_ref() else { return };
        let Some(awaited) = round.awaited.as_ref() else { return };
        let early = active(Fault::InstalledTooEarly) && awaited.len() * 2 <= round.recipients;
        if awaited.is_empty() || early {
            self.round = None;
            self.hello_due = true;
            self.install();
        }
    }

    pub(super) fn receive_refusal(&mut self, from: MemberId, ballot: Ballot, seen: u64, refusal: Refusal) {
        self.ballots.see(seen);
        if self.round.as_ref().is_none_or(|round| round.ballot != ballot) {
            return;
        }
        self.round = None;
        self.hello_due = true;
        match refusal {
            Refusal::Deferred => self.leave_out(from),
            // Two coordinators must not keep outbidding each other: the junior one waits longer.
            Refusal::Outdated => {
                let wait = self.config.settle / 2 * (1 + self.rank() as u32);
                self.times.not_before = self.times.now + wait;
            }
        }
    }

    /// Members that have not answered are left out of the next attempt.
    pub(super) fn round_is_late(&mut self) {
        let Some(round) = self.round.take() else { return };
        let silent: Vec<MemberId> = match &round.awaited {
            Some(awaited) => awaited.iter().copied().collect(),
            None => round.asked.iter().filter(|id| !round.statuses.contains_key(id)).copied().collect(),
        };
        for member in silent {
            self.leave_out(member);
        }
        if self.state == State::Idle {
            return;
        }
        self.hello_due = true;
        self.times.not_before = self.times.now;
    }
}
