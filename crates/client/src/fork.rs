//! What happens to sockets at a fork. DESIGN L1, decision 8.
//!
//! Before it the forking thread tells each daemon, which makes all sockets of this process hosted and hands out a
//! descriptor, the *heritage*. The child never touches what the parent had (its connection, its lanes, its locks): with
//! the first call on something inherited it attaches for itself and claims the sockets by the heritage. The parent closes
//! its copy, so the daemon sees when nobody can claim any more.
//!
//! One lock is held over the fork. Whatever the child reads of its parent's is changed under it alone.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use utipc_os::fork::{self, Hooks};
use utipc_os::hidden::{Hiding, raise};

use crate::Error;
use crate::attachment::{Attachment, lock};

/// The attachments of this process and of its ancestors, as far as something of them is left.
static ATTACHMENTS: Mutex<Vec<Weak<Attachment>>> = Mutex::new(Vec::new());

thread_local! {
    /// From before a fork until after it.
    static HELD: RefCell<Option<Known<'static>>> = const { RefCell::new(None) };
}

/// All attachments, while nobody forks.
pub(crate) struct Known<'a>(MutexGuard<'a, Vec<Weak<Attachment>>>);

/// What a fork has left, until it is claimed.
#[derive(Debug)]
pub(crate) struct Heritage {
    pub(crate) number: u32,
    /// Before the descriptor, which it hides.
    pub(crate) hiding: Hiding,
    pub(crate) descriptor: OwnedFd,
}

impl Heritage {
    pub(crate) fn new(number: u32, descriptor: OwnedFd) -> Self {
        let descriptor = raise(descriptor);
        Self { number, hiding: Hiding::of(&descriptor), descriptor }
    }
}

/// From now on forks are heeded.
pub(crate) fn heed() -> Result<(), Error> {
    fork::set_hooks(Hooks { before, parent, child })?;
    Ok(())
}

/// Nobody forks while the result lives.
pub(crate) fn known() -> Known<'static> {
    Known(lock(&ATTACHMENTS))
}

impl Known<'_> {
    pub(crate) fn add(&mut self, attachment: &Arc<Attachment>) {
        self.0.retain(|other| other.strong_count() > 0);
        self.0.push(Arc::downgrade(attachment));
    }

    /// Those that a parent of this process has left.
    pub(crate) fn inherited(&self) -> Vec<Arc<Attachment>> {
        self.0.iter().filter_map(Weak::upgrade).filter(|attachment| !attachment.is_own()).collect()
    }
}

fn before() {
    let known = known();
    for attachment in known.0.iter().filter_map(Weak::upgrade) {
        if attachment.is_own() && !attachment.is_over() {
            // Without a heritage the child gets an error that says so.
            let _ = attachment.share();
        }
    }
    // Where a thread's own memory is gone already, nothing is held.
    let _ = HELD.try_with(|held| held.replace(Some(known)));
}

fn parent() {
    let known = HELD.try_with(|held| held.take()).ok().flatten();
    if let Some(known) = &known {
        for attachment in known.0.iter().filter_map(Weak::upgrade) {
            if attachment.is_own() {
                attachment.forget_heritage();
            }
        }
    }
}

/// Does nothing but release the lock.
fn child() {
    let _ = HELD.try_with(|held| held.take());
}
