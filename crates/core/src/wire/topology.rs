//! Subscriptions and events as bytes, in either byte order. Spec: tipc.md §10.1.

use crate::addr::{NodeAddr, PortId, ServiceRange};
use crate::error::WireError;

/// Size of a subscription, bytes.
pub const SUBSCRIPTION_LEN: usize = 28;
/// Size of an event, bytes.
pub const EVENT_LEN: usize = 48;
/// Timeout value for "never".
pub const FOREVER: u32 = u32::MAX;

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The byte order of this machine, which clients use.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    /// The other order.
    #[must_use]
    pub const fn swapped(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }

    /// Decodes a number.
    #[must_use]
    pub const fn read(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Encodes a number.
    #[must_use]
    pub const fn write(self, n: u32) -> [u8; 4] {
        match self {
            Self::Little => n.to_le_bytes(),
            Self::Big => n.to_be_bytes(),
        }
    }
}

/// Options of a subscription: a set of bits. Spec: tipc.md §10.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter(pub u32);

impl Filter {
    /// An event for every binding published or withdrawn.
    pub const PORTS: Filter = Filter(1);
    /// Events for the first and the last binding of each range only.
    pub const SERVICE: Filter = Filter(2);
    /// Cancels the subscription whose other fields are the same.
    pub const CANCEL: Filter = Filter(4);
    /// Excludes bindings of node scope.
    pub const CLUSTER_SCOPE: Filter = Filter(0x20);
    /// Includes only bindings of node scope.
    pub const NODE_SCOPE: Filter = Filter(0x40);
    /// Only changes, no events for existing bindings.
    pub const NO_INITIAL_STATE: Filter = Filter(0x80);

    /// Bits from which a server recognises the byte order.
    pub(crate) const ORDER_MARK: Filter = Filter(7);

    /// True if any bit of `other` is set.
    #[must_use]
    pub const fn has(self, other: Filter) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both filters.
    #[must_use]
    pub const fn with(self, other: Filter) -> Filter {
        Filter(self.0 | other.0)
    }

    /// The bits of this filter without those of `other`.
    #[must_use]
    pub const fn without(self, other: Filter) -> Filter {
        Filter(self.0 & !other.0)
    }
}

/// A request for events about a service range. Spec: tipc.md §10.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Range to watch.
    pub range: ServiceRange,
    /// Milliseconds until the subscription times out, or [`FOREVER`].
    pub timeout_ms: u32,
    /// Kinds of events wanted.
    pub filter: Filter,
    /// Chosen by the subscriber; returned in each event.
    pub handle: [u8; 8],
}

impl Subscription {
    /// Encodes the subscription in the given byte order.
    #[must_use]
    pub fn to_bytes(&self, order: ByteOrder) -> [u8; SUBSCRIPTION_LEN] {
        let ServiceRange { service, lower, upper } = self.range;
        let words = [service, lower, upper, self.timeout_ms, self.filter.0].map(|w| order.write(w));
        let mut bytes = [0; SUBSCRIPTION_LEN];
        for (to, from) in bytes.iter_mut().zip(words.iter().flatten().chain(&self.handle)) {
            *to = *from;
        }
        bytes
    }

    /// Decodes a subscription in the given byte order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SUBSCRIPTION_LEN], order: ByteOrder) -> Self {
        let [service, lower, upper, timeout_ms, filter] = words(bytes, order);
        let mut handle = [0; 8];
        for (to, from) in handle.iter_mut().zip(bytes.iter().skip(20)) {
            *to = *from;
        }
        let range = ServiceRange::new(service, lower, upper);
        Self { range, timeout_ms, filter: Filter(filter), handle }
    }
}

/// The first `N` numbers in `bytes`; missing numbers are 0.
fn words<const N: usize>(bytes: &[u8], order: ByteOrder) -> [u32; N] {
    let mut chunks = bytes.as_chunks::<4>().0.iter();
    [(); N].map(|()| chunks.next().map_or(0, |c| order.read(*c)))
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A binding was published, or exists.
    Published,
    /// A binding was withdrawn.
    Withdrawn,
    /// The subscription has timed out.
    Timeout,
}

impl EventKind {
    const fn code(self) -> u32 {
        match self {
            Self::Published => 1,
            Self::Withdrawn => 2,
            Self::Timeout => 3,
        }
    }
}

/// An event for a subscriber. Spec: tipc.md §10.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyEvent {
    /// Kind.
    pub kind: EventKind,
    /// The range of the binding; in a timeout, the subscribed range.
    pub found: ServiceRange,
    /// The bound socket; zero in a timeout.
    pub port: PortId,
    /// The subscription that the event belongs to.
    pub subscription: Subscription,
}

impl TopologyEvent {
    /// Encodes the event in the given byte order.
    #[must_use]
    pub fn to_bytes(&self, order: ByteOrder) -> [u8; EVENT_LEN] {
        let subscription = self.subscription.to_bytes(order);
        encode_event(self.kind, self.found, self.port, &subscription, order)
    }

    /// Decodes an event that a server sent for a subscription in `order`.
    ///
    /// # Errors
    /// [`WireError`] if the size is not 48 bytes or the kind is unknown.
    pub fn from_bytes(bytes: &[u8], order: ByteOrder) -> Result<Self, WireError> {
        let bytes: &[u8; EVENT_LEN] =
            bytes.try_into().map_err(|_| WireError::Truncated { need: EVENT_LEN, have: bytes.len() })?;
        let [kind, lower, upper, port, node] = words(bytes, order);
        let kind = [EventKind::Published, EventKind::Withdrawn, EventKind::Timeout]
            .into_iter()
            .find(|k| k.code() == kind)
            .ok_or(WireError::Malformed("topology event: unknown kind"))?;
        let mut subscription = [0; SUBSCRIPTION_LEN];
        for (to, from) in subscription.iter_mut().zip(bytes.iter().skip(20)) {
            *to = *from;
        }
        let subscription = Subscription::from_bytes(&subscription, order);
        let found = ServiceRange::new(subscription.range.service, lower, upper);
        Ok(Self { kind, found, port: PortId { port, node: NodeAddr(node) }, subscription })
    }
}

/// Encodes an event; the subscription is copied byte for byte.
pub(crate) fn encode_event(
    kind: EventKind,
    found: ServiceRange,
    port: PortId,
    subscription: &[u8; SUBSCRIPTION_LEN],
    order: ByteOrder,
) -> [u8; EVENT_LEN] {
    let words = [kind.code(), found.lower, found.upper, port.port, port.node.0].map(|w| order.write(w));
    let mut bytes = [0; EVENT_LEN];
    for (to, from) in bytes.iter_mut().zip(words.iter().flatten().chain(subscription)) {
        *to = *from;
    }
    bytes
}
