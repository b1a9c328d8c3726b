//! Acknowledgements. Spec: rssl.md §2.6.

use super::{Class, Head, Start, bit, part, put, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key};
use crate::wire::Writer;
use crate::{Named, Result};

const NAK: u16 = 0x20;
const TEXT: u16 = 0x02;
const SEQ: u16 = 0x08;
const KEY: u16 = 0x10;
const EXT: u16 = 0x01;

flags! {
    /// Flags of an [`Ack`].
    AckFlags(u16) {
        /// The stream is private.
        PRIVATE = 0x4,
        /// A qualified stream.
        QUALIFIED = 0x40,
    }
}

/// NAK codes: the reasons for refusing a post.
pub mod nak {
    /// Access is denied.
    pub const ACCESS_DENIED: u8 = 1;
    /// Denied by the source.
    pub const DENIED_BY_SOURCE: u8 = 2;
    /// The source is down.
    pub const SOURCE_DOWN: u8 = 3;
    /// The source is unknown.
    pub const SOURCE_UNKNOWN: u8 = 4;
    /// No resources.
    pub const NO_RESOURCES: u8 = 5;
    /// No response from the source.
    pub const NO_RESPONSE: u8 = 6;
    /// The gateway is down.
    pub const GATEWAY_DOWN: u8 = 7;
    /// The symbol is unknown.
    pub const SYMBOL_UNKNOWN: u8 = 10;
    /// The item is not open.
    pub const NOT_OPEN: u8 = 11;
    /// The content is invalid.
    pub const INVALID_CONTENT: u8 = 12;
}

/// Acknowledges a post or a close.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ack<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: AckFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Id of the post that is acknowledged.
    pub ack_id: u32,
    /// Reason of a failure, one of [`nak`]; absent on success.
    pub nak: Option<u8>,
    /// Text of a failure.
    pub text: Option<&'a [u8]>,
    /// Sequence number.
    pub seq: Option<u32>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Ack<'a> {
    const PRESENCE: u16 = NAK | TEXT | SEQ | KEY | EXT;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Ack)?;
        let ack_id = r.u32().named("ack id")?;
        let nak = part(&mut r, flags, NAK, |r| r.u8().named("nak code"))?;
        let text = part(&mut r, flags, TEXT, |r| r.buf16().named("ack text"))?;
        let seq = part(&mut r, flags, SEQ, |r| r.u32().named("sequence number"))?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let flags = AckFlags(flags & !Self::PRESENCE);
        Ok(Self { domain, stream, flags, container, ack_id, nak, text, seq, key, ext, payload })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Ack, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.nak, NAK)
            | bit(&self.text, TEXT)
            | bit(&self.seq, SEQ)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT);
        write_header(w, head, flags, self.container, |w| {
            w.u32(self.ack_id)?;
            put(w, &self.nak, |w, v| w.u8(*v))?;
            put(w, &self.text, |w, v| w.buf16(v).named("ack text"))?;
            put(w, &self.seq, |w, v| w.u32(*v))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))
        })
    }
}
