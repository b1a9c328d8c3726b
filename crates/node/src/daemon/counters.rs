//! What a daemon counts.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::observe::Counters;

/// Why an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Cut {
    /// The process closed its connection.
    Closed,
    /// The process ended.
    Died,
    /// It connected and did not say who it is in time.
    Silent,
    /// What it sent is no utipc.
    Foreign,
    /// No common version.
    Version,
    /// The policy does not let its user in.
    NotAllowed,
    /// There are as many as there may be.
    TooMany,
    /// What it sent is no request.
    Garbage,
    /// It leaves its replies unread.
    Unread,
    /// The system refused something that it needs.
    System,
    /// The daemon ends.
    Leaving,
}

impl Cut {
    /// Name in the counters.
    pub(in crate::daemon) const fn name(self) -> &'static str {
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

/// What a daemon has seen since it started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DaemonCounters {
    /// Processes attached now.
    pub attached: usize,
    /// Processes that were attached at some time.
    pub attached_ever: u64,
    /// Attachments that ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// Sockets of processes now.
    pub sockets: usize,
    /// Lanes now, until both ends are done with them.
    pub lanes: usize,
    /// Pairs of processes that share memory now.
    pub pairs: usize,
    /// Times that a lane held nonsense.
    pub lanes_corrupt: u64,
    /// Requests answered.
    pub requests: u64,
    /// The node's.
    pub node: Counters,
}

impl DaemonCounters {
    pub(in crate::daemon) fn count_end(&mut self, cut: Cut) {
        *self.ended.entry(cut.name()).or_default() += 1;
    }
}
