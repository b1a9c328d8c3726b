//! Ethernet frames of one EtherType through a packet socket (`AF_PACKET`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::sockopt;

use crate::interface::Interface;
use crate::mmsg::{self, Datagram, Frames, ReceiveRing, Received, SendReport};
use crate::sockaddr::{LinkAddr, SockAddr};
use crate::{OsError, Result};

/// The broadcast address: every station of the segment.
pub const BROADCAST: [u8; 6] = [0xFF; 6];

/// Requested size of the receive buffer, bytes.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A packet socket that is bound to one interface and one EtherType.
///
/// It is of type SOCK_DGRAM: the kernel writes and strips the 14 bytes of the MAC header, so a
/// frame here begins after them (and includes the padding of short frames).
#[derive(Debug)]
pub struct EthernetSocket {
    fd: OwnedFd,
    interface: Interface,
    mac: [u8; 6],
    protocol: u16,
}

impl EthernetSocket {
    /// Opens a socket for `ethertype` on the interface called `name`. Needs CAP_NET_RAW.
    pub fn open(name: &str, ethertype: u16) -> Result<EthernetSocket> {
        let interface = Interface::by_name(name)?;
        let failed = |what: &'static str, cause: io::Error| OsError::new(what, name, cause);
        let Some(mac) = interface.mac.filter(|_| !interface.loopback) else {
            let cause = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
            return Err(failed("use for Ethernet the interface", cause)
                .with_remedy("it has no Ethernet address: take another interface, or the UDP bearer"));
        };
        if !interface.up {
            let cause = io::Error::from_raw_os_error(libc::ENETDOWN);
            return Err(failed("use the interface", cause).with_remedy("`ip link set <name> up` first"));
        }
        let fd = packet_socket().map_err(|cause| {
            failed("open a packet socket on", cause).with_remedy_for(
                io::ErrorKind::PermissionDenied,
                "Ethernet bearers need CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the \
                 program, or use the UDP bearer",
            )
        })?;
        // Do not receive the frames that this host sends. Kernels before 4.20 lack the option; there
        // `is_for_us` drops such frames by their packet type.
        let _ = set_option(&fd, libc::PACKET_IGNORE_OUTGOING, 1);
        if sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER);
        }
        let socket = EthernetSocket { fd, interface, mac, protocol: ethertype };
        socket.bind().map_err(|cause| failed("bind a packet socket to", cause))?;
        Ok(socket)
    }

    /// The interface as it was when the socket was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The interface's own hardware address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The destination `mac` for a [`Datagram`].
    pub fn address_of(&self, mac: [u8; 6]) -> SockAddr {
        let interface = self.interface.index;
        SockAddr::link(&LinkAddr { interface, protocol: self.protocol, packet_type: 0, mac })
    }

    /// Sends `datagrams`, which are made of `frames`, in their order. See [`mmsg::send_all`].
    pub fn send(&mut self, frames: &impl Frames, datagrams: &[Datagram]) -> SendReport {
        let mut report = SendReport::default();
        mmsg::send_all(self.fd.as_fd(), frames, datagrams, &mut report);
        report
    }

    /// Reads at most one ring of frames, without waiting; `sink` gets the sender's hardware
    /// address. Own frames and frames for other stations are left out.
    pub fn receive(
        &self,
        ring: &mut ReceiveRing,
        sink: &mut dyn FnMut([u8; 6], &[u8]),
    ) -> io::Result<Received> {
        ring.receive(self.fd.as_fd(), &mut |from, bytes| {
            if let Some(from) = from.to_link().filter(|from| self.is_for_us(from)) {
                sink(from.mac, bytes);
            }
        })
    }

    fn is_for_us(&self, from: &LinkAddr) -> bool {
        let kind = from.packet_type;
        kind != libc::PACKET_OUTGOING && kind != libc::PACKET_OTHERHOST && from.mac != self.mac
    }

    fn bind(&self) -> io::Result<()> {
        let address = self.address_of([0; 6]);
        // SAFETY: the address is a sockaddr_ll of the length given, alive for the call.
        let code = unsafe { libc::bind(self.fd.as_raw_fd(), address.as_ptr().cast(), address.len()) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for EthernetSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A packet socket that receives nothing until it is bound (protocol 0).
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes integers only.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_option(fd: &OwnedFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value is a live c_int and its exact size is passed.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_without_ethernet_is_refused_with_a_remedy() {
        let lo = Interface::by_address("127.0.0.1".parse().unwrap()).unwrap();
        let error = EthernetSocket::open(&lo.name, 0x88CA).unwrap_err().to_string();
        assert!(error.contains(&lo.name) && error.contains("UDP bearer"), "{error}");
    }
}
