//! Lazy readiness: if every wait of the program goes through the caller of this library, a descriptor need only be
//! right before the program sleeps.
//!
//! After a receive the lanes are left unarmed and the descriptor unreadable: it is *stale*. The caller checks sockets
//! with a stale descriptor while it polls busily ([`Readiness::check_stale`]), and synchronises the others before the
//! program sleeps ([`Readiness::sync_stale`]). A socket with a message is made readable by the own copy of the far end,
//! so that the kernel reports it as any other. Decision 19.
//!
//! For a caller that does not see all waits of the program a descriptor is stale only during a busy poll
//! ([`Readiness::begin_busy_poll`]).

use utipc_attach::SocketCall;
use utipc_lanes::{Check, Receiver};
use utipc_os::packets::Far;
use utipc_os::spin::Mode;

use crate::error::Error;
use crate::ready::Readiness;
use crate::ready::descriptor::Descriptor;

/// What precedes the moment at which a descriptor becomes stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Message,
    /// A receive that would block.
    Nothing,
    /// The begin of a busy poll.
    Begin,
}

impl Readiness {
    /// Allows lazy readiness. From now on the caller synchronises the descriptor ([`Readiness::sync_stale`]) after
    /// every receive that leaves it stale, before any thread of the program waits by it.
    pub fn allow_lazy(&self) {
        if let Some(descriptor) = self.ends.near() {
            descriptor.lazy.allow();
        }
    }

    /// Ends [`Readiness::allow_lazy`]: the program may wait by the descriptor without the caller of this library.
    pub fn forbid_lazy(&self) {
        if let Some(descriptor) = self.ends.near() {
            descriptor.lazy.forbid();
            // If the daemon has died, the descriptor hangs up.
            let _ = self.sync_stale();
        }
    }

    /// Whether the descriptor has to be synchronised before the program waits by it.
    #[inline]
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.ends.near().is_some_and(|descriptor| descriptor.lazy.is_stale())
    }

    /// Whether any process that sends to this socket was awake when last seen.
    #[must_use]
    pub fn some_sender_is_awake(&self) -> bool {
        self.base.state.inbox.try_lock().is_some_and(|receiver| receiver.some_peer_is_awake())
    }

    /// Synchronises the descriptor, which stays right until [`Readiness::end_wait`]: a part of the program waits by it.
    pub fn begin_wait(&self) {
        let inbox = &self.base.state.inbox;
        inbox.begin_sleep(&mut inbox.lock());
        // If the daemon has died, the descriptor hangs up.
        let _ = self.sync_stale();
    }

    /// Ends a wait of [`Readiness::begin_wait`].
    pub fn end_wait(&self) {
        self.base.state.inbox.end_sleep();
    }

    /// Makes the descriptor of a socket that is received from often stale, until the caller synchronises it at the end
    /// of its busy poll, which is short: other threads may sleep in a wait for it. Returns whether to check the socket.
    pub(super) fn begin_busy_poll(&self) -> bool {
        let Some(descriptor) = self.polled().filter(|_| self.may_poll_busily()) else { return false };
        let Some(mut receiver) = self.base.state.inbox.try_lock() else { return false };
        let stale = self.make_stale(&mut receiver, descriptor, After::Begin);
        // If the daemon has died, the descriptor hangs up.
        let _ = self.base.unlock(receiver);
        stale
    }

    /// Whether a busy poll of the socket is likely to pay.
    pub(super) fn may_poll_busily(&self) -> bool {
        let is_worth_it =
            |descriptor: &Descriptor| descriptor.lazy.is_worth_it() && !descriptor.lazy.is_stale();
        self.polled().is_some_and(is_worth_it) && self.base.state.inbox.spin_mode() != Mode::Parked
    }

    /// Whether there are events to process, of which any may change what a receive finds.
    fn has_events(&self) -> bool {
        self.base.attachment.has_notices() || self.base.state.inbox.events.has_some()
    }

    /// Whether a receive would find something, or has an event to process. Neither arms lanes nor changes the
    /// descriptor.
    pub(super) fn has_input(&self) -> bool {
        if self.has_events() {
            return true;
        }
        // A thread that receives right now finds it itself.
        let Some(mut receiver) = self.base.state.inbox.try_lock() else { return false };
        let found = receiver.check(&self.base.state.inbox.ready) != Check::Nothing;
        // The receive reports the error.
        self.base.unlock(receiver).is_err() || found
    }

    fn stale(&self) -> Option<&Descriptor> {
        self.polled().filter(|descriptor| descriptor.lazy.is_stale())
    }

    /// Whether the program's wait is over: a socket with a stale descriptor has something, and the descriptor is
    /// readable now.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn check_stale(&self) -> Result<bool, Error> {
        let Some(descriptor) = self.stale() else { return Ok(false) };
        if descriptor.lazy.may_be_readable() {
            return Ok(true);
        }
        if self.has_events() {
            self.sync_stale()?;
            return Ok(true);
        }
        // A thread that receives right now makes the descriptor stale again, or right.
        let Some(mut receiver) = self.base.state.inbox.try_lock() else { return Ok(false) };
        let is_shown = match receiver.check(&self.base.state.inbox.ready) {
            // An empty lane may have given room back, for which its writer waits.
            Check::Nothing => return self.base.unlock(receiver).map(|()| false),
            Check::Something => self.show(descriptor),
            Check::Ended => false,
        };
        if !is_shown {
            descriptor.lazy.end();
            self.sync(&mut receiver, true)?;
        }
        self.base.unlock(receiver)?;
        Ok(true)
    }

    /// Synchronises a stale descriptor: until the next receive the kernel reports the socket as soon as it has
    /// something.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn sync_stale(&self) -> Result<(), Error> {
        let Some(descriptor) = self.stale() else { return Ok(()) };
        let inbox = &self.base.state.inbox;
        let mut receiver = inbox.lock();
        let lazy = &descriptor.lazy;
        if !lazy.is_stale() {
            return Ok(());
        }
        let was_readable = lazy.may_be_readable();
        lazy.end();
        let is_right = !was_readable && self.depends_on_lanes(&receiver) && {
            match receiver.arm_all(self.base.kind(), &inbox.ready) {
                Check::Something => self.show(descriptor),
                Check::Nothing if self.has_events() => false,
                Check::Nothing => {
                    lazy.set_clean();
                    true
                }
                Check::Ended => false,
            }
        };
        if !is_right {
            self.sync(&mut receiver, !was_readable)?;
        }
        self.base.unlock(receiver)
    }

    /// After a receive: makes the descriptor readable if and only if there is more to receive, or makes it stale.
    /// `got`: whether that receive got anything; if not, the next message makes a new edge. `drained`: the byte may
    /// have been read.
    #[inline]
    pub(crate) fn after_receive(&self, got: bool, drained: bool) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => self.after_polled_receive(descriptor, got, drained),
            None => Ok(()),
        }
    }

    fn after_polled_receive(&self, descriptor: &Descriptor, got: bool, drained: bool) -> Result<(), Error> {
        let mut receiver = self.base.state.inbox.lock();
        let after = if got { After::Message } else { After::Nothing };
        if !descriptor.lazy.is_due() || !self.make_stale(&mut receiver, descriptor, after) {
            descriptor.lazy.end();
            if !got && descriptor.drain_to_end() {
                self.check_daemon()?;
            }
            self.sync(&mut receiver, drained)?;
        }
        self.base.unlock(receiver)
    }

    /// Makes the descriptor stale if readiness depends on lanes alone, all of which a busy poll checks.
    fn make_stale(&self, receiver: &mut Receiver, descriptor: &Descriptor, after: After) -> bool {
        let lazy = &descriptor.lazy;
        let inbox = &self.base.state.inbox;
        if inbox.has_sleepers() || !self.depends_on_lanes(receiver) || self.far_end(descriptor).is_none() {
            return false;
        }
        match receiver.check(&inbox.ready) {
            // A program that waits for edges needs a new one.
            Check::Something if after == After::Nothing => return false,
            Check::Something => {}
            Check::Ended => return false,
            Check::Nothing => {
                let was_told = receiver.disarm_all();
                // A byte that came from elsewhere is removed by the receive that it causes, which would block; for a
                // busy poll, at whose end no receive need follow, it is removed now.
                let is_known = after == After::Begin && lazy.is_clean() && !was_told;
                let may_be_readable = lazy.may_be_readable() && !is_known;
                if may_be_readable && !descriptor.drain() && was_told {
                    // A byte is on its way.
                    return false;
                }
                lazy.set_readable(false);
            }
        }
        lazy.set_stale(true);
        true
    }

    fn depends_on_lanes(&self, receiver: &Receiver) -> bool {
        !self.has_events()
            && !self.base.state.hosted.get()
            && receiver.checks_all_lanes()
            && !receiver.node_counts(self.base.kind())
    }

    /// Makes the descriptor readable, without the daemon.
    fn show(&self, descriptor: &Descriptor) -> bool {
        let shown = self.far_end(descriptor).is_some_and(Far::set_readable);
        if shown {
            descriptor.lazy.set_readable(true);
        }
        shown
    }

    fn far_end<'a>(&self, descriptor: &'a Descriptor) -> Option<&'a Far> {
        descriptor.lazy.far(|| {
            let request = SocketCall::FarEnd.on(self.base.port());
            self.base.fetch_end(&request).ok().and_then(Far::new)
        })
    }
}
