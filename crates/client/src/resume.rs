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
//! The old socket stays as a handle that leads to the new one ([`Socket::live`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

use utipc_attach::{Refusal, Reply, SocketCall};
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::socket::{Destination, OptionValue, SocketOption};
use utipc_os::hangup::{self, Table};
use utipc_os::hidden::{Hiding, raise};
use utipc_os::packets::set_readable;
use utipc_os::{Left, lock};

use crate::attachment::Attachment;
use crate::descriptor::Descriptor;
use crate::state::SocketState;
use crate::{Error, Failure, Node, Socket, Wait};

/// Pause between tries to find the next daemon, each of which takes about a second.
const PAUSE: Duration = Duration::from_millis(250);

/// What a socket needs to resume, shared with the thread that makes it resume.
#[derive(Debug)]
pub(crate) struct Resumption {
    node: Node,
    attachment: Weak<Attachment>,
    state: Arc<SocketState>,
    record: Mutex<Record>,
    /// The descriptor, which the next socket keeps.
    descriptor: Arc<OnceLock<Descriptor>>,
    /// The own copy of the descriptor's far end: while it is open, the descriptor does not hang up.
    far: Arc<OnceLock<KeptFar>>,
    /// The program has not yet been told that this socket has resumed.
    is_untold: AtomicBool,
    notice: Mutex<Option<Error>>,
    /// It will not resume. Guards the wait for `next` too.
    gave_up: Mutex<bool>,
    changed: Condvar,
    next: OnceLock<Box<Socket>>,
}

/// The state that the program has given to a socket.
#[derive(Clone, Debug, Default)]
struct Record {
    bindings: Vec<(ServiceRange, Scope)>,
    options: Vec<(SocketOption, OptionValue)>,
    default_to: Option<Destination>,
    group: Option<(GroupRequest, GroupPolicy)>,
    listens: bool,
}

#[derive(Debug)]
struct KeptFar {
    /// Dropped before the descriptor, which it hides.
    _hiding: Hiding,
    fd: OwnedFd,
}

/// The sockets of an attachment that resume when it ends.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    sockets: Mutex<Vec<Weak<Resumption>>>,
    is_watched: AtomicBool,
}

impl Resuming {
    /// Adds a socket; returns whether the attachment has to be watched from now on.
    fn add(&self, socket: &Arc<Resumption>) -> bool {
        let mut sockets = lock(&self.sockets);
        // Amortised: the list at most doubles between two searches for closed sockets.
        if sockets.len() == sockets.capacity() {
            sockets.retain(|socket| socket.strong_count() > 0);
        }
        sockets.push(Arc::downgrade(socket));
        !self.is_watched.swap(true, AcqRel)
    }

    /// Makes all sockets resume, on a thread that has nothing else to do. Ends when all have or are closed.
    pub(crate) fn resume_all(&self) {
        loop {
            let mut sockets = std::mem::take(&mut *lock(&self.sockets));
            // One failure is enough: the others would fail for the same reason, after a second each.
            let mut fails = false;
            sockets.retain(|socket| match socket.upgrade() {
                Some(socket) if !socket.resumes() => {
                    socket.give_up();
                    false
                }
                Some(socket) => {
                    fails = fails || !socket.try_to_resume();
                    fails
                }
                None => false,
            });
            let mut list = lock(&self.sockets);
            list.append(&mut sockets);
            if list.is_empty() {
                self.is_watched.store(false, Release);
                return;
            }
            drop(list);
            if fails {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// The end of a wait for the next daemon.
enum Waited {
    /// The socket has resumed, or another thread has been told.
    Resumed,
    TimedOut,
    GaveUp,
}

impl Resumption {
    /// Whether the socket is of those that resume.
    fn resumes(&self) -> bool {
        !self.state.kind.is_connection_oriented() || lock(&self.record).listens
    }

    /// One try; true if there is nothing left to do.
    fn try_to_resume(&self) -> bool {
        if self.state.has_other_holders.load(Relaxed) {
            self.give_up();
            return true;
        }
        match self.open_next() {
            Ok(next) => {
                let _ = self.next.set(Box::new(next));
                self.changed.notify_all();
                self.release_lanes();
                // A listener has a notice only if something was refused. A byte too many does no harm.
                let next = self.next.get().and_then(|next| next.resumption.as_ref());
                if next.is_some_and(|next| next.is_untold.load(Acquire))
                    && let Some(far) = self.far.get()
                {
                    set_readable(&far.fd);
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

    /// Gives back the memory of the old lanes.
    fn release_lanes(&self) {
        lock(&self.state.sender).lanes.leave_all();
        lock(&self.state.receiver).remove_all();
        if let Some(attachment) = self.attachment.upgrade() {
            lock(&attachment.pairs).clear();
        }
    }

    fn give_up(&self) {
        *lock(&self.gave_up) = true;
        self.changed.notify_all();
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.near().handle().hang_up();
        }
    }

    /// Opens the socket that takes the place of this one.
    fn open_next(&self) -> Result<Socket, Error> {
        let attachment = self.node.living()?;
        if self.descriptor.get().is_some() && self.far.get().is_none() {
            return Err(Failure::State.into());
        }
        let record = lock(&self.record).clone();
        let next = self.node.open_on(&attachment, self.state.kind)?;
        let next = next.resuming_with(&self.node, Arc::clone(&self.descriptor), Arc::clone(&self.far));
        let mut notice = Error::Resumed(attachment.path().to_owned());
        let mut note = |done: Result<(), Error>| match done {
            Err(error @ Error::Failed(_)) => {
                notice = error;
                Ok(())
            }
            done => done,
        };
        for (option, value) in &record.options {
            note(next.set_option(*option, *value))?;
        }
        if record.default_to.is_some() {
            note(next.connect(record.default_to))?;
        }
        for (range, scope) in &record.bindings {
            note(next.bind(*range, *scope))?;
        }
        if let Some((request, policy)) = record.group {
            note(next.join(request, policy))?;
        }
        if record.listens {
            note(next.listen())?;
        }
        next.state.interruptible.store(self.state.interruptible.load(Relaxed), Relaxed);
        next.adopt_descriptor()?;
        if let Some(resumption) = &next.resumption
            && !(record.listens && matches!(notice, Error::Resumed(_)))
        {
            *lock(&resumption.notice) = Some(notice);
            resumption.is_untold.store(true, Release);
        }
        Ok(next)
    }

    /// Waits until the socket has resumed.
    fn wait(&self, wait: Wait) -> Waited {
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

    /// The notice, the first time.
    #[cold]
    fn take_notice(&self) -> Option<Error> {
        lock(&self.notice).take()
    }

    pub(crate) fn note_binding(&self, range: ServiceRange, scope: Scope) {
        lock(&self.record).bindings.push((range, scope));
    }

    pub(crate) fn forget_binding(&self, which: Option<(ServiceRange, Scope)>) {
        let mut record = lock(&self.record);
        let record = &mut *record;
        let bindings = &mut record.bindings;
        match which {
            None => {
                bindings.clear();
                record.group = None;
            }
            Some(which) => {
                if let Some(at) = bindings.iter().position(|binding| *binding == which) {
                    bindings.remove(at);
                }
            }
        }
    }

    pub(crate) fn note_option(&self, option: SocketOption, value: OptionValue) {
        let options = &mut lock(&self.record).options;
        options.retain(|(other, _)| *other != option);
        options.push((option, value));
    }

    pub(crate) fn note_group(&self, group: Option<(GroupRequest, GroupPolicy)>) {
        lock(&self.record).group = group;
    }

    pub(crate) fn note_listening(&self) {
        lock(&self.record).listens = true;
    }

    pub(crate) fn note_destination(&self, to: Option<Destination>) {
        lock(&self.record).default_to = to;
    }
}

impl Attachment {
    /// Registers a socket that resumes when this attachment ends.
    fn resume_later(&self, socket: &Arc<Resumption>) {
        let resuming = Arc::clone(self.resuming());
        if !resuming.add(socket) {
            return;
        }
        let ended = move || resuming.resume_all();
        if hangup::watch("utipc resume", self.channel().as_fd(), Table::Shared, ended).is_err() {
            // Without the thread its sockets report the daemon's death.
            *lock(&socket.gave_up) = true;
            self.resuming().is_watched.store(false, Release);
        }
    }
}

impl Socket {
    /// Makes a socket resume: a connectionless one, and another one from when it listens.
    pub(crate) fn resuming(self, node: &Node) -> Self {
        let descriptor = Arc::clone(&self.descriptor);
        self.resuming_with(node, descriptor, Arc::default())
    }

    fn resuming_with(
        mut self,
        node: &Node,
        descriptor: Arc<OnceLock<Descriptor>>,
        far: Arc<OnceLock<KeptFar>>,
    ) -> Self {
        let resumption = Arc::new(Resumption {
            node: node.clone(),
            attachment: Arc::downgrade(&self.attachment),
            state: Arc::clone(&self.state),
            record: Mutex::default(),
            descriptor: Arc::clone(&descriptor),
            far,
            is_untold: AtomicBool::new(false),
            notice: Mutex::default(),
            gave_up: Mutex::new(false),
            changed: Condvar::new(),
            next: OnceLock::new(),
        });
        self.attachment.resume_later(&resumption);
        self.descriptor = descriptor;
        self.resumption = Some(resumption);
        self
    }

    /// Whether the socket keeps its descriptor when the daemon dies, so that it must not be hung up.
    pub(crate) fn keeps_descriptor(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.far.get().is_some())
    }

    /// After the descriptor was fetched: keeps a copy of its far end.
    pub(crate) fn keep_far_end(&self) {
        let Some(resumption) = self.resumption.as_ref().filter(|r| r.resumes() && r.far.get().is_none())
        else {
            return;
        };
        let request = SocketCall::FarEnd.on(self.port());
        let far = self.fetch_near(&request).map(raise);
        // Without it the descriptor hangs up when the daemon dies.
        if let Ok(fd) = far {
            let _ = resumption.far.set(KeptFar { _hiding: Hiding::of(&fd), fd });
        }
    }

    /// After the socket began to listen: it keeps its descriptor from now on.
    pub(crate) fn keep_listening(&self) {
        let Some(resumption) = &self.resumption else { return };
        resumption.note_listening();
        if let Some(descriptor) = self.descriptor.get() {
            self.keep_far_end();
            if self.keeps_descriptor() {
                self.attachment.forget_near_end(descriptor.near());
            }
        }
    }

    /// Takes over the descriptor of the socket whose place this one takes.
    fn adopt_descriptor(&self) -> Result<(), Error> {
        let Some(descriptor) = self.descriptor.get() else { return Ok(()) };
        let far = self.resumption.as_ref().and_then(|resumption| resumption.far.get());
        let far = far.ok_or(Error::Failed(Failure::State))?;
        let adopt = |near, fd: BorrowedFd<'_>| {
            let request = SocketCall::Adopt { near }.on(self.port());
            self.attachment.call_with(&request, &[fd], |reply, _| (reply == Reply::Done).then_some(()))
        };
        adopt(false, far.fd.as_fd())?;
        if descriptor.as_owned().is_none() {
            // `None`: the program has closed it.
            descriptor.near().with(|near| adopt(true, near)).transpose()?;
        }
        descriptor.deferral.set_deferred(false);
        if descriptor.is_polled() {
            self.keep_level(lock(&self.state.receiver), descriptor)?;
        }
        Ok(())
    }

    /// The socket that has taken the place of this one, if any.
    #[inline]
    pub(crate) fn next(&self) -> Option<&Self> {
        self.resumption.as_ref().and_then(|resumption| resumption.next.get()).map(|next| &**next)
    }

    /// Calls `call`, which sends, receives or accepts, with the current handle. If the daemon dies meanwhile, waits for
    /// the next one.
    #[cold]
    pub(crate) fn across_restarts<T>(
        &self,
        wait: Wait,
        mut call: impl FnMut(&Self) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        loop {
            let mut socket = self;
            while let Some(next) = socket.next() {
                socket = next;
            }
            let Some(resumption) = &socket.resumption else { return call(socket) };
            if resumption.is_untold.swap(false, Acquire)
                && let Some(notice) = resumption.take_notice()
            {
                // The byte that announced the notice must not hide the first message from a program that waits for
                // edges.
                let _ = socket.sync_readability(false, true);
                return Err(notice);
            }
            match call(socket) {
                Err(Error::Died(path)) if resumption.resumes() => match resumption.wait(wait) {
                    Waited::Resumed => {}
                    Waited::TimedOut => return Ok(None),
                    Waited::GaveUp => return Err(Error::Died(path)),
                },
                done => return done,
            }
        }
    }
}

impl Error {
    /// Whether the socket has lost its daemon and is attached to the next one. Messages may have been lost, and its
    /// port is another one; it is to be used on.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed(_))
    }
}
