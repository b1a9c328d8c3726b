//! The timers of a value as one table, from which both its deadline and its timeout follow.

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
