//! Why attachments end, and how many have.

use std::collections::BTreeMap;

/// Reason why an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The process closed its connection.
    Closed,
    /// The process ended.
    Died,
    /// The process connected and did not complete the handshake in time.
    Silent,
    /// Its first packet is not a handshake of utipc.
    Foreign,
    /// No common version.
    Version,
    /// The policy does not allow its user to attach.
    NotAllowed,
    /// A limit of attachments is reached.
    TooMany,
    /// The process sent a malformed request.
    Garbage,
    /// The process does not read its replies.
    Unread,
    /// Too many descriptors that processes of its user have passed are not closed yet, because their close blocks.
    Unclosed,
    /// The system refused a resource that it needs.
    System,
    /// The daemon stops.
    Leaving,
}

impl EndReason {
    /// Name in the counters.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Died => "died",
            Self::Silent => "silent",
            Self::Foreign => "foreign",
            Self::Version => "version",
            Self::NotAllowed => "not-allowed",
            Self::TooMany => "too-many",
            Self::Garbage => "garbage",
            Self::Unread => "unread-replies",
            Self::Unclosed => "unclosed-descriptors",
            Self::System => "system",
            Self::Leaving => "leaving",
        }
    }
}

/// Counts of attachments since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) attached_ever: u64,
    /// By [`EndReason::name`].
    pub(crate) ended: BTreeMap<&'static str, u64>,
    /// Requests answered.
    pub(crate) answered: u64,
}

impl Tally {
    pub(super) fn end(&mut self, reason: EndReason) {
        *self.ended.entry(reason.name()).or_default() += 1;
    }
}
