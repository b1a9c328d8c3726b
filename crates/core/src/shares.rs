//! Shares of a thread: users who have work for one thread take turns, each for the same time.
//!
//! Deficit round robin: each round gives every user with work the same time, and the time that its work has taken is
//! charged to it afterwards. A step that took longer than the user's time leaves a debt, which its next rounds pay. A
//! user without work keeps the rest of its time: when it has work again, it is next. So a user with any amount of work
//! delays one who has little by one step, and every other one by one step and one slice of each user at most.

use std::collections::{BTreeMap, VecDeque};

use crate::quota::UserId;

/// Time of one user in one round, nanoseconds. Ours: some ten requests; 20 users of a host wait 2 ms for each other.
pub const SLICE_NS: i64 = 100_000;

/// Largest debt of a user, nanoseconds: a step of the system that took long, such as one without a processor, must not
/// exclude its user for ever.
const DEBT_MAX_NS: i64 = 100 * SLICE_NS;

/// The work of one user.
#[derive(Debug)]
struct Share<J> {
    jobs: VecDeque<J>,
    /// Time that is left of this round; negative: a debt.
    left_ns: i64,
}

/// Work of users, in the order in which it is done. A job is one bounded step; one that is not complete is pushed
/// again.
#[derive(Debug)]
pub struct Shares<J> {
    users: BTreeMap<UserId, Share<J>>,
    /// Users with jobs, the one whose turn it is first.
    turns: VecDeque<UserId>,
    jobs: usize,
}

impl<J> Default for Shares<J> {
    fn default() -> Self {
        Self { users: BTreeMap::new(), turns: VecDeque::new(), jobs: 0 }
    }
}

impl<J> Shares<J> {
    /// Adds a job behind the other jobs of its user.
    pub fn push(&mut self, user: UserId, job: J) {
        let share = self.users.entry(user).or_insert(Share { jobs: VecDeque::new(), left_ns: SLICE_NS });
        if share.jobs.is_empty() {
            if share.left_ns > 0 {
                self.turns.push_front(user);
            } else {
                self.turns.push_back(user);
            }
        }
        share.jobs.push_back(job);
        self.jobs += 1;
    }

    /// Takes the next job of the user whose turn it is. [`Self::charge`] the time that it takes.
    pub fn take(&mut self) -> Option<(UserId, J)> {
        loop {
            let user = *self.turns.front()?;
            let is_alone = self.turns.len() == 1;
            let Some(share) = self.users.get_mut(&user) else {
                self.turns.pop_front();
                continue;
            };
            if share.left_ns <= 0 {
                // A user who is alone delays no other.
                share.left_ns = if is_alone { SLICE_NS } else { share.left_ns + SLICE_NS };
                self.turns.rotate_left(1);
                continue;
            }
            let job = share.jobs.pop_front();
            if share.jobs.is_empty() {
                self.turns.pop_front();
            }
            let Some(job) = job else { continue };
            self.jobs -= 1;
            return Some((user, job));
        }
    }

    /// Charges a user for the time of a job.
    pub fn charge(&mut self, user: UserId, ns: u64) {
        let Some(share) = self.users.get_mut(&user) else { return };
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        share.left_ns = share.left_ns.saturating_sub(ns).max(-DEBT_MAX_NS);
    }

    /// Forgets the debt of a user who has no work and will have none: its last process has left.
    pub fn forget(&mut self, user: UserId) {
        if self.users.get(&user).is_some_and(|share| share.jobs.is_empty()) {
            self.users.remove(&user);
        }
    }

    /// Number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs
    }

    /// Whether there is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: UserId = UserId(1);
    const B: UserId = UserId(2);

    /// Takes jobs, each of which takes as many microseconds as its number and is pushed again, for so many
    /// microseconds; returns the time of each user.
    fn run(shares: &mut Shares<u64>, micros: u64) -> [u64; 2] {
        let mut spent = [0; 2];
        while spent[0] + spent[1] < micros {
            let (user, job) = shares.take().unwrap();
            shares.charge(user, job * 1000);
            spent[usize::from(user == B)] += job;
            shares.push(user, job);
        }
        spent
    }

    #[test]
    fn users_with_work_get_the_same_time_whatever_their_number_of_jobs_and_their_length() {
        for (a, b) in
            [(vec![10; 2000], vec![10; 40]), (vec![1000; 3], vec![3; 400]), (vec![5; 70], vec![90; 1000])]
        {
            let mut shares = Shares::default();
            a.iter().for_each(|job| shares.push(A, *job));
            b.iter().for_each(|job| shares.push(B, *job));
            let [of_a, of_b] = run(&mut shares, 100_000);
            assert!(of_a.abs_diff(of_b) <= 2000, "{of_a} and {of_b}");
        }
    }

    #[test]
    fn job_of_another_user_waits_for_one_slice() {
        let mut shares = Shares::default();
        (0..2000).for_each(|_| shares.push(A, 10));
        run(&mut shares, 5000);
        shares.push(B, 1);
        let mut before = 0;
        while let Some((A, job)) = shares.take() {
            shares.charge(A, job * 1000);
            before += job;
        }
        assert!(before <= SLICE_NS as u64 / 1000, "{before}");
    }

    #[test]
    fn debt_is_bounded_and_costs_a_user_alone_nothing() {
        let mut shares = Shares::default();
        shares.push(A, 0);
        assert_eq!(shares.take(), Some((A, 0)));
        shares.charge(A, u64::MAX);
        shares.push(A, 1);
        assert_eq!(shares.take(), Some((A, 1)));
        shares.charge(A, u64::MAX);
        shares.push(A, 2);
        (0..1000).for_each(|job| shares.push(B, job));
        let mut slices = 0;
        while let Some((B, _)) = shares.take() {
            shares.charge(B, SLICE_NS as u64);
            slices += 1;
        }
        assert_eq!(slices, 102, "one at once, and one in each of the 101 rounds until A has time again");
    }

    #[test]
    fn jobs_are_counted_and_users_forgotten() {
        let mut shares = Shares::default();
        assert!(shares.is_empty() && shares.take().is_none());
        shares.push(A, 1);
        shares.forget(A);
        assert_eq!((shares.len(), shares.take()), (1, Some((A, 1))));
        shares.charge(A, 1);
        shares.forget(A);
        assert!(shares.users.is_empty() && shares.turns.is_empty() && shares.is_empty());
    }
}
