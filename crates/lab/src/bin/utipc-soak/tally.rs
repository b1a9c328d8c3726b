//! Counts of a process, reported to the run several times a second, because the process may die at any moment.

use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// Counts since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Messages accepted by the node or a lane.
    pub(crate) sent: u64,
    /// Messages received and valid.
    pub(crate) received: u64,
    /// Bytes of these messages.
    pub(crate) bytes: u64,
    /// Multicasts to at least one destination.
    pub(crate) multicasts: u64,
    /// Connections that were set up, and those that ended before their work was done.
    pub(crate) connections: u64,
    pub(crate) broken: u64,
    /// Connections and messages to services without a binding, or refused.
    pub(crate) refused: u64,
    /// Returned messages: their receiver had died or was full.
    pub(crate) returned: u64,
    /// Requests whose server died before it answered.
    pub(crate) unanswered: u64,
    /// Answers that took more than three seconds.
    pub(crate) late: u64,
    /// Late answers that a repeated receive call returned at once. Many of them suggest lost wake-ups.
    pub(crate) late_at_look: u64,
    /// Missing numbers in flows of datagrams: messages that were returned, or dropped at a full receiver.
    pub(crate) gaps: u64,
    /// Topology events.
    pub(crate) events: u64,
    /// Subscriptions that were repeated because their queue was full.
    pub(crate) resubscribed: u64,
    /// Receives that waited on the descriptor.
    pub(crate) polled: u64,
    /// Violations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) violations: Vec<String>,
}

/// Violations that are kept in full.
const KEPT: usize = 50;

impl Tally {
    /// Adds the counts of another process.
    pub(crate) fn add(&mut self, other: &Tally) {
        let pairs = [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
            (&mut self.bytes, other.bytes),
            (&mut self.multicasts, other.multicasts),
            (&mut self.connections, other.connections),
            (&mut self.broken, other.broken),
            (&mut self.refused, other.refused),
            (&mut self.returned, other.returned),
            (&mut self.unanswered, other.unanswered),
            (&mut self.late, other.late),
            (&mut self.late_at_look, other.late_at_look),
            (&mut self.gaps, other.gaps),
            (&mut self.events, other.events),
            (&mut self.resubscribed, other.resubscribed),
            (&mut self.polled, other.polled),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
        let room = KEPT.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.iter().take(room).cloned());
    }
}

/// The counts of a process, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Tally>);

impl Book {
    pub(crate) fn note(&self, entry: impl FnOnce(&mut Tally)) {
        entry(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Reports a violation at once, because the process may not live long.
    pub(crate) fn violation(&self, what: String) {
        self.note(|tally| tally.violations.push(what));
        self.report();
    }

    /// Reports new counts to the run, as one line.
    pub(crate) fn report(&self) {
        let new = std::mem::take(&mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        if new == Tally::default() {
            return;
        }
        if let Ok(line) = serde_json::to_string(&new) {
            // One write, because many processes share the pipe. If it fails, the run has ended.
            let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
        }
    }
}
