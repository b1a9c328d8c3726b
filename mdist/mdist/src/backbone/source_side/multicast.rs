//! Packs entries into packets and multicasts each to the sinks that have room.

use std::time::{Duration, Instant};

use super::catching_up::PATIENCE;
use super::{Farewell, Reason, Sink, SourceSide};
use crate::backbone::meter::unread;
use crate::backbone::wire::{Entry, Record};
use crate::backbone::{Result, SinkId};
use crate::net::now;

impl SourceSide {
    /// Appends an entry to a feed, if a sink has joined it.
    #[inline]
    pub(super) fn put(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        if self.feeds.get(feed).is_none_or(|feed| feed.members == 0) {
            return Ok(());
        }
        self.put_always(feed, entry)
    }

    /// Appends an entry to a feed.
    #[inline]
    pub(super) fn put_always(&mut self, feed: u16, entry: &Entry<'_>) -> Result<()> {
        let size = entry.size();
        let Some(out) = self.feeds.out_mut(feed) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        self.seal(feed)?;
        let Some(out) = self.feeds.out_mut(feed) else { return Ok(()) };
        if out.fits(size) {
            out.push(entry);
            return Ok(());
        }
        for mut packet in out.parts(entry) {
            self.stats.messages += 1;
            self.multicast(feed, &mut packet)?;
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
        self.release_some();
        for feed in 0..self.feeds.len() {
            if !self.may_wait(feed as u16) {
                self.seal(feed as u16)?;
            }
        }
        self.catch_up()?;
        self.end.flush();
        self.resume_held();
        Ok(())
    }

    /// Sends the open packet of a feed.
    pub(super) fn seal(&mut self, feed: u16) -> Result<()> {
        let Some(out) = self.feeds.out_mut(feed).filter(|out| !out.is_empty()) else { return Ok(()) };
        self.stats.messages += u64::from(out.waiting());
        let mut packet = out.seal();
        let sent = self.multicast(feed, &mut packet);
        if let Some(out) = self.feeds.out_mut(feed) {
            out.begin(packet);
        }
        sent?;
        if let Some(latency) = &mut self.latency {
            latency.sent(feed, now);
        }
        Ok(())
    }

    /// Whether the open packet of a feed may wait for more entries.
    pub(super) fn may_wait(&mut self, feed: u16) -> bool {
        let flush = self.feeds.policy_of(feed).flush;
        if flush.is_zero() {
            return false;
        }
        self.feeds.out_mut(feed).is_some_and(|out| out.may_wait(Instant::now(), flush))
    }

    /// Time at which [`SourceSide::flush`] is due, for a waiting packet or for sinks that are behind.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.feeds.iter().filter_map(|(_, feed)| feed.out.due()).chain(self.look_at()).min()
    }

    /// Sends a packet to the sinks of a feed. One that has no room for it gets it later, from the backlog; without
    /// memory for one the packet waits for room at all sinks, at most for the hold.
    pub(super) fn multicast(&mut self, feed: u16, packet: &mut [u8]) -> Result<()> {
        let len = packet.len() as u64;
        let policy = self.feeds.policy_of(feed);
        let window = unread(policy.window);
        if self.feeds.kept() > 0 || self.sinks.values().any(|sink| sink.in_flight + len > window / 2) {
            self.wait_for_room(feed, len, window, policy.hold)?;
        }
        let Some(id) = self.feeds.out(feed).map(|out| out.id) else { return Ok(()) };
        let behind = self.has_behind(feed);
        self.mark_if_unordered(feed, behind, packet);
        if behind {
            self.feeds.keep(feed, packet);
        } else {
            self.end.multicast(id, packet)?;
        }
        self.stats.packets += 1;
        self.stats.bytes += len;
        for sink in self.sinks.values_mut() {
            let joined = sink.joined.iter_mut().find(|joined| joined.feed == feed);
            let Some(joined) = joined.filter(|joined| joined.next.is_none()) else { continue };
            if let Some(reader) = sink.reader.filter(|_| behind) {
                self.end.unicast(reader, packet)?;
            }
            sink.in_flight += len;
            joined.sent += len;
        }
        Ok(())
    }

    /// Waits until all sinks of a feed that are not behind have room: a short time, then those without room are behind;
    /// without memory for that at most `hold`, then they are disconnected from their feeds. Finally waits for room in
    /// the backlog if the packet needs it.
    fn wait_for_room(&mut self, feed: u16, len: u64, window: u64, hold: Duration) -> Result<()> {
        self.read_credits(Duration::ZERO)?;
        self.send_kept()?;
        let allows_behind = self.feeds.stall() > 0;
        let limit = if allows_behind { hold.min(PATIENCE) } else { hold };
        let full = |sink: &Sink| {
            sink.in_flight + len > window && sink.joined(feed).is_some_and(|joined| joined.next.is_none())
        };
        let mut start = None;
        loop {
            // Another feed has waited for a sink that is behind there.
            let awaited = |sink: &Sink| full(sink) && !(allows_behind && sink.is_behind());
            if !self.sinks.values().any(awaited) {
                break;
            }
            let now = Instant::now();
            let since = *start.get_or_insert_with(|| {
                self.stats.waits += 1;
                now
            });
            let Some(left) = limit.checked_sub(now - since).filter(|left| !left.is_zero()) else { break };
            self.read_credits(left)?;
            self.send_kept()?;
        }
        let late: Vec<_> = self.sinks.iter().filter(|(_, sink)| full(sink)).map(|(id, _)| *id).collect();
        for id in late {
            if allows_behind {
                self.fall_behind(id, feed);
            } else {
                self.cut(id);
            }
        }
        if self.has_behind(feed) { self.make_room(len, hold) } else { Ok(()) }
    }

    /// Handles credits; waits at most `wait` for the first.
    pub(super) fn read_credits(&mut self, wait: Duration) -> Result<()> {
        let mut credits = std::mem::take(&mut self.memory.credits);
        self.end.credits(wait, &mut credits)?;
        let now = Instant::now();
        for credit in credits.drain(..) {
            let Some(feed) = self.feeds.index(credit.feed) else { continue };
            let sink = self.sinks.values_mut().find(|sink| sink.reader == Some(credit.reader));
            let Some(sink) = sink else {
                self.stats.foreign += 1;
                continue;
            };
            let Some(joined) = sink.joined.iter_mut().find(|joined| joined.feed == feed) else { continue };
            // Ignore old credits, and positions that were not sent yet.
            if credit.position > joined.credited && credit.position <= joined.sent {
                sink.in_flight = sink.in_flight.saturating_sub(credit.position - joined.credited);
                joined.credited = credit.position;
                (sink.credited_at, sink.progressed) = (now, now);
            }
        }
        self.memory.credits = credits;
        Ok(())
    }

    /// Disconnects a sink that is too slow from its feeds.
    pub(super) fn cut(&mut self, id: SinkId) {
        let Some(sink) = self.sinks.get(&id) else { return };
        let ms = u64::try_from(sink.progressed.elapsed().as_millis()).unwrap_or(u64::MAX);
        let reason = Reason::Behind { unread: sink.in_flight + self.unsent(sink), ms };
        let why = reason.to_string();
        tracing::warn!("{id} ({}) is disconnected from its feeds: {why}", sink.name);
        self.stats.cuts += 1;
        let epoch = sink.epoch;
        self.farewells.push(Farewell { sink: id, name: sink.name.clone(), reason });
        self.leave_with_cut(id);
        self.end.send(id, &Record::Cut { epoch, why }.encode());
    }
}
