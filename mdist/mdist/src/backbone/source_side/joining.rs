//! Sinks join feeds, leave them, and are lost.

use super::{Farewell, Joined, Reason, SourceSide};
use crate::backbone::wire::{Entry, Record};
use crate::backbone::{Result, SinkId};

impl SourceSide {
    /// Lets those join who listen.
    pub(super) fn joins(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        for (id, sink) in &mut self.sinks {
            let Some(reader) = sink.reader else { continue };
            sink.wanted.retain(|feed| {
                let listens = self
                    .feeds
                    .get(usize::from(*feed))
                    .is_some_and(|feed| self.listening.contains(&(reader, feed.id)));
                if listens {
                    ready.push((*id, *feed));
                }
                !listens
            });
        }
        for (id, feed) in ready {
            // Everything before the sink's first entry has left.
            self.seal(feed)?;
            let (Some(out), Some(sink)) = (self.feeds.get(usize::from(feed)), self.sinks.get_mut(&id)) else {
                continue;
            };
            let (number, position) = (out.number(), out.position());
            sink.joined.push(Joined { feed, credited: position });
            if let Some(used) = self.used.get_mut(usize::from(feed)) {
                *used += 1;
            }
            let (epoch, feed_id) = (sink.epoch, out.id);
            let window = self.policy_of(feed).window;
            let joined = Record::Joined { epoch, feed: feed_id, number, position, window };
            self.end.send(id, &joined.encode());
        }
        Ok(())
    }

    /// A sink leaves a feed, or all of them and everything it has open.
    pub(super) fn leave(&mut self, id: SinkId, feed: Option<u16>) {
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        for joined in &sink.joined {
            if feed.is_none_or(|feed| feed == joined.feed) {
                let index = usize::from(joined.feed);
                if let (Some(used), Some(out)) = (self.used.get_mut(index), self.feeds.get(index)) {
                    *used -= 1;
                    let unread = out.position().saturating_sub(joined.credited);
                    sink.in_flight = sink.in_flight.saturating_sub(unread);
                }
            }
        }
        sink.joined.retain(|joined| feed.is_some_and(|feed| feed != joined.feed));
        if feed.is_none() {
            sink.wanted.clear();
            let streams = std::mem::take(&mut sink.streams);
            for (stream, known) in streams {
                self.release(id, stream, known.item);
            }
        }
    }

    /// A sink that does not leave by itself: whatever it still reads, it must not take what comes for the items that were
    /// its own.
    pub(super) fn leave_at_once(&mut self, id: SinkId) {
        if let Some(sink) = self.sinks.get(&id) {
            self.ends.extend(sink.joined.iter().map(|joined| (joined.feed, id)));
        }
        self.leave(id, None);
    }

    /// Puts the ends of sinks into the feeds, before anything that was asked of the hub after them.
    pub(super) fn put_ends(&mut self) -> Result<()> {
        while let Some((feed, id)) = self.ends.pop() {
            self.put_always(feed, &Entry::Cut { sink: id.0 })?;
        }
        Ok(())
    }

    pub(super) fn lose(&mut self, id: SinkId, why: Reason) {
        self.leave_at_once(id);
        if let Some(sink) = self.sinks.remove(&id) {
            self.stats.left += 1;
            tracing::info!("{id} ({}) has left: {why}", sink.name);
            self.farewells.push(Farewell { sink: id, name: sink.name, reason: why });
        }
    }
}
