//! Netlink messages: a 16-byte header in host byte order, then, for a generic netlink family, 4 bytes with the command.
//! Each message begins at a multiple of 4 bytes. Source: linux/netlink.h, linux/genetlink.h.

/// Bytes of a netlink header.
pub(crate) const HEADER: usize = 16;
/// Bytes of a generic netlink header.
pub(crate) const GENERIC: usize = 4;

/// Message types that do not belong to a family.
pub mod kind {
    /// A negative errno, or 0 for an acknowledgement, followed by the header of the request.
    pub const ERROR: u16 = 2;
    /// The end of a list.
    pub const DONE: u16 = 3;
    /// The generic netlink controller, which resolves families.
    pub const CONTROL: u16 = 16;
}

/// Flags of a message header.
pub mod flag {
    /// The message is a request.
    pub const REQUEST: u16 = 1;
    /// More messages of the reply follow, up to [`super::kind::DONE`].
    pub const MULTI: u16 = 2;
    /// An acknowledgement is requested.
    pub const ACK: u16 = 4;
    /// A list is requested.
    pub const DUMP: u16 = 0x300;
    /// The error message contains only the header of the request.
    pub const CAPPED: u16 = 0x100;
    /// The error message ends with attributes.
    pub const ACK_ATTRIBUTES: u16 = 0x200;
}

/// The netlink and generic netlink headers of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Type: the number of a family, or one of [`kind`].
    pub family: u16,
    /// See [`flag`].
    pub flags: u16,
    /// Sequence number, equal in request and reply.
    pub sequence: u32,
    /// Port number of the requesting socket.
    pub port: u32,
    /// Command of the family.
    pub command: u8,
    /// Version of the family. From [`crate::family::EXTENDED`] on, replies may contain utipc's own attributes.
    pub version: u8,
}

impl Header {
    /// Whether a list is requested.
    #[must_use]
    pub const fn is_dump(&self) -> bool {
        self.flags & flag::DUMP == flag::DUMP
    }

    /// Whether replies may contain attributes that the kernel does not put into them.
    #[must_use]
    pub const fn is_extended(&self) -> bool {
        self.version >= crate::family::EXTENDED
    }
}

/// A message in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its headers; command and version are 0 if the message does not belong to a family.
    pub header: Header,
    /// The bytes after the headers.
    pub body: &'a [u8],
    /// The whole message.
    pub bytes: &'a [u8],
}

/// Iterates over the messages of a packet; ends at the first incomplete one.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// The messages of `packet`.
    #[must_use]
    pub const fn new(packet: &'a [u8]) -> Self {
        Self { rest: packet }
    }
}

pub(crate) fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) const fn padded(len: usize) -> usize {
    len.div_ceil(4) * 4
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = word32(self.rest, 0)? as usize;
        let bytes = self.rest.get(..len).filter(|_| len >= HEADER)?;
        let mut header = Header {
            family: word16(bytes, 4)?,
            flags: word16(bytes, 6)?,
            sequence: word32(bytes, 8)?,
            port: word32(bytes, 12)?,
            ..Header::default()
        };
        let mut body = bytes.get(HEADER..)?;
        if header.family >= kind::CONTROL {
            (header.command, header.version) = (*body.first()?, *body.get(1)?);
            body = body.get(GENERIC..)?;
        }
        self.rest = self.rest.get(padded(len)..).unwrap_or_default();
        Some(Message { header, body, bytes })
    }
}

/// Appends a message whose body `fill` writes.
pub(crate) fn put(out: &mut Vec<u8>, header: &Header, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&header.family.to_ne_bytes());
    out.extend_from_slice(&header.flags.to_ne_bytes());
    out.extend_from_slice(&header.sequence.to_ne_bytes());
    out.extend_from_slice(&header.port.to_ne_bytes());
    if header.family >= kind::CONTROL {
        out.extend_from_slice(&[header.command, header.version, 0, 0]);
    }
    fill(out);
    let len = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&len.to_ne_bytes());
    }
    out.resize(start + padded(len as usize), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let header =
            Header { family: 30, flags: flag::REQUEST, sequence: 7, port: 9, command: 8, version: 1 };
        let mut packet = Vec::new();
        put(&mut packet, &header, |out| out.extend_from_slice(b"odd"));
        put(&mut packet, &Header { family: kind::DONE, ..header }, |out| out.extend_from_slice(&[0; 4]));
        let all: Vec<_> = Messages::new(&packet).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].header, all[0].body), (header, &b"odd"[..]));
        assert_eq!((all[1].header.family, all[1].header.command), (kind::DONE, 0));
    }

    #[test]
    fn incomplete_message_ends_the_packet() {
        let mut packet = Vec::new();
        put(&mut packet, &Header { family: 30, ..Header::default() }, |_| {});
        for len in 0..packet.len() {
            assert_eq!(Messages::new(&packet[..len]).count(), 0, "{len}");
        }
        packet[0] = 3;
        assert_eq!(Messages::new(&packet).count(), 0);
        packet[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Messages::new(&packet).count(), 0);
    }
}
