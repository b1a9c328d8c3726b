//! The express path to one peer: a second socket on the address of a [`UdpSocket`], connected to the peer (decision
//! 10).
//!
//! A connected socket does no route lookup per datagram, at either end, which saves about a tenth of a round trip on
//! one host. The socket blocks: a thread that expects frames only from this peer waits in the call that reads them,
//! which twice saves half a microsecond of the event loop. Frames of other peers still arrive at the first socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, send, socket_with};

use super::{UdpOptions, UdpSocket, discover_path_mtu, grow_buffers};
use crate::mmsg::{self, Datagram, Frames, ReceiveRing, SendReport};
use crate::offload::{gro, gso};
use crate::{OsError, Result};

/// The shortest wait in a read. Use the event loop for shorter or exact waits.
pub const WAIT_MIN: Duration = Duration::from_millis(2);

/// The destination of the socket. The holder of its lock may connect the socket elsewhere for a moment.
#[derive(Debug, Default)]
struct Target {
    is_bound: bool,
    remote: Option<SocketAddr>,
}

/// A second socket on the address of a [`UdpSocket`] that is connected to one peer at a time.
///
/// All calls take `&self`: one thread waits in [`Express::wait`] while another sends or wakes it.
#[derive(Debug)]
pub struct Express {
    fd: OwnedFd,
    local: SocketAddr,
    target: Mutex<Target>,
    /// The current timeout of a read, milliseconds; zero for none.
    limit_ms: AtomicU64,
    /// Whether [`Express::wake`] is known to work.
    can_wake: AtomicBool,
    segmentation: AtomicBool,
}

impl Express {
    /// Opens the socket. It receives nothing before [`Express::connect`] but can be added to a reactor already.
    pub(super) fn reserve(local: SocketAddr, options: &UdpOptions) -> Result<Express> {
        let failed = |errno: rustix::io::Errno| OsError::new("open a second UDP socket for", local, errno);
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
        discover_path_mtu(&fd, local.is_ipv4()).map_err(failed)?;
        grow_buffers(&fd, options);
        let segmentation = AtomicBool::new(options.offloads && gso::probe(fd.as_fd()));
        if options.offloads {
            // If this fails, every datagram arrives separately, which the receiver also handles.
            gro::enable(fd.as_fd());
        }
        Ok(Express {
            fd,
            local,
            target: Mutex::default(),
            limit_ms: AtomicU64::new(0),
            can_wake: AtomicBool::new(false),
            segmentation,
        })
    }

    /// Connects to `remote`. Frames of the previous peer that are queued stay and are read.
    ///
    /// # Errors
    /// The system does not let two sockets share an address, or has no route: use the first socket.
    pub fn connect(&self, first: &UdpSocket, remote: SocketAddr) -> Result<()> {
        let failed = |errno: rustix::io::Errno| OsError::new("connect a second UDP socket to", remote, errno);
        let mut target = self.lock();
        if !target.is_bound {
            // Share the address only for a moment, so that other programs still find it in use.
            let share = |on| {
                sockopt::set_socket_reuseport(first, on)
                    .and_then(|()| sockopt::set_socket_reuseport(&self.fd, on))
            };
            share(true).and_then(|()| bind(&self.fd, &self.local)).map_err(failed)?;
            target.is_bound = true;
            share(false).map_err(failed)?;
            // A later read finds the datagram if it arrives, see `confirm_wake`.
            self.send_to_self();
        }
        connect(&self.fd, &remote).map_err(failed)?;
        target.remote = Some(remote);
        Ok(())
    }

    /// Notes that an empty datagram from this socket's address was read: [`Express::wake`] works.
    pub fn confirm_wake(&self) {
        self.can_wake.store(true, Ordering::Relaxed);
    }

    /// Whether [`Express::wait`] may be used: only if [`Express::wake`] can end it.
    pub fn can_wait(&self) -> bool {
        self.can_wake.load(Ordering::Relaxed)
    }

    /// Reads at most `most` datagrams into `ring`. If there are none, it waits for the first: at least half of `limit`,
    /// at most `limit`. [`ReceiveRing::deliver`] then passes the frames on.
    ///
    /// # Errors
    /// As [`ReceiveRing::receive`].
    pub fn wait(&self, ring: &mut ReceiveRing, most: usize, limit: Option<Duration>) -> io::Result<()> {
        self.set_limit(limit);
        ring.read(self.fd.as_fd(), most, true)
    }

    /// [`Express::wait`] without waiting.
    ///
    /// # Errors
    /// As [`Express::wait`].
    pub fn poll(&self, ring: &mut ReceiveRing, most: usize) -> io::Result<()> {
        ring.read(self.fd.as_fd(), most, false)
    }

    /// Ends the current or the next wait: connects the socket to itself for a moment and sends an empty datagram.
    pub fn wake(&self) {
        let target = self.lock();
        if let Some(peer) = target.remote {
            self.send_to_self();
            let _ = connect(&self.fd, &peer);
        }
    }

    /// Sends itself an empty datagram. If that fails, a wait ends at its limit.
    fn send_to_self(&self) {
        if connect(&self.fd, &self.local).is_ok() {
            let _ = send(&self.fd, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends `datagrams` without addresses to the peer. See [`mmsg::send_all`].
    pub fn send(&self, frames: &impl Frames, datagrams: &[Datagram]) -> SendReport {
        let mut report = SendReport::default();
        // Locked, because the socket is connected to itself while another thread calls `wake`.
        let _target = self.lock();
        mmsg::send_all(self.fd.as_fd(), frames, datagrams, &mut report);
        if report.offload_refused {
            self.segmentation.store(false, Ordering::Relaxed);
        }
        report
    }

    /// Whether a run of datagrams may be sent as one, see [`UdpSocket::segmentation`].
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the timeout of reads, rounded down to a power of two so that the option rarely changes.
    fn set_limit(&self, limit: Option<Duration>) {
        let ms = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        let ms = if ms == 0 { 0 } else { 1 << ms.min(1 << 20).ilog2() };
        if self.limit_ms.swap(ms, Ordering::Relaxed) != ms {
            let limit = (ms > 0).then(|| Duration::from_millis(ms));
            // Cannot fail for a socket of this process and a valid time.
            let _ = sockopt::set_socket_timeout(&self.fd, Timeout::Recv, limit);
        }
    }
}

impl AsFd for Express {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
