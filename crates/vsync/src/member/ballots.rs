//! What a member has promised to coordinators, and what it has accepted from them.

use crate::view::{Ballot, MemberId, View, ViewId};
use crate::wire::{Cut, Proposal};

/// An accepted proposal.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) ballot: Ballot,
    pub(super) proposal: Proposal,
}

/// Ballots that a member knows.
#[derive(Debug, Default)]
pub(super) struct Ballots {
    /// The highest ballot that this member has answered.
    promised: Ballot,
    /// The highest round seen anywhere.
    seen: u64,
    /// A proposal whose messages are not complete here.
    pending: Option<Accepted>,
    accepted: Option<Accepted>,
}

impl Ballots {
    pub(super) fn promised(&self) -> Ballot {
        self.promised
    }

    /// Answers a ballot: nothing is pending any more.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        self.promised = ballot;
        self.pending = None;
    }

    /// Notes a round that was seen.
    pub(super) fn see(&mut self, round: u64) {
        self.seen = self.seen.max(round);
    }

    /// The highest round of which this member knows.
    pub(super) fn round(&self) -> u64 {
        self.seen.max(self.promised.round)
    }

    pub(super) fn set_pending(&mut self, ballot: Ballot, proposal: Proposal) {
        self.pending = Some(Accepted { ballot, proposal });
    }

    pub(super) fn pending(&self) -> Option<&Accepted> {
        self.pending.as_ref()
    }

    /// What the pending proposal keeps of a view of this member.
    pub(super) fn pending_cut(&self, view: ViewId, me: MemberId) -> Option<&Cut> {
        self.pending.as_ref()?.proposal.cut_of(view, me)
    }

    pub(super) fn drop_pending(&mut self) {
        self.pending = None;
    }

    /// Accepts the pending proposal.
    pub(super) fn accept(&mut self) {
        self.accepted = self.pending.take();
    }

    pub(super) fn accepted(&self) -> Option<&Accepted> {
        self.accepted.as_ref()
    }

    /// The view that is accepted and not installed.
    pub(super) fn accepted_view(&self) -> Option<&View> {
        self.accepted.as_ref().map(|accepted| &accepted.proposal.view)
    }

    /// Takes the accepted proposal, to install its view.
    pub(super) fn install(&mut self) -> Option<Proposal> {
        let Accepted { ballot, proposal } = self.accepted.take()?;
        self.promised = self.promised.max(ballot);
        self.pending = None;
        Some(proposal)
    }

    /// Forgets what is pending and accepted.
    pub(super) fn clear(&mut self) {
        (self.pending, self.accepted) = (None, None);
    }
}
