//! Waiting of blocking calls: a call spins as long as that is likely to save a sleep, then sleeps.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use utipc_lanes::{BELLS_MAX, Check, Pair, Parked};
use utipc_os::futex::Woken;
use utipc_os::reentry::Gap;
use utipc_os::spin::Mode;
use utipc_os::{Left, lock};

use crate::overdue::PAUSE;
use crate::socket::Socket;
use crate::state::Half;
use crate::{Error, Wait};

/// Period at which a sender whose message does not fit its lane's ring requests a larger one.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Longest sleep of a thread that waits for more lanes than it can watch at once ([`BELLS_MAX`]).
const SLICE: Duration = Duration::from_millis(1);

/// Counts a thread that sleeps until a receive finds something.
struct Asleep<'a>(&'a AtomicU32);

impl<'a> Asleep<'a> {
    fn count(asleep: &'a AtomicU32) -> Self {
        asleep.fetch_add(1, Relaxed);
        Self(asleep)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A call that may wait waits for a daemon that does not answer, too.
#[inline]
pub(crate) fn unless_silent<T>(tried: Result<Option<T>, Error>, wait: Wait) -> Result<Option<T>, Error> {
    match tried {
        Err(Error::Silent(_)) if wait != Wait::Never => Ok(None),
        tried => tried,
    }
}

impl Socket {
    /// Repeats `attempt` until it yields something or `wait` ends: once, then while spinning, then after each sleep.
    /// `bytes`: the room that a sender needs.
    pub(crate) fn block<T>(
        &self,
        half: Half,
        wait: Wait,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut attempt = || {
            let tried = if self.attachment.has_notices() {
                self.fetch_notices_for(half).and_then(|()| attempt())
            } else {
                attempt()
            };
            unless_silent(tried, wait)
        };
        if wait == Wait::Never && half == Half::Receive {
            // The bell may ring later than the program learns of a message by other means: ask the node.
            let mut receiver = lock(&self.state.receiver);
            if !receiver.has_lanes() {
                receiver.node_is_ready();
            }
        }
        let mut noticed = self.state.readiness.load(Acquire);
        if let Some(done) = attempt()? {
            self.state.set_waits(half, false);
            return Ok(Some(done));
        }
        self.state.set_waits(half, true);
        if wait == Wait::Never {
            return Ok(None);
        }
        let end = wait.start();
        let spin = if half == Half::Receive { &self.state.receive_spin } else { &self.state.send_spin };
        loop {
            // Of several threads that wait for one socket only one spins.
            let mut spin = spin.try_lock().ok();
            let found = spin.as_mut().and_then(|spin| {
                let awake = self.peer_is_awake(half);
                let gap = Gap::open();
                spin.spin(awake, || gap.inside(&mut attempt).transpose())
            });
            if let Some(done) = found {
                self.state.set_waits(half, false);
                return done.map(Some);
            }
            let Left::Time(limit) = end.left() else { return Ok(None) };
            if !spin.as_ref().is_some_and(|spin| spin.mode() == Mode::Busy) {
                let slept = if self.attachment.is_overdue() {
                    self.pause(limit)?
                } else {
                    unless_silent(self.sleep(half, bytes, limit, noticed).map(Some), wait)?.unwrap_or(true)
                };
                if let (true, Some(spin)) = (slept, &mut spin) {
                    spin.slept();
                }
            }
            noticed = self.state.readiness.load(Acquire);
            if let Some(done) = attempt()? {
                self.state.set_waits(half, false);
                return Ok(Some(done));
            }
        }
    }

    /// Sleeps for a moment, while the daemon does not answer.
    #[cold]
    pub(crate) fn pause(&self, limit: Option<Duration>) -> Result<bool, Error> {
        let pause = limit.map_or(PAUSE, |limit| limit.min(PAUSE));
        self.check_interrupted(self.attachment.bell().park().sleep(&[], Some(pause))?)?;
        Ok(true)
    }

    /// After a sleep: returns an error if a signal ended it and the socket is interruptible.
    pub(crate) fn check_interrupted(&self, woken: Woken) -> Result<(), Error> {
        let ends = woken == Woken::Signal && self.state.interruptible.load(Relaxed);
        if ends { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Fetches the daemon's notices, unless the attempt makes a request, whose reply brings them.
    #[cold]
    fn fetch_notices_for(&self, half: Half) -> Result<(), Error> {
        let by_lanes = match half {
            Half::Receive => {
                let mut receiver = lock(&self.state.receiver);
                if !receiver.has_lanes() {
                    receiver.node_is_ready();
                }
                receiver.has_lanes()
            }
            Half::Send => lock(&self.state.sender).lanes.has_lanes(),
        };
        if by_lanes || self.attachment.has_tasks() { self.attachment.fetch_notices() } else { Ok(()) }
    }

    /// Whether a process that may end the wait was awake when last checked.
    fn peer_is_awake(&self, half: Half) -> bool {
        match half {
            Half::Receive => lock(&self.state.receiver).some_peer_is_awake(),
            Half::Send => {
                let pairs = lock(&self.state.sender).lanes.awaited_pairs();
                pairs.iter().any(|pair| pair.peer_is_awake())
            }
        }
    }

    /// Sleeps until the state may have changed, at most `limit`; returns false, without sleeping, if it already has.
    /// `noticed`: [`readiness`](crate::state::SocketState::readiness) before the last attempt.
    fn sleep(
        &self,
        half: Half,
        bytes: usize,
        mut limit: Option<Duration>,
        noticed: u32,
    ) -> Result<bool, Error> {
        let mut pairs: Vec<Arc<Pair>> = match half {
            Half::Receive => lock(&self.state.receiver).pairs(),
            Half::Send => lock(&self.state.sender).lanes.awaited_pairs(),
        };
        let mut at_most = |slice: Duration| limit = Some(limit.map_or(slice, |limit| limit.min(slice)));
        if pairs.len() > BELLS_MAX {
            pairs.truncate(BELLS_MAX);
            at_most(SLICE);
        }
        if half == Half::Send {
            // Another thread may wait for another lane of this socket: the limit holds also without an arena.
            let left = lock(&self.state.sender).lanes.waits_left();
            if !pairs.is_empty() || left.is_some() {
                at_most(left.map_or(ASK_AGAIN, |(shortest, _)| shortest.min(ASK_AGAIN)));
            }
        }
        let sleeper = self.attachment.bell().park();
        let seen: Vec<u32> = pairs.iter().map(|pair| pair.bell().seq()).collect();
        let parked: Vec<Parked<'_>> = pairs.iter().map(|pair| pair.bell().park()).collect();
        let _counted;
        let something = match half {
            Half::Receive => {
                let mut receiver = lock(&self.state.receiver);
                _counted = Asleep::count(&self.state.asleep);
                let something = self.state.receiver_events.has_some()
                    || receiver.arm_all(self.kind(), &self.state.ready) != Check::Nothing;
                let to_wake = receiver.take_lanes_to_wake();
                drop(receiver);
                self.wake_peers(to_wake)?;
                something
            }
            Half::Send => {
                let sender = &mut lock(&self.state.sender).lanes;
                let ready = match sender.sleeps_for_link(Instant::now()) {
                    Some((node, level)) => !self.attachment.is_congested(node, level)?,
                    None => !sender.awaited_pairs().is_empty() && sender.want_room(bytes),
                };
                // What the node answers may have changed since.
                let at_node = self.state.readiness.load(Acquire) != noticed;
                ready || at_node || self.state.sender_events.has_some()
            }
        };
        if something || self.attachment.has_notices() {
            return Ok(false);
        }
        let bells: Vec<_> = parked.iter().zip(seen).collect();
        self.check_interrupted(sleeper.sleep(&bells, limit)?)?;
        Ok(true)
    }
}
