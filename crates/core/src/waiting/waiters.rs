//! Those that wait for one thing, in the order of their wake-up.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// Waiters, each once, by rank: the lowest is woken first; equal ones in the order of the waiters themselves.
///
/// The rank is what the owner orders by: the time when a wait ends, the number of an arrival
/// ([`Waiters::join_last`]), or what a waiter has had so far.
#[derive(Clone, Debug)]
pub struct Waiters<W, R> {
    order: BTreeSet<(R, W)>,
    ranks: BTreeMap<W, R>,
}

impl<W, R> Default for Waiters<W, R> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), ranks: BTreeMap::new() }
    }
}

impl<W: Copy + Ord, R: Copy + Ord> Waiters<W, R> {
    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Whether this one waits.
    #[must_use]
    pub fn contains(&self, waiter: W) -> bool {
        self.ranks.contains_key(&waiter)
    }

    /// The rank of a waiter.
    #[must_use]
    pub fn rank(&self, waiter: W) -> Option<R> {
        self.ranks.get(&waiter).copied()
    }

    /// Adds a waiter; false if it waits already: it keeps its rank.
    pub fn join(&mut self, waiter: W, rank: R) -> bool {
        let Entry::Vacant(place) = self.ranks.entry(waiter) else { return false };
        place.insert(rank);
        self.order.insert((rank, waiter))
    }

    /// Gives a waiter this rank, whether it waits already or not.
    pub fn set(&mut self, waiter: W, rank: R) {
        match self.ranks.insert(waiter, rank) {
            Some(before) if before == rank => return,
            Some(before) => _ = self.order.remove(&(before, waiter)),
            None => {}
        }
        self.order.insert((rank, waiter));
    }

    /// Removes a waiter; false if it does not wait.
    pub fn leave(&mut self, waiter: W) -> bool {
        let Some(rank) = self.ranks.remove(&waiter) else { return false };
        self.order.remove(&(rank, waiter))
    }

    /// The first waiter, with its rank.
    #[must_use]
    pub fn first(&self) -> Option<(R, W)> {
        self.order.first().copied()
    }

    /// Removes the first waiter.
    pub fn pop(&mut self) -> Option<(R, W)> {
        let (rank, waiter) = self.order.pop_first()?;
        self.ranks.remove(&waiter);
        Some((rank, waiter))
    }

    /// Removes the first waiter if its rank is at most `last`.
    pub fn pop_up_to(&mut self, last: R) -> Option<W> {
        self.first().filter(|(rank, _)| *rank <= last)?;
        self.pop().map(|(_, waiter)| waiter)
    }

    /// The waiters, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = W> {
        self.order.iter().map(|(_, waiter)| *waiter)
    }

    /// Removes all waiters.
    pub fn clear(&mut self) {
        self.order.clear();
        self.ranks.clear();
    }
}

impl<W: Copy + Ord> Waiters<W, u64> {
    /// Adds a waiter behind all others; false if it waits already: it keeps its place.
    pub fn join_last(&mut self, waiter: W) -> bool {
        let behind = self.order.last().map_or(0, |(rank, _)| rank + 1);
        self.join(waiter, behind)
    }
}

impl<W: Copy + Ord> Waiters<W, Time> {
    /// When the first wait ends; [`Time::NEVER`] without waiters.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.order.first().map_or(Time::NEVER, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn first_come_is_first_served_and_nobody_waits_twice() {
        let mut waiters = Waiters::default();
        assert!([7, 3, 9].into_iter().all(|waiter| waiters.join_last(waiter)));
        assert!(!waiters.join_last(3), "it keeps its place");
        assert_eq!(waiters.iter().collect::<Vec<_>>(), [7, 3, 9]);
        assert!(waiters.leave(7) && !waiters.leave(7));
        assert!(waiters.join_last(7));
        let order: Vec<u32> = std::iter::from_fn(|| waiters.pop()).map(|(_, waiter)| waiter).collect();
        assert_eq!(order, [3, 9, 7]);
        assert!(waiters.is_empty() && waiters.pop().is_none());
    }

    #[test]
    fn deadlines_move_and_end_in_order() {
        let (mut waiters, at) = (Waiters::default(), Time::from_millis);
        assert_eq!(waiters.deadline(), Time::NEVER);
        for (waiter, time) in [(1, 30), (2, 10), (3, 10), (2, 40)] {
            waiters.set(waiter, at(time));
        }
        assert_eq!((waiters.len(), waiters.deadline()), (3, at(10)));
        assert!(!waiters.join(1, at(1)), "it keeps its rank");
        assert_eq!((waiters.pop_up_to(at(9)), waiters.pop_up_to(at(30))), (None, Some(3)));
        assert_eq!((waiters.pop_up_to(at(30)), waiters.pop_up_to(at(30))), (Some(1), None));
        waiters.clear();
        assert_eq!((waiters.deadline(), waiters.contains(2)), (Time::NEVER, false));
    }

    #[test]
    fn order_and_ranks_agree_after_any_calls() {
        let (mut waiters, mut rng) = (Waiters::default(), Rng::new(5));
        for _ in 0..10_000 {
            let (waiter, rank) = (rng.below(20), rng.below(8));
            match rng.below(5) {
                0 => _ = waiters.join(waiter, rank),
                1 => waiters.set(waiter, rank),
                2 => _ = waiters.leave(waiter),
                3 => _ = waiters.pop_up_to(rank),
                _ => _ = waiters.join_last(waiter),
            }
            let by_waiter: BTreeSet<(u64, u64)> = waiters.ranks.iter().map(|(w, r)| (*r, *w)).collect();
            assert_eq!(waiters.order, by_waiter);
        }
    }
}
