//! The requests that wait for an item's image, each once, in order.

use std::collections::HashSet;

use super::Waiter;

/// Lists up to this length are searched; a longer one has a set besides. Most items have few waiters, and an empty set
/// would add its size to each of millions of items.
const SEARCHED: usize = 16;

/// Waiters of one item. One consumer may request an item a million times, so adding takes constant time.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a set takes 48 bytes in each of millions of items, a box 8")]
pub(in crate::hub) struct Waiters {
    list: Vec<Waiter>,
    /// The same waiters, if there are more than [`SEARCHED`].
    known: Option<Box<HashSet<Waiter>>>,
}

impl Waiters {
    /// Adds a waiter that is not there yet.
    pub(in crate::hub) fn add(&mut self, waiter: Waiter) {
        let is_new = match &mut self.known {
            Some(known) => known.insert(waiter),
            None => {
                #[cfg(test)]
                COMPARED.with(|compared| compared.set(compared.get() + self.list.len()));
                !self.list.contains(&waiter)
            }
        };
        if is_new {
            self.list.push(waiter);
        }
        if self.known.is_none() && self.list.len() > SEARCHED {
            self.known = Some(Box::new(self.list.iter().copied().collect()));
        }
    }

    /// Whether there is none.
    pub(in crate::hub) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The waiters, in order.
    pub(in crate::hub) fn iter(&self) -> std::slice::Iter<'_, Waiter> {
        self.list.iter()
    }

    /// Takes all waiters.
    pub(in crate::hub) fn take(&mut self) -> Vec<Waiter> {
        std::mem::take(self).list
    }

    /// Takes the waiters for which `wanted` holds.
    pub(in crate::hub) fn take_where(&mut self, wanted: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let taken: Vec<_> = self.list.extract_if(.., |waiter| wanted(waiter)).collect();
        if let Some(known) = &mut self.known {
            known.retain(|waiter| !wanted(waiter));
        }
        taken
    }
}

#[cfg(test)]
thread_local! {
    /// Waiters that [`Waiters::add`] has searched.
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::SideId;

    fn waiter(token: u64) -> Waiter {
        Waiter { side: SideId(0), token, snapshot: token.is_multiple_of(2) }
    }

    #[test]
    fn adding_a_waiter_searches_a_bounded_number_of_others() {
        let mut waiters = Waiters::default();
        for token in (0..100_000).chain(0..100_000) {
            waiters.add(waiter(token));
        }
        assert_eq!(waiters.iter().count(), 100_000, "each is kept once");
        assert!(COMPARED.with(std::cell::Cell::get) <= SEARCHED * (SEARCHED + 1));
    }

    #[test]
    fn taken_waiters_can_be_added_again_in_order() {
        for count in [4, 40] {
            let mut waiters = Waiters::default();
            (0..count).for_each(|token| waiters.add(waiter(token)));
            let even = waiters.take_where(|waiter| waiter.snapshot);
            assert_eq!(even.len() as u64, count / 2);
            even.into_iter().for_each(|waiter| waiters.add(waiter));
            let tokens: Vec<_> = waiters.take().into_iter().map(|waiter| waiter.token).collect();
            let (odd, even) = tokens.split_at(tokens.len() / 2);
            assert!(odd.iter().all(|token| token % 2 == 1) && even.iter().all(|token| token % 2 == 0));
            assert!(odd.is_sorted() && even.is_sorted() && waiters.is_empty());
        }
    }
}
