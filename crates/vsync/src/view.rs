//! Members, ballots and views.

use core::fmt;

/// Maximum number of members of a view; keeps every control message below the size of a TIPC message.
pub const MAX_MEMBERS: usize = 64;

/// Identifies one membership of one process. The caller chooses it, unique for each join of the group: a process that
/// joins again uses a new one. For a TIPC socket: node address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// Number of an attempt to change the view, unique by its coordinator; compared by round first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Counts attempts; a member uses one more than the highest it has seen.
    pub round: u64,
    /// The member that makes the attempt.
    pub coordinator: MemberId,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.round, self.coordinator)
    }
}

/// Name of a view: the ballot in which it was first proposed. Along the history of one member it only grows.
pub type ViewId = Ballot;

/// A member of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The member.
    pub id: MemberId,
    /// Its vote in the choice of the primary component.
    pub weight: u16,
}

/// A membership of the group on which its members agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub id: ViewId,
    /// Its members by seniority; the first one orders the messages.
    pub seats: Vec<Seat>,
}

impl View {
    /// The place of a member in the order of seniority.
    #[must_use]
    pub fn rank(&self, id: MemberId) -> Option<usize> {
        self.seats.iter().position(|seat| seat.id == id)
    }

    /// True for a member of this view.
    #[must_use]
    pub fn contains(&self, id: MemberId) -> bool {
        self.rank(id).is_some()
    }

    /// The members by seniority.
    pub fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.seats.iter().map(|seat| seat.id)
    }

    /// The member that orders the messages.
    #[must_use]
    pub fn sequencer(&self) -> Option<MemberId> {
        self.seats.first().map(|seat| seat.id)
    }

    /// Whether the members for which `present` holds outvote the others: more than half of the weight, or exactly
    /// half with the most senior member. Two such sets always have a member in common.
    #[must_use]
    pub fn is_majority(&self, present: impl Fn(MemberId) -> bool) -> bool {
        let weight = |seat: &Seat| u64::from(seat.weight);
        let total: u64 = self.seats.iter().map(weight).sum();
        let here: u64 = self.seats.iter().filter(|seat| present(seat.id)).map(weight).sum();
        let senior = self.seats.first().is_some_and(|seat| present(seat.id));
        total > 0 && (2 * here > total || 2 * here == total && senior)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(weights: &[u16]) -> View {
        let seat = |(n, weight): (usize, &u16)| Seat { id: MemberId(n as u64), weight: *weight };
        View { id: Ballot::default(), seats: weights.iter().enumerate().map(seat).collect() }
    }

    #[test]
    fn two_majorities_always_have_a_common_member() {
        for weights in [&[1, 1, 1, 1][..], &[1, 1], &[3, 1, 1], &[2, 2, 1, 1], &[0, 1, 1], &[1]] {
            let view = view(weights);
            for a in 0..1u64 << weights.len() {
                for b in 0..1u64 << weights.len() {
                    let majority = |set: u64| view.is_majority(|m| set >> m.0 & 1 == 1);
                    assert!(!(majority(a) && majority(b)) || a & b != 0, "{weights:?} {a:b} {b:b}");
                }
            }
        }
    }

    #[test]
    fn half_of_the_weight_needs_the_most_senior_member() {
        let view = view(&[1, 1]);
        assert!(view.is_majority(|m| m.0 == 0));
        assert!(!view.is_majority(|m| m.0 == 1));
    }
}
