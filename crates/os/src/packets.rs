//! The near end of a packet socket pair as a readiness that two processes keep: see `utipc-client`'s descriptors.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::fdpass::Channel;
use crate::{OsError, Result};

/// Packets that are read away at one go: the far end never leaves more than a few.
const MOST: usize = 64;

/// Bytes of a packet that fills the smallest send buffer beyond the quarter at which it stops being writable.
pub const PLUG: usize = 2048;

/// A pair for one socket: the near end, whose send buffer is as small as the system allows, and the far one.
pub fn pair() -> Result<(Channel, Channel)> {
    let (near, far) = Channel::pair()?;
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 1)
        .map_err(|errno| OsError::new("size the buffer of", "a packet socket", errno))?;
    Ok((near, far))
}

/// Reads away what is there, without waiting; whether there was anything.
pub fn drain(end: impl AsFd) -> bool {
    drain_to_end(end).0
}

/// The same, and whether the other end is closed, which cannot be read away.
pub fn drain_to_end(end: impl AsFd) -> (bool, bool) {
    let (mut byte, mut some) = ([0; 1], false);
    for _ in 0..MOST {
        match recv(&end, &mut byte, RecvFlags::DONTWAIT) {
            // Nobody sends empty packets.
            Ok((_, 0)) => return (some, true),
            Ok(_) => some = true,
            // The other end was closed with packets unread: said once, then it is as above.
            Err(Errno::CONNRESET | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    (some, false)
}

/// Whether the other end has packets of this one that it has not read away. If the system does not say: no.
pub fn is_flagged(end: impl AsFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as the call takes, and the kernel writes one int, which `bytes` is.
    let told = unsafe { libc::ioctl(end.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    told == 0 && bytes > 0
}

/// Sends zeros until no more fits, without waiting; whether the other end is closed.
pub fn fill(end: impl AsFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    for _ in 0..MOST {
        match send(&end, &[0; PLUG], flags) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn polled(fd: impl AsFd) -> PollFlags {
        let mut set = [PollFd::new(&fd, PollFlags::IN | PollFlags::OUT)];
        poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        set[0].revents()
    }

    #[test]
    fn what_is_filled_and_drained_shows_in_a_poll() {
        let (near, far) = pair().unwrap();
        assert_eq!(polled(&near), PollFlags::OUT);
        fill(&near);
        assert_eq!(polled(&near), PollFlags::empty());
        send(&far, &[1], SendFlags::empty()).unwrap();
        assert_eq!(polled(&near), PollFlags::IN);
        assert!(is_flagged(&far));
        assert!(drain(&near) && !drain(&near));
        assert!(!is_flagged(&far));
        assert!(drain(&far), "the plug");
        assert_eq!(polled(&near), PollFlags::OUT);
        assert_eq!((drain_to_end(&near), fill(&near)), ((false, false), false));
        drop(far);
        assert!(!drain(&near), "an end is no packet");
        assert_eq!((drain_to_end(&near), fill(&near)), ((false, true), true));
    }
}
