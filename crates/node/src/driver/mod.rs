//! The node driver: a node's protocol and bearers, and the parts of a turn of its event loop: frames in, timers, frames
//! out. Its user decides which thread drives it: [`run`](mod@crate::run) for an embedded node,
//! [`daemon`](crate::daemon) for one that serves many processes.

mod config;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::trace;
use utipc_core::config::BearerConfig;
use utipc_core::stack::Stack;
use utipc_core::wire::{Dump, MediaAddr};
use utipc_core::{BearerId, Time};
use utipc_os::mmsg::ReceiveRing;
use utipc_os::reactor::{Event as Ready, Interest, Reactor};
use utipc_os::udp::{Express, WAIT_MIN};
use utipc_os::{OsError, clock};

use crate::bearers::{Bearer, BearerError, Idle};
use crate::capture::Captures;
use crate::observe::{Counters, Observer};

pub use config::{NodeConfig, Plan, StartError};

/// Maximum number of watched descriptors of one bearer.
const MAX_FDS: usize = 8;

/// Consecutive waits, each ended by frames of one express path alone, after which a thread waits on that path.
const DIRECT_AFTER: u32 = 16;

/// Work that one turn does for peers, in messages to one socket; a binding costs 256 (`core/switch/work.rs`). Our
/// choice: more small messages than one read of a socket returns.
const TURN_WORK: usize = 16_384;

/// The express path of a bearer.
struct ExpressPath {
    /// The bearer.
    bearer: usize,
    token: u64,
    express: Arc<Express>,
}

/// Where bearers report frames in memory.
pub(crate) type Idles = Arc<[Arc<dyn Idle>]>;

/// A node's protocol and its bearers.
pub(crate) struct NodeDriver {
    pub(crate) stack: Stack,
    bearers: Vec<(BearerId, Box<dyn Bearer>)>,
    express_paths: Vec<ExpressPath>,
    /// Where bearers report frames in memory.
    idles: Idles,
    /// Token of the descriptor that alone ended the last waits, and the number of these waits.
    streak: (u64, u32),
    pub(crate) observer: Observer,
    pub(crate) captures: Captures,
    /// Time when the waiting thread wakes by itself; [`Time::ZERO`] if no thread waits in an event loop.
    armed: Time,
    /// Time at which the bearers were last read.
    last_read: Time,
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
            observer: Observer::new(label),
            captures: Captures::default(),
            armed: Time::ZERO,
            last_read: now,
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

    /// Where bearers report frames in memory.
    pub(crate) fn idles(&self) -> Idles {
        Arc::clone(&self.idles)
    }

    /// Frames arrived on other descriptors too: the next waits are in the event loop.
    pub(crate) fn end_streak(&mut self) {
        self.streak.1 = 0;
    }

    /// Time until the next deadline of the node, or `until` if that is earlier; `None` for never.
    pub(crate) fn pause(&mut self, now: Time, until: Time) -> Option<Duration> {
        let due = self.stack.deadline().unwrap_or(Time::NEVER).min(until);
        self.armed = due;
        (due != Time::NEVER).then(|| due.since(now))
    }

    /// True if a thread waits beyond the next deadline.
    pub(crate) fn is_late(&self) -> bool {
        self.armed != Time::ZERO && self.stack.deadline().unwrap_or(Time::NEVER) < self.armed
    }

    /// No thread waits in an event loop.
    pub(crate) fn disarm(&mut self) {
        self.armed = Time::ZERO;
    }

    /// Time at which the bearers were last read.
    pub(crate) fn last_read(&self) -> Time {
        self.last_read
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

    /// Logs and counts what has happened; false if nothing has.
    pub(crate) fn observe(&mut self) -> bool {
        let mut happened = false;
        while let Some(event) = self.stack.poll_event() {
            self.observer.event(&event);
            happened = true;
        }
        happened
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

    /// Leaves the cluster. Links are reset, so that peers detect it at once and not only after the link
    /// tolerance.
    pub(crate) fn leave(&mut self) {
        let now = now();
        for (id, _) in &self.bearers {
            self.stack.disable_bearer(now, *id);
        }
        self.flush();
        self.observe();
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.observer.counters().clone();
        let encryption = self.stack.encryption_stats().named();
        counters.encryption = encryption.map(|(name, count)| (name.into(), count)).into();
        counters.bearers = self.bearers.iter().map(|(_, b)| (b.name().to_owned(), b.counters())).collect();
        counters
    }
}
