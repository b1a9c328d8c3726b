//! Requests of a side to the hub.

use super::ids::{ItemId, SideId, Token};
use rssl::rwf::{Domain, Key, Qos, name_type};
use rssl::wire::to_vec;

/// The identity of an item: requests with equal specs share one item (Spec: rssl.md §2.9).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemSpec {
    /// The hub's own id of the service, as its directory shows it.
    pub service: u16,
    /// The kind of data.
    pub domain: Domain,
    /// Message key without service id and without a name type of 1 (RIC), so that equal items have equal bytes.
    pub key: Box<[u8]>,
    /// Requested quality of service. `None`: the best that the service offers. The hub sets the same value for
    /// requests that mean the same quality.
    pub qos: Option<Qos>,
    /// Whether the stream is private: never shared and never cached.
    pub private: bool,
}

impl ItemSpec {
    /// The item that `key` names in the service with the hub's id `service`; the key's own service id is ignored.
    ///
    /// # Errors
    /// A key that has no encoding (a name or attributes too long).
    pub fn new(
        service: u16,
        domain: Domain,
        key: &Key<'_>,
        qos: Option<Qos>,
        private: bool,
    ) -> rssl::Result<Self> {
        let name_type = key.name_type.filter(|t| *t != name_type::RIC);
        let key = Key { service: None, name_type, ..*key };
        Ok(Self { service, domain, key: to_vec(|w| key.encode(w))?.into(), qos, private })
    }

    /// The item's key with `service` as its service id and with an explicit name type.
    #[must_use]
    pub fn key(&self, service: u16) -> Key<'_> {
        let key = Key::decode(&self.key).unwrap_or_default();
        let name_type = key.name.map(|_| key.effective_name_type());
        Key { service: Some(service), name_type, ..key }
    }
}

/// The stream on which a message is sent upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The stream of an open item.
    Item(ItemId),
    /// The login stream of the upstream that offers this service: for posts off an item's stream.
    Service(u16),
}

/// A request of a side to the hub. Requests of one side are handled in their order.
#[derive(Clone, Debug)]
pub enum HubRequest {
    /// Opens an item.
    ///
    /// Streaming: answered at once by `Kind::Opened` (the token now has an item, and the side one more hold on it) or
    /// by `Kind::Refused`; the image follows as `Kind::Image`, after any number of `Kind::Notice`.
    ///
    /// Snapshot (`streaming` false): answered by `Kind::Image` entries with the state NON_STREAMING, or by
    /// `Kind::Refused`. `Kind::Opened` does not occur, and the side gets no hold.
    Open {
        /// The requesting side.
        side: SideId,
        /// Token of the request, which each answer contains.
        token: Token,
        /// The item.
        spec: ItemSpec,
        /// Worst acceptable quality of service; `None`: only `spec.qos` is acceptable.
        worst_qos: Option<Qos>,
        /// Whether updates follow; otherwise there is one image only.
        streaming: bool,
    },
    /// Requests the image of an item that the side holds, for one more stream, or again for the same one on a reissue.
    /// Answered like a streaming `Open` after its `Kind::Opened`.
    Image {
        /// The requesting side.
        side: SideId,
        /// Token of the request, which the image contains.
        token: Token,
        /// An item that the side holds.
        item: ItemId,
    },
    /// Gives back the side's holds on an item: its last stream of the item has ended. `holds` is the number of
    /// `Kind::Opened` that the side saw for it, so that an `Open` under way keeps the item.
    Close {
        /// The side that gives back its holds.
        side: SideId,
        /// The item.
        item: ItemId,
        /// Number of holds.
        holds: u32,
    },
    /// Sends a post or generic message upstream. The answer (ack, generic) comes back to the token as `Kind::Reply`.
    SendUpstream {
        /// The sending side.
        side: SideId,
        /// Token of the request, which the answer contains.
        token: Token,
        /// The stream on which it is sent.
        to: Target,
        /// The RWF message; the hub replaces stream id, post id and service id.
        message: Vec<u8>,
    },
}

/// A request for an item, as a side makes it.
pub(super) struct OpenRequest {
    pub(super) side: SideId,
    pub(super) token: Token,
    pub(super) spec: ItemSpec,
    pub(super) worst_qos: Option<Qos>,
    pub(super) streaming: bool,
}

impl OpenRequest {
    /// Whether the request cannot wait until the item is published, because it is for one image or a stream of
    /// its own.
    pub(super) fn cannot_wait(&self) -> bool {
        !self.streaming || self.spec.private
    }
}
