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

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::OsError;
use utipc_os::pollable::Pollable;
use utipc_os::reactor::{Reactor, Waker};

use crate::bearers;
use crate::engine::{Driver, Engine, NodeConfig, Slot, Want, now};
use crate::observe::Counters;

/// How often the supervisor looks while calls come and go: the longest that an arrived frame waits when no thread is
/// in a call.
const TICK: Duration = Duration::from_millis(2);

/// The same while messages wait for acknowledgements to leave. While calls come they look themselves.
const HURRIED_TICK: Duration = Duration::from_micros(500);

/// The longest that calls which never wait leave the wire alone, nanoseconds.
const LOOK_NS: u128 = 500_000;

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

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// At most this long.
    AtMost(Duration),
    /// Until it is done.
    Forever,
}

impl Wait {
    fn until(self, now: Time) -> Time {
        match self {
            Self::Never => now,
            Self::AtMost(limit) => now + limit,
            Self::Forever => Time::NEVER,
        }
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
    supervisor: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Mutex<Engine>,
    /// Where the supervisor sleeps while others drive.
    supervisor: Condvar,
    /// Of the callers' and the supervisor's event loop.
    wakers: [Waker; 2],
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
        let own = Reactor::new()?;
        engine.watch(&own)?;
        let mut wakers = [own.waker(), own.waker()];
        if let Some(callers) = &engine.reactor {
            engine.watch(callers)?;
            wakers[0] = callers.waker();
        }
        engine.settle();
        let shared = Arc::new(Shared { engine: Mutex::new(engine), supervisor: Condvar::new(), wakers });
        let supervised = Arc::clone(&shared);
        let supervisor = std::thread::Builder::new()
            .name(format!("utipc {label}").trim_end().to_owned())
            .spawn(move || supervised.supervise(own))
            .map_err(StartError::Thread)?;
        Ok(Node { running: Arc::new(Running { shared, supervisor: Some(supervisor) }) })
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
        shared.supervisor.notify_one();
        Ok(pollable)
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
            self.supervisor.notify_one();
        }
        engine.hurry = now + TICK;
    }

    fn wake(&self, engine: Guard<'_>) {
        let driver = engine.driver;
        drop(engine);
        match driver {
            Driver::Nobody => {}
            Driver::Caller => self.wakers[0].wake(),
            Driver::Supervisor => self.wakers[1].wake(),
        }
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
        let until = wait.until(time);
        if let Some(done) = attempt(&mut engine.stack, time) {
            self.leave_call(engine, time);
            return Some(done);
        }
        if wait == Wait::Never {
            return self.look(engine, time, attempt);
        }
        loop {
            if engine.driver != Driver::Caller {
                return self.drive(engine, (slot, want), until, attempt);
            }
            engine.settle();
            if engine.must_wake() {
                self.wakers[0].wake();
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
        engine.receive_all(now);
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
            None => self.supervisor.notify_one(),
        }
    }

    /// Turns the loop on the calling thread until `attempt` yields something.
    fn drive<'a, T>(
        &'a self,
        mut engine: Guard<'a>,
        (slot, want): (&Arc<Slot>, Want),
        until: Time,
        mut attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        let mut reactor = engine.reactor.take()?;
        engine.driver = Driver::Caller;
        engine.drives += 1;
        slot.enter(want);
        engine.settle();
        engine.driving = Some(Arc::clone(slot));
        let mut ready = Vec::new();
        let mut time = now();
        let done = loop {
            let pause = engine.pause(time, until);
            drop(engine);
            let waited = reactor.wait(pause, &mut ready);
            engine = self.lock();
            time = now();
            if waited.is_err() {
                engine.receive_all(time);
            }
            engine.receive(time, &ready);
            engine.handle_timeout(time);
            let done = attempt(&mut engine.stack, time);
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
        engine.reactor = Some(reactor);
        engine.driver = Driver::Nobody;
        if !engine.waiting.is_empty() || engine.supervisor_sleeps || engine.polled > 0 {
            self.pass_on(&mut engine);
        }
        done
    }

    /// The background thread.
    fn supervise(&self, mut reactor: Reactor) {
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
                _ if engine.drives == drives => engine = self.rest(engine, None),
                _ => {
                    drives = engine.drives;
                    engine = self.rest(engine, Some(TICK));
                }
            }
        }
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

impl Drop for Running {
    fn drop(&mut self) {
        let mut engine = self.shared.lock();
        engine.stop = true;
        engine.leave();
        drop(engine);
        self.shared.supervisor.notify_all();
        self.shared.wakers[1].wake();
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

#[cfg(test)]
mod tests;
