//! The timers of a value as one table, from which both its deadline and its timeout follow; and keys with a time each.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// A timer of a `T`.
#[derive(Debug)]
pub struct Timer<T> {
    /// When it is due, given the present time; [`Time::NEVER`] if it is not set.
    pub due: fn(&T, Time) -> Time,
    /// Does what is due by the given time, if anything is.
    pub handle: fn(&mut T, Time),
}

/// All timers of a `T`, in the order in which they are handled.
#[derive(Debug)]
pub struct Timers<T: 'static>(pub &'static [Timer<T>]);

impl<T> Timers<T> {
    /// When the first of them is due.
    #[must_use]
    pub fn deadline(&self, of: &T, now: Time) -> Time {
        self.0.iter().map(|timer| (timer.due)(of, now)).min().unwrap_or(Time::NEVER)
    }

    /// Handles what is due.
    pub fn handle(&self, of: &mut T, now: Time) {
        for timer in self.0 {
            (timer.handle)(of, now);
        }
    }
}

/// Keys of which each has a time.
#[derive(Debug)]
pub struct Deadlines<K> {
    of: BTreeMap<K, Time>,
    by_time: BTreeSet<(Time, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// The first time; [`Time::NEVER`] if there is no key.
    #[must_use]
    pub fn first(&self) -> Time {
        self.by_time.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Sets the time of a key; it replaces an earlier one.
    pub fn set(&mut self, key: K, at: Time) {
        self.remove(key);
        self.of.insert(key, at);
        self.by_time.insert((at, key));
    }

    /// Removes a key, if it has a time.
    pub fn remove(&mut self, key: K) {
        if let Some(at) = self.of.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// Takes the first key whose time is over.
    pub fn take_due(&mut self, now: Time) -> Option<K> {
        let (_, key) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_due_in_the_order_of_their_times() {
        let (at, mut all) = (Time::from_millis, Deadlines::default());
        all.set(1, at(30));
        all.set(2, at(35));
        assert_eq!((all.first(), all.take_due(at(29))), (at(30), None));
        assert_eq!((all.take_due(at(30)), all.take_due(at(30))), (Some(1), None));
        assert_eq!((all.take_due(at(35)), all.first()), (Some(2), Time::NEVER));
    }

    #[test]
    fn later_time_of_a_key_replaces_the_earlier_one() {
        let (at, mut all) = (Time::from_millis, Deadlines::default());
        all.set(1, at(30));
        all.remove(1);
        assert_eq!(all.first(), Time::NEVER);
        all.set(1, at(30));
        all.set(1, at(37));
        assert_eq!((all.take_due(at(30)), all.take_due(at(37))), (None, Some(1)));
        assert_eq!((all.of.len(), all.by_time.len()), (0, 0));
    }
}
