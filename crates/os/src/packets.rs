//! The packet socket pair behind the descriptor of a socket: the program polls the near end, and library and daemon
//! maintain its level together. See `descriptor.rs` of `utipc-client`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::fdpass::{Channel, Got, MAX_FDS};
use crate::hidden::{Hiding, raise};
use crate::{OsError, Result, fork, lock};

/// Maximum number of packets that one call reads or writes. Neither end leaves more than a few.
const MAX_PACKETS: usize = 64;
/// Packets read by one system call.
const BATCH: usize = 4;

/// Size of a packet that makes the smallest send buffer unwritable, bytes. A socket is unwritable once a quarter of its
/// send buffer is used.
pub const PLUG: usize = 2048;

/// The number of an absent descriptor.
const NONE: RawFd = -1;

/// The near end in this process: a descriptor of the library, or one that the program owns and may close or renumber.
#[derive(Debug)]
pub struct Near {
    place: Arc<Place>,
    owned: bool,
    /// The process that it belongs to, see [`fork::generation`].
    generation: u32,
}

/// Where a near end is, for [`NearHandle`] too.
#[derive(Debug)]
struct Place {
    number: AtomicI32,
    /// Locked while the number is used or changed.
    guard: Mutex<()>,
}

impl Place {
    /// Calls `use_it` with the descriptor, which stays open during the call; `None` if there is none.
    fn with<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let _guard = lock(&self.guard);
        let number = self.number.load(Relaxed);
        // SAFETY: before the number is closed it is changed, which waits for the guard.
        (number != NONE).then(|| use_it(unsafe { BorrowedFd::borrow_raw(number) }))
    }
}

/// A near end for the thread that hangs it up. It never closes the descriptor: that thread may have its own descriptor
/// table, in which the number is unused or names another file.
#[derive(Debug)]
pub struct NearHandle(Weak<Place>);

impl NearHandle {
    /// Whether the near end is gone.
    pub fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Whether it is a handle of this near end.
    pub fn is_of(&self, near: &Near) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&near.place)
    }

    /// Hangs it up, from any thread of the process. A thread with its own descriptor table reaches the number only
    /// where the kernel has `pidfd_getfd` and permits it: see [`reaches_main_table`].
    pub fn hang_up(&self) -> bool {
        let shut = |fd: BorrowedFd<'_>| rustix::net::shutdown(fd, rustix::net::Shutdown::Both).is_ok();
        let Some(place) = self.0.upgrade() else { return false };
        let hung_up = place.with(|near| match of_main_table(near.as_raw_fd()) {
            Ok(copy) => shut(copy.as_fd()),
            Err(_) => shut(near),
        });
        hung_up.unwrap_or(false)
    }
}

impl Near {
    /// A descriptor that is closed with the value.
    pub fn owned(fd: OwnedFd) -> Self {
        Self::new(fd.into_raw_fd(), true)
    }

    /// A descriptor that the program owns. Call [`Near::renumber`] before the program closes it.
    pub fn lent(number: RawFd) -> Self {
        Self::new(number, false)
    }

    fn new(number: RawFd, owned: bool) -> Self {
        let place = Place { number: AtomicI32::new(number), guard: Mutex::default() };
        Self { place: Arc::new(place), owned, generation: fork::generation() }
    }

    /// A handle for the thread that hangs it up.
    pub fn handle(&self) -> NearHandle {
        NearHandle(Arc::downgrade(&self.place))
    }

    /// The near end in a forked child: the program's descriptor keeps its number, the library's is copied. `None` if no
    /// descriptor is free. Takes no lock, because a thread that exists only in the parent may hold it.
    pub fn inherited(&self) -> Option<Self> {
        let number = self.place.number.load(Relaxed);
        if !self.owned || number == NONE {
            return Some(Self::lent(number));
        }
        // SAFETY: an owned number is closed only with the value, which is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        fd.try_clone_to_owned().ok().map(Self::owned)
    }

    /// Sets its number (or none). After the return, the old number is no longer used.
    pub fn renumber(&self, number: Option<RawFd>) {
        let _guard = lock(&self.place.guard);
        self.renumber_at_once(number);
    }

    /// [`Near::renumber`] when no other thread can be using the old number.
    pub fn renumber_at_once(&self, number: Option<RawFd>) {
        self.place.number.store(number.unwrap_or(NONE), Relaxed);
    }

    /// The descriptor, if this process owns it.
    pub fn as_owned(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: an owned number never changes, and is closed only with the value, which is borrowed.
        self.owned.then(|| unsafe { BorrowedFd::borrow_raw(self.place.number.load(Relaxed)) })
    }

    /// Calls `use_it` with the descriptor, which stays open during the call; `None` if there is none.
    pub fn with<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.place.with(use_it)
    }
}

/// A copy of the descriptor that has this number in the process's main thread.
fn of_main_table(number: RawFd) -> rustix::io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty())
}

/// Whether a thread with its own descriptor table can reach the descriptors of other threads. Linux 5.6 can; some
/// containers forbid it.
pub fn reaches_main_table(fd: impl AsFd) -> bool {
    of_main_table(fd.as_fd().as_raw_fd()).is_ok()
}

/// A copy of a far end that another process made and keeps: it makes the near end readable, without that process.
#[derive(Debug)]
pub struct Far {
    /// Dropped before the descriptor, which it hides.
    _hiding: Hiding,
    fd: OwnedFd,
}

/// Number of copies in this process.
static COPIES: AtomicUsize = AtomicUsize::new(0);
/// Maximum number of copies in a process.
const COPIES_MAX: usize = 128;
/// Part of the limit of open files that copies may take.
const COPIES_PART: u64 = 16;

impl Far {
    /// Takes over a copy; `None` if the process has as many as it may: a 16th of its limit of open files, at most 128.
    pub fn new(fd: OwnedFd) -> Option<Self> {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(files / COPIES_PART).unwrap_or(COPIES_MAX).min(COPIES_MAX);
        if COPIES.fetch_add(1, Relaxed) >= most {
            COPIES.fetch_sub(1, Relaxed);
            return None;
        }
        let fd = raise(fd);
        Some(Self { _hiding: Hiding::of(&fd), fd })
    }

    /// Makes the near end readable. False if it has hung up, or the descriptor is not a far end.
    pub fn set_readable(&self) -> bool {
        set_readable(&self.fd)
    }

    /// [`Far::set_readable`] unless unread packets make it readable already.
    pub fn keep_readable(&self) -> bool {
        has_unread(&self.fd) || self.set_readable()
    }
}

/// Makes the near end of this far end readable. False if it has hung up, or the descriptor is not a far end.
pub fn set_readable(far: impl AsFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match send(&far, &[1], flags) {
            // A full queue is readable.
            Ok(_) | Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        COPIES.fetch_sub(1, Relaxed);
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // In a forked child no other thread uses the number, and the guard may be locked for ever.
        let _guard = (self.generation == fork::generation()).then(|| lock(&self.place.guard));
        let number = self.place.number.swap(NONE, Relaxed);
        if self.owned && number != NONE {
            // SAFETY: it came from an `OwnedFd`, and only this value closes it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

/// Creates a pair for one socket: the near end, whose send buffer is as small as the system allows, and the far end.
pub fn pair() -> Result<(Channel, Channel)> {
    let (near, far) = Channel::pair()?;
    far.refuse_descriptors();
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 1)
        .map_err(|errno| OsError::new("size the buffer of", "a packet socket", errno))?;
    Ok((near, far))
}

/// Prefix of the far end's name in the abstract namespace, which distinguishes near ends from all other packet sockets.
const MARK: &[u8] = b"utipc-socket/";

/// Prefix of the names of the daemon's other ends: those of descriptors of the library, of adopted ones, and of
/// inheritances.
const HELD: &[u8] = b"utipc-held/";

/// Marks the near end as one by which a socket can be claimed. The mark is the far end's name.
///
/// # Errors
/// There is no memory, or the far end has a name.
pub fn mark(far: impl AsFd) -> Result<()> {
    let failed = |errno| OsError::new("name", "the daemon's end of a socket", errno);
    name(far, MARK)?.map_err(failed)
}

/// Names an end that the daemon has, unless it has a name: from now on its other end is not a far end ([`is_far_end`]).
///
/// # Errors
/// There is no memory.
pub fn hold(end: impl AsFd) -> Result<()> {
    match name(end, HELD)? {
        // The name of a socket never changes.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(OsError::new("name", "the daemon's end of a pair", errno)),
    }
}

/// Gives an end a name with this prefix that no other socket has.
fn name(end: impl AsFd, prefix: &[u8]) -> Result<rustix::io::Result<()>> {
    let name = [prefix, format!("{:016x}", crate::random::seed()?).as_bytes()].concat();
    Ok(rustix::net::SocketAddrUnix::new_abstract_name(&name).and_then(|name| rustix::net::bind(end, &name)))
}

/// Whether this is a near end with the mark. Costs three system calls, one if it is not a socket.
pub fn is_marked(fd: impl AsFd) -> bool {
    // Only their names can be read without waiting: a TCP socket has a lock, which a hostile process can hold.
    if !is_packet_socket(&fd) {
        return false;
    }
    let name = rustix::net::getpeername(fd).ok().flatten();
    let name = name.and_then(|name| rustix::net::SocketAddrUnix::try_from(name).ok());
    name.is_some_and(|name| name.abstract_name().is_some_and(|name| name.starts_with(MARK)))
}

/// The cookie of a socket, which no other socket ever has (`SO_COOKIE`). Inode numbers have 32 bits and wrap: a process
/// that opens enough sockets gets a number twice.
///
/// # Errors
/// It is not a socket.
pub fn cookie(fd: impl AsFd) -> Result<u64> {
    let cookie = rustix::net::sockopt::socket_cookie(fd);
    cookie.map_err(|errno| OsError::new("query", "a packet socket", errno))
}

/// Whether this is a packet socket of this host, as either end is.
pub fn is_packet_socket(fd: impl AsFd) -> bool {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    sockopt::socket_type(&fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
        && sockopt::socket_domain(&fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// [`hold`] of an end that a process has passed; whether it can be the far end of a descriptor. It is named before its
/// other end is checked, so that even two daemons at the same moment take at most one end of a pair.
pub fn hold_far_end(fd: impl AsFd) -> bool {
    is_packet_socket(&fd) && hold(&fd).is_ok() && is_far_end(&fd)
}

/// Whether this can be the far end of a descriptor: a packet socket whose other end has no name. Every end that a
/// daemon has is named: a daemon that held both ends would not notice that the process closes its own.
pub fn is_far_end(fd: impl AsFd) -> bool {
    let is_unnamed = |name: rustix::net::SocketAddrUnix| {
        name.path().is_none() && name.abstract_name().is_none_or(<[u8]>::is_empty)
    };
    let peer = || rustix::net::getpeername(&fd).map(|name| name.and_then(|name| name.try_into().ok()));
    is_packet_socket(&fd) && peer().is_ok_and(|name| name.is_none_or(is_unnamed))
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

/// Whether all copies of the other end were closed while it had unread packets from this one; also after a shutdown of
/// this end.
pub fn was_left_unread(end: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut set = [PollFd::new(&end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut set, Some(&now)).is_ok() && set[0].revents().contains(PollFlags::ERR)
}

/// Reads all packets without waiting; returns whether any was read.
pub fn drain(end: impl AsFd) -> bool {
    drain_to_end(end).0
}

/// [`drain`]; also returns whether the other end is closed, which stays readable.
pub fn drain_to_end(end: impl AsFd) -> (bool, bool) {
    let mut some = false;
    for _ in 0..MAX_PACKETS {
        match receive_several(&end) {
            Ok((packets, end)) => {
                some |= packets > 0;
                if end || packets < BATCH {
                    return (some, end);
                }
            }
            // The other end was closed with unread packets: reported once, then as above.
            Err(libc::ECONNRESET | libc::EINTR) => {}
            Err(_) => break,
        }
    }
    (some, false)
}

/// [`drain`] of an end whose other end belongs to another process: returns the descriptors that came, see
/// [`crate::disposal`].
pub fn drain_foreign(end: &Channel) -> Vec<OwnedFd> {
    let (mut fds, mut packet) = (Vec::new(), [0; PLUG]);
    for _ in 0..MAX_PACKETS {
        // The rest stays with its sender.
        if fds.len() > MAX_FDS {
            break;
        }
        // A truncated packet is an error.
        match end.receive_all(&mut packet, &mut fds) {
            Ok(Got::Packet(_)) | Err(_) => {}
            Ok(Got::Nothing | Got::End) => break,
        }
    }
    fds
}

/// Reads up to [`BATCH`] packets in one system call, without waiting; returns their number, and whether the end
/// follows. Fewer than that were all.
fn receive_several(end: impl AsFd) -> std::result::Result<(usize, bool), libc::c_int> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: zeros are an empty message.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for message in &mut messages {
        message.msg_hdr.msg_iov = &raw mut part;
        message.msg_hdr.msg_iovlen = 1;
    }
    let (flags, no_limit) = (libc::MSG_DONTWAIT, std::ptr::null_mut::<libc::timespec>());
    // By `syscall`: a shim replaces the C library's function.
    // SAFETY: the descriptor is open for as long as the call takes, and the messages, whose one part is `byte`, outlive
    // it.
    let got = unsafe {
        let (fd, list) = (end.as_fd().as_raw_fd(), messages.as_mut_ptr());
        libc::syscall(libc::SYS_recvmmsg, fd, list, BATCH, flags, no_limit)
    };
    let Ok(got) = usize::try_from(got) else {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    };
    // Empty packets are never sent: the first one is the end.
    let packets = messages.iter().take(got).take_while(|message| message.msg_len > 0).count();
    Ok((packets, packets < got))
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
        assert_eq!(cookie(&near).unwrap(), cookie(&copy).unwrap());
        assert_ne!(cookie(&near).unwrap(), cookie(&far).unwrap());
        drop(near);
        assert!(!is_peer_closed(&far));
        drop(copy);
        assert!(is_peer_closed(&far));
    }

    #[test]
    fn close_of_an_end_with_unread_packets_shows_after_a_shutdown() {
        for (unread, shown) in [(true, true), (false, false)] {
            let (near, far) = pair().unwrap();
            send(&far, &[1], SendFlags::empty()).unwrap();
            far.shut();
            assert!(unread || drain(&near));
            assert!(!was_left_unread(&far));
            drop(near);
            assert_eq!(was_left_unread(&far), shown);
        }
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
    fn copy_of_a_far_end_makes_the_near_end_readable_until_it_hangs_up() {
        let (near, far) = pair().unwrap();
        let copy = Far::new(far.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(copy.keep_readable() && copy.keep_readable());
        assert_eq!(polled(&near), PollFlags::IN | PollFlags::OUT);
        assert_eq!(receive_several(&near), Ok((1, false)), "one packet is enough");
        assert_eq!(polled(&near), PollFlags::OUT);
        for _ in 0..4096 {
            assert!(copy.set_readable());
        }
        while drain(&near) {}
        assert_eq!(polled(&near), PollFlags::OUT);
        far.shut();
        assert!(!copy.set_readable());
        assert_eq!(drain_to_end(&near), (false, true));
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
