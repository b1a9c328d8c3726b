//! The node driver: a node's protocol and bearers, and one turn of its event loop: frames in, timers, frames
//! out, wake-ups. [`run`](mod@crate::run) decides which thread drives it.

mod config;
mod slot;
mod state;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::trace;
use utipc_core::config::BearerConfig;
use utipc_core::socket::Endpoint;
use utipc_core::stack::Stack;
use utipc_core::wire::{Dump, MediaAddr};
use utipc_core::{BearerId, Time};
use utipc_os::mmsg::ReceiveRing;
use utipc_os::offload::gro;
use utipc_os::reactor::{Event as Ready, Interest, Reactor};
use utipc_os::spin::Spin;
use utipc_os::udp::{Express, WAIT_MIN};
use utipc_os::{OsError, clock};

use crate::bearers::{Bearer, BearerError, Idle};
use crate::capture::Captures;
use crate::observe::{Counters, Observer};

pub use config::{NodeConfig, Plan, StartError};
pub use slot::{Slot, Want};

pub(crate) use state::{Drive, DriveEvent, Supervision};

/// Maximum number of watched descriptors of one bearer.
const MAX_FDS: usize = 8;

/// Consecutive waits, each ended by frames of one express path alone, after which a thread waits on that path.
const DIRECT_AFTER: u32 = 16;

/// Work that one turn does for peers, in messages to one socket; a binding costs 256 (`core/switch/work.rs`). Our
/// choice: more small messages than one read of a socket returns.
const TURN_WORK: usize = 16_384;

/// Maximum number of reads of one wait on an express path.
const DIRECT_BATCH: usize = 16;

/// Event loop and buffers of the calling thread that waits.
pub(crate) struct Waiting {
    pub(crate) reactor: Reactor,
    /// Buffers for frames that it reads while it waits on an express path.
    pub(crate) ring: ReceiveRing,
    pub(crate) ready: Vec<Ready>,
    /// How long it checks memory before it sleeps.
    pub(crate) spin: Spin,
}

/// The thread that waits for the wire.
pub(crate) enum Sleeper {
    None,
    /// A call on an express path.
    Express(Arc<Express>),
    /// A call in its event loop.
    Caller,
    Supervisor,
}

/// The express path of a bearer.
struct ExpressPath {
    /// The bearer.
    bearer: usize,
    token: u64,
    express: Arc<Express>,
}

/// Where bearers report frames in memory.
pub(crate) type Idles = Arc<[Arc<dyn Idle>]>;

/// A node's protocol, its bearers, and which thread drives them.
pub(crate) struct NodeDriver {
    pub(crate) stack: Stack,
    bearers: Vec<(BearerId, Box<dyn Bearer>)>,
    express_paths: Vec<ExpressPath>,
    /// Where bearers report frames in memory.
    pub(crate) idles: Idles,
    /// Token of the descriptor that alone ended the last waits, and the number of these waits.
    streak: (u64, u32),
    /// Time that a waiting call spins before it sleeps.
    pub(crate) spin: Duration,
    sockets: HashMap<u32, Arc<Slot>>,
    /// The slot of threads that wait for something that is not a socket: a node, a link.
    pub(crate) observers: Arc<Slot>,
    pub(crate) observer: Observer,
    pub(crate) captures: Captures,
    pub(crate) drive: Drive,
    pub(crate) supervision: Supervision,
    /// For the calling thread that waits; absent while one waits.
    pub(crate) idle: Option<Waiting>,
    /// The slot of the call that drives.
    pub(crate) driving: Option<Arc<Slot>>,
    /// The driving call must be woken: another thread has received what it waits for.
    pub(crate) recall: bool,
    /// Slots with waiting threads that do not drive.
    pub(crate) waiting: Vec<Arc<Slot>>,
    /// Time when the waiting thread wakes by itself; [`Time::ZERO`] if no thread waits in an event loop.
    pub(crate) armed: Time,
    /// Number of calls, and of calls that drove; they show the supervisor whether calls are made.
    pub(crate) calls: u64,
    pub(crate) drives: u64,
    /// Sockets whose descriptor an application polls.
    pub(crate) polled: u32,
    /// Time at which the bearers were last read.
    pub(crate) last_read: Time,
    /// Until then messages may wait for acknowledgements, and the supervisor checks more often.
    pub(crate) check_often_until: Time,
    pub(crate) stop: bool,
}

/// The time of the node's clock.
pub(crate) fn now() -> Time {
    Time::from_nanos(clock::monotonic_ns())
}

/// Token of a bearer's descriptor in a reactor.
fn token(bearer: usize, fd: usize) -> u64 {
    (bearer * MAX_FDS + fd) as u64
}

impl NodeDriver {
    pub(crate) fn new(mut config: NodeConfig, label: Arc<str>) -> Result<Self, StartError> {
        config.complete_encryption()?;
        let now = now();
        let mut driver = Self {
            stack: Stack::new(now, config.stack),
            bearers: Vec::new(),
            express_paths: Vec::new(),
            idles: Arc::new([]),
            streak: (0, 0),
            spin: config.spin,
            sockets: HashMap::new(),
            observers: Arc::default(),
            observer: Observer::new(label),
            captures: Captures::default(),
            drive: Drive::Undriven,
            supervision: Supervision::Working,
            idle: Some(Waiting {
                reactor: Reactor::new()?,
                ring: ReceiveRing::new(DIRECT_BATCH, gro::MAX_BYTES),
                ready: Vec::new(),
                spin: Spin::new(config.wait),
            }),
            driving: None,
            recall: false,
            waiting: Vec::new(),
            armed: Time::ZERO,
            calls: 0,
            drives: 0,
            polled: 0,
            last_read: now,
            check_often_until: Time::ZERO,
            stop: false,
        };
        if let Some(minutes) = config.rekeying_minutes {
            driver.stack.set_rekeying(now, minutes);
        }
        for (key_use, key) in config.keys {
            driver.stack.set_key(now, key_use, key)?;
        }
        for plan in config.bearers {
            driver.enable(now, plan)?;
        }
        Ok(driver)
    }

    /// Enables a bearer. A reactor that watches the others has to [`Self::watch`] it too.
    pub(crate) fn enable(&mut self, now: Time, plan: Plan) -> Result<(), StartError> {
        let bearer = plan.bearer;
        let mtu = u32::try_from(bearer.mtu()).unwrap_or(u32::MAX);
        let mut config = BearerConfig::new(bearer.name(), bearer.local_address(), mtu);
        config.max_receive = u32::try_from(bearer.max_receive()).unwrap_or(u32::MAX);
        config.base_mtu = u32::try_from(bearer.base_mtu()).unwrap_or(u32::MAX);
        config.has_broadcast = bearer.has_broadcast();
        (plan.tune)(&mut config);
        let id = self.stack.enable_bearer(now, config)?;
        self.observer.bearer_enabled(id, bearer.name(), &bearer.description());
        self.bearers.push((id, bearer));
        self.list_paths();
        Ok(())
    }

    /// Disables a bearer: its links go down, and peers learn it at once. `reactor` watches the others under their new
    /// tokens.
    pub(crate) fn disable(&mut self, now: Time, reactor: &Reactor, id: BearerId) -> Result<(), OsError> {
        self.stack.disable_bearer(now, id);
        self.flush();
        self.unwatch(reactor);
        self.bearers.retain(|(known, _)| *known != id);
        self.list_paths();
        self.streak = (0, 0);
        self.watch(reactor, true)
    }

    fn list_paths(&mut self) {
        self.idles = self.bearers.iter().filter_map(|(_, bearer)| bearer.idle()).collect();
        let bearers = self.bearers.iter().enumerate();
        let paths = bearers.filter_map(|(number, (_, bearer))| {
            let (fd, express) = bearer.express().filter(|(fd, _)| *fd < MAX_FDS)?;
            Some(ExpressPath { bearer: number, token: token(number, fd), express })
        });
        self.express_paths = paths.collect();
    }

    /// Removes every bearer from `reactor`.
    pub(crate) fn unwatch(&self, reactor: &Reactor) {
        for descriptor in self.bearers.iter().flat_map(|(_, bearer)| bearer.fds()) {
            // It fails if the system refused to watch it.
            let _ = reactor.remove(descriptor);
        }
    }

    /// An enabled bearer, to change it.
    pub(crate) fn bearer_mut(&mut self, id: BearerId) -> Option<&mut dyn Bearer> {
        let (_, bearer) = self.bearers.iter_mut().find(|(known, _)| *known == id)?;
        Some(&mut **bearer)
    }

    /// An enabled bearer.
    pub(crate) fn bearer(&self, id: BearerId) -> Option<&dyn Bearer> {
        self.bearers.iter().find(|(known, _)| *known == id).map(|(_, bearer)| &**bearer)
    }

    /// Asks bearers that report in memory to wake this node by their descriptors too; true if one already has frames.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.idles.iter().any(|idle| idle.prepare_sleep())
    }

    /// Adds every bearer to `reactor`, with or without its express path.
    pub(crate) fn watch(&self, reactor: &Reactor, express: bool) -> Result<(), OsError> {
        for (index, (_, bearer)) in self.bearers.iter().enumerate() {
            for (fd, descriptor) in bearer.fds().into_iter().take(MAX_FDS).enumerate() {
                let token = token(index, fd);
                if express || self.express_paths.iter().all(|path| path.token != token) {
                    reactor.add(descriptor, token, Interest::Read)?;
                }
            }
        }
        Ok(())
    }

    /// Index of the express path to wait on for at most `pause`, if recent frames came by it alone.
    pub(crate) fn express_path(&self, pause: Option<Duration>) -> Option<usize> {
        if self.streak.1 < DIRECT_AFTER || pause.is_some_and(|pause| pause < WAIT_MIN) {
            return None;
        }
        self.express_paths.iter().position(|path| path.token == self.streak.0 && path.express.can_wait())
    }

    /// The express path with this index, to wait on it without the driver.
    pub(crate) fn express(&self, path: usize) -> Option<Arc<Express>> {
        self.express_paths.get(path).map(|path| Arc::clone(&path.express))
    }

    /// The thread that waits for the wire now. The caller is about to wake it, which costs more on an express path, so
    /// the next waits are in the event loop.
    pub(crate) fn take_sleeper(&mut self) -> Sleeper {
        self.end_streak();
        let before = self.drive;
        self.change_drive(DriveEvent::CallerReturns);
        match before {
            Drive::Undriven => Sleeper::None,
            Drive::Caller => Sleeper::Caller,
            Drive::Express(path) => self.express(path).map_or(Sleeper::Caller, Sleeper::Express),
            Drive::Supervisor => Sleeper::Supervisor,
        }
    }

    /// Moves to the next state of [`Drive`].
    pub(crate) fn change_drive(&mut self, event: DriveEvent) {
        self.drive = self.drive.next(event);
    }

    /// Frames arrived on other descriptors too: the next waits are in the event loop.
    pub(crate) fn end_streak(&mut self) {
        self.streak.1 = 0;
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

    /// Time until the next deadline of the node, or `until` if that is earlier; `None` for never.
    pub(crate) fn pause(&mut self, now: Time, until: Time) -> Option<Duration> {
        let due = self.stack.deadline().unwrap_or(Time::NEVER).min(until);
        self.armed = due;
        (due != Time::NEVER).then(|| due.since(now))
    }

    /// True if the thread that waits must be woken: its socket is ready, or it would sleep beyond the next deadline. It
    /// is reported once.
    pub(crate) fn take_must_wake(&mut self) -> bool {
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

    /// Begins a turn of a node that serves several processes, and continues the work that the last turn has left.
    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.stack.begin_turn(now, TURN_WORK);
    }

    /// Receives frames from the bearers in `ready`.
    pub(crate) fn receive(&mut self, now: Time, ready: &[Ready]) {
        self.last_read = now;
        match ready {
            [] => {}
            [one] if one.token == self.streak.0 => self.streak.1 = self.streak.1.saturating_add(1),
            [first, ..] => self.streak = (first.token, 0),
        }
        let mut done = [false; utipc_core::limits::MAX_BEARERS];
        for event in ready {
            let index = event.token as usize / MAX_FDS;
            if done.get_mut(index).is_some_and(|done| !std::mem::replace(done, true)) {
                self.receive_from(now, index);
            }
        }
        if self.idles.is_empty() {
            return;
        }
        for (index, done) in done.into_iter().enumerate().take(self.bearers.len()) {
            if !done && self.bearers.get(index).is_some_and(|(_, bearer)| bearer.idle().is_some()) {
                self.take(now, index, |bearer, sink| bearer.receive_spinning(sink).map(|_| ()));
            }
        }
    }

    /// Receives frames from every bearer, without an event loop.
    pub(crate) fn receive_all(&mut self, now: Time) {
        self.last_read = now;
        for index in 0..self.bearers.len() {
            self.receive_from(now, index);
        }
    }

    /// As [`Self::receive_all`], for a caller that spins: bearers may skip sockets on which frames rarely
    /// arrive.
    pub(crate) fn receive_all_spinning(&mut self, now: Time) {
        self.last_read = now;
        for index in 0..self.bearers.len() {
            self.take(now, index, |bearer, sink| bearer.receive_spinning(sink).map(|_| ()));
        }
    }

    /// As [`Self::receive_all`], without the express paths, while a call waits on one of them.
    pub(crate) fn receive_others(&mut self, now: Time) {
        for index in 0..self.bearers.len() {
            self.take(now, index, |bearer, sink| bearer.receive_others(sink).map(|_| ()));
        }
    }

    /// Receives what was read from an express path.
    pub(crate) fn receive_express(&mut self, now: Time, path: usize, read: io::Result<&ReceiveRing>) {
        self.last_read = now;
        let Some(index) = self.express_paths.get(path).map(|path| path.bearer) else { return };
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
        let captures = &mut self.captures;
        let watched = (!captures.is_empty()).then(|| (bearer.name().to_owned(), bearer.local_address()));
        let mut sink = |from, frame: &[u8]| {
            trace!(bearer = id, "{from} > {}", Dump(frame));
            if let Some((name, local)) = &watched {
                captures.received(name, from, *local, frame);
            }
            stack.receive(now, id, frame);
        };
        if let Err(error) = from(bearer.as_mut(), &mut sink) {
            self.observer.bearer_failed(bearer.name(), &error);
        }
        while let Some(address) = bearer.take_gone() {
            stack.lose_neighbour(now, id, address);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        // A call that brings a deadline forward while a thread waits for it resets this one.
        if now < self.armed {
            return;
        }
        if self.stack.deadline().is_some_and(|due| due <= now) {
            self.stack.handle_timeout(now);
        }
    }

    /// Sends the frames of the stack, and wakes the threads that wait for what has happened.
    pub(crate) fn send_and_notify(&mut self) {
        self.flush();
        if self.observe() {
            let observers = Arc::clone(&self.observers);
            self.notify(&observers);
        }
        while let Some(port) = self.stack.poll_ready() {
            let Some(slot) = self.sockets.get(&port) else { continue };
            slot::update_pollable(&self.stack, port, slot);
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

    /// Wakes the threads that wait on a slot.
    fn notify(&mut self, slot: &Arc<Slot>) {
        if slot.has_sleepers() {
            slot.ready.notify_all();
        }
        self.recall |= self.driving.as_ref().is_some_and(|driving| Arc::ptr_eq(driving, slot));
    }

    /// Sends the frames of the stack.
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
                if !self.captures.is_empty() {
                    self.captures.sent(*id, &**bearer, batch);
                }
                bearer.send(*id, batch);
            }
        }
        batch.clear();
    }

    /// Updates the polled descriptor of a socket.
    pub(crate) fn update_pollable(&self, port: u32, slot: &Slot) {
        slot::update_pollable(&self.stack, port, slot);
    }

    /// Leaves the cluster. Links are reset, so that peers detect it at once and not only after the link
    /// tolerance.
    pub(crate) fn leave(&mut self) {
        let now = now();
        for (id, _) in &self.bearers {
            self.stack.disable_bearer(now, *id);
        }
        self.send_and_notify();
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.observer.counters().clone();
        let encryption = self.stack.encryption_stats().named();
        counters.encryption = encryption.map(|(name, count)| (name.into(), count)).into();
        counters.bearers = self.bearers.iter().map(|(_, b)| (b.name().to_owned(), b.counters())).collect();
        counters
    }
}
