//! What a side asks of the hub.

use super::ids::{ItemId, SideId, Token};
use rssl::rwf::{Domain, Key, Qos, name_type};
use rssl::wire::to_vec;

/// What makes two requests the same item (Spec: rssl.md §2.9).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemSpec {
    /// The hub's own id of the service, as its directory shows it.
    pub service: u16,
    /// What kind of data.
    pub domain: Domain,
    /// Message key without service id and without a name type of 1 (RIC), so that equal items have equal bytes.
    pub key: Box<[u8]>,
    /// QoS that was asked for. `None`: the best that the service offers; the hub makes equal what means the same.
    pub qos: Option<Qos>,
    /// A private stream is never shared and never cached.
    pub private: bool,
}

impl ItemSpec {
    /// The item that a message key means in the service with the hub's id `service`; the key's own service id is ignored.
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

    /// The key with `service` as its service id and with the name type said.
    #[must_use]
    pub fn key(&self, service: u16) -> Key<'_> {
        let key = Key::decode(&self.key).unwrap_or_default();
        let name_type = key.name.map(|_| key.effective_name_type());
        Key { service: Some(service), name_type, ..key }
    }
}

/// Where a message towards the source goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// On the stream of an open item.
    Item(ItemId),
    /// On the login stream of whoever offers this service: posts that are not on an item's stream.
    Service(u16),
}

/// Side to hub. The asks of one side are handled in the order in which it made them.
#[derive(Clone, Debug)]
pub enum HubRequest {
    /// Asks for an item.
    ///
    /// Streaming: answered at once by `Kind::Opened` (the token now has an item, and the side one more hold on it) or by
    /// `Kind::Refused`; the image follows as `Kind::Image`, after any number of `Kind::Notice`.
    /// Snapshot (`streaming` false): answered by `Kind::Image` entries with the state NON_STREAMING, or by
    /// `Kind::Refused`; never by `Kind::Opened`, and nothing is held.
    Open {
        /// Who asks.
        side: SideId,
        /// Comes back with every answer.
        token: Token,
        /// The item wanted.
        spec: ItemSpec,
        /// Worst QoS that will do; `None`: only `spec.qos` will do.
        worst_qos: Option<Qos>,
        /// Updates are wanted too, not only an image.
        streaming: bool,
    },
    /// Asks for the image of an item that the side holds, for one more stream (or again for the same, on reissue).
    /// Answered as after `Opened`.
    Image {
        /// Who asks.
        side: SideId,
        /// Comes back with the image.
        token: Token,
        /// An item that the side holds.
        item: ItemId,
    },
    /// The side's last stream of the item has ended. `holds` is how many `Kind::Opened` the side saw for it, so that an
    /// `Open` still on its way keeps the item.
    Close {
        /// Who lets go.
        side: SideId,
        /// Of what.
        item: ItemId,
        /// How many holds it gives back.
        holds: u32,
    },
    /// A post or generic message. The answer (ack, generic) comes back to the token as `Kind::Reply`.
    SendUpstream {
        /// Who sends.
        side: SideId,
        /// Comes back with the answer.
        token: Token,
        /// Where to.
        to: Target,
        /// The RWF message; the hub puts in its own stream id, post id and service id.
        message: Vec<u8>,
    },
}
