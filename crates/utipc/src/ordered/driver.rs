//! The thread of a membership, and what it shares with the calls of the application.
//!
//! The thread reads the socket and keeps the times of the protocol. A call that sends or receives works on the same
//! value under its lock, and sends on its own thread; it wakes the membership's thread only if there is more to do
//! before that would wake by itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use utipc_os::reactor::{Interest, Reactor, Waker};
use utipc_os::{Deadline, Left, OsError, fork, lock};

use super::link::Reading;
use super::membership::Membership;
use crate::{Error, Result, Socket};

/// Pause of a thread that reads no more until it has sent.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// Longest time that a call which sends is taken to need, for [`Pace`]: that of a daemon's reply on a busy host.
const SEND_LIMIT: Duration = Duration::from_micros(50);

/// Tells a program that sends now and then from one that sends all the time. The first one's messages go out at once.
/// The second one's share packets, which the thread sends: a packet costs far more than a message in it.
#[derive(Debug)]
struct Pace {
    /// When the last call that sent ended.
    last: Instant,
    /// How long a call needs that sends its message at once.
    cost: Duration,
}

impl Pace {
    /// Whether the program has done something else for as long as a message of its own takes.
    fn is_slow(&self) -> bool {
        self.last.elapsed() >= self.cost
    }

    /// A call ends; `began` is when it began to send its message.
    fn end(&mut self, began: Option<Instant>) {
        self.last = Instant::now();
        if let Some(began) = began {
            self.cost = (self.last - began).min(SEND_LIMIT);
        }
    }
}

/// What the lock protects.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) membership: Membership,
    /// The value is dropped: the thread ends.
    stop: bool,
    /// The descriptor shows that there is something to receive.
    shown: bool,
    /// The thread has been woken and has not run since.
    woken: bool,
    /// Calls that wait for a change.
    waiting: usize,
    pace: Pace,
}

/// The state of a membership, for its thread and the calls.
#[derive(Debug)]
pub(super) struct Shared {
    guarded: Mutex<Guarded>,
    changed: Condvar,
    /// Readable while there is something to receive.
    pub(super) ready: Waker,
    /// Wakes the thread.
    waker: Waker,
    /// The process that the thread is in.
    generation: u32,
}

/// Starts the thread of a membership with this socket.
pub(super) fn start(
    socket: Socket,
    build: impl FnOnce(Socket) -> Membership,
) -> Result<(Arc<Shared>, JoinHandle<()>)> {
    fork::count()?;
    let reactor = Reactor::new()?;
    reactor.add(socket.descriptor()?, 0, Interest::Read)?;
    let guarded = Guarded {
        membership: build(socket),
        stop: false,
        shown: false,
        woken: false,
        waiting: 0,
        pace: Pace { last: Instant::now(), cost: Duration::ZERO },
    };
    let shared = Arc::new(Shared {
        guarded: Mutex::new(guarded),
        changed: Condvar::new(),
        ready: Waker::new()?,
        waker: reactor.waker(),
        generation: fork::generation(),
    });
    let for_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("utipc-ordered".to_owned())
        .spawn(move || run(&for_thread, reactor))
        .map_err(|cause| OsError::new("start", "the thread of an ordered group", cause))?;
    Ok((shared, thread))
}

fn run(shared: &Shared, mut reactor: Reactor) {
    let mut events = Vec::new();
    let mut readable = true;
    loop {
        let mut guarded = lock(&shared.guarded);
        guarded.woken = false;
        let reading = if readable { guarded.membership.receive() } else { Reading::Done };
        guarded.membership.turn();
        shared.publish(&mut guarded);
        if guarded.stop || guarded.membership.is_over() {
            let link = guarded.membership.close();
            // Closing the socket may take time; calls need not wait for it.
            drop(guarded);
            drop(link);
            return;
        }
        readable = reading != Reading::Done;
        let sleep = if readable { Some(Duration::ZERO) } else { guarded.membership.sleep() };
        drop(guarded);
        if reading == Reading::Backlog {
            // The socket stays readable, so it cannot be waited for.
            std::thread::sleep(BACKLOG_PAUSE);
        }
        if let Err(error) = reactor.wait(sleep, &mut events) {
            lock(&shared.guarded).membership.fail(Error::System(error));
        }
        readable |= !events.is_empty();
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.guarded)
    }

    /// Whether this is the process that joined.
    pub(super) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Shows a change of the membership to calls that wait and to the descriptor.
    fn publish(&self, guarded: &mut Guarded) {
        let readable = guarded.membership.is_readable();
        if readable != guarded.shown {
            guarded.shown = readable;
            if readable { self.ready.wake() } else { self.ready.drain() }
        }
        if guarded.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Ends a call that has changed the membership: sends what it caused, and leaves the rest to the thread.
    pub(super) fn finish(&self, guarded: &mut Guarded) {
        guarded.membership.turn();
        self.publish(guarded);
        if guarded.membership.deadline() < guarded.membership.sleeps_until || guarded.membership.is_over() {
            self.wake(guarded);
        }
    }

    /// Ends a call that has sent a message, which shares a packet with others if the program sends all the time or much
    /// is in flight.
    pub(super) fn finish_send(&self, guarded: &mut Guarded) {
        let began = (guarded.pace.is_slow() && guarded.membership.is_idle()).then(Instant::now);
        if began.is_some() {
            self.finish(guarded)
        } else {
            self.wake(guarded)
        }
        guarded.pace.end(began);
    }

    fn wake(&self, guarded: &mut Guarded) {
        if !std::mem::replace(&mut guarded.woken, true) {
            self.waker.wake();
        }
    }

    /// Waits for the next change, at most until `end`; returns whether there is time left.
    pub(super) fn wait<'a>(
        &'a self,
        mut guarded: MutexGuard<'a, Guarded>,
        end: Deadline,
    ) -> (MutexGuard<'a, Guarded>, bool) {
        let Left::Time(left) = end.left() else { return (guarded, false) };
        guarded.waiting += 1;
        guarded = match left {
            None => self.changed.wait(guarded).unwrap_or_else(PoisonError::into_inner),
            Some(left) => self.changed.wait_timeout(guarded, left).unwrap_or_else(PoisonError::into_inner).0,
        };
        guarded.waiting -= 1;
        (guarded, true)
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        let mut guarded = self.lock();
        guarded.stop = true;
        self.wake(&mut guarded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_pauses_sends_at_once_and_one_that_does_not_shares_packets() {
        let long = Duration::from_secs(3600);
        let mut pace = Pace { last: Instant::now(), cost: Duration::ZERO };
        assert!(pace.is_slow());
        pace.cost = long;
        assert!(!pace.is_slow());
        // One call that took long, as on a busy host, does not make all later ones wait.
        pace.end(Instant::now().checked_sub(Duration::from_secs(1)));
        assert_eq!(pace.cost, SEND_LIMIT);
        // A call that left its message to the thread tells nothing about the time.
        pace.end(None);
        assert_eq!(pace.cost, SEND_LIMIT);
    }
}
