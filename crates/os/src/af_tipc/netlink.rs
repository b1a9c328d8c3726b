//! A socket of generic netlink: packets to and from the kernel, not interpreted.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Options of a netlink socket that make error replies carry text, and only the header of the request instead of all of
/// it. Source: linux/netlink.h.
const SOL_NETLINK: i32 = 270;
const CAP_ACK: i32 = 10;
const EXT_ACK: i32 = 11;

/// Longest packet that the kernel sends, bytes.
const MAX_PACKET: usize = 64 * 1024;

/// A socket of generic netlink.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// As reported by the kernel.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::GENERIC))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        for option in [CAP_ACK, EXT_ACK] {
            let on: i32 = 1;
            let length = size_of::<i32>() as libc::socklen_t;
            // SAFETY: the kernel reads one number, which is live.
            let set = unsafe {
                libc::setsockopt(socket.as_raw_fd(), SOL_NETLINK, option, (&raw const on).cast(), length)
            };
            // Older kernels lack the option.
            let _ = set;
        }
        Ok(Self { socket })
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// As reported by the kernel.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, packet, SendFlags::empty())?;
        Ok(())
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    /// As reported by the kernel; ENOBUFS if packets were lost because the buffer was full.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let mut packet = vec![0; MAX_PACKET];
        let (len, _) = rustix::net::recv(&self.socket, packet.as_mut_slice(), RecvFlags::empty())?;
        packet.truncate(len);
        Ok(packet)
    }
}
