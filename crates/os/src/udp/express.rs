//! The express way to one peer: a second socket on the address of a [`UdpSocket`], connected to the peer.
//!
//! A connected socket looks no route up for each datagram, at either end: that saves about a tenth of a round trip on one
//! machine. It blocks, so a thread that expects frames from this peer alone waits in the same system call that reads
//! them, and saves an event loop's half microsecond twice. What others send arrives at the first socket as before.

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

/// The shortest wait in a read; the event loop is there for shorter ones, and for exact ones.
pub const WAIT_MIN: Duration = Duration::from_millis(2);

/// Where it leads; whoever holds the lock may lead it elsewhere for a moment.
#[derive(Debug, Default)]
struct Way {
    is_bound: bool,
    remote: Option<SocketAddr>,
}

/// A socket that is connected to one peer at a time; see the module's text.
///
/// All calls take `&self`: one thread waits in [`Express::wait`] while another sends or wakes it.
#[derive(Debug)]
pub struct Express {
    fd: OwnedFd,
    local: SocketAddr,
    way: Mutex<Way>,
    /// The limit of a read in force, milliseconds; zero for none.
    limit_ms: AtomicU64,
    /// [`Express::wake`] was seen to work.
    can_wake: AtomicBool,
    segmentation: AtomicBool,
}

impl Express {
    /// A socket for later, which receives nothing yet; so it can be watched from the start.
    pub(super) fn reserve(local: SocketAddr, options: &UdpOptions) -> Result<Express> {
        let failed = |errno: rustix::io::Errno| OsError::new("open a second UDP socket for", local, errno);
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
        discover_path_mtu(&fd, local.is_ipv4()).map_err(failed)?;
        grow_buffers(&fd, options);
        let segmentation = AtomicBool::new(options.offloads && gso::probe(fd.as_fd()));
        if options.offloads {
            // Without it every datagram arrives by itself, which the receiver handles alike.
            gro::enable(fd.as_fd());
        }
        Ok(Express {
            fd,
            local,
            way: Mutex::default(),
            limit_ms: AtomicU64::new(0),
            can_wake: AtomicBool::new(false),
            segmentation,
        })
    }

    /// Leads to `remote` from now on. What is queued from the peer before stays and is read.
    ///
    /// # Errors
    /// Where the system lets no two sockets share an address, or has no route: the first socket is still there.
    pub fn connect(&self, first: &UdpSocket, remote: SocketAddr) -> Result<()> {
        let failed = |errno: rustix::io::Errno| OsError::new("connect a second UDP socket to", remote, errno);
        let mut way = self.lock();
        if !way.is_bound {
            // The address is shared for this moment alone: later programs find it taken.
            let share = |on| {
                sockopt::set_socket_reuseport(first, on)
                    .and_then(|()| sockopt::set_socket_reuseport(&self.fd, on))
            };
            share(true).and_then(|()| bind(&self.fd, &self.local)).map_err(failed)?;
            way.is_bound = true;
            share(false).map_err(failed)?;
            // Whether it comes back shows when it is read, among the frames that may have been faster.
            self.knock();
        }
        connect(&self.fd, &remote).map_err(failed)?;
        way.remote = Some(remote);
        Ok(())
    }

    /// An empty datagram from the own address was read here: so [`Express::wake`] works.
    pub fn heard_knock(&self) {
        self.can_wake.store(true, Ordering::Relaxed);
    }

    /// Whether [`Express::wait`] may be used: only where somebody can end it.
    pub fn can_wait(&self) -> bool {
        self.can_wake.load(Ordering::Relaxed)
    }

    /// Fills `ring` with what there is, at most `most` reads, and waits for the first if there is nothing, at most as
    /// long as `limit` and at least half as long; [`ReceiveRing::deliver`] has the frames.
    ///
    /// # Errors
    /// Of the medium, as [`ReceiveRing::receive`].
    pub fn wait(&self, ring: &mut ReceiveRing, most: usize, limit: Option<Duration>) -> io::Result<()> {
        self.set_limit(limit);
        ring.read(self.fd.as_fd(), most, true)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`Express::wait`].
    pub fn look(&self, ring: &mut ReceiveRing, most: usize) -> io::Result<()> {
        ring.read(self.fd.as_fd(), most, false)
    }

    /// Ends the current wait, or else the next: by an empty datagram to itself, to which it leads for that moment.
    pub fn wake(&self) {
        let way = self.lock();
        if let Some(peer) = way.remote {
            self.knock();
            let _ = connect(&self.fd, &peer);
        }
    }

    /// Sends itself an empty datagram. Whatever fails here, a wait ends at its limit.
    fn knock(&self) {
        if connect(&self.fd, &self.local).is_ok() {
            let _ = send(&self.fd, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends `datagrams`, which have no address, to the peer. See [`mmsg::send_all`].
    pub fn send(&self, frames: &impl Frames, datagrams: &[Datagram]) -> SendReport {
        let mut report = SendReport::default();
        // While another thread knocks, it leads elsewhere.
        let _way = self.lock();
        mmsg::send_all(self.fd.as_fd(), frames, datagrams, &mut report);
        if report.offload_refused {
            self.segmentation.store(false, Ordering::Relaxed);
        }
        report
    }

    /// Whether runs may be sent as one, as [`UdpSocket::segmentation`].
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Powers of two, so that the option is rarely set anew.
    fn set_limit(&self, limit: Option<Duration>) {
        let ms = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1));
        let ms = if ms == 0 { 0 } else { 1 << ms.min(1 << 20).ilog2() };
        if self.limit_ms.swap(ms, Ordering::Relaxed) != ms {
            let limit = (ms > 0).then(|| Duration::from_millis(ms));
            // Cannot fail for a socket of one's own and such a time.
            let _ = sockopt::set_socket_timeout(&self.fd, Timeout::Recv, limit);
        }
    }
}

impl AsFd for Express {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
