//! A descriptor whose readiness this process decides: what an application polls in place of a socket that has no
//! kernel object behind it.
//!
//! It is one end of a stream socket pair. One byte waiting in it makes it readable; a chunk that fills its small send
//! buffer makes it unwritable; shutting down the far end hangs it up. All three are levels, and a change is an edge
//! for edge-triggered users.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, read, write};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use crate::{OsError, Result};

/// Fills the smallest send buffer that Linux grants far beyond the quarter at which it stops being writable, bytes.
const PLUG: usize = 2048;

/// What a poll on a [`Pollable`] shall report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// POLLIN.
    pub readable: bool,
    /// POLLOUT.
    pub writable: bool,
    /// POLLHUP and POLLRDHUP (POLLIN follows from them); for good.
    pub hung_up: bool,
}

/// The pair; see the module's text.
#[derive(Debug)]
pub struct Pollable {
    /// The end that the application polls.
    near: OwnedFd,
    far: OwnedFd,
    level: Mutex<Level>,
}

impl Pollable {
    /// A descriptor that is writable and not readable.
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
            // All at once: nobody may see input without the hang-up that it comes with.
            let _ = shutdown(&self.far, Shutdown::Both);
            *now = level;
            return;
        }
        // Failures cannot happen on an own, connected, non-blocking pair other than "would block", which means that
        // the level holds already.
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
    fn every_level_is_what_poll_reports() {
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
    fn a_hang_up_is_for_good() {
        let fd = Pollable::new().unwrap();
        fd.set(Level { hung_up: true, ..Level::default() });
        assert!(polled(&fd).contains(PollFlags::IN | PollFlags::HUP | PollFlags::RDHUP));
        fd.set(Level { writable: true, ..Level::default() });
        assert!(polled(&fd).contains(PollFlags::HUP));
    }
}
