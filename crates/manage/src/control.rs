//! The generic netlink controller, which resolves the name of a family to its number. Source: linux/genetlink.h.

use crate::attribute::{Nest, Writer};
use crate::family::{MAX_ATTRIBUTE, NAME, VERSION};
use crate::legacy;
use crate::netlink::{self, Header, Messages, flag, kind};

const NEW_FAMILY: u8 = 1;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_VERSION: u16 = 3;
const HEADER_SIZE: u16 = 4;
const MAXATTR: u16 = 5;
/// Longest name of a family, in bytes.
const MAX_NAME: usize = 15;

/// A request for the number of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRequest {
    /// Its header.
    pub header: Header,
    /// The name of the family; `None` if the request is for a list or by number.
    pub name: Option<String>,
}

impl FamilyRequest {
    /// A request for the number of TIPC's family, as one message.
    #[must_use]
    pub fn own(sequence: u32) -> Vec<u8> {
        Self::of(NAME, sequence)
    }

    /// A request for the number of the family with this name, as one message.
    #[must_use]
    pub fn of(name: &str, sequence: u32) -> Vec<u8> {
        let header = Header {
            family: kind::CONTROL,
            flags: flag::REQUEST,
            sequence,
            port: 0,
            command: GET_FAMILY,
            version: 1,
        };
        let mut out = Vec::new();
        netlink::put(&mut out, &header, |out| Writer::new(out).text(FAMILY_NAME, name));
        out
    }

    /// Decodes the first message of a packet; `None` if it is another message.
    #[must_use]
    pub fn from_bytes(packet: &[u8]) -> Option<Self> {
        let message = Messages::new(packet).next()?;
        let header = message.header;
        if header.family != kind::CONTROL || header.command != GET_FAMILY {
            return None;
        }
        let name = Nest(message.body).text(FAMILY_NAME, MAX_NAME).ok().flatten();
        Some(Self { header, name: name.filter(|_| !header.is_dump()) })
    }
}

/// The reply of the controller: the number of TIPC's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family(pub u16);

impl Family {
    /// Encodes the reply to the request with this header.
    #[must_use]
    pub fn to_bytes(self, request: &Header) -> Vec<u8> {
        self.describe(request, NAME, 0, MAX_ATTRIBUTE)
    }

    /// As [`Family::to_bytes`], if the number is that of the family [`legacy`].
    #[must_use]
    pub fn legacy_to_bytes(self, request: &Header) -> Vec<u8> {
        self.describe(request, legacy::NAME, legacy::HEADER as u32, 0)
    }

    fn describe(self, request: &Header, name: &str, header_size: u32, max_attribute: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header { flags: 0, command: NEW_FAMILY, version: 2, ..*request };
        netlink::put(&mut out, &header, |out| {
            let mut out = Writer::new(out);
            out.text(FAMILY_NAME, name);
            out.bytes(FAMILY_ID, &self.0.to_ne_bytes());
            out.u32(FAMILY_VERSION, u32::from(VERSION));
            out.u32(HEADER_SIZE, header_size);
            out.u32(MAXATTR, max_attribute);
        });
        let mut reply = crate::ReplyWriter::new(*request);
        reply.done();
        out.extend_from_slice(reply.bytes());
        out
    }

    /// Decodes the first message of a packet; `None` if it is another message.
    #[must_use]
    pub fn from_bytes(packet: &[u8]) -> Option<Self> {
        let message = Messages::new(packet).next()?;
        if message.header.family != kind::CONTROL || message.header.command != NEW_FAMILY {
            return None;
        }
        let number = Nest(message.body).value(FAMILY_ID)?;
        number.first_chunk().map(|bytes| Self(u16::from_ne_bytes(*bytes)))
    }
}
