//! Waiting of blocking calls: a call spins as long as that is likely to save a sleep, then sleeps.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use utipc_lanes::{BELLS_MAX, Check, Pair, Parked};
use utipc_os::futex::Woken;
use utipc_os::spin::Mode;
use utipc_os::{Left, lock};

use crate::socket::Socket;
use crate::state::Half;
use crate::{Error, Wait};

/// Period at which a sender whose message does not fit its lane's ring requests a larger one.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Longest sleep of a thread that waits for more lanes than it can watch at once ([`BELLS_MAX`]).
const SLICE: Duration = Duration::from_millis(1);

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
            if self.attachment.has_notices() {
                self.fetch_notices_for(half)?;
            }
            attempt()
        };
        if wait == Wait::Never && half == Half::Receive {
            // The bell may ring later than the program learns of a message by other means: ask the node.
            let mut receiver = lock(&self.state.receiver);
            if !receiver.has_lanes() {
                receiver.node_is_ready();
            }
        }
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
                spin.spin(awake, || attempt().transpose())
            });
            if let Some(done) = found {
                self.state.set_waits(half, false);
                return done.map(Some);
            }
            let Left::Time(limit) = end.left() else { return Ok(None) };
            if !spin.as_ref().is_some_and(|spin| spin.mode() == Mode::Busy) {
                let slept = self.sleep(half, bytes, limit)?;
                if let (true, Some(spin)) = (slept, &mut spin) {
                    spin.slept();
                }
            }
            if let Some(done) = attempt()? {
                self.state.set_waits(half, false);
                return Ok(Some(done));
            }
        }
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
                let pair = lock(&self.state.sender).lanes.awaited_pair();
                pair.is_some_and(|pair| pair.peer_is_awake())
            }
        }
    }

    /// Sleeps until the state may have changed, at most `limit`; returns false, without sleeping, if it already has.
    fn sleep(&self, half: Half, bytes: usize, mut limit: Option<Duration>) -> Result<bool, Error> {
        let mut pairs: Vec<Arc<Pair>> = match half {
            Half::Receive => lock(&self.state.receiver).pairs(),
            Half::Send => lock(&self.state.sender).lanes.awaited_pair().into_iter().collect(),
        };
        let mut at_most = |slice: Duration| limit = Some(limit.map_or(slice, |limit| limit.min(slice)));
        if pairs.len() > BELLS_MAX {
            pairs.truncate(BELLS_MAX);
            at_most(SLICE);
        }
        if half == Half::Send && !pairs.is_empty() {
            at_most(ASK_AGAIN);
        }
        let sleeper = self.attachment.bell().park();
        let seen: Vec<u32> = pairs.iter().map(|pair| pair.bell().seq()).collect();
        let parked: Vec<Parked<'_>> = pairs.iter().map(|pair| pair.bell().park()).collect();
        let something = match half {
            Half::Receive => {
                let mut receiver = lock(&self.state.receiver);
                let something = self.state.receiver_events.has_some()
                    || receiver.arm_all(self.kind(), &self.state.ready) != Check::Nothing;
                let to_wake = receiver.take_lanes_to_wake();
                drop(receiver);
                self.wake_peers(to_wake)?;
                something
            }
            Half::Send => {
                let sender = &mut lock(&self.state.sender).lanes;
                let ready = match sender.congested() {
                    Some((node, level)) => !self.attachment.is_congested(node, level)?,
                    None => sender.awaited_pair().is_some() && sender.want_room(bytes),
                };
                ready || self.state.sender_events.has_some()
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
