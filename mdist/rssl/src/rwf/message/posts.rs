//! Posts, acknowledgements and generic messages. Spec: rssl.md §2.6 to §2.8.

use super::PostUser;
use super::class::message;
use crate::rwf::Key;

message! {
    /// A contribution to an item: a message or a container.
    Post<'a>

    /// Flags of a [`Post`].
    PostFlags {
        /// The last part.
        COMPLETE = 0x20,
        /// An [`Ack`] is requested.
        ACK = 0x40,
    }

    /// User that posts.
    post_user: PostUser, always PostUser;
    /// Sequence number.
    seq: Option<u32>, flag 0x08 u32 "sequence number";
    /// Id that the acknowledgement carries.
    post_id: Option<u32>, flag 0x02 u32 "post id";
    /// Permission data.
    perm: Option<&'a [u8]>, flag 0x80 buf15 "permission data";
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x04 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
    /// Part number, from 0.
    part: Option<u16>, last 0x100 rb15 "part number";
    /// Rights of the user, bits of [`rights`].
    rights: Option<u16>, last 0x200 rb15 "post rights";
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

message! {
    /// Acknowledges a post or a close.
    Ack<'a>

    /// Flags of an [`Ack`].
    AckFlags {
        /// The stream is private.
        PRIVATE = 0x4,
        /// A qualified stream.
        QUALIFIED = 0x40,
    }

    /// Id of the post that is acknowledged.
    ack_id: u32, always u32 "ack id";
    /// Reason of a failure, one of [`nak`]; absent on success.
    nak: Option<u8>, flag 0x20 u8 "nak code";
    /// Text of a failure.
    text: Option<&'a [u8]>, flag 0x02 buf16 "ack text";
    /// Sequence number.
    seq: Option<u32>, flag 0x08 u32 "sequence number";
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x10 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
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

message! {
    /// A message in either direction whose meaning is up to the applications.
    Generic<'a>

    /// Flags of a [`Generic`].
    GenericFlags {
        /// The last part.
        COMPLETE = 0x10,
    }

    /// Sequence number.
    seq: Option<u32>, flag 0x08 u32 "sequence number";
    /// Sequence number of the message that this one answers.
    secondary_seq: Option<u32>, flag 0x20 u32 "secondary sequence number";
    /// Permission data.
    perm: Option<&'a [u8]>, flag 0x02 buf15 "permission data";
    /// Key of the item.
    key: Option<Key<'a>>, flag 0x04 Key;
    /// Extended header; its content is up to the applications.
    ext: Option<&'a [u8]>, flag 0x01 buf8 "extended header";
    /// Part number, from 0.
    part: Option<u16>, last 0x40 rb15 "part number";
    /// Key of the request, if it differs from the key of the message.
    req_key: Option<Key<'a>>, last 0x80 Key;
}
