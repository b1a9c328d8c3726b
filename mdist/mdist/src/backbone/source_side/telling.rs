//! What the hub says, told to the sinks: in the feeds, or by the link of one of them.

use std::ops::Range;

use rssl::rwf::{Class, Refresh, RefreshFlags};

use super::asking::{of_token, token};
use super::{Holders, NONE, SourceSide, Stream};
use crate::backbone::wire::{self, AnswerKind, Entry};
use crate::backbone::{FeedId, Result, SinkId};
use crate::hub::{self, Batch, HubRequest, ItemId, Kind};

impl SourceSide {
    /// Tells the sinks what a batch of the hub says; [`SourceSide::flush`] sends it. Whether services have changed: then
    /// [`SourceSide::directory`] is to be called.
    ///
    /// # Errors
    /// The end is over.
    pub fn apply(&mut self, batch: &Batch) -> Result<bool> {
        self.put_ends()?;
        let (mut services, mut done) = (false, 0);
        for read in batch.reads_with_entries() {
            services |= self.apply_some(batch, done..read.entries.1)?;
            done = read.entries.1;
            self.follow(batch, read);
        }
        services |= self.apply_some(batch, done..batch.entries.len())?;
        Ok(services)
    }

    fn apply_some(&mut self, batch: &Batch, some: Range<usize>) -> Result<bool> {
        let mut services = false;
        for (at, entry) in (some.start..).zip(batch.entries.get(some).unwrap_or_default()) {
            if entry.kind == Kind::Message {
                // The hot path: one table, one copy.
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE && entry.is_for(self.side) {
                    let message = batch.message(entry);
                    if is_status(message) && last_words(batch, at) {
                        continue;
                    }
                    self.put(feed, &Entry::Message(message))?;
                } else if entry.is_for(self.side) {
                    self.private(entry, batch.message(entry));
                }
            } else if entry.is_for(self.side) {
                services |= entry.kind == Kind::Services;
                self.other(batch, at, entry)?;
            }
        }
        Ok(services)
    }

    #[cold]
    fn other(&mut self, batch: &Batch, at: usize, entry: &hub::Entry) -> Result<()> {
        let (id, stream) = of_token(entry.token);
        match entry.kind {
            Kind::Message | Kind::Services => {}
            Kind::Opened => self.opened(id, stream, entry.item),
            Kind::Image => {
                let message = batch.message(entry);
                let complete = Refresh::decode(message)
                    .is_ok_and(|refresh| refresh.flags.contains(RefreshFlags::COMPLETE));
                self.stats.images += 1;
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE && self.in_feed.contains(&entry.token) {
                    if complete {
                        self.in_feed.remove(&entry.token);
                        if let Some(sink) = self.sinks.get_mut(&id) {
                            sink.pace.answered(AnswerKind::Complete, message.len());
                        }
                    }
                    return self.put(feed, &Entry::Image { sink: id.0, stream, complete, message });
                }
                self.answer(
                    if complete { AnswerKind::Complete } else { AnswerKind::Image },
                    id,
                    stream,
                    message,
                );
                let snapshot = self.stream(id, stream).is_some_and(|known| known.item == ItemId::NONE);
                if complete && snapshot {
                    self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
                }
            }
            Kind::Notice => self.answer(AnswerKind::Notice, id, stream, batch.message(entry)),
            Kind::Reply => self.answer(AnswerKind::Reply, id, stream, batch.message(entry)),
            Kind::Refused => {
                self.answer(AnswerKind::Refused, id, stream, batch.message(entry));
                let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.remove(&stream));
                known.into_iter().for_each(|known| self.release(id, stream, known.item));
            }
            Kind::Gone => {
                let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
                if feed != NONE {
                    let before = batch.entries.get(..at).unwrap_or(&[]).iter().rev();
                    let last = before
                        .take_while(|other| other.item == entry.item || other.item == ItemId::NONE)
                        .find(|other| other.kind == Kind::Message)
                        .map_or(&[][..], |other| batch.message(other));
                    let message = if is_status(last) { last } else { &[] };
                    self.put(feed, &Entry::Gone { item: entry.item.stream(), message })?;
                }
                let Some(holders) = self.holders.get_mut(entry.item.index()) else { return Ok(()) };
                for (id, stream) in holders.streams.drain(..) {
                    self.sinks.get_mut(&id).map(|sink| sink.streams.remove(&stream));
                    self.in_feed.remove(&token(id, stream));
                }
                let holds = std::mem::take(&mut holders.holds);
                if let Some(feed) = self.feed_of.get_mut(entry.item.index()) {
                    *feed = NONE;
                }
                if holds > 0 {
                    self.asks.push(HubRequest::Close { side: self.side, item: entry.item, holds });
                }
            }
        }
        Ok(())
    }

    fn stream(&self, id: SinkId, stream: i32) -> Option<Stream> {
        self.sinks.get(&id)?.streams.get(&stream).copied()
    }

    fn opened(&mut self, id: SinkId, stream: i32, item: ItemId) {
        let index = item.index();
        if self.holders.len() <= index {
            self.holders.resize_with(index + 1, Holders::default);
            self.feed_of.resize(index + 1, NONE);
        }
        let Some(holders) = self.holders.get_mut(index) else { return };
        holders.holds += 1;
        let known = self.sinks.get_mut(&id).and_then(|sink| sink.streams.get_mut(&stream));
        let Some(known) = known else {
            // Closed before it was open.
            self.release(id, stream, item);
            return;
        };
        known.item = item;
        holders.streams.push((id, stream));
        if known.private {
            return;
        }
        if let (Some(feed), Some(place)) = (self.services.get(&known.service), self.feed_of.get_mut(index)) {
            *place = *feed;
        }
        self.answer(AnswerKind::Opened, id, stream, &[]);
    }

    /// A message of an item that no feed carries: a private stream's, which nobody else is to see.
    #[cold]
    fn private(&mut self, entry: &hub::Entry, message: &[u8]) {
        let Some(holders) = self.holders.get(entry.item.index()) else { return };
        for (id, stream) in holders.streams.clone() {
            self.answer(AnswerKind::Reply, id, stream, message);
        }
    }

    /// Queues an answer for one stream.
    fn answer(&mut self, kind: AnswerKind, id: SinkId, stream: i32, message: &[u8]) {
        let known = self.stream(id, stream);
        if known.is_none() && kind != AnswerKind::Reply {
            // Closed meanwhile, or ended. Posts that are on no item's stream are answered there.
            return;
        }
        let index = known.and_then(|known| self.services.get(&known.service)).copied().unwrap_or(NONE);
        let feed = self.feeds.get(usize::from(index));
        let (feed, as_of) = feed.map_or((FeedId(0), 0), |feed| (feed.id, feed.number()));
        let item =
            known.filter(|known| known.item != ItemId::NONE && !known.private).map_or(0, |k| k.item.stream());
        self.scratch.clear();
        wire::answer(&mut self.scratch, kind, feed, as_of, stream, item, message);
        self.end.send(id, &self.scratch);
        if let Some(sink) = self.sinks.get_mut(&id) {
            sink.pace.answered(kind, self.scratch.len());
        }
    }
}

fn is_status(message: &[u8]) -> bool {
    message.get(2).is_some_and(|class| class & 0x1F == Class::Status as u8)
}

/// Whether the status at `at` is what the streams of an item that ends are told last: it goes with the word of the end.
#[cold]
fn last_words(batch: &Batch, at: usize) -> bool {
    let Some((status, after)) = batch.entries.get(at..).and_then(<[hub::Entry]>::split_first) else {
        return false;
    };
    after
        .iter()
        .take_while(|entry| entry.item == status.item || entry.item == ItemId::NONE)
        .find(|entry| matches!(entry.kind, Kind::Gone | Kind::Message))
        .is_some_and(|entry| entry.kind == Kind::Gone)
}
