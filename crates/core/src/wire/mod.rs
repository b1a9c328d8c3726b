//! The wire format: one checked view for all messages, and a value type for each internal user.
//!
//! [`Packet`] over `&[u8]` is a view; over `Vec<u8>` it is a [`Message`], which moves by value through the node.
//! [`Packet::parse`] makes the structural checks of tipc.md §14.1; after that no accessor can fail: a field beyond the
//! header reads as 0. Spec: tipc.md §2.

mod bcast;
mod bundle;
mod conn;
mod crypto;
mod data;
mod decoded;
mod discovery;
mod dump;
mod envelope;
mod fragment;
mod gaps;
mod group;
mod link_protocol;
mod media;
mod monitor;
mod names;
mod packet;
mod returned;
mod topology;
mod tunnel;
mod user;

pub use bcast::BcastControl;
pub use bundle::{Bundle, BundleIter};
pub use conn::{ConnControl, ConnControlKind};
pub use crypto::{ENCRYPTED_VERSION, Encrypted, EncryptedSource, KeyDistribution};
pub use data::{Addressing, Data, GroupAddressing};
pub use decoded::{Body, Decoded, Residue};
pub use discovery::{DiscoveryKind, DiscoveryMessage};
pub(crate) use discovery::{same_medium, with_scope_of};
pub use dump::{Dump, FrameDump};
pub use envelope::Envelope;
pub use fragment::{Fragment, FragmentKind};
pub use gaps::{GapBlock, GapRecord, MAX_GAP_BLOCKS};
pub use group::{GroupControl, GroupControlKind};
pub use link_protocol::{ActivateSession, INTERFACE_NAME_LEN, InterfaceName, LinkFields, Restart, State};
pub use media::{MEDIA_INFO_LEN, MediaAddr};
pub use monitor::{DomainRecord, MAX_DOMAIN_MEMBERS};
pub use names::{NAME_ITEM_LEN, NameItem, NameUpdate};
pub(crate) use packet::BareHeader;
pub use packet::{DataHeader, Message, Packet, View};
pub use returned::reverse;
pub(crate) use topology::encode_event;
pub use topology::{
    ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription, TopologyEvent,
};
pub use tunnel::{Tunnel, TunnelKind};
pub use user::{ErrorCode, LinkProtocolType, MessageType, Method, User};

use crate::error::WireError;

/// Header of payload on a connection, bytes.
pub const SHORT_HEADER: usize = 24;
/// Header of payload to a socket address, bytes.
pub const BASIC_HEADER: usize = 32;
/// Header of payload to a service address, bytes.
pub const NAMED_HEADER: usize = 40;
/// Header of all internal users, bytes.
pub const INTERNAL_HEADER: usize = 40;
/// Header of multicast and group payload, bytes.
pub const MULTICAST_HEADER: usize = 44;
/// Header of discovery messages, bytes.
pub const DISCOVERY_HEADER: usize = 60;

/// Comparison of sequence numbers modulo 65536 by half range. Spec: tipc.md §0.
pub mod seq {
    /// True if `a` is not after `b`.
    #[must_use]
    pub const fn le(a: u16, b: u16) -> bool {
        b.wrapping_sub(a) < 32768
    }
    /// True if `a` is before `b`.
    #[must_use]
    pub const fn lt(a: u16, b: u16) -> bool {
        le(a, b) && a != b
    }
    /// True if `a` is after `b`.
    #[must_use]
    pub const fn gt(a: u16, b: u16) -> bool {
        !le(a, b)
    }
}

/// Flow-control blocks of 1024 bytes that `bytes` take; at least 1. Spec: tipc.md §0.
#[must_use]
pub const fn blocks(bytes: usize) -> u32 {
    (bytes / 1024) as u32 + 1
}

fn expect_user(v: View<'_>, user: User) -> Result<(), WireError> {
    if v.user() == user { Ok(()) } else { Err(WireError::User(v.user().into())) }
}

fn expect_header(v: View<'_>) -> Result<(), WireError> {
    let (need, have) = (v.required_header(), v.header_size());
    if have >= need { Ok(()) } else { Err(WireError::HeaderSize { need, have }) }
}
