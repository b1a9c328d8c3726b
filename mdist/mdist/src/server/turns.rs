//! Who may use something next: in the order of asking. A plain mutex lets a busy thread take it again and again while
//! another sleeps on it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that one thread uses at a time.
#[derive(Debug)]
pub(super) struct Turns<T> {
    line: Mutex<Line>,
    called: Condvar,
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct Line {
    /// Number of the next place.
    next: u64,
    /// Number of the place whose turn it is.
    served: u64,
    sleepers: u32,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Turns<T> {
    pub(super) fn new(value: T) -> Self {
        Self { line: Mutex::default(), called: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for its turn.
    pub(super) fn take(&self) -> Turn<'_, T> {
        self.queue().enter()
    }

    /// Takes a place in the line.
    pub(super) fn queue(&self) -> Place<'_, T> {
        let mut line = lock(&self.line);
        let number = line.next;
        line.next += 1;
        Place { turns: self, number, entered: false }
    }

    fn wait(&self, number: u64, limit: Option<Duration>) -> bool {
        let mut line = lock(&self.line);
        while line.served != number {
            line.sleepers += 1;
            let mut late = false;
            (line, late) = match limit {
                None => (self.called.wait(line).unwrap_or_else(PoisonError::into_inner), late),
                Some(limit) => {
                    let (line, waited) =
                        self.called.wait_timeout(line, limit).unwrap_or_else(PoisonError::into_inner);
                    (line, waited.timed_out())
                }
            };
            line.sleepers -= 1;
            if late {
                return line.served == number;
            }
        }
        true
    }

    fn pass_on(&self) {
        let mut line = lock(&self.line);
        line.served += 1;
        if line.sleepers > 0 {
            self.called.notify_all();
        }
    }
}

/// A place in the line. Dropped, it lets the next ones pass.
#[derive(Debug)]
pub(super) struct Place<'a, T> {
    turns: &'a Turns<T>,
    number: u64,
    entered: bool,
}

impl<'a, T> Place<'a, T> {
    /// Whether the turn comes in this time.
    pub(super) fn comes_within(&mut self, limit: Duration) -> bool {
        self.turns.wait(self.number, Some(limit))
    }

    /// Waits until it comes.
    pub(super) fn enter(mut self) -> Turn<'a, T> {
        self.turns.wait(self.number, None);
        self.entered = true;
        Turn { value: lock(&self.turns.value), turns: self.turns }
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        if !self.entered {
            self.turns.wait(self.number, None);
            self.turns.pass_on();
        }
    }
}

/// The use of it, until dropped.
pub(super) struct Turn<'a, T> {
    value: MutexGuard<'a, T>,
    turns: &'a Turns<T>,
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.turns.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_busy_thread_lets_others_have_their_turn() {
        let turns = Turns::new(0_u32);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut count = turns.take();
                    std::thread::sleep(Duration::from_millis(1));
                    *count += 1;
                }
            });
            for _ in 0..50 {
                let before = *turns.take();
                let mut place = turns.queue();
                while !place.comes_within(Duration::from_micros(100)) {}
                let after = *place.enter();
                assert!(after - before <= 2, "{} turns of the other", after - before);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_place_that_is_given_up_stops_nobody() {
        let turns = Turns::new(());
        drop(turns.queue());
        let (first, second) = (turns.take(), turns.queue());
        drop(first);
        drop(second);
        drop(turns.take());
    }
}
