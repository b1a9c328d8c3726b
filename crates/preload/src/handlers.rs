//! Calls in signal handlers that have interrupted another call of this library in the same thread. Decision 25.
//!
//! The interrupted call may hold any lock and cannot go on before the handler returns. So a call of the handler that
//! would need a lock fails with EAGAIN, and a `close` is carried out when the interrupted call is over.

use std::ops::Deref;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32};

use libc::c_int;
use utipc_client::Socket;
use utipc_os::reentry::Section;

use crate::errno::Code;
use crate::{calls, errno};

/// The errno of a call that a signal handler makes at a moment when it cannot be carried out.
pub(crate) const AGAIN: Code = libc::EAGAIN;

/// Maximum number of descriptors that wait to be closed; `close` fails with EAGAIN for any more.
const CLOSES_MAX: usize = 64;

/// A free place.
const NONE: c_int = -1;

/// Descriptors that signal handlers have closed.
static CLOSES: [AtomicI32; CLOSES_MAX] = [const { AtomicI32::new(NONE) }; CLOSES_MAX];
static SOME_CLOSES: AtomicBool = AtomicBool::new(false);

/// While it lives, calls of signal handlers in this thread do not wait for locks.
pub(crate) struct Inside(Option<Section>);

impl Inside {
    /// None if the caller is a signal handler that has interrupted a call.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        Section::enter().map(|section| Self(Some(section)))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        drop(self.0.take());
        if SOME_CLOSES.load(Acquire) {
            carry_out_closes();
        }
    }
}

/// The socket of a call in progress.
pub(crate) struct InCall<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) _inside: Inside,
}

impl Deref for InCall<'_> {
    type Target = Socket;

    #[inline]
    fn deref(&self) -> &Socket {
        self.socket
    }
}

/// Closes a descriptor when the interrupted call is over.
pub(crate) fn close_later(fd: c_int) -> c_int {
    let free = |place: &&AtomicI32| place.compare_exchange(NONE, fd, AcqRel, Relaxed).is_ok();
    if CLOSES.iter().any(|place| place.load(Acquire) == fd) {
        return errno::fail(libc::EBADF);
    }
    if CLOSES.iter().find(free).is_none() {
        return errno::fail(AGAIN);
    }
    SOME_CLOSES.store(true, Release);
    0
}

#[cold]
fn carry_out_closes() {
    // SAFETY: the C library's place for this thread's errno, which the result of a call may be in.
    let errno = unsafe { *libc::__errno_location() };
    SOME_CLOSES.store(false, Release);
    for place in &CLOSES {
        let fd = place.swap(NONE, AcqRel);
        if fd != NONE {
            // SAFETY: no pointers; the program has closed this number and cannot have got it again since.
            unsafe { calls::close(fd) };
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_closed_inside_is_closed_when_the_call_is_over() {
        use std::os::fd::IntoRawFd;
        let fd = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        let inside = Inside::enter().unwrap();
        assert!(Inside::enter().is_none());
        assert_eq!((close_later(fd), close_later(fd)), (0, -1));
        assert!(std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok());
        drop(inside);
        assert!(std::fs::read_link(format!("/proc/self/fd/{fd}")).is_err());
    }
}
