//! Fault injection around any bearer: drops, delays, duplicates and reorders frames, interrupts the bearer, and
//! records.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_os::timer::Timer;
use utipc_os::{OsError, clock};

use super::faults::{FaultCounters, Faults, FaultyWire};
use super::pcap::Recorder;
use super::tally::Counters;
use super::{Bearer, BearerError, Idle};

/// A direction as the wrapped node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames that the node sends.
    Send,
    /// Frames that the node receives.
    Receive,
}

/// A bearer wrapped in faults, which are off until its [`Control`] turns them on.
///
/// The recording is on the wire's side: it shows the frames that left and arrived. While
/// no fault is on, batches pass unchanged.
pub struct Middleware {
    inner: Box<dyn Bearer>,
    state: Arc<Mutex<State>>,
    timer: Timer,
    armed: Option<Duration>,
    out: FrameBatch,
}

/// Turns faults of one [`Middleware`] on and off from any thread, while the node uses it.
#[derive(Clone)]
pub struct Control {
    state: Arc<Mutex<State>>,
    local: MediaAddr,
}

struct State {
    interrupted: bool,
    send: FaultyWire<Target>,
    receive: FaultyWire<MediaAddr>,
    recorder: Option<Recorder>,
}

impl State {
    fn is_clear(&self) -> bool {
        !self.interrupted && self.recorder.is_none() && self.send.is_clear() && self.receive.is_clear()
    }

    /// Writes to the recording; a recording that cannot be written ends, and the node continues.
    fn record(&mut self, what: impl FnOnce(&mut Recorder) -> io::Result<()>) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Err(error) = what(recorder) {
            tracing::warn!(%error, "the recording ends here: it cannot be written");
            self.recorder = None;
        }
    }

    /// Applies the faults to a frame that the node sends.
    fn send(&mut self, now: Duration, to: Target, frame: &[u8], out: &mut FrameBatch) {
        if self.interrupted {
            self.send.counters.interrupted += 1;
        } else {
            self.send.pass(now, to, frame, &mut |to, frame| out.push(0, to, frame));
        }
    }

    /// Sends delayed frames that are due; an interrupted bearer drops them.
    fn send_due(&mut self, now: Duration, out: &mut FrameBatch) {
        let (interrupted, mut lost) = (self.interrupted, 0);
        self.send.due(now, &mut |to, frame| if interrupted { lost += 1 } else { out.push(0, to, frame) });
        self.send.counters.interrupted += lost;
    }
}

impl Middleware {
    /// Wraps `inner`; all random decisions follow from `seed`.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn new(inner: Box<dyn Bearer>, seed: u64) -> Result<Middleware, BearerError> {
        let state = State {
            interrupted: false,
            send: FaultyWire::new(seed),
            // The directions are independent: each has its own random numbers.
            receive: FaultyWire::new(!seed),
            recorder: None,
        };
        Ok(Middleware {
            inner,
            state: Arc::new(Mutex::new(state)),
            timer: Timer::new()?,
            armed: None,
            out: FrameBatch::default(),
        })
    }

    /// A handle that turns faults on and off.
    pub fn control(&self) -> Control {
        Control { state: self.state.clone(), local: self.inner.local_address() }
    }

    /// Writes the frames in `out` to the recording and sends them.
    fn flush(&mut self, state: &mut State) {
        if state.recorder.is_some() && !self.out.is_empty() {
            let (local, time, out) = (self.inner.local_address(), clock::wall(), &self.out);
            let all_peers = self.inner.broadcast_targets();
            state.record(|recorder| {
                for frame in out.frames() {
                    let one = if let Target::Unicast(to) = frame.to { Some(to) } else { None };
                    let targets =
                        one.iter().chain(all_peers.iter().take(if one.is_some() { 0 } else { usize::MAX }));
                    for to in targets {
                        recorder.frame(time, local, *to, &out.frame(frame))?;
                    }
                }
                recorder.flush()
            });
        }
        if !self.out.is_empty() {
            self.inner.send(0, &self.out);
            self.out.clear();
        }
    }

    /// Sets the timer to the next delayed frame.
    fn arm(&mut self, state: &State) -> Result<(), BearerError> {
        let next = [state.send.deadline(), state.receive.deadline()].into_iter().flatten().min();
        if next != self.armed {
            self.timer.set(next)?;
            self.armed = next;
        }
        Ok(())
    }
}

impl Bearer for Middleware {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn description(&self) -> String {
        format!("{}, with fault injection", self.inner.description())
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.inner.fds();
        fds.push(self.timer.as_fd());
        fds
    }

    fn local_address(&self) -> MediaAddr {
        self.inner.local_address()
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn base_mtu(&self) -> usize {
        self.inner.base_mtu()
    }

    fn max_receive(&self) -> usize {
        self.inner.max_receive()
    }

    fn has_broadcast(&self) -> bool {
        self.inner.has_broadcast()
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        self.inner.broadcast_targets()
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        let state = self.state.clone();
        let mut state = lock(&state);
        if state.is_clear() {
            return self.inner.send(id, batch);
        }
        let now = clock::monotonic();
        state.send_due(now, &mut self.out);
        let mtu = self.inner.mtu();
        for frame in batch.frames().iter().filter(|frame| frame.bearer == id) {
            let bytes = &*batch.frame(frame);
            if bytes.is_empty() || bytes.len() > mtu {
                // The bearer refuses and counts an invalid frame.
                let mut refused = FrameBatch::default();
                refused.push(0, frame.to, bytes);
                self.inner.send(0, &refused);
            } else {
                state.send(now, frame.to, bytes, &mut self.out);
            }
        }
        self.flush(&mut state);
        if let Err(error) = self.arm(&state) {
            tracing::warn!(%error, "delayed frames wait for the next call");
        }
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        let shared = self.state.clone();
        let mut state = lock(&shared);
        if state.is_clear() && self.armed.is_none() {
            drop(state);
            return self.inner.receive(sink);
        }
        let now = clock::monotonic();
        state.send_due(now, &mut self.out);
        self.flush(&mut state);
        // Arrivals are collected here, so that the sink runs without the lock.
        let mut arrived = FrameBatch::default();
        let mut arrive = |from, frame: &[u8]| arrived.push(0, Target::Unicast(from), frame);
        let (interrupted, mut lost, wire) = (state.interrupted, 0, &mut state.receive);
        wire.due(now, &mut |from, frame| if interrupted { lost += 1 } else { arrive(from, frame) });
        let (local, time) = (self.inner.local_address(), clock::wall());
        let more = self.inner.receive(&mut |from, frame| {
            state.record(|recorder| recorder.frame(time, from, local, frame));
            if interrupted {
                lost += 1;
            } else {
                state.receive.pass(now, from, frame, &mut arrive);
            }
        })?;
        state.receive.counters.interrupted += lost;
        state.record(Recorder::flush);
        self.arm(&state)?;
        drop(state);
        for frame in arrived.frames() {
            if let Target::Unicast(from) = frame.to {
                sink(from, &arrived.frame(frame));
            }
        }
        Ok(more)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn owns_address(&self) -> bool {
        self.inner.owns_address()
    }

    fn take_gone(&mut self) -> Option<MediaAddr> {
        self.inner.take_gone()
    }

    fn idle(&self) -> Option<Arc<dyn Idle>> {
        self.inner.idle()
    }

    fn add_remote(&mut self, remote: SocketAddr) -> Result<(), BearerError> {
        self.inner.add_remote(remote)
    }

    fn remove_remote(&mut self, remote: SocketAddr) -> bool {
        self.inner.remove_remote(remote)
    }
}

impl Control {
    /// Interrupts the bearer in both directions, or restores it. Delayed frames are lost by an interruption.
    pub fn interrupt(&self, interrupted: bool) {
        lock(&self.state).interrupted = interrupted;
    }

    /// Applies `faults` to one direction from the next frame on.
    pub fn set(&self, direction: Direction, faults: Faults) {
        let mut state = lock(&self.state);
        match direction {
            Direction::Send => state.send.faults = faults,
            Direction::Receive => state.receive.faults = faults,
        }
    }

    /// Counts of one direction while any fault was on.
    pub fn counters(&self, direction: Direction) -> FaultCounters {
        let state = lock(&self.state);
        match direction {
            Direction::Send => state.send.counters,
            Direction::Receive => state.receive.counters,
        }
    }

    /// Records both directions to a new capture file at `path` from now on.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(&self, path: &Path) -> Result<(), BearerError> {
        let failed = |cause| OsError::new("record to", path.display(), cause);
        let file = File::create(path).map_err(failed)?;
        Ok(self.record_to(Box::new(BufWriter::new(file))).map_err(failed)?)
    }

    /// Records both directions to `out` from now on, in pcap format.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn record_to(&self, out: Box<dyn Write + Send>) -> io::Result<()> {
        lock(&self.state).recorder = Some(Recorder::new(out, self.local)?);
        Ok(())
    }

    /// Ends the recording; every frame so far is in it.
    pub fn stop_recording(&self) {
        lock(&self.state).recorder = None;
    }
}

/// A panic elsewhere leaves the state usable: every change to it is a single step.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
