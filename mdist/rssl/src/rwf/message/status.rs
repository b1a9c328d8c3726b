//! Statuses. Spec: rssl.md §2.3.

use super::{Class, Head, PostUser, Start, bit, part, put, tail, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key, State};
use crate::wire::Writer;
use crate::{Named, Result};

const STATE: u16 = 0x20;
const GROUP: u16 = 0x10;
const PERM: u16 = 0x02;
const KEY: u16 = 0x08;
const EXT: u16 = 0x01;
const POST_USER: u16 = 0x100;
const REQ_KEY: u16 = 0x200;

flags! {
    /// Flags of a [`Status`].
    StatusFlags(u16) {
        /// Discard the cached image of the item.
        CLEAR_CACHE = 0x40,
        /// The stream is private.
        PRIVATE = 0x80,
        /// A qualified stream.
        QUALIFIED = 0x400,
    }
}

/// Changes state, group or permission of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: StatusFlags,
    /// Type of the payload.
    pub container: DataType,
    /// New state of stream and data.
    pub state: Option<State<'a>>,
    /// New item group.
    pub group: Option<&'a [u8]>,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// User whose post caused this message.
    pub post_user: Option<PostUser>,
    /// Key of the request, if it differs from the key of the message.
    pub req_key: Option<Key<'a>>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Status<'a> {
    const PRESENCE: u16 = STATE | GROUP | PERM | KEY | EXT | POST_USER | REQ_KEY;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Status)?;
        let state = part(&mut r, flags, STATE, State::read)?;
        let group = part(&mut r, flags, GROUP, |r| r.buf8().named("group id"))?;
        let perm = part(&mut r, flags, PERM, |r| r.buf15().named("permission data"))?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let post_user = tail(&mut r, flags, POST_USER, PostUser::read)?;
        let req_key = tail(&mut r, flags, REQ_KEY, Key::read)?;
        let flags = StatusFlags(flags & !Self::PRESENCE);
        Ok(Self {
            domain,
            stream,
            flags,
            container,
            state,
            group,
            perm,
            key,
            ext,
            post_user,
            req_key,
            payload,
        })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Status, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.state, STATE)
            | bit(&self.group, GROUP)
            | bit(&self.perm, PERM)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT)
            | bit(&self.post_user, POST_USER)
            | bit(&self.req_key, REQ_KEY);
        write_header(w, head, flags, self.container, |w| {
            put(w, &self.state, |w, v| v.write(w))?;
            put(w, &self.group, |w, v| w.buf8(v).named("group id"))?;
            put(w, &self.perm, |w, v| w.buf15(v).named("permission data"))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))?;
            put(w, &self.post_user, |w, v| v.write(w))?;
            put(w, &self.req_key, |w, v| v.write(w))
        })
    }
}
