//! Counts of consumers.

use std::time::Duration;

use utipc_bench_kit::counts;
use utipc_bench_kit::stats::LatencyRecorder;

counts! {
    /// Counts of one mount or of all mounts.
    pub struct Counts {
        /// Updates.
        updates,
        /// Images and parts of images.
        refreshes,
        /// Statuses of items.
        statuses,
        /// Bytes read.
        bytes,
        /// Updates with a stamp.
        stamps,
        /// Gaps in the sequence of an item's updates.
        gaps,
        /// Updates missing in those gaps.
        lost,
        /// Updates that are repeated or late.
        backwards,
        /// Updates before the image.
        early,
        /// Messages on streams that are not open.
        unknown,
        /// Payloads that could not be decoded.
        undecodable,
        /// Fields decoded.
        fields,
        /// Transitions of an item to suspect.
        suspect,
        /// Items refused or closed for good.
        closed,
        /// Items closed that may be requested again.
        closed_recover,
        /// Reports that the service is down or gone.
        service_downs,
        /// Item requests.
        requests,
        /// Logins accepted.
        logins,
        /// Bytes of dictionaries.
        dictionary_bytes,
        /// Posts sent.
        posts,
        /// Posts that came back as updates.
        posts_back,
        /// Posts acknowledged.
        acks,
        /// Posts refused.
        naks,
        /// Generic messages sent.
        generics_sent,
        /// Generic messages received.
        generics,
        /// Connections that ended or failed.
        cuts,
    }
}

impl Counts {
    /// Whether nothing is missing and no connection ended.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.gaps
            + self.backwards
            + self.early
            + self.unknown
            + self.undecodable
            + self.suspect
            + self.closed
            + self.closed_recover
            + self.cuts
            == 0
    }
}

/// The state of all mounts at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counts of all mounts together.
    pub counts: Counts,
    /// Updates of each mount.
    pub mounts: Vec<u64>,
    /// Item streams that all mounts open.
    pub wanted: u64,
    /// Item streams that have an image and are not suspect.
    pub loaded: u64,
    /// Time from the start until all item streams were loaded first; `None` before.
    pub startup: Option<Duration>,
    /// Latency of updates since the last [`Consumer::mark`](super::Consumer::mark).
    pub latency: LatencyRecorder,
    /// Round trip of posts.
    pub post_latency: LatencyRecorder,
    /// Round trip of generic messages.
    pub generic_latency: LatencyRecorder,
}
