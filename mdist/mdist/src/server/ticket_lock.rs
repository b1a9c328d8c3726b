//! A FIFO ticket lock: waiters get it in order of arrival. With a plain mutex a busy thread can take the lock again and
//! again while another one sleeps on it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A value that one thread uses at a time, in order of arrival.
#[derive(Debug)]
pub(super) struct TicketLock<T> {
    queue: Mutex<Queue>,
    advanced: Condvar,
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Number of the next ticket.
    next: u64,
    /// Number of the ticket that is served now.
    serving: u64,
    sleepers: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> TicketLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self { queue: Mutex::default(), advanced: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for the lock.
    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.ticket().lock()
    }

    /// Draws the next ticket without waiting.
    pub(super) fn ticket(&self) -> Ticket<'_, T> {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        Ticket { lock: self, number, locked: false }
    }

    /// Waits until ticket `number` is served; false if `limit` passed first.
    fn wait(&self, number: u64, limit: Option<Duration>) -> bool {
        let mut queue = lock(&self.queue);
        while queue.serving != number {
            queue.sleepers += 1;
            let mut timed_out = false;
            (queue, timed_out) = match limit {
                None => (self.advanced.wait(queue).unwrap_or_else(PoisonError::into_inner), timed_out),
                Some(limit) => {
                    let (queue, waited) =
                        self.advanced.wait_timeout(queue, limit).unwrap_or_else(PoisonError::into_inner);
                    (queue, waited.timed_out())
                }
            };
            queue.sleepers -= 1;
            if timed_out {
                return queue.serving == number;
            }
        }
        true
    }

    fn advance(&self) {
        let mut queue = lock(&self.queue);
        queue.serving += 1;
        if queue.sleepers > 0 {
            self.advanced.notify_all();
        }
    }
}

/// A place in the queue. Dropping it waits until it is served, and passes the lock on.
#[derive(Debug)]
pub(super) struct Ticket<'a, T> {
    lock: &'a TicketLock<T>,
    number: u64,
    locked: bool,
}

impl<'a, T> Ticket<'a, T> {
    /// Waits at most `limit`; true once the ticket is served.
    pub(super) fn wait_for(&self, limit: Duration) -> bool {
        self.lock.wait(self.number, Some(limit))
    }

    /// Waits until the ticket is served, and takes the lock.
    pub(super) fn lock(mut self) -> Guard<'a, T> {
        self.lock.wait(self.number, None);
        self.locked = true;
        Guard { value: lock(&self.lock.value), lock: self.lock }
    }
}

impl<T> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        if !self.locked {
            self.lock.wait(self.number, None);
            self.lock.advance();
        }
    }
}

/// Exclusive use of the value, until dropped.
pub(super) struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    lock: &'a TicketLock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.advance();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn busy_thread_cannot_overtake_a_waiter() {
        let counter = TicketLock::new(0_u32);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut count = counter.lock();
                    std::thread::sleep(Duration::from_millis(1));
                    *count += 1;
                }
            });
            for _ in 0..50 {
                let before = *counter.lock();
                let ticket = counter.ticket();
                while !ticket.wait_for(Duration::from_micros(100)) {}
                let after = *ticket.lock();
                assert!(after - before <= 2, "the busy thread had the lock {} times", after - before);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn dropped_ticket_does_not_block_the_queue() {
        let lock = TicketLock::new(());
        drop(lock.ticket());
        let (first, second) = (lock.lock(), lock.ticket());
        drop(first);
        drop(second);
        drop(lock.lock());
    }
}
