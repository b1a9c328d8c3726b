//! Sockets across a fork. Decision 8, docs/spec/attach.md §7.
//!
//! Before a fork, the forking thread sends a request to each daemon, which makes all sockets of this process hosted and
//! returns a descriptor, the *inheritance*. The child never uses its parent's connection, lanes or locks: at its first
//! call on an inherited socket or node it attaches and claims the sockets through the inheritance. The parent closes
//! its copy of the inheritance, so the daemon sees when no process is left that could claim the sockets.
//!
//! The forking thread holds one lock over the fork. The state of the parent that the child reads changes only under
//! this lock.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use utipc_attach::{ProcessCall, Reply, Request, SocketCall};
use utipc_os::fdpass::Channel;
use utipc_os::fork::{self, Hooks};
use utipc_os::{lock, reentry};

use crate::attachment::Attachment;
use crate::attachment::inheritance::Inheritance;
use crate::error::Error;

/// Number of times that sockets opened by other threads may delay a fork.
const SHARE_ATTEMPTS: usize = 100;

/// The attachments of this process and of its ancestors that are still in use.
static ATTACHMENTS: Mutex<Vec<Weak<Attachment>>> = Mutex::new(Vec::new());

thread_local! {
    /// The lock, from before a fork until after it.
    static HELD: RefCell<Option<Attachments<'static>>> = const { RefCell::new(None) };
}

static HOOKS: Hooks = Hooks { before, parent, child };

/// All attachments, locked. No thread forks while this value lives.
pub(crate) struct Attachments<'a>(MutexGuard<'a, Vec<Weak<Attachment>>>);

/// Locks the attachments, which keeps other threads from forking.
pub(crate) fn attachments() -> Attachments<'static> {
    Attachments(lock(&ATTACHMENTS))
}

/// Attaches this process to the daemon at `path`; `None` if no daemon listens there.
pub(crate) fn attach(path: &Path) -> Result<Option<Arc<Attachment>>, Error> {
    fork::add_hooks(&HOOKS)?;
    // Without the lock: a fork must not wait for the reply of a daemon.
    let opened = Attachment::open(path)?;
    if let Some(attachment) = &opened {
        attachments().add(attachment);
    }
    Ok(opened)
}

impl Attachments<'_> {
    fn add(&mut self, attachment: &Arc<Attachment>) {
        self.0.retain(|other| other.strong_count() > 0);
        self.0.push(Arc::downgrade(attachment));
    }

    /// The attachments that the ancestors of this process opened.
    pub(crate) fn inherited(&self) -> Vec<Arc<Attachment>> {
        self.0.iter().filter_map(Weak::upgrade).filter(|attachment| !attachment.is_own()).collect()
    }
}

fn before() {
    if reentry::is_inside() {
        // A signal handler forks; the call that it interrupted may hold any lock. The child has no TIPC sockets.
        return;
    }
    let attachments = attachments();
    for attachment in attachments.0.iter().filter_map(Weak::upgrade) {
        if attachment.is_own() && !attachment.connection.is_over() {
            // Without an inheritance the child's calls fail with `Error::NotShared`.
            let _ = attachment.share();
        }
    }
    // If this thread's locals are destroyed already, the lock is released at once.
    let _ = HELD.try_with(|held| held.replace(Some(attachments)));
}

fn parent() {
    let attachments = HELD.try_with(|held| held.take()).ok().flatten();
    if let Some(attachments) = &attachments {
        for attachment in attachments.0.iter().filter_map(Weak::upgrade) {
            if attachment.is_own() {
                lock(&attachment.inheritance).take();
            }
        }
    }
}

/// Releases the lock and does nothing else.
fn child() {
    let _ = HELD.try_with(|held| held.take());
}

impl Attachment {
    /// Before a fork: makes all sockets hosted and fetches the inheritance.
    fn share(&self) -> Result<(), Error> {
        let mut sockets = self.notices.sockets();
        for _ in 0..SHARE_ATTEMPTS {
            if sockets.is_empty() {
                return Ok(());
            }
            // Keeps all threads from sending and receiving until the daemon has made the sockets hosted.
            let mut halves: Vec<_> = sockets.iter().map(|socket| socket.lock()).collect();
            for (socket, halves) in sockets.iter().zip(&halves) {
                if let Some(partly) = halves.begun() {
                    self.request(&SocketCall::MakeHosted { partly: Some(partly) }.on(socket.port), &[])?;
                }
            }
            let mut wire = self.connection.lock();
            self.notices.forget_lanes();
            let now = self.notices.sockets();
            let shared: HashSet<_> = sockets.iter().map(Arc::as_ptr).collect();
            if !now.iter().all(|socket| shared.contains(&Arc::as_ptr(socket))) {
                // Other threads have opened sockets meanwhile, which may have lanes.
                drop((wire, halves));
                sockets = now;
                continue;
            }
            let request = Request::Process(ProcessCall::Fork);
            let forked = self.round_trip(&mut wire, &request, &[], &[], |reply, extra| match reply {
                Reply::Number(number) => {
                    extra.fds.pop().map(|descriptor| Inheritance::new(number, descriptor))
                }
                _ => None,
            })?;
            let inheritance = forked.result?;
            for (socket, halves) in sockets.iter().zip(&mut halves) {
                if !socket.hosted.replace(true) {
                    socket.has_other_holders.set(true);
                }
                halves.leave_lanes();
            }
            drop((wire, halves));
            *lock(&self.inheritance) = Some(inheritance);
            // Threads that sleep on a lane have to wait for the node from now on.
            self.ring();
            if forked.has_more {
                self.request(&Request::Process(ProcessCall::Notices), &[])?;
            }
            return Ok(());
        }
        Err(Error::NotShared(self.connection.path().to_owned()))
    }

    /// In a forked child: whether the daemon has shared the sockets of its parent.
    pub(crate) fn has_inheritance(&self) -> bool {
        self.connection.is_over() || self.in_child.get().is_some() || lock(&self.inheritance).is_some()
    }

    /// In a forked child: attaches the child, once, and claims its inheritance.
    pub(crate) fn claim(self: &Arc<Self>, attachments: &mut Attachments<'_>) -> Result<Arc<Self>, Error> {
        if self.is_own() {
            return Ok(Arc::clone(self));
        }
        if let Some(own) = self.in_child.get() {
            return own.claim(attachments);
        }
        if self.connection.is_over() {
            return Err(self.connection.died());
        }
        let own = Self::open(self.connection.path())?.ok_or_else(|| self.connection.died())?;
        attachments.add(&own);
        if let Some(Inheritance { number, descriptor, hiding }) = lock(&self.inheritance).take() {
            drop(hiding);
            let nonce = utipc_os::random::seed()?;
            let channel = Channel::from_fd(descriptor);
            // If it fails, the daemon has died, or it refuses the request.
            let _ = channel.send(&[IoSlice::new(&nonce.to_le_bytes())], &[], true);
            let request = Request::Process(ProcessCall::Inherit { inheritance: number, nonce });
            let claimed = own.call(&request, &[], |reply, _| matches!(reply, Reply::Number(_)).then_some(()));
            if let Err(error) = claimed {
                if own.connection.is_over() {
                    // Further calls report the daemon's death too.
                    self.in_child.get_or_init(|| own);
                }
                return Err(error);
            }
        }
        Ok(Arc::clone(self.in_child.get_or_init(|| own)))
    }
}
