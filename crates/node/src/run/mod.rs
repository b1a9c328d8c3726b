//! Who turns the loop.
//!
//! 1. A call that can be answered at once is: it locks the driver, acts, sends its frames and returns.
//! 2. A call that has to wait becomes the *driver*, if no other call is: it waits in the event loop itself, without the
//!    lock, and turns the loop until its condition holds. No other thread has to run for its message to arrive.
//! 3. Other calls wait on their socket's slot and are woken when its readiness changes. A driver that leaves hands over
//!    to one of them.
//! 4. The *supervisor*, a background thread, drives while no call is in progress. While calls come and go it only
//!    looks every `TICK` (2 ms); so nothing changes hands between one message and the next.
//!
//! A caller takes over from the supervisor without waking it: both have an event loop of their own on the same
//! descriptors, and a supervisor that wakes up to find itself replaced goes back to rule 4.
//!
//! While frames come from one peer alone, a driver waits on the *express way* of the bearer instead: it sleeps in the
//! system call that reads the next frame. Meanwhile the supervisor watches all other descriptors.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::pollable::Pollable;
use utipc_os::reactor::{Reactor, Waker};
use utipc_os::udp::Express;
use utipc_os::{OsError, Wait, fork};

use crate::bearers;
use crate::driver::{DrivenBy, NodeConfig, NodeDriver, Sleeper, Slot, Waiting, Want, now};
use crate::observe::Counters;

/// How often the supervisor looks while calls come and go: the longest that an arrived frame waits when no thread is
/// in a call.
const TICK: Duration = Duration::from_millis(2);

/// The same while messages wait for acknowledgements to leave. While calls come they look themselves.
const HURRIED_TICK: Duration = Duration::from_micros(500);

/// The longest that calls which never wait leave the wire alone, nanoseconds.
const LOOK_NS: u128 = 500_000;

/// Frames that are there after so short a wait came before it began.
const SHORT_WAIT: Duration = Duration::from_micros(4);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system refused something; the text says what to do.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A bearer cannot be opened.
    #[error(transparent)]
    Bearer(#[from] bearers::BearerError),
    /// A bearer's properties are out of range.
    #[error(transparent)]
    Property(#[from] utipc_core::config::BearerError),
    /// No thread for the supervisor.
    #[error("cannot start the node's background thread: {0} (raise the limit of threads, `ulimit -u`)")]
    Thread(std::io::Error),
}

/// When a wait that begins `now` ends.
fn end_of(wait: Wait, now: Time) -> Time {
    match wait {
        Wait::Never => now,
        Wait::AtMost(limit) => now + limit,
        Wait::Forever => Time::NEVER,
    }
}

/// A running node; clones are handles on the same one. When the last is gone it leaves the cluster.
#[derive(Clone)]
pub struct Node {
    running: Arc<Running>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

struct Running {
    shared: Arc<Shared>,
    /// The process that started it, see [`fork::generation`].
    generation: u32,
    supervisor: Option<JoinHandle<()>>,
}

struct Shared {
    driver: Mutex<NodeDriver>,
    /// Where the supervisor sleeps while others drive.
    supervisor: Condvar,
    /// Of the callers' event loop, of the supervisor's, and of the one in which it watches what a driver on an express
    /// way does not.
    wakers: [Waker; 3],
    /// What programs with a loop of their own wait for.
    outside: OnceLock<Reactor>,
}

type Guard<'a> = MutexGuard<'a, NodeDriver>;

impl Node {
    /// Starts a node: enables its bearers and begins to look for neighbours.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        let label: Arc<str> = config.label.as_str().into();
        let mut driver = NodeDriver::new(config, Arc::clone(&label))?;
        let (own, others) = (Reactor::new()?, Reactor::new()?);
        driver.watch(&own, true)?;
        driver.watch(&others, false)?;
        let mut wakers = [own.waker(), own.waker(), others.waker()];
        if let Some(callers) = &driver.idle {
            driver.watch(&callers.reactor, true)?;
            wakers[0] = callers.reactor.waker();
        }
        driver.settle();
        fork::count()?;
        let shared = Arc::new(Shared {
            driver: Mutex::new(driver),
            supervisor: Condvar::new(),
            wakers,
            outside: OnceLock::new(),
        });
        let supervised = Arc::clone(&shared);
        let supervisor = std::thread::Builder::new()
            .name(format!("utipc {label}").trim_end().to_owned())
            .spawn(move || supervised.supervise(own, others))
            .map_err(StartError::Thread)?;
        Ok(Node {
            running: Arc::new(Running {
                shared,
                generation: fork::generation(),
                supervisor: Some(supervisor),
            }),
        })
    }

    /// Whether this process started it. A forked child has a copy that it must not use: descriptors are the parent's too,
    /// and threads and locks of the parent are not in the child.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.running.generation == fork::generation()
    }

    /// Runs one command on the node, sends what it caused and returns its result.
    pub fn with<T>(&self, command: impl FnOnce(&mut Stack, Time) -> T) -> T {
        let shared = &self.running.shared;
        let mut driver = shared.lock();
        driver.calls += 1;
        let now = now();
        let result = command(&mut driver.stack, now);
        shared.leave_call(driver, now);
        result
    }

    /// Asks the node something that changes nothing.
    pub fn ask<T>(&self, question: impl FnOnce(&Stack) -> T) -> T {
        question(&self.running.shared.lock().stack)
    }

    /// Tries `attempt` until it yields something or `wait` is over, and drives the node meanwhile. `attempt` is called
    /// again whenever the readiness of the slot's socket may have changed. It tells that it has to wait by `None`.
    pub fn block<T>(
        &self,
        slot: &Arc<Slot>,
        want: Want,
        wait: Wait,
        attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        self.running.shared.block(slot, want, wait, attempt)
    }

    /// The slot of a socket, to wait for it.
    #[must_use]
    pub fn slot(&self, port: u32) -> Arc<Slot> {
        self.running.shared.lock().slot(port)
    }

    /// The slot of those who wait for nodes, links and the like: [`Node::block`] with it looks again after each event.
    #[must_use]
    pub fn observers(&self) -> Arc<Slot> {
        Arc::clone(&self.running.shared.lock().observers)
    }

    /// Closes a socket: the node does the rest (what was not read goes back to its sender).
    pub fn close(&self, port: u32) {
        let shared = &self.running.shared;
        let mut driver = shared.lock();
        let now = now();
        driver.stack.close(now, port);
        driver.forget(port);
        shared.leave_call(driver, now);
    }

    /// The descriptor that reports the readiness of a socket; made at the first call, then kept up to date.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn pollable<'a>(&self, port: u32, slot: &'a Slot) -> Result<&'a Pollable, OsError> {
        if let Some(pollable) = slot.pollable.get() {
            return Ok(pollable);
        }
        let fresh = Pollable::new()?;
        let shared = &self.running.shared;
        let mut driver = shared.lock();
        let pollable = slot.pollable.get_or_init(|| {
            driver.polled += 1;
            fresh
        });
        driver.level(port, slot);
        // From now on somebody must look at the wire while no call is in progress.
        shared.rouse(&driver);
        Ok(pollable)
    }

    /// Takes what has come and does what is due, without waiting: for programs with a loop of their own, in which they
    /// wait for [`Node::descriptor`]. How long they may wait there; `None`: until it is readable.
    pub fn poll(&self) -> Option<Duration> {
        let shared = &self.running.shared;
        let mut driver = shared.lock();
        driver.calls += 1;
        let now = now();
        driver.receive_all(now);
        driver.handle_timeout(now);
        let due = driver.stack.deadline();
        shared.leave_call(driver, now);
        due.map(|due| due.since(now))
    }

    /// Drives the node until something has happened to one of its sockets, or to a node or link; false if nothing has
    /// while `wait` lasted. Meant for a program with one such thread: what another driver brings does not end it.
    pub fn drive(&self, wait: Wait) -> bool {
        let happened = |stack: &mut Stack, _| stack.has_ready().then_some(());
        self.block(&self.observers(), Want::Change, wait, happened).is_some()
    }

    /// Readable while there is something to take for [`Node::poll`]; made at the first call.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, OsError> {
        let shared = &self.running.shared;
        if let Some(outside) = shared.outside.get() {
            return Ok(outside.as_fd());
        }
        let fresh = Reactor::new()?;
        shared.lock().watch(&fresh, true)?;
        Ok(shared.outside.get_or_init(|| fresh).as_fd())
    }

    /// What the node has counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.running.shared.lock().counters()
    }
}

impl Shared {
    /// A thread that panicked in a call left the driver between two turns; it is whole.
    fn lock(&self) -> Guard<'_> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a call that did not wait.
    fn leave_call(&self, mut driver: Guard<'_>, now: Time) {
        if driver.driven_by == DrivenBy::Supervisor && driver.polled == 0 {
            // Where one call is, others follow: they look at the wire themselves, and nobody is woken by each frame.
            driver.driven_by = DrivenBy::None;
            driver.armed = Time::ZERO;
        }
        if now.since(driver.looked).as_nanos() > LOOK_NS && driver.driven_by == DrivenBy::None {
            driver.receive_all(now);
            driver.handle_timeout(now);
        }
        driver.settle();
        if driver.stack.take_backlogged() {
            self.hurry(&mut driver, now);
        }
        if driver.must_wake() {
            self.wake(driver);
        }
    }

    /// The caller leaves messages behind that wait for acknowledgements: should it not come back soon, the supervisor
    /// receives them.
    fn hurry(&self, driver: &mut Guard<'_>, now: Time) {
        if driver.hurry <= now && driver.driven_by == DrivenBy::None {
            self.rouse(driver);
        }
        driver.hurry = now + TICK;
    }

    fn wake(&self, mut driver: Guard<'_>) {
        let sleeper = driver.sleeper();
        drop(driver);
        self.wake_sleeper(sleeper);
    }

    fn wake_sleeper(&self, sleeper: Sleeper) {
        match sleeper {
            Sleeper::None => {}
            Sleeper::Express(way) => way.wake(),
            Sleeper::Caller => self.wakers[0].wake(),
            Sleeper::Supervisor => self.wakers[1].wake(),
        }
    }

    /// Makes the supervisor look who drives.
    fn rouse(&self, driver: &NodeDriver) {
        if driver.others_watched {
            self.wakers[2].wake();
        }
        self.supervisor.notify_one();
    }

    fn block<T>(
        &self,
        slot: &Arc<Slot>,
        want: Want,
        wait: Wait,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut driver = self.lock();
        driver.calls += 1;
        let mut time = now();
        let until = end_of(wait, time);
        if let Some(done) = attempt(&mut driver.stack, time) {
            self.leave_call(driver, time);
            return Some(done);
        }
        if wait == Wait::Never {
            return self.look(driver, time, attempt);
        }
        loop {
            if driver.driven_by != DrivenBy::Caller {
                return self.drive(driver, (slot, want), (time, until), attempt);
            }
            driver.settle();
            if driver.must_wake() {
                let sleeper = driver.sleeper();
                self.wake_sleeper(sleeper);
            }
            driver = self.wait(driver, slot, want, until.since(time));
            time = now();
            if let Some(done) = attempt(&mut driver.stack, time) {
                self.pass_on(&mut driver);
                self.leave_call(driver, time);
                return Some(done);
            }
            if time >= until {
                self.pass_on(&mut driver);
                self.leave_call(driver, time);
                return None;
            }
        }
    }

    /// A call that may not wait looks at the wire once: a loop of such calls drives the node.
    fn look<T>(
        &self,
        mut driver: Guard<'_>,
        now: Time,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        driver.glance_all(now);
        driver.handle_timeout(now);
        let done = attempt(&mut driver.stack, now);
        self.leave_call(driver, now);
        done
    }

    /// Waits on the slot, while another thread drives.
    fn wait<'a>(&self, mut driver: Guard<'a>, slot: &Arc<Slot>, want: Want, limit: Duration) -> Guard<'a> {
        slot.enter(want);
        slot.sleep();
        driver.waiting.push(Arc::clone(slot));
        // A cap far beyond any real limit, because a condition variable cannot add the largest ones to a clock.
        let limit = limit.min(Duration::from_secs(86_400));
        driver = slot.ready.wait_timeout(driver, limit).unwrap_or_else(PoisonError::into_inner).0;
        slot.awake();
        slot.leave(want);
        if let Some(at) = driver.waiting.iter().position(|other| Arc::ptr_eq(other, slot)) {
            driver.waiting.swap_remove(at);
        }
        driver
    }

    /// Somebody else has to drive, if nobody does.
    fn pass_on(&self, driver: &mut Guard<'_>) {
        if driver.driven_by != DrivenBy::None {
            return;
        }
        match driver.waiting.first() {
            Some(slot) => slot.ready.notify_one(),
            None => self.rouse(driver),
        }
    }

    /// Turns the loop on the calling thread until `attempt` yields something.
    fn drive<'a, T>(
        &'a self,
        mut driver: Guard<'a>,
        (slot, want): (&Arc<Slot>, Want),
        (mut time, until): (Time, Time),
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut waiting = driver.idle.take()?;
        driver.driven_by = DrivenBy::Caller;
        driver.drives += 1;
        slot.enter(want);
        driver.settle();
        driver.driving = Some(Arc::clone(slot));
        let mut express = None;
        // More than one read is worth a try only where frames come faster than they are taken.
        let mut most = 1;
        let done = loop {
            let pause = driver.pause(time, until);
            let spin_until = (!driver.spin.is_zero()).then(|| time + driver.spin);
            let way = driver.way(pause);
            if express.is_none() {
                express = way.and_then(|way| Some((way, driver.express(way)?)));
            }
            if let Some((way, express)) = express.as_ref().filter(|(open, _)| way == Some(*open)) {
                driver.direct = Some(*way);
                if driver.supervisor_sleeps && !driver.others_watched {
                    self.rouse(&driver);
                }
                drop(driver);
                let read = wait_express(express, &mut waiting, most, pause, spin_until);
                driver = self.lock();
                driver.direct = None;
                let before = time;
                time = now();
                most = if time.since(before) < SHORT_WAIT { usize::MAX } else { 1 };
                driver.receive_express(time, *way, read.map(|()| &waiting.ring));
            } else {
                drop(driver);
                let waited = wait_events(&mut waiting, pause, spin_until);
                driver = self.lock();
                time = now();
                if waited.is_err() {
                    driver.receive_all(time);
                }
                driver.receive(time, &waiting.ready);
            }
            driver.handle_timeout(time);
            let mut done = attempt(&mut driver.stack, time);
            if done.is_none()
                && driver.stack.frames().only_acknowledges()
                && let Some((way, express)) = &express
                && express.look(&mut waiting.ring, usize::MAX).is_ok()
                && waiting.ring.filled() > 0
            {
                // One acknowledgement for this and for what came meanwhile.
                driver.receive_express(time, *way, Ok(&waiting.ring));
                done = attempt(&mut driver.stack, time);
            }
            driver.settle();
            // Whatever has come, it was looked at just now.
            driver.recall = false;
            if done.is_some() || time >= until {
                break done;
            }
        };
        slot.leave(want);
        driver.driving = None;
        driver.armed = Time::ZERO;
        driver.idle = Some(waiting);
        driver.driven_by = DrivenBy::None;
        if !driver.waiting.is_empty() || driver.supervisor_sleeps || driver.polled > 0 {
            self.pass_on(&mut driver);
        }
        done
    }

    /// The background thread.
    fn supervise(&self, mut reactor: Reactor, mut others: Reactor) {
        let mut driver = self.lock();
        let (mut calls, mut drives) = (driver.calls, 0);
        while !driver.stop {
            match driver.driven_by {
                DrivenBy::None if driver.calls == calls || driver.polled > 0 => {
                    driver = self.supervise_alone(driver, &mut reactor);
                    calls = driver.calls;
                }
                DrivenBy::None => {
                    calls = driver.calls;
                    let time = now();
                    driver.receive_all(time);
                    driver.handle_timeout(time);
                    driver.settle();
                    let tick = if time < driver.hurry { HURRIED_TICK } else { TICK };
                    driver = self.rest(driver, Some(tick));
                }
                _ if driver.drives == drives && driver.direct.is_some() => {
                    driver = self.watch_others(driver, &mut others);
                }
                _ if driver.drives == drives => driver = self.rest(driver, None),
                _ => {
                    drives = driver.drives;
                    if driver.direct.is_some() {
                        // Calls come and go on an express way: this is the look at all others.
                        driver.receive_others(now());
                        driver = self.after_look(driver);
                    }
                    driver = self.rest(driver, Some(TICK));
                }
            }
        }
    }

    /// Waits for what comes by other ways than the one on which a driver waits.
    fn watch_others<'a>(&'a self, mut driver: Guard<'a>, others: &mut Reactor) -> Guard<'a> {
        (driver.supervisor_sleeps, driver.others_watched) = (true, true);
        drop(driver);
        let mut ready = Vec::new();
        let waited = others.wait(None, &mut ready);
        driver = self.lock();
        (driver.supervisor_sleeps, driver.others_watched) = (false, false);
        if ready.is_empty() && waited.is_ok() {
            return driver;
        }
        driver.receive_others(now());
        // Frames come by other ways too: the event loop is the place to wait for the driver.
        driver.cool();
        self.after_look(driver)
    }

    /// Sends and tells what came of a look while another thread drives.
    fn after_look<'a>(&'a self, mut driver: Guard<'a>) -> Guard<'a> {
        driver.settle();
        if driver.must_wake() {
            self.wake(driver);
            return self.lock();
        }
        driver
    }

    fn rest<'a>(&self, mut driver: Guard<'a>, limit: Option<Duration>) -> Guard<'a> {
        if driver.stop {
            return driver;
        }
        let Some(limit) = limit else {
            driver.supervisor_sleeps = true;
            driver = self.supervisor.wait(driver).unwrap_or_else(PoisonError::into_inner);
            driver.supervisor_sleeps = false;
            return driver;
        };
        self.supervisor.wait_timeout(driver, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Turns the loop while no call is in progress.
    fn supervise_alone<'a>(&'a self, mut driver: Guard<'a>, reactor: &mut Reactor) -> Guard<'a> {
        driver.driven_by = DrivenBy::Supervisor;
        let mut ready = Vec::new();
        let mut time = now();
        while driver.driven_by == DrivenBy::Supervisor && !driver.stop {
            let pause = driver.pause(time, Time::NEVER);
            drop(driver);
            let waited = reactor.wait(pause, &mut ready);
            driver = self.lock();
            if driver.driven_by != DrivenBy::Supervisor {
                break;
            }
            time = now();
            if waited.is_err() {
                driver.receive_all(time);
            }
            driver.receive(time, &ready);
            driver.handle_timeout(time);
            driver.settle();
        }
        if driver.driven_by == DrivenBy::Supervisor {
            driver.driven_by = DrivenBy::None;
        }
        driver
    }
}

/// Waits on an express way, without the driver: its frames are in the ring.
fn wait_express(
    way: &Express,
    waiting: &mut Waiting,
    most: usize,
    pause: Option<Duration>,
    spin_until: Option<Time>,
) -> std::io::Result<()> {
    while spin_until.is_some_and(|end| now() < end) {
        way.look(&mut waiting.ring, most)?;
        if waiting.ring.filled() > 0 {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    way.wait(&mut waiting.ring, most, pause)
}

/// Waits in the event loop, without the driver: what is ready is in the list.
fn wait_events(
    waiting: &mut Waiting,
    pause: Option<Duration>,
    spin_until: Option<Time>,
) -> Result<(), OsError> {
    while spin_until.is_some_and(|end| now() < end) {
        let woken = waiting.reactor.wait(Some(Duration::ZERO), &mut waiting.ready)?;
        if woken || !waiting.ready.is_empty() {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    waiting.reactor.wait(pause, &mut waiting.ready).map(|_| ())
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The parent's node lives on; its thread is not in this process, and its locks may be taken for ever.
            std::mem::forget(self.supervisor.take());
            return;
        }
        let mut driver = self.shared.lock();
        driver.stop = true;
        driver.leave();
        drop(driver);
        self.shared.supervisor.notify_all();
        self.shared.wakers[1..].iter().for_each(Waker::wake);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

#[cfg(test)]
mod tests;
