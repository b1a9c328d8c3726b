//! Levels that lag: a program whose waits all go through the caller of this library does not need a descriptor that is
//! right at every moment, only one that is right before it sleeps.
//!
//! After a receive the lanes are left unarmed and the descriptor unreadable: the level is *deferred*. The caller checks
//! deferred sockets while it looks ([`Socket::check_deferred`]), and settles those left before the program sleeps
//! ([`Socket::settle_level`]). A socket with a message is made readable by the own copy of the far end, so that the
//! kernel reports it as any other. Decision 19.

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::Request;
use utipc_lanes::{Check, Receiver};
use utipc_os::lock;
use utipc_os::packets::Far;

use crate::descriptor::Descriptor;
use crate::{Error, Socket};

impl Socket {
    /// Allows the level of the program's descriptor to lag behind. From now on the caller settles it
    /// ([`Socket::settle_level`]) after every receive that leaves it deferred, before any thread of the program waits
    /// by the descriptor.
    pub fn defer_level(&self) {
        if let Some(descriptor) = self.descriptor.get()
            && self.attachment.shares_far_ends()
        {
            descriptor.deferral.allow();
        }
    }

    /// Whether the descriptor's level has to be settled before the program waits by it.
    #[inline]
    #[must_use]
    pub fn is_level_deferred(&self) -> bool {
        self.descriptor.get().is_some_and(|descriptor| descriptor.deferral.is_deferred())
    }

    /// Whether any process that sends to this socket was awake when last seen.
    #[must_use]
    pub fn some_sender_is_awake(&self) -> bool {
        self.state.receiver.try_lock().is_ok_and(|receiver| receiver.some_peer_is_awake())
    }

    /// Whether the program's wait is over: a deferred socket has something, and its descriptor is readable now.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn check_deferred(&self) -> Result<bool, Error> {
        let Some(descriptor) = self.polled().filter(|descriptor| descriptor.deferral.is_deferred()) else {
            return Ok(false);
        };
        if descriptor.deferral.may_be_flagged() {
            return Ok(true);
        }
        if self.attachment.has_notices() || self.state.receiver_events.has_some() {
            self.settle_level()?;
            return Ok(true);
        }
        // A thread that receives right now defers the level again, or settles it.
        let Ok(mut receiver) = self.state.receiver.try_lock() else { return Ok(false) };
        let found = receiver.check(&self.state.ready);
        let to_wake = receiver.take_lanes_to_wake();
        let is_right = match found {
            // An empty lane may have given room back, for which its writer waits.
            Check::Nothing => {
                drop(receiver);
                return self.wake_peers(to_wake).map(|()| false);
            }
            Check::Something => self.show(descriptor),
            Check::Ended => false,
        };
        if !is_right {
            descriptor.deferral.set_deferred(false);
            descriptor.deferral.set_flagged(true);
            self.sync_level(&mut receiver, true)?;
        }
        drop(receiver);
        self.wake_peers(to_wake)?;
        Ok(true)
    }

    /// Makes a deferred level right: until the next receive the kernel reports the socket as soon as it has something.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn settle_level(&self) -> Result<(), Error> {
        let Some(descriptor) = self.polled().filter(|descriptor| descriptor.deferral.is_deferred()) else {
            return Ok(());
        };
        let mut receiver = lock(&self.state.receiver);
        if !descriptor.deferral.is_deferred() {
            return Ok(());
        }
        descriptor.deferral.set_deferred(false);
        let was_flagged = descriptor.deferral.may_be_flagged();
        descriptor.deferral.set_flagged(true);
        let settled = !was_flagged && self.may_lag(&receiver) && {
            match receiver.arm_all(self.kind(), &self.state.ready) {
                Check::Something => self.show(descriptor),
                Check::Nothing => !self.attachment.has_notices() && !self.state.receiver_events.has_some(),
                Check::Ended => false,
            }
        };
        if !settled {
            self.sync_level(&mut receiver, !was_flagged)?;
        }
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        self.wake_peers(to_wake)
    }

    /// After a receive: defers the level if it depends on lanes alone, all of which a look checks.
    pub(crate) fn defer_level_of(&self, receiver: &mut Receiver, descriptor: &Descriptor) -> bool {
        let deferral = &descriptor.deferral;
        if !self.may_lag(receiver) || self.own_far_end(descriptor).is_none() {
            return false;
        }
        match receiver.check(&self.state.ready) {
            Check::Something => {}
            Check::Ended => return false,
            Check::Nothing => {
                let was_told = receiver.disarm_all();
                if deferral.may_be_flagged() {
                    if !descriptor.drain() && was_told {
                        // A byte is on its way.
                        return false;
                    }
                    deferral.set_flagged(false);
                }
            }
        }
        deferral.set_deferred(true);
        true
    }

    fn may_lag(&self, receiver: &Receiver) -> bool {
        let state = &self.state;
        !self.attachment.has_notices()
            && !state.receiver_events.has_some()
            && !state.hosted.load(Relaxed)
            && receiver.checks_all_lanes()
            && !receiver.node_counts(self.kind())
    }

    /// Makes the descriptor readable, without the daemon.
    fn show(&self, descriptor: &Descriptor) -> bool {
        let shown = self.own_far_end(descriptor).is_some_and(Far::set_readable);
        if shown {
            descriptor.deferral.set_flagged(true);
        }
        shown
    }

    fn own_far_end<'a>(&self, descriptor: &'a Descriptor) -> Option<&'a Far> {
        descriptor.deferral.far(|| {
            let request = Request::FarEnd { port: self.port(), lane: None };
            self.fetch_near(&request).ok().and_then(Far::new)
        })
    }
}
