//! Membership of sinks in feeds.

use super::{Farewell, Joined, Reason, SourceSide};
use crate::backbone::wire::{Entry, Record};
use crate::backbone::{Result, SinkId};

/// Streams of sinks that have left that are closed in a turn, each in less than 1 µs.
const RELEASED: usize = 2048;

impl SourceSide {
    /// Admits sinks to the feeds that they have asked to join, once the backbone shows them as listeners.
    pub(super) fn admit_listeners(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        for (id, sink) in &mut self.sinks {
            let Some(reader) = sink.reader else { continue };
            sink.wanted.retain(|feed| {
                let listens =
                    self.feeds.out(*feed).is_some_and(|feed| self.listening.contains(&(reader, feed.id)));
                if listens {
                    ready.push((*id, *feed));
                }
                !listens
            });
        }
        for (id, feed) in ready {
            // The sink's first entry begins a packet.
            self.seal(feed)?;
            let window = self.feeds.policy_of(feed).window;
            let (Some(known), Some(sink)) = (self.feeds.get_mut(feed), self.sinks.get_mut(&id)) else {
                continue;
            };
            known.members += 1;
            let (number, position) = (known.out.number(), known.out.position());
            sink.joined.push(Joined { feed, credited: position, sent: position, next: None });
            let (epoch, feed_id) = (sink.epoch, known.out.id);
            let joined = Record::Joined { epoch, feed: feed_id, number, position, window };
            self.end.send(id, &joined.encode());
        }
        Ok(())
    }

    /// Removes a sink from a feed; with `None` from all feeds, and closes its streams.
    pub(super) fn leave(&mut self, id: SinkId, feed: Option<u16>) {
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        for joined in &sink.joined {
            if feed.is_none_or(|feed| feed == joined.feed)
                && let Some(known) = self.feeds.get_mut(joined.feed)
            {
                known.members -= 1;
                sink.in_flight = sink.in_flight.saturating_sub(joined.sent - joined.credited);
            }
        }
        sink.joined.retain(|joined| feed.is_some_and(|feed| feed != joined.feed));
        self.trim_backlogs();
        let Some(sink) = self.sinks.get_mut(&id).filter(|_| feed.is_none()) else { return };
        sink.wanted.clear();
        let streams = std::mem::take(&mut sink.streams);
        self.released.push_back((id, streams.into_iter()));
        self.release_some();
    }

    /// Closes some of the streams of sinks that have left. The others stay in the feeds meanwhile; the sink, if it is
    /// back, uses other numbers.
    pub(super) fn release_some(&mut self) {
        let mut left = RELEASED;
        while left > 0
            && let Some((id, mut streams)) = self.released.pop_front()
        {
            for (stream, known) in streams.by_ref().take(left) {
                left -= 1;
                self.release(id, stream, known.item);
            }
            if streams.len() > 0 {
                self.released.push_front((id, streams));
            }
        }
    }

    /// Whether streams of sinks that have left are still to be closed.
    #[must_use]
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Removes a sink from all feeds although it may still read them. An entry `Cut` in each feed tells it to
    /// ignore later entries, whose stream ids may mean other items.
    pub(super) fn leave_with_cut(&mut self, id: SinkId) {
        if let Some(sink) = self.sinks.get(&id) {
            self.pending_cuts.extend(sink.joined.iter().map(|joined| (joined.feed, id)));
        }
        self.leave(id, None);
    }

    /// Puts pending entries `Cut` into the feeds, before the results of later requests to the hub.
    pub(super) fn put_cuts(&mut self) -> Result<()> {
        while let Some((feed, id)) = self.pending_cuts.pop() {
            self.put_always(feed, &Entry::Cut { sink: id.0 })?;
        }
        Ok(())
    }

    /// Removes a sink whose connection has ended.
    pub(super) fn remove_sink(&mut self, id: SinkId, why: Reason) {
        self.leave_with_cut(id);
        if let Some(sink) = self.sinks.remove(&id) {
            self.stats.left += 1;
            tracing::info!("{id} ({}) has left: {why}", sink.name);
            self.farewells.push(Farewell { sink: id, name: sink.name, reason: why });
        }
    }
}
