//! Packs entries into packets and multicasts each as soon as every sink has room, or after the hold.

use std::time::{Duration, Instant};

use super::{Farewell, Policy, Reason, Sink, SourceSide};
use crate::backbone::feed_out::FeedOut;
use crate::backbone::meter::unread;
use crate::backbone::wire::{Entry, Record};
use crate::backbone::{FeedId, Result, SinkId};
use crate::net::now;

impl SourceSide {
    /// Appends an entry to a feed, if a sink has joined it.
    #[inline]
    pub(super) fn put(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        if self.members.get(usize::from(feed)).is_none_or(|members| *members == 0) {
            return Ok(());
        }
        self.put_always(feed, entry)
    }

    /// Appends an entry to a feed.
    #[inline]
    pub(super) fn put_always(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        let index = usize::from(feed);
        let size = entry.size();
        let Some(out) = self.feeds.get_mut(index) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        self.seal(feed)?;
        let Some(out) = self.feeds.get_mut(index) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        for packet in out.parts(entry) {
            self.stats.entries += 1;
            self.multicast(feed, packet.len(), |side, id| side.end.multicast(id, &packet))?;
        }
        Ok(())
    }

    /// Sends the entries that [`SourceSide::apply`] has collected, except packets that may wait for more. Feeds
    /// go first, so that images are seldom ahead of them.
    ///
    /// # Errors
    /// A packet is longer than the backbone carries.
    pub fn flush(&mut self) -> Result<()> {
        self.put_cuts()?;
        for feed in 0..self.feeds.len() {
            if !self.may_wait(feed as u16) {
                self.seal(feed as u16)?;
            }
        }
        self.end.flush();
        self.resume_held();
        Ok(())
    }

    /// Sends the open packet of a feed.
    pub(super) fn seal(&mut self, feed: u16) -> Result<()> {
        let Some(out) = self.feeds.get(usize::from(feed)).filter(|out| !out.is_empty()) else {
            return Ok(());
        };
        self.stats.entries += u64::from(out.waiting());
        self.multicast(feed, out.len(), |side, id| match side.feeds.get_mut(usize::from(feed)) {
            Some(out) => {
                let sent = side.end.multicast(id, out.seal());
                out.begin();
                sent
            }
            None => Ok(()),
        })?;
        if let Some(latency) = &mut self.latency {
            latency.sent(feed, now);
        }
        Ok(())
    }

    /// Whether the open packet of a feed may wait for more entries.
    pub(super) fn may_wait(&mut self, feed: u16) -> bool {
        let flush = self.policy_of(feed).flush;
        if flush.is_zero() {
            return false;
        }
        self.feeds.get_mut(usize::from(feed)).is_some_and(|out| out.may_wait(Instant::now(), flush))
    }

    /// Time at which a waiting packet is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.feeds.iter().filter_map(FeedOut::due).min()
    }

    /// Sends a packet of `len` bytes as soon as every sink has room for it. Disconnects the sinks that have
    /// none after the hold from their feeds.
    pub(super) fn multicast(
        &mut self,
        feed: u16,
        len: usize,
        send: impl FnOnce(&mut Self, FeedId) -> Result<()>,
    ) -> Result<()> {
        let len = len as u64;
        let policy = self.policy_of(feed);
        let window = unread(policy.window);
        if self.sinks.values().any(|sink| sink.in_flight + len > window / 2) {
            self.wait_for_room(feed, len, window, policy.hold)?;
        }
        let Some(id) = self.feeds.get(usize::from(feed)).map(|out| out.id) else { return Ok(()) };
        send(self, id)?;
        self.stats.packets += 1;
        self.stats.bytes += len;
        for sink in self.sinks.values_mut() {
            if sink.joined.iter().any(|joined| joined.feed == feed) {
                sink.in_flight += len;
            }
        }
        Ok(())
    }

    /// The policy of a feed.
    pub(super) fn policy_of(&self, feed: u16) -> Policy {
        self.feed_policies.get(usize::from(feed)).copied().unwrap_or(self.policy)
    }

    /// Waits at most `hold` until all sinks of a feed have room, then disconnects those that have none from
    /// their feeds.
    fn wait_for_room(&mut self, feed: u16, len: u64, window: u64, hold: Duration) -> Result<()> {
        self.read_credits(Duration::ZERO)?;
        let mut start = None;
        loop {
            let full = |sink: &Sink| {
                sink.in_flight + len > window && sink.joined.iter().any(|joined| joined.feed == feed)
            };
            if !self.sinks.values().any(full) {
                return Ok(());
            }
            let now = Instant::now();
            let since = *start.get_or_insert_with(|| {
                self.stats.waits += 1;
                now
            });
            let Some(left) = hold.checked_sub(now - since).filter(|left| !left.is_zero()) else {
                let late: Vec<_> =
                    self.sinks.iter().filter(|(_, sink)| full(sink)).map(|(id, _)| *id).collect();
                late.into_iter().for_each(|id| self.cut(id, hold));
                return Ok(());
            };
            self.read_credits(left)?;
        }
    }

    /// Handles credits; waits at most `wait` for the first.
    fn read_credits(&mut self, wait: Duration) -> Result<()> {
        let mut credits = std::mem::take(&mut self.credits);
        self.end.credits(wait, &mut credits)?;
        let now = Instant::now();
        for credit in credits.drain(..) {
            let Some(feed) = self.feeds.iter().position(|feed| feed.id == credit.feed) else { continue };
            let sink = self.sinks.values_mut().find(|sink| sink.reader == Some(credit.reader));
            let (Some(sink), Some(out)) = (sink, self.feeds.get(feed)) else { continue };
            let Some(joined) = sink.joined.iter_mut().find(|joined| usize::from(joined.feed) == feed) else {
                continue;
            };
            // Ignore old credits, and positions that were not sent yet.
            if credit.position > joined.credited && credit.position <= out.position() {
                sink.in_flight = sink.in_flight.saturating_sub(credit.position - joined.credited);
                joined.credited = credit.position;
                sink.credited_at = now;
            }
        }
        self.credits = credits;
        Ok(())
    }

    pub(super) fn cut(&mut self, id: SinkId, hold: Duration) {
        let Some(sink) = self.sinks.get(&id) else { return };
        let ms = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
        let reason = Reason::Behind { unread: sink.in_flight, ms };
        let why = reason.to_string();
        tracing::warn!("{id} ({}) is disconnected from its feeds: {why}", sink.name);
        self.stats.cuts += 1;
        let epoch = sink.epoch;
        self.farewells.push(Farewell { sink: id, name: sink.name.clone(), reason });
        self.leave_with_cut(id);
        self.end.send(id, &Record::Cut { epoch, why }.encode());
    }
}
