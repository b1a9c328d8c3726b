//! Descriptors of every kind, to be passed to the daemon.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use utipc_bench_kit::numbered::Random;

/// Connections whose other ends are kept.
const LINGERING_MAX: usize = 8;

/// The other ends of what was made.
#[derive(Debug, Default)]
pub(super) struct Junk {
    lingering: Vec<TcpStream>,
    pairs: Vec<OwnedFd>,
}

impl Junk {
    /// A descriptor; `None` if the system has none.
    pub(super) fn make(&mut self, random: &mut Random) -> Option<OwnedFd> {
        match random.below(14) {
            0 => Some(std::io::pipe().ok()?.0.into()),
            1 => Some(std::io::pipe().ok()?.1.into()),
            2 => self.pair(SocketType::STREAM),
            3 => self.pair(SocketType::DGRAM),
            4 => Some(UdpSocket::bind("127.0.0.1:0").ok()?.into()),
            5 => Some(TcpListener::bind("127.0.0.1:0").ok()?.into()),
            6 => self.linger(),
            7 => Some(eventfd(0, EventfdFlags::empty()).ok()?),
            8 => Some(epoll::create(epoll::CreateFlags::empty()).ok()?),
            9 => Some(File::open("/").ok()?.into()),
            10 => Some(File::open("/proc/self/mem").ok()?.into()),
            11 => {
                let memory = memfd_create("junk", MemfdFlags::ALLOW_SEALING).ok()?;
                rustix::fs::ftruncate(&memory, random.below(1 << 20)).ok()?;
                if random.below(2) == 0 {
                    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).ok()?;
                }
                Some(memory)
            }
            _ => self.pair(SocketType::SEQPACKET),
        }
    }

    /// One end of a pair; the other one may be used as another descriptor.
    fn pair(&mut self, kind: SocketType) -> Option<OwnedFd> {
        if let Some(other) = self.pairs.pop() {
            return Some(other);
        }
        let (one, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).ok()?;
        self.pairs.push(other);
        Some(one)
    }

    /// A connection whose last close waits for its peer.
    fn linger(&mut self) -> Option<OwnedFd> {
        let listener = TcpListener::bind("127.0.0.1:0").ok()?;
        let mut end = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        self.lingering.push(listener.accept().ok()?.0);
        if self.lingering.len() > LINGERING_MAX {
            self.lingering.remove(0);
        }
        end.set_nonblocking(true).ok()?;
        while end.write(&[0; 65_536]).is_ok() {}
        sockopt::set_socket_linger(&end, Some(Duration::from_secs(3600))).ok()?;
        Some(end.into())
    }

    /// Closes descriptors on another thread: the close of the last copy may block.
    pub(super) fn close(&self, fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            return;
        }
        let closes = std::thread::Builder::new().spawn(move || drop(fds));
        drop(closes);
    }
}
