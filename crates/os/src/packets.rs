//! The packet socket pair behind the descriptor of a socket: the program polls the near end, and library and daemon
//! maintain its level together. See `descriptor.rs` of `utipc-client`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::fdpass::Channel;
use crate::{OsError, Result};

/// Maximum number of packets that one call reads or writes. The far end never sends more than a few.
const MAX_PACKETS: usize = 64;

/// Size of a packet that makes the smallest send buffer unwritable, bytes. A socket is unwritable once a quarter of its
/// send buffer is used.
pub const PLUG: usize = 2048;

/// The number of an absent descriptor.
const NONE: RawFd = -1;

/// The near end in this process: a descriptor of the library, or one that the program owns and may close or renumber.
#[derive(Debug)]
pub struct Near {
    number: AtomicI32,
    owned: bool,
    /// Locked while the number is used or changed.
    guard: Mutex<()>,
}

impl Near {
    /// A descriptor that is closed with the value.
    pub fn owned(fd: OwnedFd) -> Self {
        Self { number: AtomicI32::new(fd.into_raw_fd()), owned: true, guard: Mutex::default() }
    }

    /// A descriptor that the program owns. Call [`Near::renumber`] before the program closes it.
    pub fn lent(number: RawFd) -> Self {
        Self { number: AtomicI32::new(number), owned: false, guard: Mutex::default() }
    }

    /// The near end in a forked child: the program's descriptor has the same number there, one of the library is
    /// copied. `None` if no descriptor is free. Takes no lock, because a thread that exists only in the parent may hold
    /// it.
    pub fn inherited(&self) -> Option<Self> {
        let number = self.number.load(Relaxed);
        if !self.owned || number == NONE {
            return Some(Self::lent(number));
        }
        // SAFETY: an owned number is closed only with the value, which is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        fd.try_clone_to_owned().ok().map(Self::owned)
    }

    /// Sets its number (or none). After the return, the old number is not used any more.
    pub fn renumber(&self, number: Option<RawFd>) {
        let _guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        self.renumber_at_once(number);
    }

    /// [`Near::renumber`] when no other thread can be using the old number.
    pub fn renumber_at_once(&self, number: Option<RawFd>) {
        self.number.store(number.unwrap_or(NONE), Relaxed);
    }

    /// The descriptor, if this process owns it.
    pub fn as_owned(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: an owned number never changes, and is closed only with the value, which is borrowed.
        self.owned.then(|| unsafe { BorrowedFd::borrow_raw(self.number.load(Relaxed)) })
    }

    /// Calls `use_it` with the descriptor, which stays open during the call; `None` if there is none.
    pub fn with<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let _guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.number.load(Relaxed);
        // SAFETY: before the number is closed it is changed, which waits for the guard.
        (number != NONE).then(|| use_it(unsafe { BorrowedFd::borrow_raw(number) }))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if self.owned && number != NONE {
            // SAFETY: it came from an `OwnedFd`, and only this value closes it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

/// Creates a pair for one socket: the near end, whose send buffer is as small as the system allows, and the far end.
pub fn pair() -> Result<(Channel, Channel)> {
    let (near, far) = Channel::pair()?;
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 1)
        .map_err(|errno| OsError::new("size the buffer of", "a packet socket", errno))?;
    Ok((near, far))
}

/// Prefix of the far end's name in the abstract namespace, which distinguishes near ends from all other packet sockets.
const MARK: &[u8] = b"utipc-socket/";

/// Marks the near end as one by which a socket can be claimed. The mark is the far end's name.
///
/// # Errors
/// There is no memory.
pub fn mark(far: impl AsFd) -> Result<()> {
    let mut name = MARK.to_vec();
    name.extend_from_slice(format!("{:016x}", crate::random::seed()?).as_bytes());
    let failed = |errno: Errno| OsError::new("name", "the daemon's end of a socket", errno);
    let address = rustix::net::SocketAddrUnix::new_abstract_name(&name).map_err(failed)?;
    rustix::net::bind(far, &address).map_err(failed)
}

/// Whether this is a near end with the mark. Costs two system calls, one if it is not a socket.
pub fn is_marked(fd: impl AsFd) -> bool {
    let name = rustix::net::getpeername(fd).ok().flatten();
    let name = name.and_then(|name| rustix::net::SocketAddrUnix::try_from(name).ok());
    name.is_some_and(|name| name.abstract_name().is_some_and(|name| name.starts_with(MARK)))
}

/// The inode number of a descriptor, which no other open socket has.
///
/// # Errors
/// The descriptor is not open.
pub fn inode(fd: impl AsFd) -> Result<u64> {
    let stat = rustix::fs::fstat(fd);
    stat.map(|stat| stat.st_ino).map_err(|errno| OsError::new("query", "a packet socket", errno))
}

/// Whether all copies of the other end are closed; always true after a shutdown of this end.
pub fn is_peer_closed(end: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut set = [PollFd::new(&end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut set, Some(&now)).is_ok() && set[0].revents().contains(PollFlags::HUP)
}

/// Reads all packets, without waiting; returns whether there was any.
pub fn drain(end: impl AsFd) -> bool {
    drain_to_end(end).0
}

/// [`drain`]; also returns whether the other end is closed, which stays readable.
pub fn drain_to_end(end: impl AsFd) -> (bool, bool) {
    let (mut byte, mut some) = ([0; 1], false);
    for _ in 0..MAX_PACKETS {
        match recv(&end, &mut byte, RecvFlags::DONTWAIT) {
            // Empty packets are never sent: this is the end.
            Ok((_, 0)) => return (some, true),
            Ok(_) => some = true,
            // The other end was closed with unread packets, which is reported once; then reads return the end.
            Err(Errno::CONNRESET | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    (some, false)
}

/// Whether the other end has unread packets from this one; false if the system cannot tell.
pub fn has_unread(end: impl AsFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as the call takes, and the kernel writes one int, which `bytes` is.
    let code = unsafe { libc::ioctl(end.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    code == 0 && bytes > 0
}

/// Sends zeros until no more fit, without waiting; returns whether the other end is closed.
pub fn fill(end: impl AsFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    for _ in 0..MAX_PACKETS {
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
    fn near_end_is_recognised_by_its_mark() {
        let (near, far) = pair().unwrap();
        assert!(!is_marked(&near));
        mark(&far).unwrap();
        assert!(is_marked(&near) && !is_marked(&far));
        let copy = near.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(inode(&near).unwrap(), inode(&copy).unwrap());
        drop(near);
        assert!(!is_peer_closed(&far));
        drop(copy);
        assert!(is_peer_closed(&far));
    }

    #[test]
    fn lent_end_is_not_used_after_renumbering() {
        let (near, far) = pair().unwrap();
        let number = near.as_fd().as_raw_fd();
        let lent = Near::lent(number);
        send(&far, &[1], SendFlags::empty()).unwrap();
        assert_eq!(lent.with(|near| drain(near)), Some(true));
        lent.renumber(None);
        assert_eq!(lent.with(|near| drain(near)), None);
        drop(lent);
        assert!(is_marked(&near) || !drain(&near), "the program's descriptor is still open");
        assert!(Near::owned(near.into_fd()).as_owned().is_some());
    }

    #[test]
    fn fill_and_drain_change_the_level() {
        let (near, far) = pair().unwrap();
        assert_eq!(polled(&near), PollFlags::OUT);
        fill(&near);
        assert_eq!(polled(&near), PollFlags::empty());
        send(&far, &[1], SendFlags::empty()).unwrap();
        assert_eq!(polled(&near), PollFlags::IN);
        assert!(has_unread(&far));
        assert!(drain(&near) && !drain(&near));
        assert!(!has_unread(&far));
        assert!(drain(&far), "the plug");
        assert_eq!(polled(&near), PollFlags::OUT);
        assert_eq!((drain_to_end(&near), fill(&near)), ((false, false), false));
        drop(far);
        assert!(!drain(&near), "the end is not a packet");
        assert_eq!((drain_to_end(&near), fill(&near)), ((false, true), true));
    }
}
