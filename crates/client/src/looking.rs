//! Levels that lag: a program whose waits all go through the caller of this library does not need a descriptor that is
//! right at every moment, only one that is right before it sleeps.
//!
//! After a receive the lanes are left unarmed and the descriptor unreadable: the level is *deferred*. The caller checks
//! deferred sockets while it looks ([`Socket::check_deferred`]), and settles those left before the program sleeps
//! ([`Socket::settle_level`]). A socket with a message is made readable by the own copy of the far end, so that the
//! kernel reports it as any other. Decision 19.
//!
//! A caller that does not see all waits of the program defers a level only while it looks ([`Socket::begin_look`]).

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::SocketCall;
use utipc_lanes::{Check, Receiver};
use utipc_os::lock;
use utipc_os::packets::Far;
use utipc_os::spin::{Mode, Spinning, Turn};

use crate::descriptor::Descriptor;
use crate::{Error, Socket};

/// When a level is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    AfterMessage,
    /// After a receive that would block.
    AfterNothing,
    BeforeLook,
}

impl Socket {
    /// Allows the level of the program's descriptor to lag behind. From now on the caller settles it
    /// ([`Socket::settle_level`]) after every receive that leaves it deferred, before any thread of the program waits
    /// by the descriptor.
    pub fn defer_level(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.deferral.allow();
        }
    }

    /// Ends [`Socket::defer_level`]: the program may wait by the descriptor without the caller of this library.
    pub fn keep_level_right(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.deferral.forbid();
            // If the daemon has died, the descriptor hangs up.
            let _ = self.settle_level();
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

    /// Settles the level, which stays right until [`Socket::end_wait`]: a part of the program waits by the descriptor.
    pub fn begin_wait(&self) {
        let receiver = lock(&self.state.receiver);
        self.state.asleep.fetch_add(1, Relaxed);
        drop(receiver);
        // If the daemon has died, the descriptor hangs up.
        let _ = self.settle_level();
    }

    /// Ends a wait of [`Socket::begin_wait`].
    pub fn end_wait(&self) {
        self.state.asleep.fetch_sub(1, Relaxed);
    }

    /// Defers the level of a socket that is received from often, until the caller settles it at the end of its look,
    /// which is short: other threads may sleep in a wait for it. Returns whether the socket is to be checked.
    pub fn begin_look(&self) -> bool {
        let Some(descriptor) = self.polled().filter(|_| self.may_look()) else { return false };
        let Ok(mut receiver) = self.state.receiver.try_lock() else { return false };
        let deferred = self.defer_level_of(&mut receiver, descriptor, When::BeforeLook);
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        // If the daemon has died, the descriptor hangs up.
        let _ = self.wake_peers(to_wake);
        deferred
    }

    /// Whether a look at the socket is likely to pay.
    #[must_use]
    pub fn may_look(&self) -> bool {
        let is_worth_it = |descriptor: &Descriptor| {
            let deferral = &descriptor.deferral;
            deferral.is_worth_it() && !deferral.is_deferred()
        };
        self.polled().is_some_and(is_worth_it) && self.spin_mode() != Mode::Parked
    }

    /// Begins a look in turns at a socket whose level is deferred, by the rules for calls that wait. `None`: the caller
    /// sleeps.
    pub fn begin_turns(&self) -> Option<Spinning> {
        if !self.is_level_deferred() {
            return None;
        }
        let awake = self.some_sender_is_awake();
        self.state.receive_spin.try_lock().ok()?.begin(awake)
    }

    /// One turn of a look: whether a receive would find something.
    pub fn look_for_a_turn(&self, look: &mut Spinning) -> Turn<()> {
        match self.state.receive_spin.try_lock() {
            Ok(mut spin) => spin.turn(look, || self.has_input().then_some(())),
            Err(_) => Turn::Over,
        }
    }

    /// How calls that receive, and looks in turns, spin. While a look is under way: adaptive.
    #[must_use]
    pub fn spin_mode(&self) -> Mode {
        self.state.receive_spin.try_lock().map_or(Mode::Adaptive, |spin| spin.mode())
    }

    /// Notes that the sleep after [`Socket::begin_turns`] has ended because something arrived.
    pub fn slept(&self) {
        if let Ok(mut spin) = self.state.receive_spin.try_lock() {
            spin.slept();
        }
    }

    /// Whether a receive would find something, or has an event to process. Neither arms lanes nor changes the
    /// descriptor.
    #[must_use]
    pub fn has_input(&self) -> bool {
        if self.attachment.has_notices() || self.state.receiver_events.has_some() {
            return true;
        }
        // A thread that receives right now finds it itself.
        let Ok(mut receiver) = self.state.receiver.try_lock() else { return false };
        let found = receiver.check(&self.state.ready) != Check::Nothing;
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        // The receive reports the error.
        self.wake_peers(to_wake).is_err() || found
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
                Check::Nothing if self.attachment.has_notices() || self.state.receiver_events.has_some() => {
                    false
                }
                Check::Nothing => {
                    descriptor.deferral.set_clean();
                    true
                }
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

    /// Defers the level if it depends on lanes alone, all of which a look checks.
    pub(crate) fn defer_level_of(
        &self,
        receiver: &mut Receiver,
        descriptor: &Descriptor,
        when: When,
    ) -> bool {
        let deferral = &descriptor.deferral;
        let some_sleep = self.state.asleep.load(Relaxed) > 0;
        if some_sleep || !self.may_lag(receiver) || self.own_far_end(descriptor).is_none() {
            return false;
        }
        match receiver.check(&self.state.ready) {
            // A program that waits for edges needs a new one.
            Check::Something if when == When::AfterNothing => return false,
            Check::Something => {}
            Check::Ended => return false,
            Check::Nothing => {
                let was_told = receiver.disarm_all();
                // A byte that came from elsewhere is removed by the receive that it causes, which would block; for a
                // level that stays deferred, it is removed now.
                let is_known = when == When::BeforeLook && deferral.is_clean() && !was_told;
                let may_be_flagged = deferral.may_be_flagged() && !is_known;
                if may_be_flagged && !descriptor.drain() && was_told {
                    // A byte is on its way.
                    return false;
                }
                deferral.set_flagged(false);
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
            let request = SocketCall::FarEnd.on(self.port());
            self.fetch_near(&request).ok().and_then(Far::new)
        })
    }
}
