//! Operations of a connection that take time: a request without a reply, an end that waits for congestion to clear.

use crate::time::Time;
use crate::wire::{ErrorCode, Message};

/// A connection request on its way.
#[derive(Debug)]
pub(super) struct Request {
    /// A copy, for another attempt.
    pub(super) syn: Message,
    /// When to give up.
    pub(super) deadline: Time,
    /// When to try again, if it was refused for lack of room.
    pub(super) retry_at: Option<Time>,
}

impl Request {
    /// When the endpoint has to act: repeat the request, or give up.
    pub(super) fn due(&self) -> Time {
        self.retry_at.unwrap_or(self.deadline).min(self.deadline)
    }
}

/// An end that waits for congestion to clear, so that it does not overtake data.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) code: ErrorCode,
    pub(super) deadline: Time,
}
