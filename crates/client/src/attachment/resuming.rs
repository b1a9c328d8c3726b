//! The sockets of an attachment that resume when it ends, and the thread that makes them. Decision 26.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use utipc_os::lock;

/// Pause between tries to find the next daemon, each of which takes about a second.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// A socket that goes on with the next daemon.
pub(crate) trait Resume: Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Whether the socket is of those that resume.
    fn resumes(&self) -> bool;

    /// One try; true if there is nothing left to do.
    fn try_to_resume(&self) -> bool;

    /// The socket will not resume.
    fn give_up(&self);
}

/// The sockets of one attachment.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    sockets: Mutex<Vec<Weak<dyn Resume>>>,
    is_watched: AtomicBool,
}

impl Resuming {
    /// Adds a socket; returns whether the attachment has to be watched from now on.
    pub(crate) fn add(&self, socket: &Arc<dyn Resume>) -> bool {
        let mut sockets = lock(&self.sockets);
        // Amortised: the list at most doubles between two searches for closed sockets.
        if sockets.len() == sockets.capacity() {
            sockets.retain(|socket| socket.strong_count() > 0);
        }
        sockets.push(Arc::downgrade(socket));
        !self.is_watched.swap(true, AcqRel)
    }

    /// The attachment is not watched after all.
    pub(crate) fn not_watched(&self) {
        self.is_watched.store(false, Release);
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
                self.not_watched();
                return;
            }
            drop(list);
            if fails {
                std::thread::sleep(PAUSE);
            }
        }
    }
}
