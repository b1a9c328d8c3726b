//! Operations of a connection that are in progress: a request without a reply, an end delayed by congestion.

use crate::time::Time;
use crate::wire::{ErrorCode, Message};

/// A connection request in progress.
#[derive(Debug)]
pub(super) struct Request {
    /// Copy of the request, for retries.
    pub(super) syn: Message,
    /// Time at which the request times out.
    pub(super) deadline: Time,
    /// Time of the next attempt, if the request was refused for lack of room.
    pub(super) retry_at: Option<Time>,
}

impl Request {
    /// Time at which the request must be repeated or times out.
    pub(super) fn due(&self) -> Time {
        self.retry_at.unwrap_or(self.deadline).min(self.deadline)
    }
}

/// The end of a connection, delayed until congestion clears so that it does not overtake data.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) code: ErrorCode,
    /// The socket is closed as well.
    pub(super) closes_socket: bool,
    pub(super) deadline: Time,
}
