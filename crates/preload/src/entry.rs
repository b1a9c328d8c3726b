//! A TIPC socket of the program: the client library's socket, and the state that the kernel keeps in an open file.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use libc::c_int;
use utipc_client::{Socket, Wait};
use utipc_core::addr::PortId;

use crate::errno::{Code, code};
use crate::node::node;
use crate::real;

/// One socket of this process, which may have several descriptor numbers.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Set at first use if the descriptor was inherited by exec or received from another process.
    socket: OnceLock<Socket>,
    /// Inode of the descriptor, shared by its copies only.
    inode: u64,
    /// The number through which the library uses the descriptor.
    number: AtomicI32,
    /// Number of descriptor numbers that the process has for it.
    pub(crate) names: AtomicUsize,
    /// O_NONBLOCK as set by this process. If several processes hold the socket, the descriptor's flag counts.
    nonblocking: AtomicBool,
    /// O_ASYNC: a signal tells of every change of the level, which therefore is never deferred.
    signalling: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO in microseconds; 0 is no limit.
    receive_limit: AtomicU64,
    send_limit: AtomicU64,
    /// SO_SNDBUF in bytes, stored for getsockopt only: it limits nothing.
    send_buffer: AtomicU32,
    /// SO_RCVBUF as set, in bytes; 0 if unset. The node may keep more.
    receive_buffer: AtomicU32,
    /// The peer in a connectionless socketpair.
    pub(crate) pair: OnceLock<PortId>,
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
    fn with(number: RawFd, socket: OnceLock<Socket>) -> Self {
        Self {
            socket,
            inode: inode(number),
            number: AtomicI32::new(number),
            names: AtomicUsize::new(0),
            nonblocking: AtomicBool::new(false),
            signalling: AtomicBool::new(false),
            receive_limit: AtomicU64::new(0),
            send_limit: AtomicU64::new(0),
            send_buffer: AtomicU32::new(BUFFER),
            receive_buffer: AtomicU32::new(0),
            pair: OnceLock::new(),
        }
    }

    /// The entry of a socket that this process has opened.
    pub(crate) fn opened(number: RawFd, socket: Socket) -> Self {
        Self::with(number, OnceLock::from(socket))
    }

    /// The entry of a descriptor inherited by exec or received from another process.
    pub(crate) fn unclaimed(number: RawFd) -> Self {
        Self::with(number, OnceLock::new())
    }

    /// The socket; claims it at first use. Every call begins with this.
    #[inline]
    pub(crate) fn socket(&self) -> Result<&Socket, Code> {
        match self.socket.get() {
            Some(socket) => socket.live().map_err(|error| code(&error)),
            None => self.claim(),
        }
    }

    #[cold]
    fn claim(&self) -> Result<&Socket, Code> {
        let number = self.number.load(Relaxed);
        // SAFETY: the program's call names the descriptor, which is open; if another thread closes it now, the
        // claim fails or finds no socket.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = node()?.claim(number, fd).map_err(|error| code(&error))?;
        socket.set_interruptible(true);
        self.nonblocking.store(flags(number) & libc::O_NONBLOCK != 0, Relaxed);
        self.receive_limit.store(time_limit(number, libc::SO_RCVTIMEO), Relaxed);
        self.send_limit.store(time_limit(number, libc::SO_SNDTIMEO), Relaxed);
        Ok(self.socket.get_or_init(|| socket))
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Relaxed);
    }

    /// Sets whether the program gets a signal for every change of the level.
    pub(crate) fn set_signalling(&self, on: bool) {
        self.signalling.store(on, Relaxed);
        self.settle_level();
    }

    /// Whether the descriptor's level may lag behind until the program waits.
    pub(crate) fn may_defer(&self) -> bool {
        !self.signalling.load(Relaxed)
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

    /// Reads SO_RCVTIMEO or SO_SNDTIMEO again after it was set on the descriptor.
    pub(crate) fn reload_limit(&self, option: c_int) {
        let limit = time_limit(self.number.load(Relaxed), option);
        let place = if option == libc::SO_RCVTIMEO { &self.receive_limit } else { &self.send_limit };
        place.store(limit, Relaxed);
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
        self.socket()?.begin_polling().map_err(|error| code(&error))
    }

    /// The number through which the library uses the descriptor.
    pub(crate) fn number(&self) -> RawFd {
        self.number.load(Relaxed)
    }

    /// The socket, if this process uses it already.
    fn known(&self) -> Option<&Socket> {
        self.socket.get().and_then(|socket| socket.live().ok())
    }

    /// Makes a deferred level right. If the daemon has died, the descriptor hangs up.
    pub(crate) fn settle_level(&self) {
        if let Some(socket) = self.known().filter(|socket| socket.is_level_deferred()) {
            let _ = socket.settle_level();
        }
    }

    /// Whether a deferred socket has something, and is readable now.
    pub(crate) fn check_deferred(&self) -> bool {
        self.known().is_some_and(|socket| socket.check_deferred().unwrap_or(true))
    }

    /// Whether a process that sends to it was awake when last seen.
    pub(crate) fn some_sender_is_awake(&self) -> bool {
        self.known().is_some_and(Socket::some_sender_is_awake)
    }

    /// Called before the program passes the descriptor to another process.
    pub(crate) fn before_passing(&self) {
        // An unclaimed socket has no lanes to give up.
        if let Some(socket) = self.socket.get().and_then(|socket| socket.live().ok()) {
            // If this fails, the daemon does it when the other process claims the socket.
            let _ = socket.before_passing();
        }
    }

    /// Called before one of its descriptor numbers is closed; `other` finds another one.
    pub(crate) fn renumber(&self, fd: RawFd, other: impl FnOnce() -> Option<RawFd>) {
        if self.number.load(Relaxed) != fd {
            return;
        }
        // The list of recent sockets has the old number.
        self.settle_level();
        let other = other();
        self.number.store(other.unwrap_or(-1), Relaxed);
        if let Some(socket) = self.socket.get() {
            socket.renumber(other);
        }
    }

    /// Whether the descriptor is a copy of this socket's.
    pub(crate) fn is_same_file(&self, fd: RawFd) -> bool {
        self.inode == inode(fd)
    }
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

/// The time limit set on a descriptor, in microseconds; 0 for none.
fn time_limit(fd: RawFd, option: c_int) -> u64 {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `limit`, for which every bit pattern is a value.
    let done = unsafe {
        real::getsockopt.get()(fd, libc::SOL_SOCKET, option, (&raw mut limit).cast(), &raw mut len)
    };
    if done != 0 {
        return 0;
    }
    limit.tv_sec.unsigned_abs().saturating_mul(1_000_000).saturating_add(limit.tv_usec.unsigned_abs())
}
