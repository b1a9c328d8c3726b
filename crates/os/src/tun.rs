//! TUN devices: network interfaces whose IP packets a program reads and writes; tests build paths with loss and delay
//! from them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{OsError, Result};

/// Device of the kernel that makes TUN devices.
const MAKER: &str = "/dev/net/tun";

/// A network interface without a medium: this value is its other end. Dropping it removes the interface.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the interface `name` (at most 15 bytes) in the network namespace of this thread. It is down, and has no
    /// address.
    ///
    /// # Errors
    /// Not permitted, or the interface exists.
    pub fn make(name: &str) -> Result<Self> {
        let failed = |cause: io::Error| {
            OsError::new("make TUN device", name, cause).with_remedy("it needs root and the module tun")
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open(MAKER).map_err(failed)?;
        // SAFETY: ifreq is integers and arrays of them; all zero is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero, which ends the name.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF takes an ifreq with a terminated name and flags, and writes the name.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if code != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(Self { file })
    }

    /// Reads a packet that the interface sends, without waiting; `None` if there is none, or the interface is down.
    pub fn read(&self, packet: &mut [u8]) -> Option<usize> {
        (&self.file).read(packet).ok()
    }

    /// Passes a packet to the interface; false if the system refuses it.
    pub fn write(&self, packet: &[u8]) -> bool {
        (&self.file).write(packet).is_ok()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Waits until one of the interfaces sends a packet, at most `limit`.
pub fn wait(ends: &[Tun], limit: Duration) {
    let mut all: Vec<PollFd<'_>> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // Interrupted, or nothing to wait for: the caller checks again.
    let _ = poll(&mut all, Some(&limit));
}
