//! Counts of a process, reported to the run several times a second, because the process may die at any moment.

use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use utipc_bench_kit::counts;

counts! {
    /// What processes have done.
    pub(crate) struct Sums {
        /// Messages accepted by the node or a lane.
        sent,
        /// Messages received and valid.
        received,
        /// Bytes of these messages.
        bytes,
        /// Multicasts to at least one destination.
        multicasts,
        /// Connections that were set up, and those that ended before their work was done.
        connections,
        broken,
        /// Connections and messages to services without a binding, or refused.
        refused,
        /// Returned messages: their receiver had died or was full.
        returned,
        /// Requests whose server died before it answered.
        unanswered,
        /// Answers that took more than three seconds.
        late,
        /// Late answers that a repeated receive call returned at once. Many of them suggest lost wake-ups.
        late_at_look,
        /// Missing numbers in flows of datagrams: messages that were returned, or dropped at a full receiver.
        gaps,
        /// Topology events.
        events,
        /// Subscriptions that were repeated because their queue was full.
        resubscribed,
        /// Receives that waited on the descriptor.
        polled,
    }
}

/// Counts since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    #[serde(flatten)]
    pub(crate) sums: Sums,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) violations: Vec<String>,
}

/// Violations that are kept in full.
const KEPT: usize = 50;

impl Tally {
    /// Adds the counts of another process.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.sums.add(&other.sums);
        let room = KEPT.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.iter().take(room).cloned());
    }
}

/// The counts of a process, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Tally>);

impl Book {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn note(&self, entry: impl FnOnce(&mut Sums)) {
        entry(&mut self.tally().sums);
    }

    /// Reports a violation at once, because the process may not live long.
    pub(crate) fn violation(&self, what: String) {
        self.tally().violations.push(what);
        self.report();
    }

    /// Reports new counts to the run, as one line.
    pub(crate) fn report(&self) {
        let new = std::mem::take(&mut *self.tally());
        if new == Tally::default() {
            return;
        }
        if let Ok(line) = serde_json::to_string(&new) {
            // One write, because many processes share the pipe. If it fails, the run has ended.
            let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
        }
    }
}
