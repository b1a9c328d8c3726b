//! Messages of a view change.

use super::WireError;
use super::codec::{Reader, Writer};
use crate::config::MAX_IN_FLIGHT;
use crate::view::{Ballot, MAX_MEMBERS, MemberId, View, ViewId};

/// Maximum number of runs of an order: every packet in flight may be a run, in the unstable window and in the previous
/// one, whose stability not every member knows yet.
pub(crate) const MAX_RUNS: usize = 2 * MAX_IN_FLIGHT as usize + MAX_MEMBERS;
/// Maximum number of views that one change merges.
pub(crate) const MAX_CUTS: usize = 3;

/// Consecutive places of the order with packets of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Rank of the sender in the view.
    pub(crate) rank: u8,
    pub(crate) count: u16,
}

fn run(r: &mut Reader<'_>) -> Result<Run, WireError> {
    Ok(Run { rank: r.u8()?, count: r.u16()? })
}

pub(super) fn runs(r: &mut Reader<'_>) -> Result<Vec<Run>, WireError> {
    let runs = r.list(MAX_RUNS, run)?;
    let total: usize = runs.iter().map(|run| usize::from(run.count)).sum();
    if total > MAX_RUNS { Err(WireError::TooLong) } else { Ok(runs) }
}

pub(super) fn write_runs(w: &mut Writer, runs: &[Run]) {
    w.list(runs, |w, run| {
        w.u8(run.rank);
        w.u16(run.count);
    });
}

fn counts(r: &mut Reader<'_>) -> Result<Vec<u64>, WireError> {
    r.list(MAX_MEMBERS, Reader::count)
}

/// The status that a member sends to all others when it meets them and when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Settings that all members must share.
    pub(crate) config: u64,
    /// The highest round that it has seen.
    pub(crate) round: u64,
    /// Its last view; the default if it has none.
    pub(crate) view: ViewId,
    /// Its place in that view.
    pub(crate) rank: u8,
    pub(crate) weight: u16,
    /// It lacks the application's state.
    pub(crate) fresh: bool,
    /// It wants to leave.
    pub(crate) leaving: bool,
    /// Its view has to change: it has lost messages, or it has stopped for a ballot.
    pub(crate) broken: bool,
    /// The members that it can reach.
    pub(crate) reaches: Vec<MemberId>,
}

impl Hello {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            config: r.u64()?,
            round: r.count()?,
            view: r.ballot()?,
            rank: r.u8()?,
            weight: r.u16()?,
            fresh: r.flag()?,
            leaving: r.flag()?,
            broken: r.flag()?,
            reaches: r.members()?,
        })
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.u64(self.config);
        w.u64(self.round);
        w.ballot(self.view);
        w.u8(self.rank);
        w.u16(self.weight);
        w.flag(self.fresh);
        w.flag(self.leaving);
        w.flag(self.broken);
        w.members(&self.reaches);
    }
}

/// The packets that a member has of its last view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Places that it knows to be stable: every member has all packets up to this one.
    pub(crate) stable: u64,
    /// For each sender, its packets in those places.
    pub(crate) base: Vec<u64>,
    /// For each sender, the packets that it has received.
    pub(crate) received: Vec<u64>,
    /// Places up to which it has all packets.
    pub(crate) contiguous: u64,
    /// The order after the stable places.
    pub(crate) runs: Vec<Run>,
}

impl Report {
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            stable: r.count()?,
            base: counts(r)?,
            received: counts(r)?,
            contiguous: r.count()?,
            runs: runs(r)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u64(self.stable);
        w.counts(&self.base);
        w.counts(&self.received);
        w.u64(self.contiguous);
        write_runs(w, &self.runs);
    }
}

/// The end of a view for those of its members that move on together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) view: ViewId,
    /// The members that move on together.
    pub(crate) together: Vec<MemberId>,
    /// Places that all of them have in common.
    pub(crate) from: u64,
    /// The order after them.
    pub(crate) runs: Vec<Run>,
    /// For each sender of the view, the packets that are delivered in it.
    pub(crate) ends: Vec<u64>,
}

impl Cut {
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            view: r.ballot()?,
            together: r.members()?,
            from: r.count()?,
            runs: runs(r)?,
            ends: counts(r)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.ballot(self.view);
        w.members(&self.together);
        w.u64(self.from);
        write_runs(w, &self.runs);
        w.counts(&self.ends);
    }
}

/// A next view, with the ends of the views before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) view: View,
    pub(crate) cuts: Vec<Cut>,
    /// Members of the view that lack the application's state.
    pub(crate) joining: Vec<MemberId>,
}

impl Proposal {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { view: r.view()?, cuts: r.list(MAX_CUTS, Cut::read)?, joining: r.members()? })
    }

    pub(super) fn write(&self, w: &mut Writer) {
        w.view(&self.view);
        w.list(&self.cuts, |w, cut| cut.write(w));
        w.members(&self.joining);
    }

    /// The cut by which a member of `view` moves on.
    pub(crate) fn cut_of(&self, view: ViewId, member: MemberId) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.view == view && cut.together.contains(&member))
    }
}

/// A member's reply to COLLECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) hello: Hello,
    /// Its last view.
    pub(crate) view: Option<View>,
    /// The proposal that it has accepted after that view, with the ballot.
    pub(crate) accepted: Option<(Ballot, Proposal)>,
    pub(crate) report: Report,
}

impl Status {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let status = Self {
            hello: Hello::read(r)?,
            view: r.optional(Reader::view)?,
            accepted: r.optional(|r| Ok((r.ballot()?, Proposal::read(r)?)))?,
            report: Report::read(r)?,
        };
        let size = status.view.as_ref().map_or(0, |view| view.seats.len());
        let consistent = status.report.base.len() == size
            && status.report.received.len() == size
            && status.report.runs.iter().all(|run| usize::from(run.rank) < size)
            && status.hello.view == status.view.as_ref().map_or(ViewId::default(), |view| view.id);
        if consistent { Ok(status) } else { Err(WireError::OutOfRange) }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        self.hello.write(w);
        w.optional(self.view.as_ref(), Writer::view);
        w.optional(self.accepted.as_ref(), |w, (ballot, proposal)| {
            w.ballot(*ballot);
            proposal.write(w);
        });
        self.report.write(w);
    }
}
