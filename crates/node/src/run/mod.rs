//! Who turns the loop.
//!
//! 1. A call that can be answered at once is: it locks the engine, acts, sends its frames and returns.
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
use crate::engine::{Driver, Engine, NodeConfig, Sleeper, Slot, Waiting, Want, now};
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
    engine: Mutex<Engine>,
    /// Where the supervisor sleeps while others drive.
    supervisor: Condvar,
    /// Of the callers' event loop, of the supervisor's, and of the one in which it watches what a driver on an express
    /// way does not.
    wakers: [Waker; 3],
    /// What programs with a loop of their own wait for.
    outside: OnceLock<Reactor>,
}

type Guard<'a> = MutexGuard<'a, Engine>;

impl Node {
    /// Starts a node: enables its bearers and begins to look for neighbours.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        let label: Arc<str> = config.label.as_str().into();
        let mut engine = Engine::new(config, Arc::clone(&label))?;
        let (own, others) = (Reactor::new()?, Reactor::new()?);
        engine.watch(&own, true)?;
        engine.watch(&others, false)?;
        let mut wakers = [own.waker(), own.waker(), others.waker()];
        if let Some(callers) = &engine.idle {
            engine.watch(&callers.reactor, true)?;
            wakers[0] = callers.reactor.waker();
        }
        engine.settle();
        fork::count()?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
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
        let mut engine = shared.lock();
        engine.calls += 1;
        let now = now();
        let result = command(&mut engine.stack, now);
        shared.leave_call(engine, now);
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
        let mut engine = shared.lock();
        let now = now();
        engine.stack.close(now, port);
        engine.forget(port);
        shared.leave_call(engine, now);
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
        let mut engine = shared.lock();
        let pollable = slot.pollable.get_or_init(|| {
            engine.polled += 1;
            fresh
        });
        engine.level(port, slot);
        // From now on somebody must look at the wire while no call is in progress.
        shared.rouse(&engine);
        Ok(pollable)
    }

    /// Takes what has come and does what is due, without waiting: for programs with a loop of their own, in which they
    /// wait for [`Node::descriptor`]. How long they may wait there; `None`: until it is readable.
    pub fn poll(&self) -> Option<Duration> {
        let shared = &self.running.shared;
        let mut engine = shared.lock();
        engine.calls += 1;
        let now = now();
        engine.receive_all(now);
        engine.handle_timeout(now);
        let due = engine.stack.deadline();
        shared.leave_call(engine, now);
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
    /// A thread that panicked in a call left the engine between two turns; it is whole.
    fn lock(&self) -> Guard<'_> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a call that did not wait.
    fn leave_call(&self, mut engine: Guard<'_>, now: Time) {
        if engine.driver == Driver::Supervisor && engine.polled == 0 {
            // Where one call is, others follow: they look at the wire themselves, and nobody is woken by each frame.
            engine.driver = Driver::Nobody;
            engine.armed = Time::ZERO;
        }
        if now.since(engine.looked).as_nanos() > LOOK_NS && engine.driver == Driver::Nobody {
            engine.receive_all(now);
            engine.handle_timeout(now);
        }
        engine.settle();
        if engine.stack.take_backlogged() {
            self.hurry(&mut engine, now);
        }
        if engine.must_wake() {
            self.wake(engine);
        }
    }

    /// The caller leaves messages behind that wait for acknowledgements: should it not come back soon, the supervisor
    /// receives them.
    fn hurry(&self, engine: &mut Guard<'_>, now: Time) {
        if engine.hurry <= now && engine.driver == Driver::Nobody {
            self.rouse(engine);
        }
        engine.hurry = now + TICK;
    }

    fn wake(&self, mut engine: Guard<'_>) {
        let sleeper = engine.sleeper();
        drop(engine);
        self.wake_sleeper(sleeper);
    }

    fn wake_sleeper(&self, sleeper: Sleeper) {
        match sleeper {
            Sleeper::Nobody => {}
            Sleeper::Express(way) => way.wake(),
            Sleeper::Caller => self.wakers[0].wake(),
            Sleeper::Supervisor => self.wakers[1].wake(),
        }
    }

    /// Makes the supervisor look who drives.
    fn rouse(&self, engine: &Engine) {
        if engine.others_watched {
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
        let mut engine = self.lock();
        engine.calls += 1;
        let mut time = now();
        let until = end_of(wait, time);
        if let Some(done) = attempt(&mut engine.stack, time) {
            self.leave_call(engine, time);
            return Some(done);
        }
        if wait == Wait::Never {
            return self.look(engine, time, attempt);
        }
        loop {
            if engine.driver != Driver::Caller {
                return self.drive(engine, (slot, want), (time, until), attempt);
            }
            engine.settle();
            if engine.must_wake() {
                let sleeper = engine.sleeper();
                self.wake_sleeper(sleeper);
            }
            engine = self.wait(engine, slot, want, until.since(time));
            time = now();
            if let Some(done) = attempt(&mut engine.stack, time) {
                self.pass_on(&mut engine);
                self.leave_call(engine, time);
                return Some(done);
            }
            if time >= until {
                self.pass_on(&mut engine);
                self.leave_call(engine, time);
                return None;
            }
        }
    }

    /// A call that may not wait looks at the wire once: a loop of such calls drives the node.
    fn look<T>(
        &self,
        mut engine: Guard<'_>,
        now: Time,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        engine.glance_all(now);
        engine.handle_timeout(now);
        let done = attempt(&mut engine.stack, now);
        self.leave_call(engine, now);
        done
    }

    /// Waits on the slot, while another thread drives.
    fn wait<'a>(&self, mut engine: Guard<'a>, slot: &Arc<Slot>, want: Want, limit: Duration) -> Guard<'a> {
        slot.enter(want);
        slot.sleep();
        engine.waiting.push(Arc::clone(slot));
        // A cap far beyond any real limit, because a condition variable cannot add the largest ones to a clock.
        let limit = limit.min(Duration::from_secs(86_400));
        engine = slot.ready.wait_timeout(engine, limit).unwrap_or_else(PoisonError::into_inner).0;
        slot.awake();
        slot.leave(want);
        if let Some(at) = engine.waiting.iter().position(|other| Arc::ptr_eq(other, slot)) {
            engine.waiting.swap_remove(at);
        }
        engine
    }

    /// Somebody else has to drive, if nobody does.
    fn pass_on(&self, engine: &mut Guard<'_>) {
        if engine.driver != Driver::Nobody {
            return;
        }
        match engine.waiting.first() {
            Some(slot) => slot.ready.notify_one(),
            None => self.rouse(engine),
        }
    }

    /// Turns the loop on the calling thread until `attempt` yields something.
    fn drive<'a, T>(
        &'a self,
        mut engine: Guard<'a>,
        (slot, want): (&Arc<Slot>, Want),
        (mut time, until): (Time, Time),
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut waiting = engine.idle.take()?;
        engine.driver = Driver::Caller;
        engine.drives += 1;
        slot.enter(want);
        engine.settle();
        engine.driving = Some(Arc::clone(slot));
        let mut express = None;
        // More than one read is worth a try only where frames come faster than they are taken.
        let mut most = 1;
        let done = loop {
            let pause = engine.pause(time, until);
            let spin_until = (!engine.spin.is_zero()).then(|| time + engine.spin);
            let way = engine.way(pause);
            if express.is_none() {
                express = way.and_then(|way| Some((way, engine.express(way)?)));
            }
            if let Some((way, express)) = express.as_ref().filter(|(open, _)| way == Some(*open)) {
                engine.direct = Some(*way);
                if engine.supervisor_sleeps && !engine.others_watched {
                    self.rouse(&engine);
                }
                drop(engine);
                let read = wait_express(express, &mut waiting, most, pause, spin_until);
                engine = self.lock();
                engine.direct = None;
                let before = time;
                time = now();
                most = if time.since(before) < SHORT_WAIT { usize::MAX } else { 1 };
                engine.receive_express(time, *way, read.map(|()| &waiting.ring));
            } else {
                drop(engine);
                let waited = wait_events(&mut waiting, pause, spin_until);
                engine = self.lock();
                time = now();
                if waited.is_err() {
                    engine.receive_all(time);
                }
                engine.receive(time, &waiting.ready);
            }
            engine.handle_timeout(time);
            let mut done = attempt(&mut engine.stack, time);
            if done.is_none()
                && engine.stack.frames().only_acknowledges()
                && let Some((way, express)) = &express
                && express.look(&mut waiting.ring, usize::MAX).is_ok()
                && waiting.ring.filled() > 0
            {
                // One acknowledgement for this and for what came meanwhile.
                engine.receive_express(time, *way, Ok(&waiting.ring));
                done = attempt(&mut engine.stack, time);
            }
            engine.settle();
            // Whatever has come, it was looked at just now.
            engine.recall = false;
            if done.is_some() || time >= until {
                break done;
            }
        };
        slot.leave(want);
        engine.driving = None;
        engine.armed = Time::ZERO;
        engine.idle = Some(waiting);
        engine.driver = Driver::Nobody;
        if !engine.waiting.is_empty() || engine.supervisor_sleeps || engine.polled > 0 {
            self.pass_on(&mut engine);
        }
        done
    }

    /// The background thread.
    fn supervise(&self, mut reactor: Reactor, mut others: Reactor) {
        let mut engine = self.lock();
        let (mut calls, mut drives) = (engine.calls, 0);
        while !engine.stop {
            match engine.driver {
                Driver::Nobody if engine.calls == calls || engine.polled > 0 => {
                    engine = self.supervise_alone(engine, &mut reactor);
                    calls = engine.calls;
                }
                Driver::Nobody => {
                    calls = engine.calls;
                    let time = now();
                    engine.receive_all(time);
                    engine.handle_timeout(time);
                    engine.settle();
                    let tick = if time < engine.hurry { HURRIED_TICK } else { TICK };
                    engine = self.rest(engine, Some(tick));
                }
                _ if engine.drives == drives && engine.direct.is_some() => {
                    engine = self.watch_others(engine, &mut others);
                }
                _ if engine.drives == drives => engine = self.rest(engine, None),
                _ => {
                    drives = engine.drives;
                    if engine.direct.is_some() {
                        // Calls come and go on an express way: this is the look at all others.
                        engine.receive_others(now());
                        engine = self.after_look(engine);
                    }
                    engine = self.rest(engine, Some(TICK));
                }
            }
        }
    }

    /// Waits for what comes by other ways than the one on which a driver waits.
    fn watch_others<'a>(&'a self, mut engine: Guard<'a>, others: &mut Reactor) -> Guard<'a> {
        (engine.supervisor_sleeps, engine.others_watched) = (true, true);
        drop(engine);
        let mut ready = Vec::new();
        let waited = others.wait(None, &mut ready);
        engine = self.lock();
        (engine.supervisor_sleeps, engine.others_watched) = (false, false);
        if ready.is_empty() && waited.is_ok() {
            return engine;
        }
        engine.receive_others(now());
        // Frames come by other ways too: the event loop is the place to wait for the driver.
        engine.cool();
        self.after_look(engine)
    }

    /// Sends and tells what came of a look while another thread drives.
    fn after_look<'a>(&'a self, mut engine: Guard<'a>) -> Guard<'a> {
        engine.settle();
        if engine.must_wake() {
            self.wake(engine);
            return self.lock();
        }
        engine
    }

    fn rest<'a>(&self, mut engine: Guard<'a>, limit: Option<Duration>) -> Guard<'a> {
        if engine.stop {
            return engine;
        }
        let Some(limit) = limit else {
            engine.supervisor_sleeps = true;
            engine = self.supervisor.wait(engine).unwrap_or_else(PoisonError::into_inner);
            engine.supervisor_sleeps = false;
            return engine;
        };
        self.supervisor.wait_timeout(engine, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Turns the loop while no call is in progress.
    fn supervise_alone<'a>(&'a self, mut engine: Guard<'a>, reactor: &mut Reactor) -> Guard<'a> {
        engine.driver = Driver::Supervisor;
        let mut ready = Vec::new();
        let mut time = now();
        while engine.driver == Driver::Supervisor && !engine.stop {
            let pause = engine.pause(time, Time::NEVER);
            drop(engine);
            let waited = reactor.wait(pause, &mut ready);
            engine = self.lock();
            if engine.driver != Driver::Supervisor {
                break;
            }
            time = now();
            if waited.is_err() {
                engine.receive_all(time);
            }
            engine.receive(time, &ready);
            engine.handle_timeout(time);
            engine.settle();
        }
        if engine.driver == Driver::Supervisor {
            engine.driver = Driver::Nobody;
        }
        engine
    }
}

/// Waits on an express way, without the engine: its frames are in the ring.
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

/// Waits in the event loop, without the engine: what is ready is in the list.
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
        let mut engine = self.shared.lock();
        engine.stop = true;
        engine.leave();
        drop(engine);
        self.shared.supervisor.notify_all();
        self.shared.wakers[1..].iter().for_each(Waker::wake);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

#[cfg(test)]
mod tests;
