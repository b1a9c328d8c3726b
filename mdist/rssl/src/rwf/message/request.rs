//! Requests. Spec: rssl.md §2.1.

use super::{Class, Head, Start, bit, part, put, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key, Qos};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

const PRIORITY: u16 = 0x02;
const QOS: u16 = 0x40;
const WORST_QOS: u16 = 0x80;
const EXT: u16 = 0x01;

flags! {
    /// Of a [`Request`].
    RequestFlags(u16) {
        /// Updates are wanted after the image.
        STREAMING = 0x4,
        /// Updates are to carry the key.
        KEY_IN_UPDATES = 0x8,
        /// Updates are to say what was conflated.
        CONFLATION_INFO = 0x10,
        /// No new image is wanted.
        NO_REFRESH = 0x20,
        /// The stream is for this consumer alone.
        PRIVATE = 0x100,
        /// Updates may stop until the next request.
        PAUSE = 0x200,
        /// The payload says which fields are wanted.
        VIEW = 0x400,
        /// The payload lists the items.
        BATCH = 0x800,
        /// A qualified stream.
        QUALIFIED = 0x1000,
    }
}

/// Importance of a request among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    /// Class, the greater the more important.
    pub class: u8,
    /// Weight within the class.
    pub count: u16,
}

impl Priority {
    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { class: r.u8().named("priority class")?, count: r.ob16().named("priority count")? })
    }

    fn write(self, w: &mut Writer<'_>) -> Result<()> {
        w.u8(self.class)?;
        w.ob16(self.count)
    }
}

impl Default for Priority {
    /// What a request without a priority has.
    fn default() -> Self {
        Self { class: 1, count: 1 }
    }
}

/// Opens a stream, or changes or asks again what an open one sends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags other than of parts' presence.
    pub flags: RequestFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Importance among the requests; class 1, count 1 unless said.
    pub priority: Option<Priority>,
    /// Quality wanted, or the best of a range.
    pub qos: Option<Qos>,
    /// The worst of a range of qualities.
    pub worst_qos: Option<Qos>,
    /// What is asked for.
    pub key: Key<'a>,
    /// Extended header, as the parties agreed.
    pub ext: Option<&'a [u8]>,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    const PRESENCE: u16 = PRIORITY | QOS | WORST_QOS | EXT;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Request)?;
        let priority = part(&mut r, flags, PRIORITY, Priority::read)?;
        let qos = part(&mut r, flags, QOS, Qos::read)?;
        let worst_qos = part(&mut r, flags, WORST_QOS, Qos::read)?;
        let key = Key::read(&mut r)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let flags = RequestFlags(flags & !Self::PRESENCE);
        Ok(Self { domain, stream, flags, container, priority, qos, worst_qos, key, ext, payload })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Request, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.priority, PRIORITY)
            | bit(&self.qos, QOS)
            | bit(&self.worst_qos, WORST_QOS)
            | bit(&self.ext, EXT);
        write_header(w, head, flags, self.container, |w| {
            put(w, &self.priority, |w, v| v.write(w))?;
            put(w, &self.qos, |w, v| v.write(w))?;
            put(w, &self.worst_qos, |w, v| v.write(w))?;
            self.key.write(w)?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))
        })
    }
}
