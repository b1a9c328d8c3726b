//! Closes. Spec: rssl.md §2.5.

use super::{Class, Head, Start, bit, part, put, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain};
use crate::wire::Writer;
use crate::{Named, Result};

const EXT: u16 = 0x01;

flags! {
    /// Flags of a [`Close`].
    CloseFlags(u16) {
        /// An [`super::Ack`] is requested.
        ACK = 0x2,
        /// The payload lists the streams.
        BATCH = 0x4,
    }
}

/// Closes a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Close<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: CloseFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Close<'a> {
    const PRESENCE: u16 = EXT;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Close)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let flags = CloseFlags(flags & !Self::PRESENCE);
        Ok(Self { domain, stream, flags, container, ext, payload })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Close, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE | bit(&self.ext, EXT);
        write_header(w, head, flags, self.container, |w| {
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))
        })
    }
}
