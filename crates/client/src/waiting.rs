//! Waiting of blocking calls: a call spins as long as that is likely to save a sleep, then sleeps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use utipc_lanes::{BELLS_MAX, Pair, Parked};
use utipc_os::reentry::Gap;
use utipc_os::spin::{Mode, Spin};
use utipc_os::{Left, Wait};

use crate::base::{Base, unless_silent};
use crate::error::Error;
use crate::receive::inbox::Asleep;
use crate::state::Half;

/// Longest sleep of a thread that waits for more lanes than it can watch at once ([`BELLS_MAX`]).
const SLICE: Duration = Duration::from_millis(1);

/// What a direction has found when it was about to sleep.
pub(crate) struct BeforeSleep<'a> {
    /// The state has changed: there is no sleep.
    pub(crate) is_ready: bool,
    /// Counts the sleep of a receiver.
    pub(crate) asleep: Option<Asleep<'a>>,
}

/// One direction of a socket, as far as calls that wait need it.
pub(crate) trait Direction {
    /// Its half.
    const HALF: Half;

    fn base(&self) -> &Base;

    fn spin(&self) -> &Mutex<Spin>;

    /// Chooses where the next attempt finds or puts a message. True: in lanes; false: at the node, by a request, whose
    /// reply brings notices.
    fn chooses_lanes(&self) -> bool;

    /// Whether a process that may end the wait was awake when last checked.
    fn peer_is_awake(&self) -> bool;

    /// The arenas whose doorbells end the wait.
    fn awaited_pairs(&self) -> Vec<Arc<Pair>>;

    /// The longest sleep, if it is limited. `has_pairs`: there is an arena to wait for.
    fn longest_sleep(&self, has_pairs: bool) -> Option<Duration>;

    /// Asks peers to ring, and checks once more whether the state has changed. `noticed`: see
    /// [`Outbox::readiness`](crate::send::outbox::Outbox::readiness), before the last attempt.
    fn before_sleep(&self, noticed: u32) -> Result<BeforeSleep<'_>, Error>;

    /// Repeats `attempt` until it yields something or `wait` ends: once, then while spinning, then after each sleep.
    #[inline]
    fn block<T>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let Base { attachment, state } = self.base();
        let mut attempt = || {
            let tried = if attachment.has_notices() {
                self.fetch_notices().and_then(|()| attempt())
            } else {
                attempt()
            };
            unless_silent(tried, wait)
        };
        let noticed = state.outbox.readiness();
        match attempt()? {
            Some(done) => {
                state.set_waits(Self::HALF, false);
                Ok(Some(done))
            }
            None => self.block_in_vain(wait, noticed, attempt),
        }
    }

    /// [`Direction::block`] after the first attempt.
    #[inline(never)]
    fn block_in_vain<T>(
        &self,
        wait: Wait,
        mut noticed: u32,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let Base { attachment, state } = self.base();
        state.set_waits(Self::HALF, true);
        if wait == Wait::Never {
            return Ok(None);
        }
        let end = wait.start();
        loop {
            // Of several threads that wait for one socket only one spins.
            let mut spin = self.spin().try_lock().ok();
            let found = spin.as_mut().and_then(|spin| {
                let awake = self.peer_is_awake();
                let gap = Gap::open();
                spin.spin(awake, || gap.inside(&mut attempt).transpose())
            });
            if let Some(done) = found {
                state.set_waits(Self::HALF, false);
                return done.map(Some);
            }
            let Left::Time(limit) = end.left() else { return Ok(None) };
            if !spin.as_ref().is_some_and(|spin| spin.mode() == Mode::Busy) {
                let slept = if attachment.connection.is_overdue() {
                    self.base().pause(limit).map(|()| true)?
                } else {
                    unless_silent(self.sleep(limit, noticed).map(Some), wait)?.unwrap_or(true)
                };
                if let (true, Some(spin)) = (slept, &mut spin) {
                    spin.slept();
                }
            }
            noticed = state.outbox.readiness();
            if let Some(done) = attempt()? {
                state.set_waits(Self::HALF, false);
                return Ok(Some(done));
            }
        }
    }

    /// Fetches the daemon's notices, unless the attempt makes a request, whose reply brings them.
    #[cold]
    fn fetch_notices(&self) -> Result<(), Error> {
        let attachment = &self.base().attachment;
        if self.chooses_lanes() || attachment.notices.has_tasks() {
            attachment.fetch_notices()
        } else {
            Ok(())
        }
    }

    /// Sleeps until the state may have changed, at most `limit`; returns false, without sleeping, if it already has.
    fn sleep(&self, limit: Option<Duration>, noticed: u32) -> Result<bool, Error> {
        let mut pairs = self.awaited_pairs();
        let slice = (pairs.len() > BELLS_MAX).then_some(SLICE);
        pairs.truncate(BELLS_MAX);
        let limit = [limit, slice, self.longest_sleep(!pairs.is_empty())].into_iter().flatten().min();
        let base = self.base();
        let sleeper = base.attachment.connection.bell().park();
        let seen: Vec<u32> = pairs.iter().map(|pair| pair.bell().seq()).collect();
        let parked: Vec<Parked<'_>> = pairs.iter().map(|pair| pair.bell().park()).collect();
        let BeforeSleep { is_ready, asleep } = self.before_sleep(noticed)?;
        if is_ready || base.attachment.has_notices() {
            return Ok(false);
        }
        let bells: Vec<_> = parked.iter().zip(seen).collect();
        base.check_interrupted(sleeper.sleep(&bells, limit)?)?;
        drop(asleep);
        Ok(true)
    }
}

/// Repeats `attempt`, which makes a request, whenever the bell rings, until it yields something or `wait` ends.
pub(crate) fn repeat<T>(
    base: &Base,
    wait: Wait,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let mut end = None;
    loop {
        let sleeper = base.attachment.connection.bell().park();
        if let Some(done) = unless_silent(attempt(), wait)? {
            return Ok(Some(done));
        }
        let overdue = base.attachment.connection.is_overdue();
        match end.get_or_insert_with(|| wait.start()).left() {
            Left::Nothing => return Ok(None),
            Left::Time(limit) if overdue => base.pause(limit)?,
            Left::Time(limit) => base.check_interrupted(sleeper.sleep(&[], limit)?)?,
        }
    }
}
