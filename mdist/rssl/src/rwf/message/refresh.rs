//! Refreshes. Spec: rssl.md §2.2.

use super::{Class, Head, PostUser, Start, bit, part, put, tail, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key, Qos, State};
use crate::wire::Writer;
use crate::{Named, Result};

const SEQ: u16 = 0x10;
const PERM: u16 = 0x02;
const QOS: u16 = 0x80;
const KEY: u16 = 0x08;
const EXT: u16 = 0x01;
const POST_USER: u16 = 0x800;
const PART: u16 = 0x1000;
const REQ_KEY: u16 = 0x2000;

flags! {
    /// Flags of a [`Refresh`].
    RefreshFlags(u16) {
        /// Answers a request.
        SOLICITED = 0x20,
        /// The last part.
        COMPLETE = 0x40,
        /// Discard the cached image of the item.
        CLEAR_CACHE = 0x100,
        /// Do not cache this image.
        DO_NOT_CACHE = 0x200,
        /// The stream is private.
        PRIVATE = 0x400,
        /// A qualified stream.
        QUALIFIED = 0x4000,
    }
}

/// An image of an item, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refresh<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: RefreshFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Sequence number.
    pub seq: Option<u32>,
    /// State of stream and data.
    pub state: State<'a>,
    /// Item group, usually two bytes.
    pub group: &'a [u8],
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Quality of the data.
    pub qos: Option<Qos>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// User whose post caused this message.
    pub post_user: Option<PostUser>,
    /// Part number, from 0.
    pub part: Option<u16>,
    /// Key of the request, if it differs from the key of the message.
    pub req_key: Option<Key<'a>>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Refresh<'a> {
    const PRESENCE: u16 = SEQ | PERM | QOS | KEY | EXT | POST_USER | PART | REQ_KEY;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Refresh)?;
        let seq = part(&mut r, flags, SEQ, |r| r.u32().named("sequence number"))?;
        let state = State::read(&mut r)?;
        let group = r.buf8().named("group id")?;
        let perm = part(&mut r, flags, PERM, |r| r.buf15().named("permission data"))?;
        let qos = part(&mut r, flags, QOS, Qos::read)?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let post_user = tail(&mut r, flags, POST_USER, PostUser::read)?;
        let part = tail(&mut r, flags, PART, |r| r.rb15().named("part number"))?;
        let req_key = tail(&mut r, flags, REQ_KEY, Key::read)?;
        let flags = RefreshFlags(flags & !Self::PRESENCE);
        Ok(Self {
            domain,
            stream,
            flags,
            container,
            seq,
            state,
            group,
            perm,
            qos,
            key,
            ext,
            post_user,
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
        let head = Head { class: Class::Refresh, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.seq, SEQ)
            | bit(&self.perm, PERM)
            | bit(&self.qos, QOS)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT)
            | bit(&self.post_user, POST_USER)
            | bit(&self.part, PART)
            | bit(&self.req_key, REQ_KEY);
        write_header(w, head, flags, self.container, |w| {
            put(w, &self.seq, |w, v| w.u32(*v))?;
            self.state.write(w)?;
            w.buf8(self.group).named("group id")?;
            put(w, &self.perm, |w, v| w.buf15(v).named("permission data"))?;
            put(w, &self.qos, |w, v| v.write(w))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))?;
            put(w, &self.post_user, |w, v| v.write(w))?;
            put(w, &self.part, |w, v| w.rb15(*v).named("part number"))?;
            put(w, &self.req_key, |w, v| v.write(w))
        })
    }
}
