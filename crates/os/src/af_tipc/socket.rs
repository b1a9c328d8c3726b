//! One socket of family AF_TIPC: its system calls.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socket_with};

use super::address::{Address, FAMILY, LEN};
use super::message::{self, Message, Receive, SOL_TIPC};

/// Type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_SEQPACKET.
    SeqPacket,
    /// SOCK_RDM.
    Rdm,
    /// SOCK_DGRAM.
    Dgram,
}

/// A socket of the kernel's TIPC. Calls block up to the timeouts that were set, unless their `now` is set or the socket
/// is non-blocking.
#[derive(Debug)]
pub struct KernelSocket(OwnedFd);

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn done(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl KernelSocket {
    /// Opens a socket.
    pub fn open(kind: Kind) -> io::Result<Self> {
        let kind = match kind {
            Kind::Stream => SocketType::STREAM,
            Kind::SeqPacket => SocketType::SEQPACKET,
            Kind::Rdm => SocketType::RDM,
            Kind::Dgram => SocketType::DGRAM,
        };
        Ok(Self(socket_with(AddressFamily::TIPC, kind, SocketFlags::CLOEXEC, None)?))
    }

    /// Binds it, or withdraws a binding (`None`: all). `scope`: 2 cluster, 3 node.
    pub fn bind(&self, to: Address, scope: i8) -> io::Result<()> {
        self.bind_bytes(&to.to_bytes(scope))
    }

    /// Withdraws a binding; `None`: all.
    pub fn unbind(&self, from: Option<(Address, i8)>) -> io::Result<()> {
        match from {
            Some((from, scope)) => self.bind_bytes(&from.to_bytes(-scope)),
            None => self.bind_bytes(&[]),
        }
    }

    fn bind_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: `bytes` is valid for reads of its length during the call; a length of 0 is never read.
        let result =
            unsafe { libc::bind(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len() as libc::socklen_t) };
        done(result).map(drop)
    }

    /// Makes it a listener. The kernel's backlog is the receive buffer.
    pub fn listen(&self) -> io::Result<()> {
        Ok(rustix::net::listen(self, 0)?)
    }

    /// Accepts the next connection request.
    pub fn accept(&self) -> io::Result<Self> {
        let none = std::ptr::null_mut();
        // SAFETY: the call returns no address: both pointers are null.
        let fd = unsafe { libc::accept4(self.0.as_raw_fd(), none, none.cast(), libc::SOCK_CLOEXEC) };
        // SAFETY: the kernel has just returned this descriptor.
        done(fd).map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Requests a connection, or sets the default destination; `None`: no default.
    pub fn connect(&self, to: Option<Address>) -> io::Result<()> {
        let bytes = to.map_or([0; LEN], |to| to.to_bytes(0));
        // SAFETY: `bytes` is valid for reads of LEN bytes during the call.
        let result =
            unsafe { libc::connect(self.0.as_raw_fd(), bytes.as_ptr().cast(), LEN as libc::socklen_t) };
        done(result).map(drop)
    }

    /// Sets whether calls without a `now` flag return at once instead of blocking.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self, nonblocking)?)
    }

    /// Sends a message, or as much of a stream as fits.
    pub fn send(&self, data: &[u8], to: Option<Address>, now: bool) -> io::Result<usize> {
        message::send(self.0.as_fd(), data, to, now)
    }

    /// Receives a message, or the available bytes of a stream.
    pub fn receive(&self, buffer: &mut [u8], how: Receive) -> io::Result<Message> {
        message::receive(self.0.as_fd(), buffer, how)
    }

    /// Sets how long receive and accept wait; `None`: without limit.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, Timeout::Recv, limit)?)
    }

    /// Sets how long send waits; `None`: without limit.
    pub fn set_send_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, Timeout::Send, limit)?)
    }

    /// Ends the connection.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, Shutdown::Both)?)
    }

    /// Its own port and node.
    pub fn local(&self) -> io::Result<Address> {
        // SAFETY: `getsockname` has the signature of `name`'s parameter.
        self.name(|fd, name, len| unsafe { libc::getsockname(fd, name, len) })
    }

    /// The peer of its connection.
    pub fn peer(&self) -> io::Result<Address> {
        // SAFETY: `getpeername` has the signature of `name`'s parameter.
        self.name(|fd, name, len| unsafe { libc::getpeername(fd, name, len) })
    }

    /// Reads an address with `call`, which writes at most the given length to the given memory.
    fn name(
        &self,
        call: impl FnOnce(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
    ) -> io::Result<Address> {
        let mut bytes = [0u8; LEN];
        let mut len = LEN as libc::socklen_t;
        done(call(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), &raw mut len))?;
        let known = Address::from_bytes(&bytes[..(len as usize).min(LEN)]);
        known.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an address of family AF_TIPC"))
    }

    /// Sets an option; `None` for an option without a value.
    pub fn set_option(&self, option: KernelOption, value: Option<u32>) -> io::Result<()> {
        let (level, name) = option.place();
        let bytes = value.map(u32::to_ne_bytes);
        // The kernel refuses an option without a value unless the pointer is null too.
        let (at, len) = bytes.as_ref().map_or((std::ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
        // SAFETY: `at` is valid for reads of `len` bytes during the call, or null and never read.
        let result =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, at.cast(), len as libc::socklen_t) };
        done(result).map(drop)
    }

    /// Joins a group: type, instance, scope and flags. Spec: tipc.md §9.1.
    pub fn join(&self, request: [u32; 4]) -> io::Result<()> {
        let len = size_of_val(&request) as libc::socklen_t;
        // SAFETY: the request is valid for reads of its length during the call.
        let result = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), SOL_TIPC, GROUP_JOIN, request.as_ptr().cast(), len)
        };
        done(result).map(drop)
    }

    /// Leaves the group.
    pub fn leave(&self) -> io::Result<()> {
        self.set_option(KernelOption::Tipc(GROUP_LEAVE), None)
    }

    /// Reads an option.
    pub fn option(&self, option: KernelOption) -> io::Result<u32> {
        let (level, name) = option.place();
        let mut value = 0u32;
        let mut len = size_of::<u32>() as libc::socklen_t;
        // SAFETY: `value` is valid for writes of `len` bytes during the call.
        let result = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
        };
        done(result).map(|_| value)
    }

    /// Takes the pending error of the socket.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(self)?.err().map(io::Error::from))
    }

    /// Waits until one of `wanted` holds or the connection has ended, at most `limit`; returns the flags that hold,
    /// which may be none.
    pub fn poll(&self, wanted: PollFlags, limit: Option<Duration>) -> io::Result<PollFlags> {
        let mut set = [PollFd::new(self, wanted)];
        // A limit that the kernel cannot represent means none.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut set, limit.as_ref()) {
            Ok(_) => Ok(set[0].revents()),
            Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// TIPC_GROUP_JOIN and TIPC_GROUP_LEAVE.
const GROUP_JOIN: i32 = 135;
const GROUP_LEAVE: i32 = 136;

/// An option of a kernel socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOption {
    /// One of TIPC's, by its number. Spec: tipc.md §8.9.
    Tipc(i32),
    /// SO_RCVBUF.
    ReceiveBuffer,
    /// SO_RCVLOWAT.
    ReceiveLowWater,
}

impl KernelOption {
    fn place(self) -> (i32, i32) {
        match self {
            Self::Tipc(number) => (SOL_TIPC, number),
            Self::ReceiveBuffer => (libc::SOL_SOCKET, libc::SO_RCVBUF),
            Self::ReceiveLowWater => (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
        }
    }
}

// AF_TIPC is 30 on every architecture.
const _: () = assert!(FAMILY == 30);
