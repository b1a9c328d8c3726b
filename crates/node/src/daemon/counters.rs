//! Counters of a daemon.

use std::collections::BTreeMap;

use serde::Serialize;

use super::turns::TurnCounters;
use crate::capture::CaptureCounters;
use crate::observe::Counters;

/// Counts of a daemon since it started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DaemonCounters {
    /// Release of the daemon.
    pub release: &'static str,
    /// Its process.
    pub pid: u32,
    /// The user that it runs as.
    pub user: u32,
    /// Its start, milliseconds since 1970.
    pub started: u64,
    /// Processes attached now, and those that have ended and whose state is being freed.
    pub attached: usize,
    /// Processes that have attached.
    pub attached_ever: u64,
    /// Attachments that ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// Sockets of processes now.
    pub sockets: usize,
    /// Descriptors of sockets that programs poll now; each costs the daemon a descriptor.
    pub descriptors: usize,
    /// Descriptors that processes have passed and that are not closed yet.
    pub closing: usize,
    /// Lanes now; a lane counts until both ends are done with it.
    pub lanes: usize,
    /// Pairs of processes that share memory now.
    pub pairs: usize,
    /// Times that the memory of a lane was malformed.
    pub lanes_corrupt: u64,
    /// Entries that requests for lists have visited.
    pub list_entries: u64,
    /// Turns of the event loop.
    pub turns: TurnCounters,
    /// Requests answered.
    pub requests: u64,
    /// Bindings that the policy did not allow.
    pub bindings_refused: u64,
    /// Use of each resource that has a quota.
    pub quotas: Vec<QuotaCounters>,
    /// Captures of administrators.
    pub captures: CaptureCounters,
    /// Counters of the node.
    pub node: Counters,
}

/// Use of one resource that has a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaCounters {
    /// The resource.
    pub resource: &'static str,
    /// The limits of all users together, and of one user.
    pub limit: u64,
    #[expect(missing_docs, reason = "described above")]
    pub limit_per_user: u64,
    /// Used now.
    pub used: u64,
    /// Requests refused.
    pub refused: u64,
    /// Use of each user that has used it: its number, used now, refused.
    pub users: Vec<(u32, u64, u64)>,
}

impl QuotaCounters {
    /// The current use of one user.
    #[must_use]
    pub fn used_by(&self, uid: u32) -> u64 {
        self.users.iter().find(|(user, ..)| *user == uid).map_or(0, |(_, used, _)| *used)
    }
}
