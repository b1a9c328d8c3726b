//! The policy by which a mount gets its messages, chosen at its login.
//!
//! A policy decides how messages are queued, and what happens if the mount's output has no space for the next one. So
//! that it may replace a queued message by a later one of the same item, each message comes with its [`Subject`].

use super::slow_consumer::Overflow;

/// A policy of delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Every message, in order. A mount that does not read fast enough is disconnected.
    #[default]
    Ordered,
}

/// What becomes of a mount whose output has no space for its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is a slow consumer, and is disconnected with this reason.
    Disconnect(Overflow),
}

impl Delivery {
    /// Decides about a mount whose output has no space for its next message.
    pub(crate) fn overflowed(self, overflow: Overflow) -> Verdict {
        match self {
            Self::Ordered => Verdict::Disconnect(overflow),
        }
    }
}

/// What the bytes that are queued for a mount are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The transport: bytes of the handshake, or a ping. They are not a message.
    Transport,
    /// A stream of the consumer, which tells the item: a mount has each item on one stream, apart from private ones.
    Stream(i32),
}
