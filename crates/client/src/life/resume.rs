//! Connectionless sockets and listeners that resume: after the daemon's death they attach to the next daemon. Decision
//! 26.
//!
//! A thread of each attachment that has such sockets waits for its end. It looks for the next daemon, opens a socket
//! there in place of each old one, with its options, bindings and descriptor, and leaves a notice in it: the first call
//! that sends or receives reports [`Error::Resumed`]. Until then such calls wait, as if no messages came. A listener
//! has no notice, because nothing that it has accepted is lost; its accepts wait.
//!
//! A connection-oriented socket that does not listen breaks at once. Its state is recorded nevertheless: it may listen
//! later.
//!
//! The old socket stays as a handle that leads to the new one.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};

use utipc_attach::Refusal;
use utipc_os::hangup::{self, Table};
use utipc_os::packets::set_readable;
use utipc_os::spin::Mode;
use utipc_os::{Left, Wait, lock};

use crate::attacher::Attacher;
use crate::attachment::Attachment;
use crate::attachment::resuming::{PAUSE, Resume};
use crate::base::Base;
use crate::error::Error;
use crate::life::record::Record;
use crate::ready::descriptor::Ends;
use crate::state::SocketState;

/// What a socket needs to resume, shared with the thread that makes it resume.
#[derive(Debug)]
pub(crate) struct Resumption<S> {
    pub(crate) attacher: Attacher,
    /// How calls of the next socket spin.
    pub(crate) mode: Mode,
    attachment: Weak<Attachment>,
    pub(crate) state: Arc<SocketState>,
    record: Mutex<Record>,
    /// The descriptor, which the next socket keeps.
    pub(crate) ends: Arc<Ends>,
    /// The program has not yet been told that this socket has resumed.
    is_untold: AtomicBool,
    notice: Mutex<Option<Error>>,
    /// It will not resume. Guards the wait for `next` too.
    gave_up: Mutex<bool>,
    changed: Condvar,
    next: OnceLock<Box<S>>,
}

/// A handle on a socket that may resume.
pub(crate) trait Resumable: Sized + Send + Sync + UnwindSafe + RefUnwindSafe + 'static {
    /// Opens the socket that takes the place of one whose daemon has died.
    fn open_next(old: &Resumption<Self>) -> Result<Self, Error>;

    /// Whether a notice waits for the program, see [`Resumption::leave_notice`].
    fn has_notice(&self) -> bool;
}

/// The end of a wait for the next daemon.
pub(super) enum Waited {
    /// The socket has resumed, or another thread has been told.
    Resumed,
    TimedOut,
    GaveUp,
}

impl<S: Resumable> Resumption<S> {
    /// Makes a socket resume: a connectionless one, and another one from when it listens.
    pub(crate) fn begin(base: &Base, ends: &Arc<Ends>, attacher: &Attacher, mode: Mode) -> Arc<Self> {
        let resumption = Arc::new(Self {
            attacher: attacher.clone(),
            mode,
            attachment: Arc::downgrade(&base.attachment),
            state: Arc::clone(&base.state),
            record: Mutex::default(),
            ends: Arc::clone(ends),
            is_untold: AtomicBool::new(false),
            notice: Mutex::default(),
            gave_up: Mutex::new(false),
            changed: Condvar::new(),
            next: OnceLock::new(),
        });
        let resuming = Arc::clone(&base.attachment.resuming);
        let socket: Arc<dyn Resume> = Arc::<Self>::clone(&resumption);
        if resuming.add(&socket) {
            let ended = move || resuming.resume_all();
            if hangup::watch("utipc resume", base.attachment.connection.fd(), Table::Shared, ended).is_err() {
                // Without the thread its sockets report the daemon's death.
                *lock(&resumption.gave_up) = true;
                base.attachment.resuming.not_watched();
            }
        }
        resumption
    }

    pub(crate) fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut Record)) {
        change(&mut lock(&self.record));
    }

    pub(super) fn next(&self) -> Option<&S> {
        self.next.get().map(|next| &**next)
    }

    /// Leaves a notice for the program: the first call that sends or receives reports it.
    pub(crate) fn leave_notice(&self, notice: Error) {
        *lock(&self.notice) = Some(notice);
        self.is_untold.store(true, Release);
    }

    pub(crate) fn has_notice(&self) -> bool {
        self.is_untold.load(Acquire)
    }

    /// The notice, the first time.
    pub(super) fn take_notice(&self) -> Option<Error> {
        if self.is_untold.swap(false, Acquire) { lock(&self.notice).take() } else { None }
    }

    /// Gives back the memory of the old lanes.
    fn release_lanes(&self) {
        self.state.lock().close_lanes();
        if let Some(attachment) = self.attachment.upgrade() {
            attachment.drop_pairs();
        }
    }

    /// Waits until the socket has resumed.
    pub(super) fn wait(&self, wait: Wait) -> Waited {
        let end = wait.start();
        let mut gave_up = lock(&self.gave_up);
        loop {
            if self.next.get().is_some() {
                return Waited::Resumed;
            }
            if *gave_up {
                return Waited::GaveUp;
            }
            // `next` is set without the lock: a missed notification costs one slice.
            let slice = match end.left() {
                Left::Nothing => return Waited::TimedOut,
                Left::Time(limit) => limit.map_or(PAUSE, |limit| limit.min(PAUSE)),
            };
            gave_up = self.changed.wait_timeout(gave_up, slice).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}

impl<S: Resumable> Resume for Resumption<S> {
    fn resumes(&self) -> bool {
        !self.state.kind.is_connection_oriented() || lock(&self.record).listens
    }

    fn try_to_resume(&self) -> bool {
        if self.state.has_other_holders.get() {
            self.give_up();
            return true;
        }
        match S::open_next(self) {
            Ok(next) => {
                let _ = self.next.set(Box::new(next));
                self.changed.notify_all();
                self.release_lanes();
                // A listener has a notice only if something was refused. A byte too many does no harm.
                if self.next().is_some_and(Resumable::has_notice)
                    && let Some(far) = self.ends.far()
                {
                    set_readable(far);
                }
                true
            }
            // There is no daemon yet, or it has just ended too.
            Err(Error::Absent(_) | Error::Died(_) | Error::HungUp(_) | Error::System(_)) => false,
            Err(Error::Refused { cause: Refusal::TooMany, .. }) => false,
            Err(_) => {
                self.give_up();
                true
            }
        }
    }

    fn give_up(&self) {
        *lock(&self.gave_up) = true;
        self.changed.notify_all();
        if let Some(descriptor) = self.ends.near() {
            descriptor.near().handle().hang_up();
        }
    }
}
