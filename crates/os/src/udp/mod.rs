//! UDP sockets with batches, offloads and multicast.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::interface::Interface;
use crate::mmsg::{self, Datagram, Frames, ReceiveRing, Received, SendReport};
use crate::offload::{gro, gso};
use crate::sockaddr::SockAddr;
use crate::{OsError, Result};

/// Options of a new socket.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Let several sockets bind to one address, as members of a multicast group need.
    pub reuse_address: bool,
    /// Requested size of the receive buffer, bytes. The kernel grants up to `net.core.rmem_max`, or all of it
    /// with CAP_NET_ADMIN.
    pub receive_buffer: usize,
    /// Requested size of the send buffer, bytes, likewise with `net.core.wmem_max`.
    pub send_buffer: usize,
    /// Use segmentation and coalescing by the kernel.
    pub offloads: bool,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions { reuse_address: false, receive_buffer: 4 << 20, send_buffer: 2 << 20, offloads: true }
    }
}

/// A bound UDP socket that sends and receives in batches and never blocks to receive.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    segmentation: bool,
    coalescing: bool,
}

impl UdpSocket {
    /// Binds to `address`; port 0 means any free port. An IPv6 socket receives IPv6 only.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> Result<UdpSocket> {
        let failed = |what: &'static str| {
            move |errno: rustix::io::Errno| {
                OsError::new(what, address, errno)
                    .with_remedy_for(
                        std::io::ErrorKind::AddrInUse,
                        "another program uses this address and port: `ss -ulnp` names it",
                    )
                    .with_remedy_for(
                        std::io::ErrorKind::AddrNotAvailable,
                        "give an address of this host; `ip address` lists them",
                    )
            }
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd =
            socket_with(family, SocketType::DGRAM, flags, None).map_err(failed("open a UDP socket for"))?;
        if options.reuse_address {
            sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("share the address"))?;
        }
        discover_path_mtu(&fd, address.is_ipv4()).map_err(failed("turn on path MTU discovery for"))?;
        grow_buffers(&fd, options);
        bind(&fd, &address).map_err(failed("bind a UDP socket to"))?;
        let local = getsockname(&fd)
            .and_then(|it| SocketAddr::try_from(it).map_err(|_| rustix::io::Errno::AFNOSUPPORT))
            .map_err(failed("read back the address of"))?;
        let segmentation = options.offloads && gso::probe(fd.as_fd());
        let coalescing = options.offloads && gro::enable(fd.as_fd());
        Ok(UdpSocket { fd, local, segmentation, coalescing })
    }

    /// The address that it is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Whether runs of equal datagrams may be sent as one; false for good once the kernel has refused
    /// a run whose datagrams it takes one by one.
    pub fn segmentation(&self) -> bool {
        self.segmentation
    }

    /// Whether the kernel may coalesce several datagrams into one read.
    pub fn coalescing(&self) -> bool {
        self.coalescing
    }

    /// Joins the multicast group `group` on `interface`, from any sender.
    pub fn join(&self, group: IpAddr, interface: &Interface) -> Result<()> {
        let joined = match group {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(
                &self.fd,
                &group,
                &std::net::Ipv4Addr::UNSPECIFIED,
                interface.index,
            ),
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&self.fd, &group, interface.index),
        };
        let failed = |cause: std::io::Error| {
            OsError::new("join a multicast group on", format!("{} ({group})", interface.name), cause)
                .with_remedy("the group must be a multicast address and the interface up")
        };
        joined.map_err(|errno| failed(errno.into()))?;
        self.ignore_foreign_groups().map_err(failed)
    }

    /// Makes the kernel drop multicasts of interfaces on which this socket has not joined the group.
    fn ignore_foreign_groups(&self) -> std::io::Result<()> {
        let off: libc::c_int = 0;
        let (level, option) = match self.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
        };
        // SAFETY: the option value is a live c_int and its exact size is passed.
        let code = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const off).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        // Kernels before 4.20 lack the IPv6 option; there only the source address is checked.
        match std::io::Error::last_os_error() {
            _ if code == 0 => Ok(()),
            cause if cause.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            cause => Err(cause),
        }
    }

    /// Sends multicast through `interface` with `hops` hops at most, other sockets of this host
    /// included.
    pub fn multicast_through(&self, interface: &Interface, hops: u32) -> Result<()> {
        let set = || -> rustix::io::Result<()> {
            if self.local.is_ipv4() {
                sockopt::set_ip_multicast_if_with_ifindex(
                    &self.fd,
                    &std::net::Ipv4Addr::UNSPECIFIED,
                    &std::net::Ipv4Addr::UNSPECIFIED,
                    interface.index,
                )?;
                sockopt::set_ip_multicast_loop(&self.fd, true)?;
                sockopt::set_ip_multicast_ttl(&self.fd, hops)
            } else {
                sockopt::set_ipv6_multicast_if(&self.fd, interface.index)?;
                sockopt::set_ipv6_multicast_loop(&self.fd, true)?;
                sockopt::set_ipv6_multicast_hops(&self.fd, hops)
            }
        };
        set().map_err(|errno| OsError::new("send multicast through", &interface.name, errno))
    }

    /// Sends `datagrams`, which are made of `frames`, in their order. See [`mmsg::send_all`].
    pub fn send(&mut self, frames: &impl Frames, datagrams: &[Datagram]) -> SendReport {
        let mut report = SendReport::default();
        mmsg::send_all(self.fd.as_fd(), frames, datagrams, &mut report);
        if report.offload_refused {
            self.segmentation = false;
        }
        report
    }

    /// Reads at most one ring of datagrams, without waiting. See [`ReceiveRing::receive`].
    pub fn receive(
        &self,
        ring: &mut ReceiveRing,
        sink: &mut dyn FnMut(&SockAddr, &[u8]),
    ) -> std::io::Result<Received> {
        ring.receive(self.fd.as_fd(), sink)
    }

    /// Reserves the express path to one of its peers.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn reserve_express(&self, options: &UdpOptions) -> Result<Express> {
        Express::reserve(self.local, options)
    }

    /// Bytes that the kernel grants to the receive buffer, its own bookkeeping included.
    pub fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.fd).unwrap_or(0)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets the don't-fragment bit, and lets the kernel fragment only datagrams above a path MTU that
/// a router has reported: a slow path is better than a path that drops every full frame.
fn discover_path_mtu(fd: &OwnedFd, v4: bool) -> rustix::io::Result<()> {
    if v4 {
        sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::WANT)
    } else {
        sockopt::set_ipv6_v6only(fd, true)?;
        sockopt::set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::WANT)
    }
}

/// Requests buffers beyond the system's limit, which needs CAP_NET_ADMIN, then within it. Smaller
/// buffers cost speed, never correctness, so a refusal is not an error.
fn grow_buffers(fd: &OwnedFd, options: &UdpOptions) {
    if sockopt::set_socket_recv_buffer_size_force(fd, options.receive_buffer).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, options.receive_buffer);
    }
    if sockopt::set_socket_send_buffer_size_force(fd, options.send_buffer).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, options.send_buffer);
    }
}

mod express;
#[cfg(test)]
mod tests;

pub use express::{Express, WAIT_MIN};
