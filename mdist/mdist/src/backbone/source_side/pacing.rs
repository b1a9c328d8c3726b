//! Images are asked of the hub as fast as their sink takes them: what it asks beyond its window waits here.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Reason, SourceSide, WINDOW};
use crate::backbone::SinkId;
use crate::backbone::wire::AnswerKind;

/// Bytes of an image as long as none is known.
const FIRST_GUESS: u64 = 512;
/// Requests of one sink that may wait.
const HELD_MAX: usize = 4 << 20;
/// What was not answered in this time does not count any more: nobody says when it will be.
const FORGET: Duration = Duration::from_secs(1);

/// A request, close, post or generic message of a sink.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) reissue: bool,
    pub(super) in_feed: bool,
    pub(super) message: Vec<u8>,
}

/// One sink's images.
#[derive(Debug)]
pub(super) struct Pace {
    /// What it has asked since its window was full, in order.
    held: VecDeque<Asked>,
    /// Images that the hub owes it.
    owed: u64,
    /// Bytes of an image, as the last ones were.
    size: u64,
    /// When the hub last was asked, or gave one.
    moved: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { held: VecDeque::new(), owed: 0, size: FIRST_GUESS, moved: Instant::now() }
    }
}

impl Pace {
    /// The hub is asked for an image.
    pub(super) fn asked(&mut self) {
        if self.owed == 0 {
            self.moved = Instant::now();
        }
        self.owed += 1;
    }

    /// Something of `len` bytes was said to one of the sink's streams.
    pub(super) fn answered(&mut self, kind: AnswerKind, len: usize) {
        match kind {
            AnswerKind::Complete => self.size = (7 * self.size + len as u64) / 8,
            AnswerKind::Notice | AnswerKind::Refused => {}
            AnswerKind::Opened | AnswerKind::Image | AnswerKind::Reply => return,
        }
        self.owed = self.owed.saturating_sub(1);
        // Of a burst one look at the clock in so many is enough.
        if self.owed.is_multiple_of(64) {
            self.moved = Instant::now();
        }
    }

    /// Whether one more image has room besides those that are queued or owed.
    fn has_room(&self, queued: usize, window: u64) -> bool {
        queued as u64 + self.owed * self.size < window
    }
}

impl SourceSide {
    /// Takes what a sink asks, in order: now, or when its window has room. The error breaks its link.
    pub(super) fn paced(&mut self, id: SinkId, asked: Asked) -> Result<(), String> {
        let (queued, window) = (self.end.queued(id), self.window_of(id));
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        if sink.pace.held.is_empty() && sink.pace.has_room(queued, window) {
            return self.ask(id, asked);
        }
        if sink.pace.held.len() >= HELD_MAX {
            return Err(format!("more than {HELD_MAX} of its requests wait"));
        }
        sink.pace.held.push_back(asked);
        Ok(())
    }

    /// Requests of all sinks that wait for room.
    #[must_use]
    pub fn held(&self) -> usize {
        self.sinks.values().map(|sink| sink.pace.held.len()).sum()
    }

    /// Asks what has waited, as far as there is room now.
    pub(super) fn go_on(&mut self) {
        let waiting: Vec<_> =
            self.sinks.iter().filter(|(_, sink)| !sink.pace.held.is_empty()).map(|(id, _)| *id).collect();
        for id in waiting {
            let (queued, window) = (self.end.queued(id), self.window_of(id));
            if let Some(sink) = self.sinks.get_mut(&id).filter(|sink| sink.pace.moved.elapsed() > FORGET) {
                (sink.pace.owed, sink.pace.moved) = (0, Instant::now());
            }
            while let Some(sink) = self.sinks.get_mut(&id).filter(|sink| sink.pace.has_room(queued, window)) {
                let Some(asked) = sink.pace.held.pop_front() else { break };
                if let Err(why) = self.ask(id, asked) {
                    self.end.hang_up(id);
                    self.lose(id, Reason::Protocol(why));
                }
            }
        }
    }

    /// Bytes of images that may wait on the link of a sink.
    fn window_of(&self, id: SinkId) -> u64 {
        let joined = self.sinks.get(&id).map_or(&[][..], |sink| &sink.joined);
        joined.iter().map(|joined| self.policy_of(joined.feed).window).max().unwrap_or(WINDOW)
    }
}
