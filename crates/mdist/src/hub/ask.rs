//! What a side asks of the hub.

use super::ids::{ItemId, SideId, Token};

/// What makes two requests the same item (Spec: rssl.md §2.9).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemSpec {
    /// The hub's own id of the service, as its directory shows it.
    pub service: u16,
    /// RWF domain number.
    pub domain: u8,
    /// Message key without service id and without a name type of 1 (RIC), so that equal items have equal bytes.
    pub key: Box<[u8]>,
    /// QoS that was asked for, as on the wire and padded with zeros. `None`: whatever the service offers first.
    pub qos: Option<[u8; 5]>,
    /// A private stream is never shared and never cached.
    pub private: bool,
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
pub enum Ask {
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
        /// Worst QoS that will do, as on the wire; `None`: only `spec.qos` will do.
        worst_qos: Option<[u8; 5]>,
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
    Up {
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
