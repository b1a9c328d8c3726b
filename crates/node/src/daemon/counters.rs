//! Counters of a daemon.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::observe::Counters;

/// Reason why an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
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
            Self::System => "system",
            Self::Leaving => "leaving",
        }
    }
}

/// Counts of a daemon since it started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DaemonCounters {
    /// Processes attached now.
    pub attached: usize,
    /// Processes that have attached.
    pub attached_ever: u64,
    /// Attachments that ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// Sockets of processes now.
    pub sockets: usize,
    /// Lanes now; a lane counts until both ends are done with it.
    pub lanes: usize,
    /// Pairs of processes that share memory now.
    pub pairs: usize,
    /// Times that the memory of a lane was malformed.
    pub lanes_corrupt: u64,
    /// Requests answered.
    pub requests: u64,
    /// Counters of the node.
    pub node: Counters,
}

impl DaemonCounters {
    pub(super) fn count_end(&mut self, reason: EndReason) {
        *self.ended.entry(reason.name()).or_default() += 1;
    }
}
