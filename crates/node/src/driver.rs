//! What a node is made of, and one turn of its loop: frames in, timers, frames out, who is to be told.
//! Which thread turns it is the business of `run.rs`.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, OnceLock};
use std::time::Duration;

use tracing::trace;
use utipc_core::addr::NodeId;
use utipc_core::config::{BearerConfig, StackConfig};
use utipc_core::socket::{Endpoint, Readiness};
use utipc_core::stack::Stack;
use utipc_core::wire::{Dump, MediaAddr};
use utipc_core::{BearerId, Time};
use utipc_os::mmsg::ReceiveRing;
use utipc_os::offload::gro;
use utipc_os::pollable::{Level, Pollable};
use utipc_os::reactor::{Event as Ready, Interest, Reactor};
use utipc_os::udp::{Express, WAIT_MIN};
use utipc_os::{OsError, clock, random};

use crate::bearers::{Bearer, BearerError};
use crate::observe::{Counters, Observer};
use crate::run::StartError;

/// Descriptors of one bearer that are watched, at most.
const MAX_FDS: usize = 8;

/// So many waits in a row must have ended by frames of one express way before a thread waits there.
const DIRECT_AFTER: u32 = 16;

/// Most reads of one wait on an express way.
const DIRECT_BATCH: usize = 16;

/// What to start a node with.
#[derive(Default)]
pub struct NodeConfig {
    /// Identity, cluster and seed.
    pub stack: StackConfig,
    /// Its bearers, opened; none is legal: such a node serves its own process alone.
    pub bearers: Vec<Plan>,
    /// Name in logs and of the background thread; empty for none.
    pub label: String,
    /// How long a waiting call asks the bearers again and again before it sleeps; none by default.
    pub spin: Duration,
}

impl NodeConfig {
    /// Chooses what was left open: the seed, random if none is given, a random identity unless there is one or an address,
    /// and the address at once where no bearer leads to anybody who could dispute it. Call it with the bearers in place.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn complete(&mut self, seed: Option<u64>) -> Result<(), OsError> {
        let stack = &mut self.stack;
        stack.seed = match seed {
            Some(seed) => seed,
            None => random::seed()?,
        };
        if stack.identity.is_none() && stack.address.is_none() {
            stack.identity = Some(NodeId(random::identity()?));
        }
        if self.bearers.is_empty() && stack.address.is_none() {
            stack.address = stack.identity.map(|id| id.trial_address());
        }
        Ok(())
    }
}

/// A bearer and the properties of its links.
pub struct Plan {
    /// The opened bearer.
    pub bearer: Box<dyn Bearer>,
    /// Changes the properties that the core starts it with.
    pub tune: Box<dyn Fn(&mut BearerConfig) + Send>,
}

impl Plan {
    /// A bearer with the default properties.
    #[must_use]
    pub fn new(bearer: Box<dyn Bearer>) -> Self {
        Self { bearer, tune: Box::new(|_| {}) }
    }
}

/// Where the threads of one socket wait, and what an application may poll in its stead.
#[derive(Debug, Default)]
pub struct Slot {
    pub(crate) ready: Condvar,
    /// Threads that wait, by [`Want`], the driver among them; changed under the driver's lock.
    waiting: [AtomicU32; 3],
    /// Those of them that sleep: telling nobody would cost a system call too.
    sleepers: AtomicU32,
    pub(crate) pollable: OnceLock<Pollable>,
}

/// What a call waits for on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Something to receive or accept, or the end of the connection.
    Read,
    /// Room to send.
    Write,
    /// Any change.
    Change,
}

impl Slot {
    pub(crate) fn enter(&self, want: Want) {
        self.waiting[want as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, want: Want) {
        self.waiting[want as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn awake(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_wanted(&self, want: Want) -> bool {
        self.waiting[want as usize].load(Ordering::Relaxed) > 0
    }

    /// True if somebody waits for what a socket with this readiness offers; a socket that is gone offers its end.
    fn is_served_by(&self, readiness: Option<Readiness>) -> bool {
        let Some(Readiness { readable, writable, read_closed, hung_up }) = readiness else { return true };
        self.is_wanted(Want::Change)
            || self.is_wanted(Want::Read) && (readable || read_closed || hung_up)
            || self.is_wanted(Want::Write) && (writable || hung_up)
    }
}

/// Who turns the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrivenBy {
    /// Nobody: the supervisor looks every few milliseconds whether it is wanted.
    None,
    /// A thread that waits in a call.
    Caller,
    /// The background thread.
    Supervisor,
}

/// What a calling thread waits with.
pub(crate) struct Waiting {
    pub(crate) reactor: Reactor,
    /// Where it reads while it waits on an express way.
    pub(crate) ring: ReceiveRing,
    pub(crate) ready: Vec<Ready>,
}

/// Who must be woken for what somebody else has done.
pub(crate) enum Sleeper {
    /// Nobody waits for the wire.
    None,
    /// A call on an express way.
    Express(Arc<Express>),
    /// A call in its event loop.
    Caller,
    /// The background thread.
    Supervisor,
}

/// The express way of a bearer, by index.
pub(crate) struct Way {
    index: usize,
    token: u64,
    express: Arc<Express>,
}

pub(crate) struct NodeDriver {
    pub(crate) stack: Stack,
    bearers: Vec<(BearerId, Box<dyn Bearer>)>,
    ways: Vec<Way>,
    /// The descriptor by which alone frames came lately, and how many waits long.
    hot: (u64, u32),
    /// The driver waits, or will in a moment, on an express way instead of its event loop.
    pub(crate) direct: Option<usize>,
    /// The supervisor waits for frames of all descriptors but the express ways.
    pub(crate) others_watched: bool,
    /// How long a waiting call asks again and again before it sleeps.
    pub(crate) spin: Duration,
    sockets: HashMap<u32, Arc<Slot>>,
    /// Those who wait for something that is not a socket: a node, a link.
    pub(crate) observers: Arc<Slot>,
    pub(crate) observer: Observer,
    pub(crate) driven_by: DrivenBy,
    /// What calling threads wait with; absent while one of them does.
    pub(crate) idle: Option<Waiting>,
    /// The slot of the call that drives.
    pub(crate) driving: Option<Arc<Slot>>,
    /// The driver waits in its event loop for what has come from another thread.
    pub(crate) recall: bool,
    /// Slots with a waiting thread that does not drive.
    pub(crate) waiting: Vec<Arc<Slot>>,
    /// When the driver will look again by itself; [`Time::ZERO`] if nobody waits in an event loop.
    pub(crate) armed: Time,
    /// Calls and drives so far: how the supervisor sees whether anybody is at work.
    pub(crate) calls: u64,
    pub(crate) drives: u64,
    /// Sockets that somebody polls from outside.
    pub(crate) polled: u32,
    /// The last time the wire was looked at.
    pub(crate) looked: Time,
    /// The supervisor waits for a notice and for nothing else.
    pub(crate) supervisor_sleeps: bool,
    /// Until then messages may wait for acknowledgements, and the supervisor looks often.
    pub(crate) hurry: Time,
    pub(crate) stop: bool,
}

/// The time of the node's clock.
pub(crate) fn now() -> Time {
    Time::from_nanos(clock::monotonic_ns())
}

/// Where a bearer's descriptors are in a reactor: its index times [`MAX_FDS`], plus the descriptor's.
fn token(bearer: usize, fd: usize) -> u64 {
    (bearer * MAX_FDS + fd) as u64
}

impl NodeDriver {
    pub(crate) fn new(config: NodeConfig, label: Arc<str>) -> Result<Self, StartError> {
        let now = now();
        let mut driver = Self {
            stack: Stack::new(now, config.stack),
            bearers: Vec::new(),
            ways: Vec::new(),
            hot: (0, 0),
            direct: None,
            others_watched: false,
            spin: config.spin,
            sockets: HashMap::new(),
            observers: Arc::default(),
            observer: Observer::new(label),
            driven_by: DrivenBy::None,
            idle: Some(Waiting {
                reactor: Reactor::new()?,
                ring: ReceiveRing::new(DIRECT_BATCH, gro::MAX_BYTES),
                ready: Vec::new(),
            }),
            driving: None,
            recall: false,
            waiting: Vec::new(),
            armed: Time::ZERO,
            calls: 0,
            drives: 0,
            polled: 0,
            looked: now,
            supervisor_sleeps: false,
            hurry: Time::ZERO,
            stop: false,
        };
        for plan in config.bearers {
            driver.enable(now, plan)?;
        }
        Ok(driver)
    }

    /// Enables a bearer; who watches descriptors has to watch its too ([`Self::watch`]).
    pub(crate) fn enable(&mut self, now: Time, plan: Plan) -> Result<(), StartError> {
        let bearer = plan.bearer;
        let mtu = u32::try_from(bearer.mtu()).unwrap_or(u32::MAX);
        let mut config = BearerConfig::new(bearer.name(), bearer.local_address(), mtu);
        config.max_receive = u32::try_from(bearer.max_receive()).unwrap_or(u32::MAX);
        config.has_broadcast = bearer.has_broadcast();
        (plan.tune)(&mut config);
        let id = self.stack.enable_bearer(now, config)?;
        self.observer.bearer_enabled(id, &bearer.description());
        let index = self.bearers.len();
        if let Some((fd, express)) = bearer.express().filter(|(fd, _)| *fd < MAX_FDS) {
            self.ways.push(Way { index, token: token(index, fd), express });
        }
        self.bearers.push((id, bearer));
        Ok(())
    }

    /// Disables the bearer with this number: its links go down, and peers are told at once. `reactor` watches the others under
    /// the tokens that they have from now on.
    pub(crate) fn disable(&mut self, now: Time, reactor: &Reactor, id: BearerId) -> Result<(), OsError> {
        self.stack.disable_bearer(now, id);
        self.flush();
        self.unwatch(reactor);
        self.bearers.retain(|(known, _)| *known != id);
        self.ways.clear();
        for (index, (_, bearer)) in self.bearers.iter().enumerate() {
            if let Some((fd, express)) = bearer.express().filter(|(fd, _)| *fd < MAX_FDS) {
                self.ways.push(Way { index, token: token(index, fd), express });
            }
        }
        self.hot = (0, 0);
        self.watch(reactor, true)
    }

    /// Makes `reactor` forget every bearer.
    pub(crate) fn unwatch(&self, reactor: &Reactor) {
        for descriptor in self.bearers.iter().flat_map(|(_, bearer)| bearer.fds()) {
            // It is not there if the system refused it.
            let _ = reactor.remove(descriptor);
        }
    }

    /// The bearer with this number.
    pub(crate) fn bearer_mut(&mut self, id: BearerId) -> Option<&mut dyn Bearer> {
        let (_, bearer) = self.bearers.iter_mut().find(|(known, _)| *known == id)?;
        Some(&mut **bearer)
    }

    /// The same, to look at.
    pub(crate) fn bearer(&self, id: BearerId) -> Option<&dyn Bearer> {
        self.bearers.iter().find(|(known, _)| *known == id).map(|(_, bearer)| &**bearer)
    }

    /// Makes `reactor` watch every bearer, with or without its express way.
    pub(crate) fn watch(&self, reactor: &Reactor, express: bool) -> Result<(), OsError> {
        for (index, (_, bearer)) in self.bearers.iter().enumerate() {
            for (fd, descriptor) in bearer.fds().into_iter().take(MAX_FDS).enumerate() {
                let token = token(index, fd);
                if express || self.ways.iter().all(|way| way.token != token) {
                    reactor.add(descriptor, token, Interest::Read)?;
                }
            }
        }
        Ok(())
    }

    /// The express way to wait on for at most `pause`, if frames came by it alone lately.
    pub(crate) fn way(&self, pause: Option<Duration>) -> Option<usize> {
        if self.hot.1 < DIRECT_AFTER || pause.is_some_and(|pause| pause < WAIT_MIN) {
            return None;
        }
        self.ways.iter().position(|way| way.token == self.hot.0 && way.express.can_wait())
    }

    /// An express way by itself.
    pub(crate) fn express(&self, way: usize) -> Option<Arc<Express>> {
        self.ways.get(way).map(|way| Arc::clone(&way.express))
    }

    /// Who waits for the wire now. It is about to be woken by somebody else than the wire, so the express way, where that is
    /// dear, is not for it for a while.
    pub(crate) fn sleeper(&mut self) -> Sleeper {
        self.cool();
        let express = self.direct.take().and_then(|way| self.express(way));
        match (self.driven_by, express) {
            (DrivenBy::None, _) => Sleeper::None,
            (DrivenBy::Caller, Some(express)) => Sleeper::Express(express),
            (DrivenBy::Caller, None) => Sleeper::Caller,
            (DrivenBy::Supervisor, _) => Sleeper::Supervisor,
        }
    }

    /// Frames come by other ways too, or something else ends waits: the event loop is the place to wait.
    pub(crate) fn cool(&mut self) {
        self.hot.1 = 0;
    }

    /// The slot of a socket; made at its first use.
    pub(crate) fn slot(&mut self, port: u32) -> Arc<Slot> {
        Arc::clone(self.sockets.entry(port).or_default())
    }

    pub(crate) fn forget(&mut self, port: u32) {
        if let Some(slot) = self.sockets.remove(&port) {
            self.polled -= u32::from(slot.pollable.get().is_some());
        }
    }

    /// Time until the next thing that the node wants to do, or `until`, whichever is first; `None` for never.
    pub(crate) fn pause(&mut self, now: Time, until: Time) -> Option<Duration> {
        let due = self.stack.deadline().unwrap_or(Time::NEVER).min(until);
        self.armed = due;
        (due != Time::NEVER).then(|| due.since(now))
    }

    /// True if the one who waits in an event loop must be woken: its socket is ready, or it would sleep beyond the next
    /// deadline.
    pub(crate) fn must_wake(&mut self) -> bool {
        if self.armed == Time::ZERO && !self.recall {
            return false;
        }
        let due = self.stack.deadline().unwrap_or(Time::NEVER);
        let late = due < self.armed || std::mem::take(&mut self.recall);
        if late {
            self.armed = Time::ZERO;
        }
        late
    }

    /// Takes frames from the bearers in `ready`.
    pub(crate) fn receive(&mut self, now: Time, ready: &[Ready]) {
        self.looked = now;
        match ready {
            [] => {}
            [one] if one.token == self.hot.0 => self.hot.1 = self.hot.1.saturating_add(1),
            [first, ..] => self.hot = (first.token, 0),
        }
        let mut done = [false; utipc_core::limits::MAX_BEARERS];
        for event in ready {
            let index = event.token as usize / MAX_FDS;
            if done.get_mut(index).is_some_and(|done| !std::mem::replace(done, true)) {
                self.receive_from(now, index);
            }
        }
    }

    /// Takes frames from every bearer; what a look without an event loop is.
    pub(crate) fn receive_all(&mut self, now: Time) {
        self.looked = now;
        for index in 0..self.bearers.len() {
            self.receive_from(now, index);
        }
    }

    /// The same for a caller that looks again and again.
    pub(crate) fn glance_all(&mut self, now: Time) {
        self.looked = now;
        for index in 0..self.bearers.len() {
            self.take(now, index, |bearer, sink| bearer.glance(sink).map(|_| ()));
        }
    }

    /// The same, of all but the express ways, while a driver waits on one.
    pub(crate) fn receive_others(&mut self, now: Time) {
        for index in 0..self.bearers.len() {
            self.take(now, index, |bearer, sink| bearer.receive_others(sink).map(|_| ()));
        }
    }

    /// Takes what was read from an express way.
    pub(crate) fn receive_express(&mut self, now: Time, way: usize, read: io::Result<&ReceiveRing>) {
        self.looked = now;
        let Some(index) = self.ways.get(way).map(|way| way.index) else { return };
        self.take(now, index, |bearer, sink| bearer.receive_express(read, sink));
    }

    fn receive_from(&mut self, now: Time, index: usize) {
        self.take(now, index, |bearer, sink| bearer.receive(sink).map(|_| ()));
    }

    fn take(
        &mut self,
        now: Time,
        index: usize,
        from: impl FnOnce(&mut dyn Bearer, &mut dyn FnMut(MediaAddr, &[u8])) -> Result<(), BearerError>,
    ) {
        let Some((id, bearer)) = self.bearers.get_mut(index) else { return };
        let (stack, id) = (&mut self.stack, *id);
        let mut sink = |from, frame: &[u8]| {
            trace!(bearer = id, "{from} > {}", Dump(frame));
            stack.receive(now, id, frame);
        };
        if let Err(error) = from(bearer.as_mut(), &mut sink) {
            self.observer.bearer_failed(bearer.name(), &error);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        // Whoever brings a deadline forward while somebody waits for it resets this one.
        if now < self.armed {
            return;
        }
        if self.stack.deadline().is_some_and(|due| due <= now) {
            self.stack.handle_timeout(now);
        }
    }

    /// Sends what the stack wants sent and tells whoever waits for what has happened.
    pub(crate) fn settle(&mut self) {
        self.flush();
        if self.observe() {
            let observers = Arc::clone(&self.observers);
            self.notify(&observers);
        }
        while let Some(port) = self.stack.poll_ready() {
            let Some(slot) = self.sockets.get(&port) else { continue };
            level(&self.stack, port, slot);
            if slot.is_served_by(self.stack.endpoint(port).map(Endpoint::readiness)) {
                let slot = Arc::clone(slot);
                self.notify(&slot);
            }
        }
    }

    /// Logs and counts what has happened; false if nothing has.
    pub(crate) fn observe(&mut self) -> bool {
        let mut happened = false;
        while let Some(event) = self.stack.poll_event() {
            self.observer.event(&event);
            happened = true;
        }
        happened
    }

    /// Wakes the threads that wait at a slot.
    fn notify(&mut self, slot: &Arc<Slot>) {
        if slot.sleepers.load(Ordering::Relaxed) > 0 {
            slot.ready.notify_all();
        }
        self.recall |= self.driving.as_ref().is_some_and(|driving| Arc::ptr_eq(driving, slot));
    }

    /// Sends what the stack wants sent.
    pub(crate) fn flush(&mut self) {
        let batch = self.stack.frames();
        if batch.is_empty() {
            return;
        }
        if tracing::enabled!(tracing::Level::TRACE) {
            for frame in batch.frames() {
                trace!(bearer = frame.bearer, "> {}", Dump(&batch.frame(frame)));
            }
        }
        for (id, bearer) in &mut self.bearers {
            if batch.frames().iter().any(|frame| frame.bearer == *id) {
                bearer.send(*id, batch);
            }
        }
        batch.clear();
    }

    /// Brings the polled descriptor of a socket up to date.
    pub(crate) fn level(&self, port: u32, slot: &Slot) {
        level(&self.stack, port, slot);
    }

    /// Leaves the cluster: peers learn it at once instead of after the tolerance.
    pub(crate) fn leave(&mut self) {
        let now = now();
        for (id, _) in &self.bearers {
            self.stack.disable_bearer(now, *id);
        }
        self.settle();
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.observer.counters().clone();
        counters.bearers = self.bearers.iter().map(|(_, b)| (b.name().to_owned(), b.counters())).collect();
        counters
    }
}

fn level(stack: &Stack, port: u32, slot: &Slot) {
    if let (Some(pollable), Some(endpoint)) = (slot.pollable.get(), stack.endpoint(port)) {
        let readiness = endpoint.readiness();
        pollable.set(Level {
            readable: readiness.readable,
            writable: readiness.writable,
            hung_up: readiness.hung_up,
        });
    }
}
