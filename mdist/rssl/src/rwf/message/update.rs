//! Updates. Spec: rssl.md §2.4.

use super::{Class, Head, PostUser, Start, bit, part, put, tail, write_header};
use crate::rwf::flags::flags;
use crate::rwf::{DataType, Domain, Key};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

const SEQ: u16 = 0x10;
const CONFLATION: u16 = 0x20;
const PERM: u16 = 0x02;
const KEY: u16 = 0x08;
const EXT: u16 = 0x01;
const POST_USER: u16 = 0x200;

flags! {
    /// Flags of an [`Update`].
    UpdateFlags(u16) {
        /// Do not apply to a cache.
        DO_NOT_CACHE = 0x40,
        /// Do not conflate.
        DO_NOT_CONFLATE = 0x80,
        /// Do not ripple fields.
        DO_NOT_RIPPLE = 0x100,
        /// May be dropped.
        DISCARDABLE = 0x400,
    }
}

/// Conflation information of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conflation {
    /// Number of conflated updates, up to 32767.
    pub count: u16,
    /// Conflation time in milliseconds.
    pub time_ms: u16,
}

impl Conflation {
    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { count: r.rb15().named("conflation count")?, time_ms: r.u16().named("conflation time")? })
    }

    fn write(self, w: &mut Writer<'_>) -> Result<()> {
        w.rb15(self.count).named("conflation count")?;
        w.u16(self.time_ms)
    }
}

/// Update types. Spec: rssl.md §5.
#[allow(missing_docs, reason = "the names say it")]
pub mod update_kind {
    pub const UNSPECIFIED: u8 = 0;
    pub const QUOTE: u8 = 1;
    pub const TRADE: u8 = 2;
    pub const NEWS_ALERT: u8 = 3;
    pub const VOLUME_ALERT: u8 = 4;
    pub const ORDER_INDICATION: u8 = 5;
    pub const CLOSING_RUN: u8 = 6;
    pub const CORRECTION: u8 = 7;
    pub const MARKET_DIGEST: u8 = 8;
    pub const QUOTES_TRADE: u8 = 9;
    pub const MULTIPLE: u8 = 10;
    pub const VERIFY: u8 = 11;

    /// The name of an update type, if it is known.
    #[must_use]
    pub const fn name(kind: u8) -> Option<&'static str> {
        Some(match kind {
            UNSPECIFIED => "Unspecified",
            QUOTE => "Quote",
            TRADE => "Trade",
            NEWS_ALERT => "NewsAlert",
            VOLUME_ALERT => "VolumeAlert",
            ORDER_INDICATION => "OrderIndication",
            CLOSING_RUN => "ClosingRun",
            CORRECTION => "Correction",
            MARKET_DIGEST => "MarketDigest",
            QUOTES_TRADE => "QuotesTrade",
            MULTIPLE => "Multiple",
            VERIFY => "Verify",
            _ => return None,
        })
    }
}

/// Changes the data of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update<'a> {
    /// Domain.
    pub domain: Domain,
    /// Stream id.
    pub stream: i32,
    /// Flags, except those of optional parts.
    pub flags: UpdateFlags,
    /// Type of the payload.
    pub container: DataType,
    /// Update type, one of [`update_kind`].
    pub kind: u8,
    /// Sequence number.
    pub seq: Option<u32>,
    /// Conflation information.
    pub conflation: Option<Conflation>,
    /// Permission data.
    pub perm: Option<&'a [u8]>,
    /// Key of the item.
    pub key: Option<Key<'a>>,
    /// Extended header; its content is up to the applications.
    pub ext: Option<&'a [u8]>,
    /// User whose post caused this message.
    pub post_user: Option<PostUser>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Update<'a> {
    const PRESENCE: u16 = SEQ | CONFLATION | PERM | KEY | EXT | POST_USER;

    /// Reads a message of this class.
    ///
    /// # Errors
    /// Another class, or a header that is cut short or malformed.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let Start { domain, stream, flags, container, header: mut r, payload } =
            Start::read(message, Class::Update)?;
        let kind = r.u8().named("update type")?;
        let seq = part(&mut r, flags, SEQ, |r| r.u32().named("sequence number"))?;
        let conflation = part(&mut r, flags, CONFLATION, Conflation::read)?;
        let perm = part(&mut r, flags, PERM, |r| r.buf15().named("permission data"))?;
        let key = part(&mut r, flags, KEY, Key::read)?;
        let ext = part(&mut r, flags, EXT, |r| r.buf8().named("extended header"))?;
        let post_user = tail(&mut r, flags, POST_USER, PostUser::read)?;
        let flags = UpdateFlags(flags & !Self::PRESENCE);
        Ok(Self {
            domain,
            stream,
            flags,
            container,
            kind,
            seq,
            conflation,
            perm,
            key,
            ext,
            post_user,
            payload,
        })
    }

    /// Writes everything but the payload, which may then be written in place.
    ///
    /// # Errors
    /// As [`super::Message::encode`].
    pub fn encode_header(&self, w: &mut Writer<'_>) -> Result<()> {
        let head = Head { class: Class::Update, domain: self.domain, stream: self.stream };
        let flags = self.flags.0 & !Self::PRESENCE
            | bit(&self.seq, SEQ)
            | bit(&self.conflation, CONFLATION)
            | bit(&self.perm, PERM)
            | bit(&self.key, KEY)
            | bit(&self.ext, EXT)
            | bit(&self.post_user, POST_USER);
        write_header(w, head, flags, self.container, |w| {
            w.u8(self.kind)?;
            put(w, &self.seq, |w, v| w.u32(*v))?;
            put(w, &self.conflation, |w, v| v.write(w))?;
            put(w, &self.perm, |w, v| w.buf15(v).named("permission data"))?;
            put(w, &self.key, |w, v| v.write(w))?;
            put(w, &self.ext, |w, v| w.buf8(v).named("extended header"))?;
            put(w, &self.post_user, |w, v| v.write(w))
        })
    }
}
