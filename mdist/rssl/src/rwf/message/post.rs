//! Posts. Spec: rssl.md §2.8.

use super::{Class, Head, PostUser, Start, bit, part, put, tail, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key};
use crate::wire::Writer;
use crate::{Named, Result};

const SEQ: u16 = 0x08;
const POST_ID: u16 = 0x02;
const PERM: u16 = 0x80;
const KEY: u16 = 0x04;
const EXT: u16 = 0x01;
const PART: u16 = 0x100;
const RIGHTS: u16 = 0x200;

flags! {
    /// Flags of a [`Post`].
    PostFlags(u16) {
        /// The last part.
        COMPLETE = 0x20,
        /// An [`super::Ack`] is requested.
        ACK = 0x40,
    }
}

/// Rights of the user that posts.
pub mod rights {
    /// May create items.
    pub const CREATE: u16 = 1;
    /// May delete items.
    pub const DELETE: u16 = 2;
    /// May change permission data.
    pub const MODIFY_PERMISSION: u16 = 4;
}

/// A contribution to an item: a message or a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Post<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: PostFlags,
    /// Type of the payload.
    pub container: DataType,
    /// User that posts.
    pub post_user: PostUser,
    /// Sequence number.
    pub seq: Option<u32>,
    /// Id that the acknowledgement carries.
    pub post_id: Option<u32>,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// Part number, from 0.
    pub part: Option<u16>,
    /// Rights of the user, bits of [`rights`].
    pub rights: Option<u16>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Post<'a> {
    const PRESENCE: u16 = SEQ | POST_ID | PERM | KEY | EXT | PART | RIGHTS;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Post)?;
        let post_user = PostUser::read(&mut r)?;
        let seq = part(&mut r, flags, SEQ, |r| r.u32().named("sequence number"))?;
        let post_id = part(&mut r, flags, POST_ID, |r| r.u32().named("post id"))?;
        let perm = part(&mut r, flags, PERM, |r| r.buf15().named("permission data"))?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let part = tail(&mut r, flags, PART, |r| r.rb15().named("part number"))?;
        let rights = tail(&mut r, flags, RIGHTS, |r| r.rb15().named("post rights"))?;
        let flags = PostFlags(flags & !Self::PRESENCE);
        Ok(Self {
            domain,
            stream,
            flags,
            container,
            post_user,
            seq,
            post_id,
            perm,
            key,
            ext,
            part,
            rights,
            payload,
        })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Post, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.seq, SEQ)
            | bit(&self.post_id, POST_ID)
            | bit(&self.perm, PERM)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT)
            | bit(&self.part, PART)
            | bit(&self.rights, RIGHTS);
        write_header(w, head, flags, self.container, |w| {
            self.post_user.write(w)?;
            put(w, &self.seq, |w, v| w.u32(*v))?;
            put(w, &self.post_id, |w, v| w.u32(*v))?;
            put(w, &self.perm, |w, v| w.buf15(v).named("permission data"))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))?;
            put(w, &self.part, |w, v| w.rb15(*v).named("part number"))?;
            put(w, &self.rights, |w, v| w.rb15(*v).named("post rights"))
        })
    }
}
