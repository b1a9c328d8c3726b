//! Paces images: requests that exceed a sink's window wait here until its images have gone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Reason, SourceSide, WINDOW};
use crate::backbone::SinkId;
use crate::backbone::wire::AnswerKind;

/// Assumed size of an image before the first one, bytes.
const FIRST_GUESS: u64 = 512;
/// Maximum number of requests of one sink that wait.
const HELD_MAX: usize = 4 << 20;
/// Maximum number of bytes of these requests: a million requests with keys of 100 bytes, twice.
const HELD_BYTES: usize = 256 << 20;
/// Time after which an image that the hub has not sent yet no longer counts against the window, because it may
/// take any time.
const FORGET: Duration = Duration::from_secs(1);

/// A request, close, post or generic message of a sink.
#[derive(Debug)]
pub(super) struct SinkRequest {
    pub(super) reissue: bool,
    pub(super) in_feed: bool,
    pub(super) message: Vec<u8>,
}

/// The pace of one sink's images.
#[derive(Debug)]
pub(super) struct Pace {
    /// Requests that wait for room in the window, in order.
    held: VecDeque<SinkRequest>,
    /// Bytes of their messages.
    held_bytes: usize,
    /// Images requested from the hub and not received yet.
    outstanding: u64,
    /// Moving average of an image's size, bytes.
    size: u64,
    /// Time at which an image was last requested from the hub, or received.
    moved: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            held: VecDeque::new(),
            held_bytes: 0,
            outstanding: 0,
            size: FIRST_GUESS,
            moved: Instant::now(),
        }
    }
}

impl Pace {
    /// Counts an image that is requested from the hub.
    pub(super) fn requested(&mut self) {
        if self.outstanding == 0 {
            self.moved = Instant::now();
        }
        self.outstanding += 1;
    }

    /// Counts an answer of `len` bytes for one of the sink's streams.
    pub(super) fn answered(&mut self, kind: AnswerKind, len: usize) {
        match kind {
            AnswerKind::Complete => self.size = (7 * self.size + len as u64) / 8,
            AnswerKind::Notice | AnswerKind::Refused => {}
            AnswerKind::Opened | AnswerKind::Image | AnswerKind::Reply => return,
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        // In a burst the clock is read once for many images.
        if self.outstanding.is_multiple_of(64) {
            self.moved = Instant::now();
        }
    }

    /// Whether one more image fits into the window, with those that are queued or outstanding.
    fn has_room(&self, queued: usize, window: u64) -> bool {
        queued as u64 + self.outstanding * self.size < window
    }
}

impl SourceSide {
    /// Handles a sink's request now, or when its window has room; in order. The error breaks its connection.
    pub(super) fn pace_request(&mut self, id: SinkId, request: SinkRequest) -> Result<(), String> {
        let (queued, window) = (self.end.queued(id), self.window_of(id));
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        if sink.pace.held.is_empty() && sink.pace.has_room(queued, window) {
            return self.handle_request(id, request);
        }
        if sink.pace.held.len() >= HELD_MAX {
            return Err(format!("more than {HELD_MAX} of its requests wait"));
        }
        if sink.pace.held_bytes + request.message.len() > HELD_BYTES {
            return Err(format!("more than {HELD_BYTES} bytes of its requests wait"));
        }
        sink.pace.held_bytes += request.message.len();
        sink.pace.held.push_back(request);
        Ok(())
    }

    /// Number of requests that wait for room, of all sinks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.sinks.values().map(|sink| sink.pace.held.len()).sum()
    }

    /// Handles waiting requests, as far as their sinks' windows have room.
    pub(super) fn resume_held(&mut self) {
        let waiting: Vec<_> =
            self.sinks.iter().filter(|(_, sink)| !sink.pace.held.is_empty()).map(|(id, _)| *id).collect();
        for id in waiting {
            let (queued, window) = (self.end.queued(id), self.window_of(id));
            if let Some(sink) = self.sinks.get_mut(&id).filter(|sink| sink.pace.moved.elapsed() > FORGET) {
                (sink.pace.outstanding, sink.pace.moved) = (0, Instant::now());
            }
            while let Some(sink) = self.sinks.get_mut(&id).filter(|sink| sink.pace.has_room(queued, window)) {
                let Some(request) = sink.pace.held.pop_front() else { break };
                sink.pace.held_bytes -= request.message.len();
                if let Err(why) = self.handle_request(id, request) {
                    self.end.disconnect(id);
                    self.remove_sink(id, Reason::Protocol(why));
                }
            }
        }
    }

    /// Bytes of images that may wait on the connection of a sink.
    fn window_of(&self, id: SinkId) -> u64 {
        let joined = self.sinks.get(&id).map_or(&[][..], |sink| &sink.joined);
        joined.iter().map(|joined| self.feeds.policy_of(joined.feed).window).max().unwrap_or(WINDOW)
    }
}
