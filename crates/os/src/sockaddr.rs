//! Socket addresses in the kernel's layout, built and read without `unsafe`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Space for the largest address used here, `sockaddr_in6` with 28 bytes, rounded up.
const CAPACITY: usize = 32;

/// A socket address as `sendmmsg` and `recvmmsg` exchange it: IPv4, IPv6 or link layer.
///
/// Layouts: `sockaddr_in` (family, port, address), `sockaddr_in6` (family, port, flow, address,
/// scope), `sockaddr_ll` (family, protocol, interface, hardware type, packet type, length, address).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct SockAddr {
    bytes: [u8; CAPACITY],
    len: u32,
}

/// The link-layer address of a frame, as packet sockets take and return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddr {
    /// The interface's index.
    pub interface: u32,
    /// The EtherType, host order.
    pub protocol: u16,
    /// `PACKET_HOST`, `PACKET_OUTGOING` and so on; zero when sending.
    pub packet_type: u8,
    /// The hardware address: the destination's when sending, the source's when receiving.
    pub mac: [u8; 6],
}

impl SockAddr {
    /// An empty address, as storage for the kernel to fill.
    pub const EMPTY: SockAddr = SockAddr { bytes: [0; CAPACITY], len: CAPACITY as u32 };

    /// No address, for a connected socket.
    pub const NONE: SockAddr = SockAddr { bytes: [0; CAPACITY], len: 0 };

    /// The address of a link-layer destination.
    pub fn link(address: &LinkAddr) -> SockAddr {
        let mut it = SockAddr { bytes: [0; CAPACITY], len: 20 };
        it.put(0, &(libc::AF_PACKET as u16).to_ne_bytes());
        it.put(2, &address.protocol.to_be_bytes());
        it.put(4, &address.interface.to_ne_bytes());
        it.put(10, &[address.packet_type, 6]);
        it.put(12, &address.mac);
        it
    }

    /// The IP address and port; `None` if it is not an IP address.
    pub fn to_ip(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.get(2));
        match i32::from(self.family()) {
            libc::AF_INET if self.len >= 16 => {
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(self.get::<4>(4))), port))
            }
            libc::AF_INET6 if self.len >= 28 => Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(self.get::<16>(8)),
                port,
                0,
                u32::from_ne_bytes(self.get(24)),
            ))),
            _ => None,
        }
    }

    /// The link-layer address; `None` if it is of another family.
    pub fn to_link(&self) -> Option<LinkAddr> {
        if i32::from(self.family()) != libc::AF_PACKET || self.len < 18 {
            return None;
        }
        Some(LinkAddr {
            protocol: u16::from_be_bytes(self.get(2)),
            interface: u32::from_ne_bytes(self.get(4)),
            packet_type: self.bytes[10],
            mac: self.get(12),
        })
    }

    /// The address family, as `AF_INET`.
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes(self.get(0))
    }

    /// Copies an address that the kernel has written.
    pub(crate) fn from_kernel(bytes: &[u8]) -> SockAddr {
        let mut it = SockAddr::EMPTY;
        let len = bytes.len().min(CAPACITY);
        it.bytes[..len].copy_from_slice(&bytes[..len]);
        it.len = len as u32;
        it
    }

    /// Number of valid bytes.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Sets the number of bytes that the kernel wrote; at most all.
    pub(crate) fn set_len(&mut self, len: u32) {
        self.len = len.min(CAPACITY as u32);
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[at..at + N]);
        value
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> SockAddr {
        let mut it = SockAddr { bytes: [0; CAPACITY], len: 0 };
        it.put(2, &address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                it.put(0, &(libc::AF_INET as u16).to_ne_bytes());
                it.put(4, &v4.ip().octets());
                it.len = 16;
            }
            SocketAddr::V6(v6) => {
                it.put(0, &(libc::AF_INET6 as u16).to_ne_bytes());
                it.put(4, &v6.flowinfo().to_be_bytes());
                it.put(8, &v6.ip().octets());
                it.put(24, &v6.scope_id().to_ne_bytes());
                it.len = 28;
            }
        }
        it
    }
}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.to_ip(), self.to_link()) {
            (Some(ip), _) => ip.fmt(f),
            (_, Some(link)) => link.fmt(f),
            _ => write!(f, "address of family {}", self.family()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        for text in ["127.0.0.1:6118", "[fe80::1%3]:6118", "[::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::from(address).to_ip(), Some(address), "{text}");
            assert_eq!(SockAddr::from(address).to_link(), None);
        }
        let link = LinkAddr { interface: 7, protocol: 0x88CA, packet_type: 0, mac: [1, 2, 3, 4, 5, 6] };
        assert_eq!(SockAddr::link(&link).to_link(), Some(link));
        assert_eq!(SockAddr::link(&link).to_ip(), None);
    }

    #[test]
    fn layout_equals_the_kernels() {
        let v4 = SockAddr::from("1.2.3.4:258".parse::<SocketAddr>().unwrap());
        assert_eq!(v4.len() as usize, size_of::<libc::sockaddr_in>());
        assert_eq!(v4.bytes[2..8], [1, 2, 1, 2, 3, 4]);
        let v6 = SockAddr::from("[::1]:258".parse::<SocketAddr>().unwrap());
        assert_eq!(v6.len() as usize, size_of::<libc::sockaddr_in6>());
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_ll, sll_addr), 12);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype), 10);
        assert_eq!(SockAddr::EMPTY.to_ip(), None);
    }
}
