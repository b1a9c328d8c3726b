//! Packets with descriptors between processes of one host: AF_UNIX sockets of type SEQPACKET.
//!
//! A [`Doorway`] listens at a path, a [`Channel`] is one connection. Packets keep their boundaries; each may carry
//! descriptors. A call blocks only if its `wait` is true.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::file_lock::FileLock;
use crate::{OsError, Result};

/// Maximum number of descriptors in one packet.
pub const MAX_FDS: usize = 8;

/// Maximum number of descriptors that the kernel lets a packet have (`SCM_MAX_FD`).
const KERNEL_FDS: usize = 253;

/// Number of connections that may wait to be accepted; further ones wait in `connect`.
const BACKLOG: i32 = 128;

/// Send buffer of each side of a channel, bytes: room for a few of the largest packets.
const SEND_BUFFER: usize = 256 << 10;

/// Time for which [`Channel::connect`] waits while too many connections wait to be accepted.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time for which [`Doorway::open`] waits for a concurrent one at the same path.
const LOCK_LIMIT: Duration = Duration::from_millis(200);

/// The process at the other end of a channel, as the kernel noted it when the channel was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Pid; 0 if the process is outside of this process's namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// The effective user of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// A packet with this number of bytes.
    Packet(usize),
    /// There is none.
    Nothing,
    /// The peer is gone.
    End,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The packet was sent.
    Sent,
    /// The peer has too many unread packets.
    Full,
    /// This user has the maximum number of descriptors in flight, to all receivers together: try again later.
    Busy,
    /// The peer is gone.
    Gone,
}

/// A listening socket at a path. Dropping it removes the file.
#[derive(Debug)]
pub struct Doorway {
    fd: OwnedFd,
    path: PathBuf,
    /// Held while the path is in use: a process that gets the lock may replace a stale file.
    lock: Option<FileLock>,
    /// Whether the file belongs to the service manager, which passed the socket.
    is_passed: bool,
}

impl Doorway {
    /// Opens the path with the permissions `mode`; replaces the file of a process that has died.
    ///
    /// # Errors
    /// Another process uses the path; the directory is missing or not writable; the path is longer than 106 bytes.
    pub fn open(path: &Path, mode: u32) -> Result<Doorway> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock = FileLock::lock(Path::new(&lock_path), LOCK_LIMIT)
            .map_err(|e| e.with_remedy_for(io::ErrorKind::WouldBlock, "another daemon uses this path"))?;
        let mut doorway = Self::replace(path, mode)?;
        doorway.lock = Some(lock);
        Ok(doorway)
    }

    /// As [`Doorway::open`], for a caller that knows that no process uses the path.
    ///
    /// The socket listens under a hidden name before it is renamed, so a process that finds the path can connect.
    ///
    /// # Errors
    /// The directory is missing or not writable; the path is longer than 106 bytes.
    pub fn replace(path: &Path, mode: u32) -> Result<Doorway> {
        let failed = |cause: io::Error| OsError::new("open the socket", path.display(), cause);
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            let cause = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(failed(cause).with_remedy("remove the file at this path: it is not a socket"));
        }
        let hidden = hidden(path).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        match std::fs::remove_file(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let address = address(&hidden)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| failed(e.into()))?;
        rustix::net::bind(&fd, &address).map_err(|e| failed(e.into()))?;
        // No process can connect before `listen`, so the permissions apply to all.
        let opened = std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))
            .and_then(|()| Ok(rustix::net::listen(&fd, BACKLOG)?))
            .and_then(|()| std::fs::rename(&hidden, path));
        if let Err(cause) = opened {
            let _ = std::fs::remove_file(&hidden);
            return Err(failed(cause));
        }
        Ok(Doorway { fd, path: path.to_owned(), lock: None, is_passed: false })
    }

    /// Takes the listening socket with which the service manager started this process: descriptor `number`, 3 or more.
    /// The file at its path stays when the doorway is dropped, and connections then wait for the next process.
    ///
    /// # Errors
    /// The descriptor is not a listening AF_UNIX socket of type SEQPACKET with a path, or another process serves it.
    pub fn passed(number: RawFd) -> Result<Doorway> {
        let failed = |cause: io::Error| {
            OsError::new("use the passed socket", number, cause)
                .with_remedy("pass one listening socket at a path: ListenSequentialPacket= of a socket unit")
        };
        // SAFETY: the number is used in this call only; if nothing is open under it, `fcntl` reports EBADF.
        let given = unsafe { BorrowedFd::borrow_raw(number.max(0)) };
        let fd = rustix::io::fcntl_dupfd_cloexec(given, 3).map_err(|e| failed(e.into()))?;
        let fits = rustix::net::sockopt::socket_type(&fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
            && rustix::net::sockopt::socket_acceptconn(&fd) == Ok(true);
        let path = rustix::net::getsockname(&fd)
            .ok()
            .and_then(|address| SocketAddrUnix::try_from(address).ok())
            .and_then(|address| Some(PathBuf::from(OsStr::from_bytes(address.path_bytes()?))));
        let (true, Some(path)) = (fits, path) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        rustix::io::ioctl_fionbio(&fd, true).map_err(|e| failed(e.into()))?;
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock = match FileLock::lock(Path::new(&lock_path), LOCK_LIMIT) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(error.with_remedy("another daemon uses this path"));
            }
            // The folder belongs to the service manager; this user may not write there.
            Err(_) => None,
        };
        Ok(Doorway { fd, path, lock, is_passed: true })
    }

    /// Accepts the next connection, without waiting.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn accept(&self) -> Result<Option<Channel>> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => return Channel::new(fd).map(Some),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(OsError::new("accept at", self.path.display(), errno)),
            }
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Doorway {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        if !self.is_passed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
    /// Longest wait of one call.
    patience: Option<Duration>,
}

impl Channel {
    fn new(fd: OwnedFd) -> Result<Channel> {
        set_socket_send_buffer_size(&fd, SEND_BUFFER)
            .map_err(|errno| OsError::new("size the buffer of", "a packet socket", errno))?;
        Ok(Channel { fd, patience: None })
    }

    /// Connects to the process at `path`.
    ///
    /// # Errors
    /// `NotFound` and `ConnectionRefused` mean that no process listens there, `WouldBlock` that the one that
    /// listens does not accept in time.
    pub fn connect(path: &Path) -> Result<Channel> {
        Self::connect_with(path, SocketFlags::empty())
    }

    /// Connects to the process at `path` without waiting.
    ///
    /// # Errors
    /// As [`Channel::connect`]; `WouldBlock`: too many connections wait to be accepted there.
    pub fn connect_now(path: &Path) -> Result<Channel> {
        Self::connect_with(path, SocketFlags::NONBLOCK)
    }

    fn connect_with(path: &Path, flags: SocketFlags) -> Result<Channel> {
        let failed = |errno: Errno| OsError::new("connect to", path.display(), errno);
        let address = address(path)?;
        let flags = flags | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(failed)?;
        // While as many connections wait to be accepted as may.
        set_socket_timeout(&fd, Timeout::Send, Some(CONNECT_LIMIT)).map_err(failed)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Ok(()) => return Channel::new(fd),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Creates two connected ends.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn pair() -> Result<(Channel, Channel)> {
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| OsError::new("create", "a pair of packet sockets", errno))?;
        Ok((Self::from_fd(one), Self::from_fd(other)))
    }

    /// As [`Channel::pair`], with buffers for several of the largest packets.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn sized_pair() -> Result<(Channel, Channel)> {
        let (one, other) = Self::pair()?;
        Ok((Self::new(one.fd)?, Self::new(other.fd)?))
    }

    /// Makes a channel of an end that another process has passed.
    pub fn from_fd(fd: OwnedFd) -> Channel {
        Channel { fd, patience: None }
    }

    /// Limits the time that a call waits, here and in all copies of the descriptor. After that time a call returns
    /// [`Put::Full`] or [`Got::Nothing`].
    ///
    /// # Errors
    /// The descriptor is not open.
    pub fn set_patience(&mut self, limit: Duration) -> Result<()> {
        for option in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.fd, option, Some(limit))
                .map_err(|errno| OsError::new("limit the waits of", "a packet socket", errno))?;
        }
        self.patience = Some(limit);
        Ok(())
    }

    /// The same end with another descriptor number.
    pub fn renumbered(self, raise: impl FnOnce(OwnedFd) -> OwnedFd) -> Channel {
        Channel { fd: raise(self.fd), patience: self.patience }
    }

    /// Whether a call that signals interrupt has waited for its time. The system counts it from the last signal on.
    fn is_impatient(&self, begun: &mut Option<Instant>) -> bool {
        self.patience.is_some_and(|limit| begun.get_or_insert_with(Instant::now).elapsed() >= limit)
    }

    /// Its descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sends one packet made of `parts`, with at most [`MAX_FDS`] descriptors; waits for room if `wait`.
    ///
    /// # Errors
    /// The packet is too large, or there is no memory.
    pub fn send(&self, parts: &[IoSlice<'_>], fds: &[BorrowedFd<'_>], wait: bool) -> Result<Put> {
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(OsError::new("send", format_args!("{} descriptors", fds.len()), Errno::TOOBIG));
        }
        let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
        let mut begun = None;
        loop {
            match rustix::net::sendmsg(&self.fd, parts, &mut control, flags) {
                Ok(_) => return Ok(Put::Sent),
                Err(Errno::INTR) if self.is_impatient(&mut begun) => return Ok(Put::Full),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Put::Full),
                Err(Errno::TOOMANYREFS) => return Ok(Put::Busy),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Ok(Put::Gone),
                Err(errno) => return Err(OsError::new("send a packet to", "a local process", errno)),
            }
        }
    }

    /// Receives one packet into `buffer`; waits for one if `wait`. An empty packet counts as the end, because no end
    /// sends one. At most `most` of its descriptors are appended to `fds`; all others are closed.
    ///
    /// # Errors
    /// The packet is larger than `buffer`, or the system has no descriptor free.
    pub fn receive(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>, most: usize, wait: bool) -> Result<Got> {
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let room = if most == 0 { 0 } else { space.len() };
        self.receive_in(space.get_mut(..room).unwrap_or_default(), buffer, fds, most, wait)
    }

    /// As [`Channel::receive`] without waiting, with all descriptors of the packet: the caller decides where to close
    /// those that a hostile process has passed. See [`crate::disposal`].
    ///
    /// # Errors
    /// As for [`Channel::receive`].
    pub fn receive_all(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<Got> {
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_FDS))];
        self.receive_in(&mut space, buffer, fds, KERNEL_FDS, false)
    }

    fn receive_in(
        &self,
        space: &mut [MaybeUninit<u8>],
        buffer: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        most: usize,
        wait: bool,
    ) -> Result<Got> {
        let failed = |errno| OsError::new("receive a packet from", "a local process", errno);
        let mut control = RecvAncillaryBuffer::new(space);
        let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let mut begun = None;
        let message = loop {
            let parts = &mut [IoSliceMut::new(buffer)];
            match rustix::net::recvmsg(&self.fd, parts, &mut control, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) if self.is_impatient(&mut begun) => return Ok(Got::Nothing),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Got::Nothing),
                Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(Got::End),
                Err(errno) => return Err(failed(errno)),
            }
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                rights.take(most).for_each(|fd| fds.push(fd));
            }
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(failed(Errno::MSGSIZE));
        }
        Ok(if message.bytes == 0 { Got::End } else { Got::Packet(message.bytes) })
    }

    /// The process at the other end.
    ///
    /// # Errors
    /// The channel is not connected.
    pub fn peer(&self) -> Result<Peer> {
        // Not with rustix, whose pids cannot be 0: the kernel reports 0 for a peer outside of this pid namespace.
        let peer = self
            .option(libc::SO_PEERCRED, libc::ucred { pid: 0, uid: 0, gid: 0 })
            .map_err(|cause| OsError::new("find the process behind", "a local connection", cause))?;
        Ok(Peer { pid: peer.pid.unsigned_abs(), uid: peer.uid, gid: peer.gid })
    }

    /// A pidfd of the process at the other end, which becomes readable when that process ends. `None` if the process is
    /// outside of this pid namespace or the kernel is too old; then only the end of the channel shows its end.
    pub fn peer_process(&self) -> Option<OwnedFd> {
        let raw: libc::c_int = self.option(libc::SO_PEERPIDFD, -1).unwrap_or(-1); // Linux 6.5
        if raw >= 0 {
            // SAFETY: a new descriptor that has no other owner.
            return Some(unsafe { OwnedFd::from_raw_fd(raw) });
        }
        let pid = i32::try_from(self.peer().ok()?.pid).ok()?;
        let pid = rustix::process::Pid::from_raw(pid)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::NONBLOCK).ok()
    }

    /// Reads an option of level SOL_SOCKET; `before` is the result if the kernel writes nothing.
    fn option<T: Copy>(&self, name: libc::c_int, before: T) -> io::Result<T> {
        let mut value = before;
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes into `value`. Callers use integers and structures of integers
        // only, for which every bit pattern is a value.
        let code = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut size,
            )
        };
        if code == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }

    /// Refuses packets with descriptors from now on, where the kernel can (Linux 6.16): a packet socket that lies in
    /// the queue of its other end would never be closed.
    pub fn refuse_descriptors(&self) {
        const SO_PASSRIGHTS: libc::c_int = 83;
        let no: libc::c_int = 0;
        let size = size_of_val(&no) as libc::socklen_t;
        // SAFETY: the kernel reads one int, which `no` is. Older kernels refuse the option.
        let _ = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PASSRIGHTS,
                (&raw const no).cast(),
                size,
            )
        };
    }

    /// Ends the connection in both directions, even if other processes have this end too.
    pub fn shut(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// After [`Channel::shut`]: whether there are unread packets, even empty ones, which look like the end.
    pub(crate) fn has_unread_after_shut(&self) -> bool {
        // From now on each packet has credentials, for which this receive has no room; the end has none.
        if rustix::net::sockopt::set_socket_passcred(&self.fd, true).is_err() {
            return true;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut none = RecvAncillaryBuffer::default();
        match rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut [0])], &mut none, flags) {
            Ok(message) => message.bytes > 0 || message.flags.contains(ReturnFlags::CTRUNC),
            // No packets are left, and the other end is closed.
            Err(errno) => !matches!(errno, Errno::WOULDBLOCK | Errno::CONNRESET | Errno::NOTCONN),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The name of a socket in the same directory that does not listen yet.
fn hidden(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    Some(path.with_file_name(name))
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|errno| {
        OsError::new("use as socket path", path.display(), errno).with_remedy("it may have at most 106 bytes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("utipc-os-{name}-{}", std::process::id()))
    }

    #[test]
    fn packets_and_descriptors_pass_both_ways() {
        let path = path("doorway");
        let door = Doorway::open(&path, 0o600).unwrap();
        assert!(door.accept().unwrap().is_none());
        let client = Channel::connect(&path).unwrap();
        let server = door.accept().unwrap().unwrap();
        let me = Peer { pid: std::process::id(), uid: own_user(), gid: rustix::process::getegid().as_raw() };
        assert_eq!(server.peer().unwrap(), me);
        let (read, write) = std::io::pipe().unwrap();
        let (mut buffer, mut fds) = ([0; 16], Vec::new());
        assert_eq!(server.receive(&mut buffer, &mut fds, MAX_FDS, false).unwrap(), Got::Nothing);
        let parts = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
        assert_eq!(client.send(&parts, &[read.as_fd(), write.as_fd()], false).unwrap(), Put::Sent);
        assert_eq!(server.receive(&mut buffer, &mut fds, MAX_FDS, true).unwrap(), Got::Packet(5));
        assert_eq!((&buffer[..5], fds.len()), (&b"hello"[..], 2));
        // Surplus descriptors are closed.
        assert_eq!(server.send(&parts, &[read.as_fd()], false).unwrap(), Put::Sent);
        fds.clear();
        assert_eq!(client.receive(&mut buffer, &mut fds, 0, true).unwrap(), Got::Packet(5));
        assert!(fds.is_empty());
        drop(client);
        assert_eq!(server.receive(&mut buffer, &mut fds, 0, true).unwrap(), Got::End);
        assert_eq!(server.send(&parts, &[], false).unwrap(), Put::Gone);
    }

    #[test]
    fn path_is_free_after_its_owner() {
        let path = path("taken");
        let door = Doorway::open(&path, 0o600).unwrap();
        assert!(Doorway::open(&path, 0o600).is_err());
        drop(door);
        assert!(!path.exists());
        // A killed process leaves its socket file behind.
        let stale = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&stale, &address(&path).unwrap()).unwrap();
        drop(stale);
        assert_eq!(Channel::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(Doorway::open(&path, 0o600).unwrap());
        std::fs::write(&path, "precious").unwrap();
        assert!(Doorway::open(&path, 0o600).unwrap_err().to_string().contains("not a socket"));
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_file(format!("{}.lock", path.display()));
    }

    #[test]
    fn path_appears_when_it_listens() {
        use crate::inotify::{Change, DirWatch};
        let directory = path("appears");
        std::fs::create_dir(&directory).unwrap();
        let watch = DirWatch::new(&directory).unwrap();
        let at = directory.join("door");
        let _stale = std::os::unix::net::UnixListener::bind(directory.join(".door")).unwrap();
        let door = Doorway::replace(&at, 0o600).unwrap();
        let mut appeared = Vec::new();
        watch.take(&mut |change| appeared.push(change)).unwrap();
        // Only a rename makes the path of a socket appear when it listens already.
        assert!(appeared.contains(&Change::Appeared("door".into())), "{appeared:?}");
        let names: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["door"]);
        Channel::connect(&at).unwrap();
        drop(door);
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn unread_channel_fills_and_oversized_packet_is_an_error() {
        let (one, other) = Channel::pair().unwrap();
        let big = vec![7; 60_000];
        let put = (0..1000).map(|_| one.send(&[IoSlice::new(&big)], &[], false).unwrap());
        assert!(put.into_iter().any(|put| put == Put::Full));
        assert!(other.receive(&mut [0; 100], &mut Vec::new(), 0, false).is_err());
    }

    #[test]
    fn pidfd_shows_the_end_of_a_process() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let path = path("pidfd");
        let door = Doorway::open(&path, 0o600).unwrap();
        let _client = Channel::connect(&path).unwrap();
        let server = door.accept().unwrap().unwrap();
        let Some(own) = server.peer_process() else { return };
        let mut set = [PollFd::new(&own, PollFlags::IN)];
        assert_eq!(poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0);
    }
}
