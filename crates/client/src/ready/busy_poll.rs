//! Busy polling: checking sockets for messages before a program sleeps in a wait for their descriptors.

use std::time::{Duration, Instant};

use utipc_os::spin::{Mode, Spin, Spinning, Turn};

use crate::ready::Readiness;

/// Maximum number of sockets that one busy poll checks; further ones wake the program as without it.
const SOCKETS_MAX: usize = 8;
/// Checks of the sockets between two of the program's other descriptors.
const CHECKS: u32 = 32;
/// Duration of one [`BusyPoll::turn`]: about that of one turn of an event loop in an interpreted language.
const TURN: Duration = Duration::from_micros(10);

/// The result of one turn of a busy poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// A receive finds something.
    Found,
    /// Nothing yet: the caller does other work, then polls again.
    Again,
    /// It is time to sleep.
    Over,
}

/// A socket that may be polled busily.
pub trait Pollable {
    /// Its readiness; `None` if there is nothing to check.
    fn readiness(&self) -> Option<&Readiness>;
}

/// Checks sockets for messages before an event loop sleeps in `poll`, `epoll_wait` or the like for their descriptors;
/// the state of one thread, or of one event loop.
///
/// A message that comes within microseconds then costs no wake-up, as with a blocking call. A busy poll takes at most
/// 50 µs, and only while that has paid lately and not more tasks run than there are cores. It checks sockets whose
/// process receives messages from the same host; those with [`Mode::Parked`] are left out. Descriptors are right
/// whenever the program runs, so an event loop may also sleep without a busy poll.
#[derive(Debug)]
pub struct BusyPoll {
    spin: Spin,
    /// A poll has preceded the sleep.
    has_begun: bool,
    /// A poll in turns that is under way.
    spinning: Option<Spinning>,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self::with_mode(Mode::Adaptive)
    }
}

/// Checks the sockets, and calls `probe` if one has something, also now and then.
fn attempt<T>(
    mut check: impl FnMut() -> bool,
    mut probe: impl FnMut() -> Option<T>,
) -> impl FnMut() -> Option<T> {
    let mut checks = 0_u32;
    move || {
        checks += 1;
        if check() || checks.is_multiple_of(CHECKS) { probe() } else { None }
    }
}

impl BusyPoll {
    /// With [`Mode::Adaptive`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of a caller whose calls spin so.
    #[must_use]
    pub fn with_mode(mode: Mode) -> Self {
        Self { spin: Spin::new(mode), has_begun: false, spinning: None }
    }

    /// Polls `sockets`, of which the first 8 count that have been received from often. `probe` asks the kernel for
    /// events without waiting; it is called when a socket has a message, which makes its descriptor readable, and
    /// meanwhile now and then. Returns its first result; `None` if it is time to sleep.
    pub fn before_sleep<'a, T>(
        &mut self,
        sockets: impl IntoIterator<Item = &'a (impl Pollable + 'a)>,
        probe: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut polled = [None; SOCKETS_MAX];
        let candidates = sockets.into_iter().filter_map(Pollable::readiness);
        let candidates = candidates.filter(|socket| socket.may_poll_busily());
        for (place, socket) in polled.iter_mut().zip(candidates) {
            *place = Some(socket);
        }
        let awake = polled.iter().flatten().any(|socket| socket.some_sender_is_awake());
        polled[0]?;
        let spinning = self.begin(awake)?;
        let polled = polled.map(|socket| socket.filter(|socket| socket.begin_busy_poll()));
        let check = || {
            // Not `any`: a program that waits for several finds all of them.
            let found = |found, socket: &&Readiness| found | socket.check_stale().unwrap_or(true);
            polled.iter().flatten().fold(false, found)
        };
        let found = self.spin(spinning, attempt(check, probe));
        for socket in polled.iter().flatten() {
            // If the daemon has died, the descriptor hangs up.
            let _ = socket.sync_stale();
        }
        found
    }

    /// As [`BusyPoll::before_sleep`] for a caller that sees all waits of the program, and so lets descriptors stay
    /// stale between its polls. `check`: [`Readiness::check_stale`] of each. `awake`: some sender is.
    pub fn of_stale<T>(
        &mut self,
        awake: bool,
        check: impl FnMut() -> bool,
        probe: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.has_begun = true;
        self.spin.spin(awake, attempt(check, probe))
    }

    /// As [`BusyPoll::before_sleep`] for descriptors that are no sockets of utipc, as those of a TCP server: `probe`
    /// asks the kernel for events without waiting, again and again. Nothing tells whether their peers are awake, so
    /// that it polls only if the last sleep was short.
    pub fn at_descriptors<T>(&mut self, probe: impl FnMut() -> Option<T>) -> Option<T> {
        let spinning = self.begin(false)?;
        self.spin(spinning, probe)
    }

    fn begin(&mut self, awake: bool) -> Option<Spinning> {
        self.has_begun = true;
        self.spin.begin(awake)
    }

    fn spin<T>(&mut self, mut spinning: Spinning, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            match self.spin.turn(&mut spinning, &mut attempt) {
                Turn::Found(found) => return Some(found),
                Turn::Again => {}
                Turn::Over => return None,
            }
        }
    }

    /// Polls one socket for about 10 µs, for event loops that do other work between two turns. If that takes longer
    /// than 30 µs, the poll is over.
    pub fn turn(&mut self, socket: &impl Pollable) -> Polled {
        let Some(socket) = socket.readiness().filter(|socket| socket.may_poll_busily()) else {
            self.spinning = None;
            return Polled::Over;
        };
        if socket.has_input() {
            self.spinning = None;
            return Polled::Found;
        }
        if self.spinning.is_none() {
            self.spinning = self.begin(socket.some_sender_is_awake());
        }
        let Some(spinning) = self.spinning.as_mut().filter(|_| socket.begin_busy_poll()) else {
            return Polled::Over;
        };
        let began = Instant::now();
        let polled = loop {
            match self.spin.turn(spinning, || socket.has_input().then_some(())) {
                Turn::Found(()) => break Polled::Found,
                Turn::Over => break Polled::Over,
                Turn::Again if began.elapsed() >= TURN => break Polled::Again,
                Turn::Again => {}
            }
        };
        if polled != Polled::Again {
            self.spinning = None;
        }
        // If the daemon has died, the descriptor hangs up.
        let _ = socket.sync_stale();
        polled
    }

    /// Notes that the sleep after a poll has ended because there was an event.
    pub fn slept(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            self.spin.slept();
        }
    }
}

/// The busy poll of a task that waits for a socket with a stale descriptor, by the rules for the socket's calls that
/// wait. Between two turns, of about a microsecond each, the task yields: the runtime resumes it after it has run all
/// tasks that are ready and has polled its descriptors and timers. If that takes long, the runtime has other work, and
/// the poll is over.
#[derive(Debug, Default)]
pub struct TaskPoll {
    spinning: Option<Spinning>,
    /// A poll has preceded the sleep.
    has_begun: bool,
}

impl TaskPoll {
    /// One turn, the first of which begins the poll.
    pub fn turn(&mut self, socket: &impl Pollable) -> Polled {
        let Some(socket) = socket.readiness().filter(|socket| socket.is_stale()) else {
            self.spinning = None;
            return Polled::Over;
        };
        let awake = self.spinning.is_none() && socket.some_sender_is_awake();
        // Of several threads only one polls.
        let mut spin = socket.base.state.inbox.spin.try_lock().ok();
        if self.spinning.is_none() {
            self.has_begun = true;
            self.spinning = spin.as_mut().and_then(|spin| spin.begin(awake));
        }
        let Some(mut spinning) = self.spinning.take() else {
            return if socket.has_input() { Polled::Found } else { Polled::Over };
        };
        let Some(spin) = &mut spin else { return Polled::Over };
        match spin.turn(&mut spinning, || socket.has_input().then_some(())) {
            Turn::Found(()) => Polled::Found,
            Turn::Again => {
                self.spinning = Some(spinning);
                Polled::Again
            }
            // The next turn begins another poll.
            Turn::Over if spin.mode() == Mode::Busy => Polled::Again,
            Turn::Over => Polled::Over,
        }
    }

    /// Notes that the wait for the descriptor has ended.
    pub fn slept(&mut self, socket: &impl Pollable) {
        if std::mem::take(&mut self.has_begun)
            && let Some(socket) = socket.readiness()
            && let Ok(mut spin) = socket.base.state.inbox.spin.try_lock()
        {
            spin.slept();
        }
    }
}
