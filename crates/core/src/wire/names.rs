//! NAME_DISTRIBUTOR: publications of a node, sent to another. Spec: tipc.md §3.7.

use super::{Envelope, Message, User, View};
use crate::addr::{Binding, ServiceRange};
use crate::error::WireError;

/// Size of one binding in a message, bytes.
pub const NAME_ITEM_LEN: usize = 20;

/// One publication in a message; its node is the origin of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameItem {
    /// The bound range; on the wire its ends may be out of order.
    pub range: ServiceRange,
    /// Port of the socket.
    pub port: u32,
    /// Key of the binding.
    pub key: u32,
}

impl NameItem {
    /// Encodes the item.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NAME_ITEM_LEN] {
        let words = [self.range.service, self.range.lower, self.range.upper, self.port, self.key];
        let mut bytes = [0; NAME_ITEM_LEN];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Decodes an item.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; NAME_ITEM_LEN]) -> Self {
        let mut words = bytes.chunks_exact(4).map(|c| c.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)));
        let mut next = || words.next().unwrap_or(0);
        let range = ServiceRange::new(next(), next(), next());
        Self { range, port: next(), key: next() }
    }

    /// The items of a name message; trailing bytes that are not a whole item are ignored.
    pub fn all(message: View<'_>) -> impl Iterator<Item = NameItem> + '_ {
        message.payload().as_chunks::<NAME_ITEM_LEN>().0.iter().map(Self::from_bytes)
    }
}

impl From<&Binding> for NameItem {
    fn from(b: &Binding) -> Self {
        Self { range: b.range, port: b.port.port, key: b.key }
    }
}

/// A NAME_DISTRIBUTOR message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameUpdate {
    /// Bindings are withdrawn, not published.
    pub withdrawal: bool,
    /// Part of the bulk that is sent on contact.
    pub bulk: bool,
    /// Last message of the bulk.
    pub last_bulk: bool,
    /// The update is numbered; old nodes do not number them.
    pub numbered: bool,
    /// Number of the update; in the last message of the bulk, the number of the next update.
    pub number: u16,
    /// The broadcast ack is not valid yet.
    pub ack_invalid: bool,
    /// The bindings.
    pub items: Vec<NameItem>,
}

impl NameUpdate {
    /// Reads a NAME_DISTRIBUTOR message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        super::expect_user(v, User::NameDistributor)?;
        super::expect_header(v)?;
        if v.kind() > 1 {
            return Err(WireError::Type { user: User::NameDistributor.into(), kind: v.kind() });
        }
        Ok(Self {
            withdrawal: v.kind() == 1,
            bulk: v.name_bulk(),
            last_bulk: v.name_last_bulk(),
            numbered: v.name_numbered(),
            number: v.name_seqno(),
            ack_invalid: v.bcast_ack_invalid(),
            items: NameItem::all(v).collect(),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let items: Vec<u8> = self.items.iter().flat_map(|item| item.to_bytes()).collect();
        let mut m = envelope.message(User::NameDistributor, u8::from(self.withdrawal), &items);
        m.set_name_bulk(self.bulk);
        m.set_name_last_bulk(self.last_bulk);
        m.set_name_numbered(self.numbered);
        m.set_name_seqno(self.number);
        m.set_bcast_ack_invalid(self.ack_invalid);
        m
    }
}
