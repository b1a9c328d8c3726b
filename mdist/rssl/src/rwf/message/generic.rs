//! Generic messages. Spec: rssl.md §2.7.

use super::{Class, Head, Start, bit, part, put, tail, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key};
use crate::wire::Writer;
use crate::{Named, Result};

const SEQ: u16 = 0x08;
const SECONDARY_SEQ: u16 = 0x20;
const PERM: u16 = 0x02;
const KEY: u16 = 0x04;
const EXT: u16 = 0x01;
const PART: u16 = 0x40;
const REQ_KEY: u16 = 0x80;

flags! {
    /// Flags of a [`Generic`].
    GenericFlags(u16) {
        /// The last part.
        COMPLETE = 0x10,
    }
}

/// A message in either direction whose meaning is up to the applications.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generic<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: GenericFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Sequence number.
    pub seq: Option<u32>,
    /// Sequence number of the message that this one answers.
    pub secondary_seq: Option<u32>,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// Part number, from 0.
    pub part: Option<u16>,
    /// Key of the request, if it differs from the key of the message.
    pub req_key: Option<Key<'a>>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Generic<'a> {
    const PRESENCE: u16 = SEQ | SECONDARY_SEQ | PERM | KEY | EXT | PART | REQ_KEY;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Generic)?;
        let seq = part(&mut r, flags, SEQ, |r| r.u32().named("sequence number"))?;
        let secondary_seq =
            part(&mut r, flags, SECONDARY_SEQ, |r| r.u32().named("secondary sequence number"))?;
        let perm = part(&mut r, flags, PERM, |r| r.buf15().named("permission data"))?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let part = tail(&mut r, flags, PART, |r| r.rb15().named("part number"))?;
        let req_key = tail(&mut r, flags, REQ_KEY, Key::read)?;
        let flags = GenericFlags(flags & !Self::PRESENCE);
        Ok(Self {
            domain,
            stream,
            flags,
            container,
            seq,
            secondary_seq,
            perm,
            key,
            ext,
            part,
            req_key,
            payload,
        })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Generic, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.seq, SEQ)
            | bit(&self.secondary_seq, SECONDARY_SEQ)
            | bit(&self.perm, PERM)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT)
            | bit(&self.part, PART)
            | bit(&self.req_key, REQ_KEY);
        write_header(w, head, flags, self.container, |w| {
            put(w, &self.seq, |w, v| w.u32(*v))?;
            put(w, &self.secondary_seq, |w, v| w.u32(*v))?;
            put(w, &self.perm, |w, v| w.buf15(v).named("permission data"))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))?;
            put(w, &self.part, |w, v| w.rb15(*v).named("part number"))?;
            put(w, &self.req_key, |w, v| v.write(w))
        })
    }
}
