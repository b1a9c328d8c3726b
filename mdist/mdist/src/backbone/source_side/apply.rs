//! Applies the hub's log: messages for all streams of an item go into the feed, messages for one stream to its sink.

use std::ops::Range;

use rssl::rwf::{Class, Refresh, RefreshFlags};

use super::requests::{split_token, token};
use super::{Holders, NONE, SourceSide, Stream};
use crate::backbone::wire::{self, AnswerKind, Entry};
use crate::backbone::{FeedId, Result, SinkId};
use crate::hub::{self, Batch, HubRequest, ItemId, Kind};

impl SourceSide {
    /// Applies the hub's log of a turn; [`SourceSide::flush`] sends the result. Returns whether services have changed:
    /// then call [`SourceSide::directory`].
    ///
    /// # Errors
    /// An entry is longer than the backbone carries.
    pub fn apply(&mut self, batch: &Batch) -> Result<bool> {
        self.put_cuts()?;
        let (mut services, mut done) = (false, 0);
        for read in batch.reads_with_entries() {
            services |= self.apply_range(batch, done..read.entries.1)?;
            done = read.entries.1;
            self.follow(batch, read);
        }
        services |= self.apply_range(batch, done..batch.entries.len())?;
        Ok(services)
    }

    fn apply_range(&mut self, batch: &Batch, range: Range<usize>) -> Result<bool> {
        let mut services = false;
        for (at, entry) in (range.start..).zip(batch.entries.get(range).unwrap_or_default()) {
            if matches!(entry.kind, Kind::Message | Kind::Covered) {
                // This is the hot path: one table look-up, one copy.
                let feed = self.items.feed(entry.item);
                if feed != NONE && entry.is_for(self.side) {
                    let message = batch.message(entry);
                    if is_status(message) {
                        if is_final_status(batch, at) {
                            continue;
                        }
                        self.cover(feed, if entry.kind == Kind::Covered { entry.token } else { 0 })?;
                    }
                    self.put(feed, &Entry::Message(message))?;
                } else if entry.is_for(self.side) {
                    self.answer_private(entry, batch.message(entry));
                }
            } else if entry.is_for(self.side) {
                if entry.kind == Kind::Services {
                    services = true;
                    batch.directory(entry).map_or(Ok(()), |directory| self.states_changed(directory))?;
                }
                self.apply_control(batch, at, entry)?;
            }
        }
        Ok(services)
    }

    /// Applies an entry that is not a message for all streams of an item.
    #[cold]
    fn apply_control(&mut self, batch: &Batch, at: usize, entry: &hub::Entry) -> Result<()> {
        let (id, stream) = split_token(entry.token);
        match entry.kind {
            Kind::Message | Kind::Covered | Kind::Services => {}
            Kind::Announced => self.announced(batch, at)?,
            Kind::AnnouncementEnd => self.announcement_ended(entry.token)?,
            Kind::Opened => self.opened(id, stream, entry.item),
            Kind::Image => self.image(id, stream, entry, batch.message(entry))?,
            Kind::Notice => self.answer(AnswerKind::Notice, id, stream, batch.message(entry)),
            Kind::Reply => self.answer(AnswerKind::Reply, id, stream, batch.message(entry)),
            Kind::Refused => {
                self.answer(AnswerKind::Refused, id, stream, batch.message(entry));
                let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.remove(&stream));
                known.into_iter().for_each(|known| self.release(id, stream, known.item));
            }
            Kind::Gone => self.gone(batch, at, entry)?,
        }
        Ok(())
    }

    /// Sends a part of an image to its stream, or puts it into the feed if the sink has requested that.
    fn image(&mut self, id: SinkId, stream: i32, entry: &hub::Entry, message: &[u8]) -> Result<()> {
        let complete =
            Refresh::decode(message).is_ok_and(|refresh| refresh.flags.contains(RefreshFlags::COMPLETE));
        self.stats.images += 1;
        let feed = self.items.feed(entry.item);
        if feed != NONE && self.in_feed.contains(&entry.token) {
            if complete {
                self.in_feed.remove(&entry.token);
                if let Some(sink) = self.sinks.get_mut(&id) {
                    sink.pace.answered(AnswerKind::Complete, message.len());
                }
            }
            return self.put(feed, &Entry::Image { sink: id.0, stream, complete, message });
        }
        let kind = if complete { AnswerKind::Complete } else { AnswerKind::Image };
        self.answer(kind, id, stream, message);
        let snapshot = self.stream(id, stream).is_some_and(|known| known.item == ItemId::NONE);
        if complete && snapshot {
            self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
        }
        Ok(())
    }

    /// Ends an item: puts the end into the feed, with the item's final status, and removes the streams on it.
    fn gone(&mut self, batch: &Batch, at: usize, entry: &hub::Entry) -> Result<()> {
        let feed = self.items.feed(entry.item);
        if feed != NONE {
            let before = batch.entries.get(..at).unwrap_or(&[]).iter().rev();
            let last = before
                .take_while(|earlier| earlier.item == entry.item || earlier.item == ItemId::NONE)
                .find(|earlier| earlier.kind == Kind::Message)
                .map_or(&[][..], |earlier| batch.message(earlier));
            let message = if is_status(last) { last } else { &[] };
            self.cover(feed, 0)?;
            self.put(feed, &Entry::Gone { item: entry.item.stream(), message })?;
        }
        let Some(holders) = self.items.holders.get_mut(entry.item.index()) else { return Ok(()) };
        for (id, stream) in holders.streams.drain(..) {
            self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
            self.in_feed.remove(&token(id, stream));
        }
        let holds = std::mem::take(&mut holders.holds);
        self.items.leave_feed(entry.item);
        if holds > 0 {
            self.hub_requests.push(HubRequest::Close { side: self.side, item: entry.item, holds });
        }
        Ok(())
    }

    fn stream(&self, id: SinkId, stream: i32) -> Option<Stream> {
        self.sinks.get(&id)?.streams.get(&stream).copied()
    }

    fn opened(&mut self, id: SinkId, stream: i32, item: ItemId) {
        let index = item.index();
        if self.items.holders.len() <= index {
            self.items.holders.resize_with(index + 1, Holders::default);
            self.items.feed.resize(index + 1, NONE);
        }
        let Some(holders) = self.items.holders.get_mut(index) else { return };
        holders.holds += 1;
        let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.get_mut(&stream));
        let Some(known) = known else {
            // The sink closed the stream before the hub opened it.
            self.release(id, stream, item);
            return;
        };
        known.item = item;
        holders.streams.push((id, stream));
        if known.private {
            return;
        }
        if let (Some(feed), Some(place)) =
            (self.feeds.of_service(known.service), self.items.feed.get_mut(index))
        {
            *place = feed;
        }
        self.answer(AnswerKind::Opened, id, stream, &[]);
    }

    /// Sends a message of a private stream's item, which no feed carries, to the streams that hold it.
    #[cold]
    fn answer_private(&mut self, entry: &hub::Entry, message: &[u8]) {
        let Some(holders) = self.items.holders.get(entry.item.index()) else { return };
        for (id, stream) in holders.streams.clone() {
            self.answer(AnswerKind::Reply, id, stream, message);
        }
    }

    /// Queues an answer for one stream.
    fn answer(&mut self, kind: AnswerKind, id: SinkId, stream: i32, message: &[u8]) {
        let known = self.stream(id, stream);
        if known.is_none() && kind != AnswerKind::Reply {
            // The stream has been closed or has ended. Replies are sent anyway: posts need no item stream.
            return;
        }
        let feed = known.and_then(|known| self.feeds.out(self.feeds.of_service(known.service)?));
        let (feed, as_of) = feed.map_or((FeedId(0), 0), |feed| (feed.id, feed.number()));
        let item =
            known.filter(|known| known.item != ItemId::NONE && !known.private).map_or(0, |k| k.item.stream());
        let record = &mut self.memory.answer;
        record.clear();
        wire::answer(record, kind, feed, as_of, stream, item, message);
        self.end.send(id, record);
        if let Some(sink) = self.sinks.get_mut(&id) {
            sink.pace.answered(kind, record.len());
        }
    }
}

fn is_status(message: &[u8]) -> bool {
    message.get(2).is_some_and(|class| class & 0x1F == Class::Status as u8)
}

/// Whether the status at `at` is the last message before the end of its item: then [`Entry::Gone`] carries it.
#[cold]
fn is_final_status(batch: &Batch, at: usize) -> bool {
    let Some((status, after)) = batch.entries.get(at..).and_then(<[hub::Entry]>::split_first) else {
        return false;
    };
    after
        .iter()
        .take_while(|entry| entry.item == status.item || entry.item == ItemId::NONE)
        .find(|entry| matches!(entry.kind, Kind::Gone | Kind::Message))
        .is_some_and(|entry| entry.kind == Kind::Gone)
}
