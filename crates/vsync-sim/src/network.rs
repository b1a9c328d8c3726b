//! The transport: sessions between pairs of members. A session delivers reliably and in order in each direction, until
//! it ends; each end learns that at its own time, and what was in flight is lost from some point on.

use std::collections::BTreeMap;

use utipc_core::{Rng, Time};
use utipc_vsync::MemberId;

/// The session of two members, the smaller one first.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Counts the sessions of this pair.
    pub(crate) number: u64,
    /// Once this is false, nothing that is sent arrives.
    pub(crate) open: bool,
    /// Whether each end has been notified that the session is up.
    pub(crate) up: [bool; 2],
    /// Whether an end receives nothing that is in flight.
    pub(crate) deaf: [bool; 2],
    /// Earliest time of the next arrival at each end.
    pub(crate) earliest: [Time; 2],
}

pub(crate) type Pair = (MemberId, MemberId);

pub(crate) fn pair(a: MemberId, b: MemberId) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

/// Which end of its pair a member is.
pub(crate) fn end(pair: Pair, member: MemberId) -> usize {
    usize::from(pair.1 == member)
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) sessions: BTreeMap<Pair, Session>,
}

impl Network {
    /// Opens the next session of a pair. Returns its number and when each end learns of it.
    pub(crate) fn open(&mut self, pair: Pair, now: Time, rng: &mut Rng) -> (u64, [Time; 2]) {
        let session = self.sessions.entry(pair).or_default();
        let at = [(); 2].map(|()| Time::from_nanos(now.as_nanos() + rng.below(5_000_000)));
        *session = Session { number: session.number + 1, open: true, earliest: at, ..Session::default() };
        (session.number, at)
    }

    /// The time at which a message arrives, and the number of its session; `None` if it is lost.
    pub(crate) fn send(
        &mut self,
        from: MemberId,
        to: MemberId,
        now: Time,
        delay: u64,
    ) -> Option<(u64, Time)> {
        let pair = pair(from, to);
        let session = self.sessions.get_mut(&pair)?;
        if !session.open || !session.up[end(pair, from)] {
            return None;
        }
        let earliest = &mut session.earliest[end(pair, to)];
        *earliest = (*earliest).max(Time::from_nanos(now.as_nanos() + delay));
        Some((session.number, *earliest))
    }

    /// Ends a session. Returns when each end learns of it, if it was open.
    pub(crate) fn close(&mut self, pair: Pair, now: Time, rng: &mut Rng) -> Option<(u64, [Time; 2])> {
        let session = self.sessions.get_mut(&pair)?;
        if !std::mem::take(&mut session.open) {
            return None;
        }
        session.deaf = [(); 2].map(|()| rng.below(2) == 0);
        // An end without a notice of the session gets that first.
        let at = [0, 1].map(|n| {
            let delay = if rng.below(3) == 0 { rng.below(100_000_000) } else { rng.below(2_000_000) };
            Time::from_nanos((now.as_nanos() + delay).max(session.earliest[n].as_nanos() + 1))
        });
        Some((session.number, at))
    }

    /// Whether a message of session `number` reaches its receiver.
    pub(crate) fn arrives(&self, from: MemberId, to: MemberId, number: u64) -> bool {
        let pair = pair(from, to);
        self.sessions.get(&pair).is_some_and(|session| {
            let end = end(pair, to);
            session.number == number && session.up[end] && !session.deaf[end]
        })
    }
}
