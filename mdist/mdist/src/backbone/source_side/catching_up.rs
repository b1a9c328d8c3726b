//! Sinks that are behind: they have as many unread bytes as they may have, and get what follows from a backlog when
//! they read again. The other sinks of a feed do not wait for them.
//!
//! A sink is behind in a feed from the packet on for which it has no room. While a feed has such a sink, each of its
//! packets is kept, and sent to its other sinks one by one instead of by multicast. Where unicasts and multicasts take
//! different paths ([`SourceEnd::keeps_order`]) they are marked, and the sinks restore their order.
//!
//! [`SourceEnd::keeps_order`]: crate::backbone::SourceEnd::keeps_order

use std::time::{Duration, Instant};

use super::feed_table::Feed;
use super::{Sink, SourceSide};
use crate::backbone::feed_out::FeedOut;
use crate::backbone::meter::unread;
use crate::backbone::wire::mark_unordered;
use crate::backbone::{Result, SinkId};

/// Default of [`SourceSide::set_stall`], bytes: a stall of 1 s at 200,000 updates of 100 bytes per second, three times.
pub const STALL: usize = 64 << 20;
/// Time that a feed waits for a sink with a full window before the sink is behind. A sink that reads has room within
/// this time, and one that reads more slowly than the source sends slows the source down instead of falling behind.
pub(super) const PATIENCE: Duration = Duration::from_millis(2);
/// Longest time per turn that the source gives to sinks that catch up. Without it a source that sends as fast as they
/// read would keep them behind.
const CATCH_UP: Duration = Duration::from_millis(1);
/// Time since its last credit for which a sink counts as reading.
const READING: Duration = Duration::from_millis(5);
/// Time after the last unicast for which a multicast may overtake it: a sink takes a packet for lost after as long.
const UNORDERED: Duration = Duration::from_secs(2);
/// Interval between two looks for credits while all sinks that are behind have stalled and nothing is sent.
const LOOK: Duration = Duration::from_millis(10);

impl Sink {
    /// Whether it is behind in a feed.
    pub(super) fn is_behind(&self) -> bool {
        self.joined.iter().any(|joined| joined.next.is_some())
    }

    /// Whether it is behind and reads.
    fn catches_up(&self, now: Instant) -> bool {
        self.is_behind() && now.saturating_duration_since(self.progressed) < READING
    }
}

impl SourceSide {
    /// Sets the memory for packets that stalled sinks have not been sent yet, bytes, shared by all feeds; 0: feeds wait
    /// for stalled sinks, at most for their hold.
    pub fn set_stall(&mut self, bytes: usize) {
        self.feeds.set_stall(bytes);
    }

    /// Bytes kept for sinks that are behind.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.feeds.kept()
    }

    /// Number of sinks that are behind.
    #[must_use]
    pub fn behind(&self) -> usize {
        self.sinks.values().filter(|sink| sink.is_behind()).count()
    }

    /// Whether a sink is behind in this feed.
    pub(super) fn has_behind(&self, feed: u16) -> bool {
        let behind = |sink: &Sink| sink.joined(feed).is_some_and(|joined| joined.next.is_some());
        self.sinks.values().any(behind)
    }

    /// Marks a packet if it may overtake earlier ones of its feed. `behind`: whether a sink is behind in it.
    pub(super) fn mark_if_unordered(&mut self, feed: u16, behind: bool, packet: &mut [u8]) {
        let Some(Feed { out, backlog, .. }) = self.feeds.get_mut(feed) else { return };
        if !behind && backlog.unordered_until.is_none() {
            return;
        }
        let now = Instant::now();
        if behind && !self.end.keeps_order(out.id) {
            backlog.unordered_until = Some(now + UNORDERED);
        }
        backlog.unordered_until = backlog.unordered_until.filter(|until| now < *until);
        if backlog.unordered_until.is_some() {
            mark_unordered(packet);
        }
    }

    /// Lets a sink be behind in a feed, from the next packet on.
    pub(super) fn fall_behind(&mut self, id: SinkId, feed: u16) {
        let Some(end) = self.feeds.get(feed).map(|feed| feed.backlog.end()) else { return };
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        if !sink.is_behind() {
            self.stats.stalls += 1;
            sink.progressed = Instant::now();
        }
        if let Some(joined) = sink.joined.iter_mut().find(|joined| joined.feed == feed) {
            joined.next.get_or_insert(end);
        }
    }

    /// Sends kept packets to the sinks that are behind, as far as they have room.
    pub(super) fn send_kept(&mut self) -> Result<()> {
        if self.feeds.kept() == 0 {
            return Ok(());
        }
        for sink in self.sinks.values_mut() {
            let Some(reader) = sink.reader else { continue };
            for joined in &mut sink.joined {
                let Some(mut next) = joined.next else { continue };
                let policy = self.feeds.policy_of(joined.feed);
                let backlog = self.feeds.get(joined.feed).map(|feed| &feed.backlog);
                let Some(backlog) = backlog.filter(|backlog| next < backlog.end()) else { continue };
                while let Some(packet) = backlog.get(next) {
                    let len = packet.len() as u64;
                    if sink.in_flight + len > unread(policy.window) {
                        break;
                    }
                    self.end.unicast(reader, packet)?;
                    sink.in_flight += len;
                    joined.sent += len;
                    self.stats.late_packets += 1;
                    next += 1;
                }
                joined.next = (next < backlog.end()).then_some(next);
            }
        }
        self.trim_backlogs();
        Ok(())
    }

    /// Frees the packets that no sink waits for.
    pub(super) fn trim_backlogs(&mut self) {
        let Self { feeds, sinks, .. } = self;
        feeds.trim(|feed| sinks.values().filter_map(|sink| sink.joined(feed)?.next).min());
    }

    /// Makes room for a packet of `len` bytes in the backlog: waits at most `hold` for sinks that still read, and
    /// disconnects those that do not from their feeds.
    pub(super) fn make_room(&mut self, len: u64, hold: Duration) -> Result<()> {
        let start = Instant::now();
        while self.feeds.kept() as u64 + len > self.feeds.stall() as u64 {
            let now = Instant::now();
            let silent = |sink: &Sink| sink.is_behind() && now - sink.progressed >= hold;
            let mut late: Vec<_> =
                self.sinks.iter().filter(|(_, sink)| silent(sink)).map(|(id, _)| *id).collect();
            let left = hold.saturating_sub(now - start);
            if late.is_empty() && left.is_zero() {
                late.extend(self.furthest_behind());
            }
            if late.is_empty() {
                self.read_credits(left)?;
                self.send_kept()?;
                continue;
            }
            late.into_iter().for_each(|id| self.cut(id));
            self.trim_backlogs();
            if self.feeds.kept() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The sink with the most bytes to be sent.
    fn furthest_behind(&self) -> Option<SinkId> {
        let sinks = self.sinks.iter().filter(|(_, sink)| sink.is_behind());
        sinks.max_by_key(|(_, sink)| self.unsent(sink)).map(|(id, _)| *id)
    }

    /// Bytes that a sink has not been sent because it is behind.
    pub(super) fn unsent(&self, sink: &Sink) -> u64 {
        let behind = sink.joined.iter().filter(|joined| joined.next.is_some());
        let position = |feed: u16| self.feeds.out(feed).map_or(0, FeedOut::position);
        behind.map(|joined| position(joined.feed).saturating_sub(joined.sent)).sum()
    }

    /// Continues to send to sinks that are behind, and waits a short time for those that read.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        if self.feeds.kept() == 0 {
            return Ok(());
        }
        self.read_credits(Duration::ZERO)?;
        self.send_kept()?;
        let now = Instant::now();
        if self.sinks.values().any(|sink| sink.catches_up(now)) {
            self.read_credits(CATCH_UP)?;
            self.send_kept()?;
        }
        Ok(())
    }

    /// Time of the next look for credits of sinks that are behind: their credits do not wake the source.
    pub(super) fn look_at(&self) -> Option<Instant> {
        if self.feeds.kept() == 0 {
            return None;
        }
        let now = Instant::now();
        let catches_up = self.sinks.values().any(|sink| sink.catches_up(now));
        Some(now + if catches_up { CATCH_UP } else { LOOK })
    }
}
