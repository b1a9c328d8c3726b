//! A descriptor whose readiness this process sets. An application polls it in place of a socket of an embedded node,
//! which the kernel does not know.
//!
//! It is one end of a stream socket pair. One byte waiting in it makes it readable; a chunk that fills its small send
//! buffer makes it unwritable; shutting down the far end hangs it up. All three are levels; a change is an edge for
//! edge-triggered users.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, read, write};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use crate::{OsError, Result};

/// Bytes that make the smallest send buffer of Linux unwritable. A socket is unwritable once a quarter of its send
/// buffer is used.
const PLUG: usize = 2048;

/// The readiness that a poll on a [`Pollable`] reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// POLLIN.
    pub readable: bool,
    /// POLLOUT.
    pub writable: bool,
    /// POLLHUP and POLLRDHUP, which imply POLLIN; cannot be undone.
    pub hung_up: bool,
}

/// A socket pair whose near end the application polls.
#[derive(Debug)]
pub struct Pollable {
    /// The end that the application polls.
    near: OwnedFd,
    far: OwnedFd,
    level: Mutex<Level>,
}

impl Pollable {
    /// Creates a descriptor that is writable and not readable.
    pub fn new() -> Result<Pollable> {
        let failed = |errno: Errno| OsError::new("create", "a pollable descriptor", errno);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
        // The kernel rounds up to its minimum.
        set_socket_send_buffer_size(&near, 1).map_err(failed)?;
        Ok(Pollable { near, far, level: Mutex::new(Level { writable: true, ..Level::default() }) })
    }

    /// Makes a poll report `level`. Costs a system call for each part that changes, none otherwise.
    pub fn set(&self, level: Level) {
        let mut now = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if now.hung_up {
            return;
        }
        if level.hung_up {
            // In one call, so that no poll sees input without the hang-up.
            let _ = shutdown(&self.far, Shutdown::Both);
            *now = level;
            return;
        }
        // On a connected, non-blocking pair the only error is would-block: the level is as wanted already.
        if level.readable != now.readable {
            if level.readable {
                let _ = write(&self.far, &[1]);
            } else {
                let _ = read(&self.near, &mut [0; 8]);
            }
        }
        if level.writable != now.writable {
            if level.writable {
                let mut rest = [0; PLUG];
                while read(&self.far, &mut rest).is_ok_and(|n| n > 0) {}
            } else {
                let _ = write(&self.near, &[0; PLUG]);
            }
        }
        *now = level;
    }
}

impl AsFd for Pollable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn polled(fd: &Pollable) -> PollFlags {
        let all = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut set = [PollFd::new(fd, all)];
        poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        set[0].revents()
    }

    #[test]
    fn poll_reports_the_level() {
        let fd = Pollable::new().unwrap();
        assert_eq!(polled(&fd), PollFlags::OUT);
        for _ in 0..3 {
            for (readable, writable) in [(true, true), (true, false), (false, false), (false, true)] {
                fd.set(Level { readable, writable, hung_up: false });
                let mut expected = PollFlags::empty();
                expected.set(PollFlags::IN, readable);
                expected.set(PollFlags::OUT, writable);
                assert_eq!(polled(&fd), expected);
            }
        }
    }

    #[test]
    fn hang_up_cannot_be_undone() {
        let fd = Pollable::new().unwrap();
        fd.set(Level { hung_up: true, ..Level::default() });
        assert!(polled(&fd).contains(PollFlags::IN | PollFlags::HUP | PollFlags::RDHUP));
        fd.set(Level { writable: true, ..Level::default() });
        assert!(polled(&fd).contains(PollFlags::HUP));
    }
}
