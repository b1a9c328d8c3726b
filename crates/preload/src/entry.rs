//! A TIPC socket of the program: the client library's socket, and the state that the kernel keeps in an open file.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use libc::c_int;
use once_cell::race::OnceBox;
use utipc_client::{Readiness, Socket, Wait};
use utipc_core::addr::PortId;
use utipc_os::hidden::{Hiding, raise};

use crate::errno::{Code, code};
use crate::handlers::{AGAIN, InCall, Inside};
use crate::node::node;
use crate::real;

/// A copy of the descriptor for the calls that are in progress when the program closes its last number. As in Linux,
/// the socket stays open until they return.
#[derive(Debug)]
struct Kept {
    /// Dropped before the descriptor, which it hides.
    _hiding: Hiding,
    fd: OwnedFd,
}

/// One socket of this process, which may have several descriptor numbers. What is set once is set by one step: a child
/// would wait for ever for a thread of its parent that a fork has interrupted at the second of two.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Set at first use if the descriptor was inherited by exec or received from another process.
    socket: ManuallyDrop<OnceBox<Socket>>,
    /// Inode of the descriptor, shared by its copies only.
    inode: u64,
    /// The number through which the library uses the descriptor.
    number: AtomicI32,
    /// Number of descriptor numbers that the process has for it.
    pub(crate) names: AtomicUsize,
    /// Set while calls are in progress on a socket that has no number any more.
    kept: ManuallyDrop<OnceBox<Kept>>,
    /// O_NONBLOCK as set by this process. If several processes hold the socket, the descriptor's flag counts.
    nonblocking: AtomicBool,
    /// O_ASYNC: a signal reports every change of the descriptor, which therefore is never stale.
    signalling: AtomicBool,
    /// It has sent to an address: no later message requests a connection.
    pub(crate) is_beyond_open: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO in microseconds; 0 is no limit.
    receive_limit: AtomicU64,
    send_limit: AtomicU64,
    /// SO_SNDBUF in bytes, stored for getsockopt only: it limits nothing.
    send_buffer: AtomicU32,
    /// SO_RCVBUF as set, in bytes; 0 if unset. The node may keep more.
    receive_buffer: AtomicU32,
    /// The peer in a connectionless socketpair.
    pub(crate) pair: OnceBox<PortId>,
}

/// Default SO_SNDBUF, and half of the largest size that either buffer can be set to, in bytes, as in Linux.
const BUFFER: u32 = 212_992;
/// The smallest SO_RCVBUF, and half of the smallest SO_SNDBUF, in bytes.
const LEAST_BUFFER: u32 = 2304;

/// The largest size that can be requested, in bytes.
fn most_buffer(force: bool) -> u32 {
    if force { u32::MAX / 4 } else { BUFFER }
}

impl Entry {
    fn with(number: RawFd, socket: OnceBox<Socket>) -> Self {
        Self {
            socket: ManuallyDrop::new(socket),
            inode: inode(number),
            number: AtomicI32::new(number),
            names: AtomicUsize::new(0),
            kept: ManuallyDrop::default(),
            nonblocking: AtomicBool::new(false),
            signalling: AtomicBool::new(false),
            is_beyond_open: AtomicBool::new(false),
            receive_limit: AtomicU64::new(0),
            send_limit: AtomicU64::new(0),
            send_buffer: AtomicU32::new(BUFFER),
            receive_buffer: AtomicU32::new(0),
            pair: OnceBox::new(),
        }
    }

    /// The entry of a socket that this process has opened.
    pub(crate) fn opened(number: RawFd, socket: Socket) -> Self {
        Self::with(number, OnceBox::with_value(Box::new(socket)))
    }

    /// The entry of a descriptor inherited by exec or received from another process.
    pub(crate) fn unclaimed(number: RawFd) -> Self {
        Self::with(number, OnceBox::new())
    }

    /// The socket; claims it at first use. Every call begins with this, and keeps the result until it is over. It
    /// fails for a signal handler that has interrupted another call.
    #[inline]
    pub(crate) fn socket(&self) -> Result<InCall<'_>, Code> {
        let inside = Inside::enter().ok_or(AGAIN)?;
        let socket = match self.socket.get() {
            Some(socket) => socket.live().map_err(|error| code(&error)),
            None => self.claim(),
        };
        socket.map(|socket| InCall { socket, _inside: inside })
    }

    #[cold]
    fn claim(&self) -> Result<&Socket, Code> {
        let copy = self.copy()?;
        let fd = copy.as_raw_fd();
        let socket = node()?.claim(self.number(), &copy).map_err(|error| code(&error))?;
        socket.set_interruptible(true);
        self.nonblocking.store(flags(fd) & libc::O_NONBLOCK != 0, Relaxed);
        self.reload_limit(fd, libc::SO_RCVTIMEO);
        self.reload_limit(fd, libc::SO_SNDTIMEO);
        let socket = self.socket.get_or_init(|| Box::new(socket));
        // Another thread may have closed the number before it could see the socket.
        loop {
            let number = self.number.load(SeqCst);
            socket.renumber(Some(number).filter(|number| *number >= 0));
            if self.number.load(SeqCst) == number {
                return Ok(socket);
            }
        }
    }

    /// A copy of the descriptor. Other threads may close and reuse its number at any time.
    fn copy(&self) -> Result<OwnedFd, Code> {
        loop {
            let number = self.number.load(SeqCst);
            // A number of another file is found out below.
            let copy = duplicate(number);
            let is_same = copy.as_ref().is_ok_and(|copy| self.is_same_file(copy.as_raw_fd()));
            if is_same || self.number.load(SeqCst) == number {
                return if is_same { copy } else { Err(copy.err().unwrap_or(libc::EBADF)) };
            }
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Relaxed);
    }

    /// Sets whether the program gets a signal for every change of the descriptor's readiness.
    pub(crate) fn set_signalling(&self, on: bool) {
        self.signalling.store(on, Relaxed);
        // Not if a signal handler has interrupted a call, which keeps the descriptor right.
        if let Some(_inside) = Inside::enter() {
            self.sync_stale();
        }
    }

    /// Whether the descriptor may be stale until the program waits.
    pub(crate) fn may_be_lazy(&self) -> bool {
        !self.signalling.load(Relaxed) && self.kept.get().is_none()
    }

    /// Whether calls must not wait.
    #[inline]
    pub(crate) fn is_nonblocking(&self, socket: &Socket) -> bool {
        if socket.is_shared() {
            // Another process may have changed the flag.
            return flags(self.number.load(Relaxed)) & libc::O_NONBLOCK != 0;
        }
        self.nonblocking.load(Relaxed)
    }

    /// Reads SO_RCVTIMEO or SO_SNDTIMEO again after it was set on the descriptor `fd`. The known limit remains if
    /// another thread has closed that meanwhile.
    pub(crate) fn reload_limit(&self, fd: RawFd, option: c_int) {
        let place = if option == libc::SO_RCVTIMEO { &self.receive_limit } else { &self.send_limit };
        if let Some(limit) = time_limit(fd, option) {
            place.store(limit, Relaxed);
        }
    }

    pub(crate) fn send_buffer(&self) -> u32 {
        self.send_buffer.load(Relaxed)
    }

    /// Sets SO_SNDBUF. Like Linux, doubles the requested size within limits; `force` waives the upper one.
    pub(crate) fn set_send_buffer(&self, bytes: u32, force: bool) {
        self.send_buffer.store(bytes.clamp(LEAST_BUFFER, most_buffer(force)) * 2, Relaxed);
    }

    pub(crate) fn receive_buffer(&self) -> Option<u32> {
        Some(self.receive_buffer.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets SO_RCVBUF, as [`Entry::set_send_buffer`].
    pub(crate) fn set_receive_buffer(&self, bytes: u32, force: bool) {
        self.receive_buffer.store((bytes.min(most_buffer(force)) * 2).max(LEAST_BUFFER), Relaxed);
    }

    fn wait(&self, socket: &Socket, flags: c_int, limit: &AtomicU64) -> Wait {
        if flags & libc::MSG_DONTWAIT != 0 || self.is_nonblocking(socket) {
            return Wait::Never;
        }
        match limit.load(Relaxed) {
            0 => Wait::Forever,
            micros => Wait::AtMost(Duration::from_micros(micros)),
        }
    }

    /// Time limit of a receive or accept with these flags.
    #[inline]
    pub(crate) fn receive_wait(&self, socket: &Socket, flags: c_int) -> Wait {
        self.wait(socket, flags, &self.receive_limit)
    }

    /// Time limit of a send with these flags.
    #[inline]
    pub(crate) fn send_wait(&self, socket: &Socket, flags: c_int) -> Wait {
        self.wait(socket, flags, &self.send_limit)
    }

    /// Called before the program polls the descriptor.
    pub(crate) fn begin_polling(&self) -> Result<(), Code> {
        self.socket()?.readiness().begin_polling().map_err(|error| code(&error))
    }

    /// The number through which the library uses the descriptor.
    pub(crate) fn number(&self) -> RawFd {
        self.number.load(Relaxed)
    }

    /// The socket, if this process uses it already.
    fn known(&self) -> Option<&Socket> {
        self.socket.get().and_then(|socket| socket.live().ok())
    }

    fn readiness(&self) -> Option<&Readiness> {
        self.known().map(Socket::readiness)
    }

    /// Synchronises a stale descriptor. If the daemon has died, the descriptor hangs up.
    pub(crate) fn sync_stale(&self) {
        if let Some(readiness) = self.readiness() {
            let _ = readiness.sync_stale();
        }
    }

    /// Whether a socket with a stale descriptor has something, and the descriptor is readable now.
    pub(crate) fn check_stale(&self) -> bool {
        self.readiness().is_some_and(|readiness| readiness.check_stale().unwrap_or(true))
    }

    /// Whether a process that sends to it was awake when last seen.
    pub(crate) fn some_sender_is_awake(&self) -> bool {
        self.readiness().is_some_and(Readiness::some_sender_is_awake)
    }

    /// Called before the program passes the descriptor to another process.
    pub(crate) fn before_passing(&self) {
        // If a signal handler has interrupted a call, the daemon does it.
        let Some(_inside) = Inside::enter() else { return };
        // An unclaimed socket has no lanes to give up.
        if let Some(socket) = self.socket.get().and_then(|socket| socket.live().ok()) {
            // If this fails, the daemon does it when the other process claims the socket.
            let _ = socket.before_passing();
        }
    }

    /// Called before one of its descriptor numbers is closed; `other` finds another one. `is_left`: it is closed
    /// meanwhile, by another thread that does not know that it has been found.
    pub(crate) fn renumber(
        &self,
        fd: RawFd,
        other: impl Fn() -> Option<RawFd>,
        is_left: impl Fn(RawFd) -> bool,
    ) {
        let mut closed = fd;
        while self.number.load(SeqCst) == closed {
            // The list of recent sockets has the old number.
            self.sync_stale();
            let other = other();
            self.number.store(other.unwrap_or(-1), SeqCst);
            if let Some(socket) = self.socket.get() {
                socket.renumber(other);
            }
            let is_kept = self.kept.get().is_some();
            match other {
                Some(number) if !is_kept && is_left(number) => closed = number,
                _ => return,
            }
        }
    }

    /// Copies `fd`, the last number, for the calls that are in progress; returns the copy's number. `None` if no
    /// descriptor is free: these calls then go on without one.
    pub(crate) fn keep(&self, fd: RawFd) -> Option<RawFd> {
        if self.kept.get().is_none() {
            let fd = duplicate(fd).ok()?;
            let _ = self.kept.set(Box::new(Kept { _hiding: Hiding::of(fd.as_fd()), fd }));
        }
        self.kept.get().map(|kept| kept.fd.as_raw_fd())
    }

    /// Whether the descriptor is a copy of this socket's.
    pub(crate) fn is_same_file(&self, fd: RawFd) -> bool {
        self.inode == inode(fd)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(_inside) = Inside::enter() else {
            // A signal handler has interrupted a call. The daemon sees the close of the descriptor.
            return;
        };
        if self.kept.get().is_some()
            && let Some(socket) = self.socket.get()
        {
            socket.renumber(None);
        }
        // The copy before the socket, so that the daemon sees that no process has its descriptor.
        // SAFETY: neither is used again: this is the only place where they are dropped, and the value is gone after it.
        unsafe {
            ManuallyDrop::drop(&mut self.kept);
            ManuallyDrop::drop(&mut self.socket);
        }
    }
}

/// A copy of a descriptor that is not in the table, with a high number.
fn duplicate(fd: RawFd) -> Result<OwnedFd, Code> {
    // SAFETY: borrowed for this call only; a closed descriptor is an error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
    // By a system call: the C library's function is replaced by the one of this library.
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(rustix::io::Errno::raw_os_error)?;
    Ok(raise(copy))
}

/// The inode of a descriptor; 0 if it is not open.
fn inode(fd: RawFd) -> u64 {
    // SAFETY: borrowed for this call only; a closed descriptor is an error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
    utipc_os::packets::inode(fd).unwrap_or(0)
}

/// The status flags of an open file.
pub(crate) fn flags(fd: RawFd) -> c_int {
    // SAFETY: no pointers.
    let flags = unsafe { real::fcntl.get()(fd, libc::F_GETFL, 0) };
    flags.max(0)
}

/// The time limit set on a descriptor, in microseconds; 0 for none. `None` if the descriptor is not open.
fn time_limit(fd: RawFd, option: c_int) -> Option<u64> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `limit`, for which every bit pattern is a value.
    let done = unsafe {
        real::getsockopt.get()(fd, libc::SOL_SOCKET, option, (&raw mut limit).cast(), &raw mut len)
    };
    let micros = || limit.tv_sec.unsigned_abs().saturating_mul(1_000_000);
    (done == 0).then(|| micros().saturating_add(limit.tv_usec.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_remains_if_the_descriptor_was_closed_meanwhile() {
        // No descriptor of this process has this number.
        let entry = Entry::unclaimed(700_003);
        entry.receive_limit.store(5, Relaxed);
        entry.reload_limit(700_003, libc::SO_RCVTIMEO);
        assert_eq!(entry.receive_limit.load(Relaxed), 5);
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        entry.reload_limit(socket.as_raw_fd(), libc::SO_RCVTIMEO);
        assert_eq!(entry.receive_limit.load(Relaxed), 0);
    }
}
