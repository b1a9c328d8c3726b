//! Readiness: a descriptor that the program polls shows whether a receive or a send would wait.
//!
//! `descriptor.rs` makes it readable and writable; docs/spec/attach.md §5 divides the work between library, peers and
//! daemon. `lazy.rs` lets it lag behind while nothing waits by it, `busy_poll.rs` checks sockets before a program
//! sleeps.

pub(crate) mod busy_poll;
pub(crate) mod descriptor;
mod lazy;

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, MutexGuard};

use utipc_attach::{Failure, Reply, SocketCall};
use utipc_lanes::{Check, Receiver};

use crate::base::Base;
use crate::error::Error;
use crate::ready::descriptor::{Descriptor, Ends};
use crate::receive::lanes;

/// Maximum number of times that readiness is checked again because something has changed meanwhile.
const SYNC_MAX: u32 = 4;

/// The readiness of a socket as its descriptor shows it.
#[derive(Clone, Debug)]
pub struct Readiness {
    base: Base,
    ends: Arc<Ends>,
}

impl Readiness {
    pub(crate) fn new(base: Base, ends: Arc<Ends>) -> Self {
        Self { base, ends }
    }

    #[inline]
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    pub(crate) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// The descriptor, made at the first call. `resumes`: it stays when the daemon dies.
    pub(crate) fn descriptor(&self, resumes: bool) -> Result<BorrowedFd<'_>, Error> {
        if self.ends.near().is_none() {
            let receiver = self.base.state.inbox.lock();
            if self.ends.near().is_none() {
                let near = self.base.fetch_end(&SocketCall::Descriptor.on(self.base.port()))?;
                let descriptor = self.ends.near.get_or_init(|| Descriptor::new(near));
                if resumes {
                    self.keep_far_end();
                }
                self.begin(receiver, descriptor)?;
            }
        }
        self.ends.near().and_then(Descriptor::as_owned).ok_or(Error::Failed(Failure::State))
    }

    /// Keeps a copy of the descriptor's far end, unless there is one: the descriptor stays when the daemon dies.
    pub(crate) fn keep_far_end(&self) {
        // Without it the descriptor hangs up when the daemon dies.
        if !self.ends.are_kept()
            && let Ok(far) = self.base.fetch_end(&SocketCall::FarEnd.on(self.base.port()))
        {
            self.ends.keep_far(far);
        }
    }

    /// The socket has begun to resume: its descriptor, if it has one, stays from now on.
    pub(crate) fn begin_resuming(&self) {
        let Some(descriptor) = self.ends.near() else { return };
        self.keep_far_end();
        if self.ends.are_kept() {
            self.base.attachment.connection.forget_near_end(descriptor.near());
        }
    }

    /// Takes over the descriptor of the socket whose place this one takes.
    pub(crate) fn adopt(&self) -> Result<(), Error> {
        let Some(descriptor) = self.ends.near() else { return Ok(()) };
        let far = self.ends.far().ok_or(Error::Failed(Failure::State))?;
        let adopt = |near, fd: BorrowedFd<'_>| {
            let request = SocketCall::Adopt { near }.on(self.base.port());
            self.base.attachment.call_with(&request, &[fd], |reply, _| (reply == Reply::Done).then_some(()))
        };
        adopt(false, far)?;
        if descriptor.as_owned().is_none() {
            // `None`: the program has closed it.
            descriptor.near().with(|near| adopt(true, near)).transpose()?;
        }
        descriptor.lazy.set_stale(false);
        if descriptor.is_polled() {
            self.begin(self.base.state.inbox.lock(), descriptor)?;
        }
        Ok(())
    }

    /// In a forked child: the daemon's death hangs up the inherited descriptor too.
    pub(crate) fn watch_inherited(&self) {
        if let Some(descriptor) = self.polled() {
            self.base.attachment.connection.watch_near_end(descriptor.near());
            self.base.state.has_other_holders.set(false);
        }
    }

    /// Sets the number of the program's descriptor; `None`: the program is about to close its last copy.
    pub(crate) fn renumber(&self, number: Option<RawFd>) {
        match (self.ends.near(), number) {
            (Some(descriptor), number) => descriptor.renumber(number, self.base.attachment.is_own()),
            (None, Some(number)) => drop(self.ends.near.set(Descriptor::lent(number))),
            (None, None) => {}
        }
    }

    /// Makes the descriptor that the program owns show the readiness of the socket. Call it before the first poll.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn begin_polling(&self) -> Result<(), Error> {
        let Some(descriptor) = self.ends.near().filter(|descriptor| !descriptor.is_polled()) else {
            return Ok(());
        };
        let receiver = self.base.state.inbox.lock();
        if descriptor.is_polled() {
            return Ok(());
        }
        self.begin(receiver, descriptor)?;
        self.note_full_node()
    }

    /// Shows the readiness from now on.
    fn begin(&self, mut receiver: MutexGuard<'_, Receiver>, descriptor: &Descriptor) -> Result<(), Error> {
        receiver.tell_daemon();
        descriptor.set_polled();
        if !self.ends.are_kept() {
            self.base.attachment.connection.watch_near_end(descriptor.near());
        }
        // The daemon cannot see messages that are in lanes already.
        self.sync(&mut receiver, true)?;
        self.base.unlock(receiver)
    }

    /// The descriptor, if it is polled.
    #[inline]
    pub(crate) fn polled(&self) -> Option<&Descriptor> {
        self.ends.near().filter(|descriptor| descriptor.is_polled())
    }

    /// Makes the descriptor readable if and only if the receiver has something. `drained`: the byte that makes it
    /// readable may have been read.
    #[cold]
    fn sync(&self, receiver: &mut Receiver, mut drained: bool) -> Result<(), Error> {
        let Some(descriptor) = self.polled() else { return Ok(()) };
        let inbox = &self.base.state.inbox;
        // The daemon adds a byte after the change that the byte announces, so the checks after the byte's removal find
        // the change.
        let mut checks = 0;
        while checks < SYNC_MAX {
            loop {
                if inbox.events.has_some() {
                    lanes::process_events(&self.base, receiver)?;
                }
                // The end of a lane is not data: it must not make the descriptor readable.
                let Some(lane) = receiver.lane_at_end() else { break };
                lanes::leave(&self.base, receiver, lane)?;
            }
            match receiver.check(&inbox.ready) {
                Check::Something if drained => return self.report_drained(true).map(drop),
                Check::Something => return Ok(()),
                // The lane has ended since. It is left before the next check, so this ends.
                Check::Ended => continue,
                Check::Nothing => {}
            }
            checks += 1;
            if receiver.node_counts(self.base.kind()) {
                if self.sync_with_node(receiver, descriptor)? {
                    return Ok(());
                }
                drained = true;
                continue;
            }
            descriptor.drain();
            drained = true;
            let more = match receiver.arm_all(self.base.kind(), &inbox.ready) {
                Check::Something => true,
                Check::Nothing => false,
                Check::Ended => continue,
            };
            // Other holders of the socket poll the same byte.
            let unsure = self.base.state.hosted.get();
            if more || unsure || self.base.attachment.has_notices() {
                // The reply says whether the node has something.
                if self.report_drained(more)? {
                    receiver.node_is_ready();
                }
            }
            if more || !inbox.events.has_some() && !receiver.node_counts(self.base.kind()) {
                if !more && !unsure {
                    descriptor.lazy.set_clean();
                }
                return Ok(());
            }
        }
        // The state changes faster than it can be checked. A spurious wake-up is harmless, a missing one is not.
        self.report_drained(true).map(drop)
    }

    /// Checks whether the daemon has died, after the far end of the descriptor was closed. If it has, the call must
    /// fail now: a program that polls for edges gets no further one, and the watching thread may not have noticed yet.
    #[cold]
    fn check_daemon(&self) -> Result<(), Error> {
        match self.report_drained(true) {
            // The daemon lives and has closed the far end on purpose.
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the daemon whether the node has something to receive; if so, the daemon makes the descriptor readable.
    fn sync_with_node(&self, receiver: &mut Receiver, descriptor: &Descriptor) -> Result<bool, Error> {
        descriptor.drain();
        let more = self.report_drained(false)?;
        if !more {
            receiver.node_is_empty();
        }
        Ok(more)
    }

    /// Reports that the byte was read; returns whether the node has something to receive. In that case, or if there is
    /// `more` here, the daemon adds the byte again.
    pub(crate) fn report_drained(&self, more: bool) -> Result<bool, Error> {
        self.base.call(SocketCall::Drained { more }, |reply, _| match reply {
            Reply::Number(number) => Some(number != 0),
            _ => None,
        })
    }

    /// Makes a polled descriptor unwritable, for a sender that waits for room in a lane.
    pub(crate) fn plug(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) if descriptor.plug() => self.check_daemon(),
            _ => Ok(()),
        }
    }

    /// After an accept: makes the descriptor readable only if there is more.
    pub(crate) fn note_read(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) if descriptor.drain() => self.base.request(SocketCall::Rearm),
            _ => Ok(()),
        }
    }

    /// After a send that would block at the node, the start of a connection, or the join of a group: makes the
    /// descriptor unwritable until the node takes more.
    pub(crate) fn note_full_node(&self) -> Result<(), Error> {
        match self.polled() {
            Some(descriptor) => {
                descriptor.plug();
                self.base.request(SocketCall::Rearm)
            }
            None => Ok(()),
        }
    }
}
