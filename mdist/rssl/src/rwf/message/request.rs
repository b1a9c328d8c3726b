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
    /// Flags of a [`Request`].
    RequestFlags(u16) {
        /// Updates follow the image.
        STREAMING = 0x4,
        /// Updates carry the key.
        KEY_IN_UPDATES = 0x8,
        /// Updates carry conflation information.
        CONFLATION_INFO = 0x10,
        /// No image is requested.
        NO_REFRESH = 0x20,
        /// The stream is private.
        PRIVATE = 0x100,
        /// Updates pause until the next request.
        PAUSE = 0x200,
        /// The payload has a view.
        VIEW = 0x400,
        /// The payload lists the items of a batch.
        BATCH = 0x800,
        /// A qualified stream.
        QUALIFIED = 0x1000,
    }
}

/// Priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    /// Class; a greater class is more important.
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
    /// The priority of a request without one.
    fn default() -> Self {
        Self { class: 1, count: 1 }
    }
}

/// Opens a stream, or changes or reissues the request of an open one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: RequestFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Priority; class 1 and count 1 if absent.
    pub priority: Option<Priority>,
    /// Requested quality of service, or the best of a range.
    pub qos: Option<Qos>,
    /// Worst quality of service of a range.
    pub worst_qos: Option<Qos>,
    /// Key of the item.
    pub key: Key<'a>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// Payload.
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
