//! What a call does while it waits: looks as long as that may pay, then sleeps.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use utipc_lanes::{BELLS_MAX, Parked};
use utipc_os::Left;
use utipc_os::futex::Woken;
use utipc_os::spin::Mode;

use crate::attachment::lock;
use crate::lanes::pair::Pair;
use crate::shared::Half;
use crate::socket::Socket;
use crate::{Error, Wait};

/// How often a sender whose message does not fit its lane's ring asks again for a larger one.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// The longest sleep of a thread that cannot be woken by all its lanes, because there are too many.
const SLICE: Duration = Duration::from_millis(1);

impl Socket {
    /// Tries until `attempt` yields something: at once, then looking while that may pay, then sleeping in between.
    /// `bytes` is what a sender wants room for.
    pub(crate) fn block<T>(
        &self,
        half: Half,
        wait: Wait,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut attempt = || {
            if self.attachment.has_news() {
                self.heed_news(half)?;
            }
            attempt()
        };
        if wait == Wait::Never && half == Half::Receive {
            // What another process says it has sent may be there before the bell is rung.
            let mut receiver = lock(&self.shared.receiver);
            if !receiver.has_lanes() {
                receiver.node_is_ready();
            }
        }
        if let Some(done) = attempt()? {
            self.shared.set_waits(half, false);
            return Ok(Some(done));
        }
        self.shared.set_waits(half, true);
        if wait == Wait::Never {
            return Ok(None);
        }
        let end = wait.start();
        let spin = if half == Half::Receive { &self.shared.receive_spin } else { &self.shared.send_spin };
        loop {
            // Of several threads that wait for one socket, one looks.
            let mut spin = spin.try_lock().ok();
            let found = spin.as_mut().and_then(|spin| {
                let awake = self.partner_is_awake(half);
                spin.look(awake, || attempt().transpose())
            });
            if let Some(done) = found {
                self.shared.set_waits(half, false);
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
                self.shared.set_waits(half, false);
                return Ok(Some(done));
            }
        }
    }

    /// What a thread does that slept until then.
    pub(crate) fn heed_signal(&self, woken: Woken) -> Result<(), Error> {
        let ends = woken == Woken::Signal && self.shared.interruptible.load(Relaxed);
        if ends { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The daemon has something to tell. A command brings it along; where the attempt is one, it need not be asked for.
    #[cold]
    fn heed_news(&self, half: Half) -> Result<(), Error> {
        let direct = match half {
            Half::Receive => {
                let mut receiver = lock(&self.shared.receiver);
                if !receiver.has_lanes() {
                    receiver.node_is_ready();
                }
                receiver.has_lanes()
            }
            Half::Send => lock(&self.shared.sender).has_lanes(),
        };
        if direct || self.attachment.has_chores() { self.attachment.fetch_news() } else { Ok(()) }
    }

    /// Whether one of those who may end the wait was awake when last seen.
    fn partner_is_awake(&self, half: Half) -> bool {
        match half {
            Half::Receive => lock(&self.shared.receiver).some_partner_is_awake(),
            Half::Send => {
                let pair = lock(&self.shared.sender).awaited_pair();
                pair.is_some_and(|pair| pair.partner_is_awake())
            }
        }
    }

    /// Sleeps until something may have changed, at most `limit`; false if there was something before that.
    fn sleep(&self, half: Half, bytes: usize, mut limit: Option<Duration>) -> Result<bool, Error> {
        let mut pairs: Vec<Arc<Pair>> = match half {
            Half::Receive => lock(&self.shared.receiver).pairs(),
            Half::Send => lock(&self.shared.sender).awaited_pair().into_iter().collect(),
        };
        let mut at_most = |slice: Duration| limit = Some(limit.map_or(slice, |limit| limit.min(slice)));
        if pairs.len() > BELLS_MAX {
            pairs.truncate(BELLS_MAX);
            at_most(SLICE);
        }
        if half == Half::Send && !pairs.is_empty() {
            at_most(ASK_AGAIN);
        }
        let sleeper = self.attachment.bell().enter();
        let seen: Vec<u32> = pairs.iter().map(|pair| pair.bell.seq()).collect();
        let parked: Vec<Parked<'_>> = pairs.iter().map(|pair| pair.bell.park()).collect();
        let something = match half {
            Half::Receive => {
                let mut receiver = lock(&self.shared.receiver);
                let something =
                    self.shared.to_receiver.has_some() || receiver.arm_all(self.kind(), &self.shared.ready);
                let tell = receiver.take_tell();
                drop(receiver);
                self.tell(tell)?;
                something
            }
            Half::Send => {
                let mut sender = lock(&self.shared.sender);
                let ready = match sender.congested() {
                    Some((node, level)) => !self.attachment.is_congested(node, level)?,
                    None => sender.awaited_pair().is_some() && sender.want_room(bytes),
                };
                ready || self.shared.to_sender.has_some()
            }
        };
        if something || self.attachment.has_news() {
            return Ok(false);
        }
        let bells: Vec<_> = parked.iter().zip(seen).collect();
        self.heed_signal(sleeper.sleep(&bells, limit)?)?;
        Ok(true)
    }
}
