//! Requests, refreshes, statuses, updates and closes. Spec: rssl.md §2.1 to §2.5.

use super::PostUser;
use super::class::message;
use crate::rwf::{DataType, Domain, Key, Qos, State};
use crate::wire::{Reader, Writer};
use crate::{Named, Result};

message! {
    /// Opens a stream, or changes or reissues the request of an open one.
    Request<'a>

    /// Flags of a [`Request`].
    RequestFlags {
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

    /// Priority; class 1 and count 1 if absent.
    priority: Option<Priority>, flag 0x02 Priority;
    /// Requested quality of service, or the best of a range.
    qos: Option<Qos>, flag 0x40 Qos;
    /// Worst quality of service of a range.
    worst_qos: Option<Qos>, flag 0x80 Qos;
    /// Key of the item.
    key: Key<'a>, always Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
}

impl<'a> Request<'a> {
    /// A request without payload.
    #[must_use]
    pub fn new(domain: Domain, stream: i32, flags: RequestFlags, key: Key<'a>) -> Self {
        Self { domain, stream, flags, key, ..Self::default() }
    }

    /// A request for an image and updates.
    #[must_use]
    pub fn streaming(domain: Domain, stream: i32, key: Key<'a>) -> Self {
        Self::new(domain, stream, RequestFlags::STREAMING, key)
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

message! {
    /// An image of an item, or a part of one.
    Refresh<'a>

    /// Flags of a [`Refresh`].
    RefreshFlags {
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

    /// Sequence number.
    seq: Option<u32>, flag 0x10 u32 "sequence number";
    /// State of stream and data.
    state: State<'a>, always State;
    /// Item group, usually two bytes.
    group: &'a [u8], always buf8 "group id";
    /// Permission data.
    perm: Option<&'a [u8]>, flag 0x02 buf15 "permission data";
    /// Quality of the data.
    qos: Option<Qos>, flag 0x80 Qos;
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x08 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
    /// User whose post caused this message.
    post_user: Option<PostUser>, last 0x800 PostUser;
    /// Part number, from 0.
    part: Option<u16>, last 0x1000 rb15 "part number";
    /// Key of the request, if it differs from the key of the message.
    req_key: Option<Key<'a>>, last 0x2000 Key;
}

impl<'a> Refresh<'a> {
    /// A refresh without a state and optional parts.
    #[must_use]
    pub fn new(domain: Domain, stream: i32, container: DataType, payload: &'a [u8]) -> Self {
        Self { domain, stream, container, payload, ..Self::default() }
    }
}

impl RefreshFlags {
    /// The flags of a whole image that replies to a request.
    pub const REPLY: Self = Self::COMPLETE.with(Self::CLEAR_CACHE).with(Self::SOLICITED);
}

message! {
    /// Changes state, group or permission of an item.
    Status<'a>

    /// Flags of a [`Status`].
    StatusFlags {
        /// Discard the cached image of the item.
        CLEAR_CACHE = 0x40,
        /// The stream is private.
        PRIVATE = 0x80,
        /// A qualified stream.
        QUALIFIED = 0x400,
    }

    /// New state of stream and data.
    state: Option<State<'a>>, flag 0x20 State;
    /// New item group.
    group: Option<&'a [u8]>, flag 0x10 buf8 "group id";
    /// Permission data.
    perm: Option<&'a [u8]>, flag 0x02 buf15 "permission data";
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x08 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
    /// User whose post caused this message.
    post_user: Option<PostUser>, last 0x100 PostUser;
    /// Key of the request, if it differs from the key of the message.
    req_key: Option<Key<'a>>, last 0x200 Key;
}

impl<'a> Status<'a> {
    /// A status with a new state and nothing else.
    #[must_use]
    pub fn new(domain: Domain, stream: i32, state: State<'a>) -> Self {
        Self { domain, stream, state: Some(state), ..Self::default() }
    }
}

message! {
    /// Changes the data of an item.
    Update<'a>

    /// Flags of an [`Update`].
    UpdateFlags {
        /// Do not apply to a cache.
        DO_NOT_CACHE = 0x40,
        /// Do not conflate.
        DO_NOT_CONFLATE = 0x80,
        /// Do not ripple fields.
        DO_NOT_RIPPLE = 0x100,
        /// May be dropped.
        DISCARDABLE = 0x400,
    }

    /// Update type, one of [`update_kind`].
    kind: u8, always u8 "update type";
    /// Sequence number.
    seq: Option<u32>, flag 0x10 u32 "sequence number";
    /// Conflation information.
    conflation: Option<Conflation>, flag 0x20 Conflation;
    /// Permission data.
    perm: Option<&'a [u8]>, flag 0x02 buf15 "permission data";
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x08 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
    /// User whose post caused this message.
    post_user: Option<PostUser>, last 0x200 PostUser;
}

impl<'a> Update<'a> {
    /// An update without a type and optional parts.
    #[must_use]
    pub fn new(domain: Domain, stream: i32, container: DataType, payload: &'a [u8]) -> Self {
        Self { domain, stream, container, payload, ..Self::default() }
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

macro_rules! update_kinds {
    ($($name:ident = $kind:literal $text:literal,)*) => {
        /// Update types. Spec: rssl.md §5.
        #[allow(missing_docs, reason = "the names say it")]
        pub mod update_kind {
            $(pub const $name: u8 = $kind;)*

            /// The name of an update type, if it is known.
            #[must_use]
            pub const fn name(kind: u8) -> Option<&'static str> {
                Some(match kind {
                    $($name => $text,)*
                    _ => return None,
                })
            }
        }
    };
}

update_kinds! {
    UNSPECIFIED = 0 "Unspecified",
    QUOTE = 1 "Quote",
    TRADE = 2 "Trade",
    NEWS_ALERT = 3 "NewsAlert",
    VOLUME_ALERT = 4 "VolumeAlert",
    ORDER_INDICATION = 5 "OrderIndication",
    CLOSING_RUN = 6 "ClosingRun",
    CORRECTION = 7 "Correction",
    MARKET_DIGEST = 8 "MarketDigest",
    QUOTES_TRADE = 9 "QuotesTrade",
    MULTIPLE = 10 "Multiple",
    VERIFY = 11 "Verify",
}

message! {
    /// Closes a stream.
    Close<'a>

    /// Flags of a [`Close`].
    CloseFlags {
        /// An [`Ack`](super::Ack) is requested.
        ACK = 0x2,
        /// The payload lists the streams.
        BATCH = 0x4,
    }

    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
}

impl Close<'_> {
    /// A close of one stream.
    #[must_use]
    pub fn new(domain: Domain, stream: i32) -> Self {
        Self { domain, stream, ..Self::default() }
    }
}
