//! Media addresses: the destinations of frames. Spec: tipc.md §4.2.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::WireError;

/// Length of the media address info in a discovery message, bytes.
pub const MEDIA_INFO_LEN: usize = 32;
const ETHERNET: u8 = 1;
const UDP: u8 = 3;
const PROTOCOL_IPV4: u16 = 0x0800;
const PROTOCOL_IPV6: u16 = 0x86dd;

/// The address of a bearer on its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MediaAddr {
    /// An Ethernet MAC address.
    Ethernet([u8; 6]),
    /// An IP address and UDP port.
    Udp(SocketAddr),
}

impl MediaAddr {
    /// Encodes the address as the 32 bytes used in discovery.
    #[must_use]
    pub fn to_info(&self) -> [u8; MEDIA_INFO_LEN] {
        let mut info = [0; MEDIA_INFO_LEN];
        let body: Vec<u8> = match self {
            Self::Ethernet(mac) => [&[ETHERNET][..], mac].concat(),
            Self::Udp(at) => {
                let (protocol, ip) = match at.ip() {
                    IpAddr::V4(ip) => (PROTOCOL_IPV4, ip.octets().to_vec()),
                    IpAddr::V6(ip) => (PROTOCOL_IPV6, ip.octets().to_vec()),
                };
                [&[UDP][..], &protocol.to_be_bytes(), &at.port().to_be_bytes(), &ip].concat()
            }
        };
        for (to, from) in info.iter_mut().skip(3).zip(body) {
            *to = from;
        }
        info
    }

    /// Decodes the 32 bytes of a discovery message.
    ///
    /// # Errors
    /// [`WireError`] if the media type is unknown, or the address is a broadcast or multicast address.
    pub fn from_info(info: &[u8]) -> Result<Self, WireError> {
        let bad = WireError::MediaAddress;
        let body = info.get(3..MEDIA_INFO_LEN).ok_or(bad)?;
        match body {
            [ETHERNET, a, b, c, d, e, f, ..] => {
                let multicast = a & 1 != 0;
                if multicast { Err(bad) } else { Ok(Self::Ethernet([*a, *b, *c, *d, *e, *f])) }
            }
            [UDP, p0, p1, q0, q1, ip @ ..] => {
                let port = u16::from_be_bytes([*q0, *q1]);
                let ip: IpAddr = match u16::from_be_bytes([*p0, *p1]) {
                    PROTOCOL_IPV4 => {
                        let bytes: [u8; 4] = ip.get(..4).and_then(|b| b.try_into().ok()).ok_or(bad)?;
                        Ipv4Addr::from(bytes).into()
                    }
                    PROTOCOL_IPV6 => {
                        let bytes: [u8; 16] = ip.get(..16).and_then(|b| b.try_into().ok()).ok_or(bad)?;
                        Ipv6Addr::from(bytes).into()
                    }
                    _ => return Err(bad),
                };
                let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
                if ip.is_multicast() || broadcast { Err(bad) } else { Ok(Self::Udp((ip, port).into())) }
            }
            _ => Err(bad),
        }
    }
}

impl fmt::Display for MediaAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Udp(at) => write!(f, "{at}"),
        }
    }
}
