//! Attributes: length and type (16 bits each), then the value, padded to 4 bytes. The value of a nest is a list of
//! attributes. Source: linux/netlink.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::errno::Errno;
use crate::netlink::{padded, word16};

/// Bytes of an attribute's header.
const HEAD: usize = 4;
/// The bits of the type that hold its number; the other two mark nests and big-endian values.
const TYPE: u16 = 0x3fff;
const NESTED: u16 = 0x8000;
/// Address families in Linux's numbering.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Type.
    pub kind: u16,
    /// Value.
    pub value: &'a [u8],
}

/// A list of attributes. It ends before the first malformed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nest<'a>(pub &'a [u8]);

impl<'a> Nest<'a> {
    /// All attributes, in order.
    pub fn iter(self) -> impl Iterator<Item = Attribute<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let len = usize::from(word16(rest, 0)?);
            let kind = word16(rest, 2)? & TYPE;
            let value = rest.get(HEAD..len)?;
            rest = rest.get(padded(len)..).unwrap_or_default();
            Some(Attribute { kind, value })
        })
    }

    /// The value of the last attribute of this type, which overrides earlier ones.
    #[must_use]
    pub fn value(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().filter(|a| a.kind == kind).last().map(|a| a.value)
    }

    /// Whether an attribute of this type exists.
    #[must_use]
    pub fn flag(self, kind: u16) -> bool {
        self.value(kind).is_some()
    }

    /// The nested attributes of this type.
    #[must_use]
    pub fn nest(self, kind: u16) -> Option<Nest<'a>> {
        self.value(kind).map(Nest)
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// [`Errno::RANGE`] if the value is shorter.
    pub fn u32(self, kind: u16) -> Result<Option<u32>, Errno> {
        let read = |value: &[u8]| value.first_chunk().map(|b| u32::from_ne_bytes(*b)).ok_or(Errno::RANGE);
        self.value(kind).map(read).transpose()
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// [`Errno::RANGE`] if the value is shorter.
    pub fn u64(self, kind: u16) -> Result<Option<u64>, Errno> {
        let read = |value: &[u8]| value.first_chunk().map(|b| u64::from_ne_bytes(*b)).ok_or(Errno::RANGE);
        self.value(kind).map(read).transpose()
    }

    /// Text up to its NUL or its end, of at most `most` bytes.
    ///
    /// # Errors
    /// [`Errno::INVALID`] if it is longer or not UTF-8.
    pub fn text(self, kind: u16, most: usize) -> Result<Option<String>, Errno> {
        let Some(value) = self.value(kind) else { return Ok(None) };
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        let text = value.get(..end).filter(|text| text.len() <= most).ok_or(Errno::INVALID)?;
        std::str::from_utf8(text).map(|text| Some(text.to_owned())).map_err(|_| Errno::INVALID)
    }

    /// An IP address and port from a `sockaddr`.
    ///
    /// # Errors
    /// [`Errno::ADDRESS_NOT_AVAILABLE`] for any other family, [`Errno::INVALID`] if it is truncated.
    pub fn address(self, kind: u16) -> Result<Option<SocketAddr>, Errno> {
        let Some(value) = self.value(kind) else { return Ok(None) };
        let port = || value.get(2..4)?.try_into().ok().map(u16::from_be_bytes);
        let found = match word16(value, 0) {
            Some(AF_INET) => value.get(4..8).and_then(|ip| {
                let ip: [u8; 4] = ip.try_into().ok()?;
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port()?))
            }),
            Some(AF_INET6) => value.get(8..28).and_then(|tail| {
                let ip: [u8; 16] = tail.get(..16)?.try_into().ok()?;
                let scope = tail.get(16..20)?.try_into().ok().map(u32::from_ne_bytes)?;
                Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port()?, 0, scope)))
            }),
            _ => return Err(Errno::ADDRESS_NOT_AVAILABLE),
        };
        found.map(Some).ok_or(Errno::INVALID)
    }
}

/// Appends attributes to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Flag set in the type of nests: `NESTED` or 0.
    nest_flag: u16,
}

impl<'a> Writer<'a> {
    /// A writer for replies, in which the kernel does not flag nests.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, nest_flag: 0 }
    }

    /// A writer for requests, in which the kernel requires nests to be flagged.
    #[must_use]
    pub const fn for_request(out: &'a mut Vec<u8>) -> Self {
        Self { out, nest_flag: NESTED }
    }
}

impl Writer<'_> {
    /// Appends any value; nothing if it exceeds the 65531 bytes that fit into an attribute.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        let Ok(len) = u16::try_from(HEAD + value.len()) else { return };
        self.out.extend_from_slice(&len.to_ne_bytes());
        self.out.extend_from_slice(&kind.to_ne_bytes());
        self.out.extend_from_slice(value);
        self.out.resize(self.out.len() + padded(value.len()) - value.len(), 0);
    }

    /// Appends an empty attribute if `set`.
    pub fn flag(&mut self, kind: u16, set: bool) {
        if set {
            self.bytes(kind, &[]);
        }
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Appends a 32-bit number, if given.
    pub fn optional_u32(&mut self, kind: u16, value: Option<u32>) {
        if let Some(value) = value {
            self.u32(kind, value);
        }
    }

    /// Appends a 64-bit number.
    pub fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Appends text with a final NUL.
    pub fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    /// Appends an IP address and port as a `sockaddr`.
    pub fn address(&mut self, kind: u16, address: SocketAddr) {
        let mut bytes = Vec::with_capacity(28);
        let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
        bytes.extend_from_slice(&family.to_ne_bytes());
        bytes.extend_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes.extend_from_slice(&v4.ip().octets());
                bytes.extend_from_slice(&[0; 8]);
            }
            SocketAddr::V6(v6) => {
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&v6.ip().octets());
                bytes.extend_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        self.bytes(kind, &bytes);
    }

    /// Appends a nest whose attributes `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Writer<'_>)) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEAD]);
        fill(&mut Writer { out: &mut *self.out, nest_flag: self.nest_flag });
        let len = u16::try_from(self.out.len() - start).unwrap_or(u16::MAX);
        if let Some(head) = self.out.get_mut(start..start + HEAD) {
            head[..2].copy_from_slice(&len.to_ne_bytes());
            head[2..].copy_from_slice(&(kind | self.nest_flag).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u32(1, 5);
        writer.text(2, "udp:U");
        writer.flag(3, true);
        writer.flag(4, false);
        writer.u64(5, u64::MAX);
        writer.nest(6, |inner| inner.u32(1, 6));
        for address in ["10.0.0.1:6118", "[fe80::1%3]:7"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut one = Vec::new();
            Writer::new(&mut one).address(7, address);
            assert_eq!(Nest(&one).address(7), Ok(Some(address)));
        }
        let nest = Nest(&bytes);
        assert_eq!(nest.u32(1), Ok(Some(5)));
        assert_eq!(nest.text(2, 16), Ok(Some("udp:U".to_owned())));
        assert!(nest.flag(3) && !nest.flag(4));
        assert_eq!(nest.u64(5), Ok(Some(u64::MAX)));
        assert_eq!(nest.nest(6).unwrap().u32(1), Ok(Some(6)));
        assert_eq!(nest.u32(9), Ok(None));
    }

    #[test]
    fn last_duplicate_counts_and_malformed_attribute_ends_the_list() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u32(1, 1);
        writer.u32(1, 2);
        assert_eq!(Nest(&bytes).u32(1), Ok(Some(2)));
        bytes[8] = 3; // shorter than its own header
        assert_eq!(Nest(&bytes).u32(1), Ok(Some(1)));
        bytes[8] = 200; // longer than the rest
        assert_eq!(Nest(&bytes).iter().count(), 1);
    }

    #[test]
    fn malformed_values_are_refused() {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).bytes(1, &[1, 2]);
        assert_eq!(Nest(&bytes).u32(1), Err(Errno::RANGE));
        assert_eq!(Nest(&bytes).address(1), Err(Errno::ADDRESS_NOT_AVAILABLE));
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).bytes(1, b"much too long for a name");
        assert_eq!(Nest(&bytes).text(1, 8), Err(Errno::INVALID));
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).bytes(1, &[0xff, 0xfe]);
        assert_eq!(Nest(&bytes).text(1, 8), Err(Errno::INVALID));
    }
}
