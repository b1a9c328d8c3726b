//! The coordinator's decision: from the status of the members it makes the next view and the end of the last one.
//! A pure function, so that it can be compared with the argument of decision 31.

use std::collections::BTreeMap;

use crate::config::{Components, Config, Founding};
use crate::planted::{Fault, active};
use crate::view::{Ballot, MemberId, Seat, View, ViewId};
use crate::wire::{Cut, Hello, MAX_CUTS, Proposal, Report, Run, Status};

/// The answers of the members, this one's own included.
pub(crate) type Statuses = BTreeMap<MemberId, Status>;

/// What the coordinator does next.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Proposes a view. All of `recipients` must accept it before it is installed.
    Propose { proposal: Proposal, recipients: Vec<MemberId> },
    /// No majority, or no member with the state.
    NoMajority,
}

/// The order in which members coordinate and, within a view, are senior: those with the newest view's state first.
pub(crate) fn priority(id: MemberId, hello: &Hello) -> impl Ord + use<> {
    (hello.fresh, core::cmp::Reverse(hello.view), hello.rank, id)
}

/// Members that reach one another, chosen by priority, with `first` before all others.
pub(crate) fn clique<'a>(
    first: MemberId,
    hellos: impl Iterator<Item = (MemberId, &'a Hello)>,
) -> Vec<(MemberId, &'a Hello)> {
    let mut all: Vec<(MemberId, &Hello)> = hellos.collect();
    all.sort_by_key(|(id, hello)| (*id != first, priority(*id, hello)));
    let mut chosen: Vec<(MemberId, &Hello)> = Vec::new();
    for (id, hello) in all {
        let mutual = |(other, theirs): &(MemberId, &Hello)| {
            hello.reaches.contains(other) && theirs.reaches.contains(&id)
        };
        if chosen.len() < crate::MAX_MEMBERS && chosen.iter().all(mutual) {
            chosen.push((id, hello));
        }
    }
    chosen
}

/// Plans the next view.
pub(crate) fn plan(config: &Config, me: MemberId, ballot: Ballot, statuses: &Statuses) -> Plan {
    let hellos = statuses.iter().map(|(id, status)| (*id, &status.hello));
    let together: Vec<MemberId> = clique(me, hellos).into_iter().map(|(id, _)| id).collect();
    match config.components {
        Components::Primary => primary(config, ballot, statuses, &together),
        Components::All => all(ballot, statuses, &together),
    }
}

/// The members of a group with their status.
fn of_view<'a>(
    statuses: &'a Statuses,
    together: &'a [MemberId],
    view: ViewId,
) -> impl Iterator<Item = (MemberId, &'a Status)> {
    let member = move |id: &MemberId| {
        let status = statuses.get(id)?;
        (status.view.as_ref()?.id == view).then_some((*id, status))
    };
    together.iter().filter_map(member)
}

/// The last views of the members, newest first.
fn views<'a>(statuses: &'a Statuses, together: &[MemberId]) -> Vec<&'a View> {
    let mut views: Vec<&View> = together.iter().filter_map(|id| statuses.get(id)?.view.as_ref()).collect();
    views.sort_by_key(|view| core::cmp::Reverse(view.id));
    views.dedup_by_key(|view| view.id);
    views
}

fn primary(config: &Config, ballot: Ballot, statuses: &Statuses, together: &[MemberId]) -> Plan {
    let views = views(statuses, together);
    if views.is_empty() {
        return if config.founding == Founding::Alone {
            found(ballot, statuses, together)
        } else {
            Plan::NoMajority
        };
    }
    let majority = |view: &&&View| {
        let here = |id| of_view(statuses, together, view.id).any(|(member, _)| member == id);
        let mut states = of_view(statuses, together, view.id).filter(|(_, status)| !status.hello.fresh);
        (view.is_majority(here) || active(Fault::NoMajorityNeeded)) && states.next().is_some()
    };
    let Some(view) = views.iter().find(majority) else { return Plan::NoMajority };
    let accepted = of_view(statuses, together, view.id)
        .filter_map(|(_, status)| status.accepted.as_ref())
        .max_by_key(|(ballot, _)| *ballot);
    if let Some((_, proposal)) = accepted
        && !active(Fault::AcceptedForgotten)
    {
        return adopt(proposal, view.id, statuses, together);
    }
    let cut = cut(view, statuses, together);
    propose(ballot, statuses, together, vec![cut])
}

/// A proposal that a member of the last view has accepted may be installed somewhere: it is proposed again, unchanged.
fn adopt(proposal: &Proposal, view: ViewId, statuses: &Statuses, together: &[MemberId]) -> Plan {
    let concerned = |id: &&MemberId| {
        let Some(status) = statuses.get(id) else { return false };
        status.hello.view == view || proposal.view.contains(**id) && status.hello.view < proposal.view.id
    };
    let recipients = together.iter().filter(concerned).copied().collect();
    Plan::Propose { proposal: proposal.clone(), recipients }
}

fn all(ballot: Ballot, statuses: &Statuses, together: &[MemberId]) -> Plan {
    let with_state =
        |view: &&View| of_view(statuses, together, view.id).any(|(_, status)| !status.hello.fresh);
    let views: Vec<&View> = views(statuses, together).into_iter().filter(with_state).take(MAX_CUTS).collect();
    if views.is_empty() {
        return found(ballot, statuses, together);
    }
    // If there are more views than one change can merge, the rest follow in the next change.
    let merged: Vec<MemberId> = together
        .iter()
        .filter(|id| {
            let hello = statuses.get(id).map(|status| &status.hello);
            hello.is_some_and(|hello| hello.fresh || views.iter().any(|view| view.id == hello.view))
        })
        .copied()
        .collect();
    let cuts = views.iter().map(|view| cut(view, statuses, &merged)).collect();
    propose(ballot, statuses, &merged, cuts)
}

fn seat(statuses: &Statuses, id: MemberId) -> Option<Seat> {
    statuses.get(&id).map(|status| Seat { id, weight: status.hello.weight })
}

fn found(ballot: Ballot, statuses: &Statuses, together: &[MemberId]) -> Plan {
    let seats = together.iter().filter_map(|id| seat(statuses, *id)).collect();
    let view = View { id: ballot, seats };
    let proposal = Proposal { view, cuts: Vec::new(), joining: Vec::new() };
    Plan::Propose { proposal, recipients: together.to_vec() }
}

/// A new proposal: the members that move on by the cuts, then those that join.
fn propose(ballot: Ballot, statuses: &Statuses, together: &[MemberId], cuts: Vec<Cut>) -> Plan {
    let leaving = |id: &MemberId| statuses.get(id).is_some_and(|status| status.hello.leaving);
    let movers: Vec<MemberId> = cuts.iter().flat_map(|cut| cut.together.iter().copied()).collect();
    let stays_state = movers.iter().any(|id| !leaving(id));
    let joiners: Vec<MemberId> =
        together.iter().filter(|id| !movers.contains(id) && !leaving(id)).copied().collect();
    // The last member with the state stays while another one waits for it.
    let leaves = |id: &MemberId| leaving(id) && (stays_state || joiners.is_empty());
    let seats = movers.iter().filter(|id| !leaves(id)).chain(&joiners);
    let seats = seats.filter_map(|id| seat(statuses, *id)).collect();
    let proposal = Proposal { view: View { id: ballot, seats }, cuts, joining: joiners };
    Plan::Propose { proposal, recipients: together.to_vec() }
}

/// The end of a view for those of its members that have the state.
fn cut(view: &View, statuses: &Statuses, together: &[MemberId]) -> Cut {
    let movers: Vec<(MemberId, &Report)> = view
        .members()
        .filter_map(|id| {
            let (_, status) = of_view(statuses, together, view.id).find(|(member, _)| *member == id)?;
            (!status.hello.fresh).then_some((id, &status.report))
        })
        .collect();
    let reports = || movers.iter().map(|(_, report)| *report);
    let known = |report: &&Report| report.stable + places(&report.runs);
    let longest =
        if active(Fault::ShortestOrder) { reports().min_by_key(known) } else { reports().max_by_key(known) };
    let from = reports().map(|report| report.contiguous).min().unwrap_or(0);
    let size = view.seats.len();
    let mut available = vec![0; size];
    let own_only = active(Fault::CoordinatorsPacketsOnly);
    for report in reports().take(if own_only { 1 } else { usize::MAX }) {
        for (most, received) in available.iter_mut().zip(&report.received) {
            *most = (*most).max(*received);
        }
    }
    let mut placed = longest.map_or_else(|| vec![0; size], |report| report.base.clone());
    let mut place = longest.map_or(0, |report| report.stable);
    let mut runs = Vec::new();
    for run in longest.map(|report| report.runs.iter()).into_iter().flatten() {
        let rank = usize::from(run.rank);
        for _ in 0..run.count {
            place += 1;
            let (Some(count), Some(most)) = (placed.get_mut(rank), available.get(rank)) else { continue };
            if place <= from {
                *count += 1;
            } else if *count < *most {
                // A packet that none of the movers has is left out: none has delivered it or anything after it.
                *count += 1;
                push(&mut runs, run.rank);
            }
        }
    }
    if !active(Fault::UnplacedDropped) {
        append_unplaced(&mut runs, &mut placed, &available);
    }
    Cut { view: view.id, together: movers.iter().map(|(id, _)| *id).collect(), from, runs, ends: placed }
}

/// Packets without a place follow by rank.
fn append_unplaced(runs: &mut Vec<Run>, placed: &mut [u64], available: &[u64]) {
    for (rank, (count, most)) in placed.iter_mut().zip(available).enumerate() {
        while *count < *most {
            *count += 1;
            push(runs, rank as u8);
        }
    }
}

fn push(runs: &mut Vec<Run>, rank: u8) {
    match runs.last_mut() {
        Some(run) if run.rank == rank && run.count < u16::MAX => run.count += 1,
        _ => runs.push(Run { rank, count: 1 }),
    }
}

fn places(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// For each sender of a member's last view, a member that has all packets up to the cut.
pub(crate) fn holders(proposal: &Proposal, view: ViewId, statuses: &Statuses) -> Vec<MemberId> {
    let Some(cut) = proposal.cuts.iter().find(|cut| cut.view == view) else { return Vec::new() };
    let holder = |(rank, end): (usize, &u64)| {
        let has = |status: &&Status| {
            status.hello.view == view && status.report.received.get(rank).is_some_and(|n| n >= end)
        };
        let first = |id: &MemberId| statuses.get(id).filter(has).map(|_| *id);
        // Members that move on first: others may have freed more.
        cut.together.iter().find_map(first).or_else(|| statuses.keys().find_map(first))
    };
    cut.ends.iter().enumerate().map(|place| holder(place).unwrap_or_default()).collect()
}
