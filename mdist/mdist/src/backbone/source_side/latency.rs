//! Latency in the distributor: one message of each upstream at a time is measured, from the read that delivered
//! it until its packet is multicast.

use std::time::Duration;

use super::SourceSide;
use crate::hub::{Batch, Kind, Now, Read, UpstreamId};
use crate::metrics::LatencyHistogram;

/// A message in the open packet of a feed.
#[derive(Debug)]
struct Followed {
    up: UpstreamId,
    read: Now,
    feed: u16,
}

/// Samples the latency of messages.
#[derive(Debug, Default)]
pub(super) struct LatencyProbe {
    all: LatencyHistogram,
    /// Messages being measured; at most one of each upstream.
    followed: Vec<Followed>,
    /// Samples since the last [`SourceSide::measured`].
    measured: Vec<(UpstreamId, Duration)>,
}

impl LatencyProbe {
    fn follow(&mut self, up: UpstreamId, read: Now, feed: u16) {
        if !self.followed.iter().any(|followed| followed.up == up) {
            self.followed.push(Followed { up, read, feed });
        }
    }

    /// Ends the samples in the open packet of a feed, which has been sent.
    pub(super) fn sent(&mut self, feed: u16, clock: impl FnOnce() -> Now) {
        if !self.followed.iter().any(|followed| followed.feed == feed) {
            return;
        }
        let now = clock();
        for sent in self.followed.extract_if(.., |followed| followed.feed == feed) {
            let took = now.saturating_sub(sent.read);
            self.all.record(took);
            self.measured.push((sent.up, took));
        }
    }

    /// Drops open samples: the feeds start again.
    pub(super) fn forget(&mut self) {
        self.followed.clear();
    }
}

impl SourceSide {
    /// Enables latency samples; batches have to stamp their reads ([`Batch::timed`]).
    pub fn measure(&mut self) {
        self.latency.get_or_insert_default();
    }

    /// Latency of messages in this side, if it is measured.
    #[must_use]
    pub fn latency(&self) -> Option<&LatencyHistogram> {
        self.latency.as_ref().map(|latency| &latency.all)
    }

    /// Samples since the last call, with their upstreams.
    pub fn measured(&mut self) -> impl Iterator<Item = (UpstreamId, Duration)> + '_ {
        self.latency.iter_mut().flat_map(|latency| latency.measured.drain(..))
    }

    /// Begins to measure the last message of a read, whose entries have just been put into the feeds.
    #[cold]
    pub(super) fn follow(&mut self, batch: &Batch, read: &Read) {
        let (Some(latency), Some(up)) = (&mut self.latency, read.up) else { return };
        let entries = batch.entries.get(read.entries.0..read.entries.1).unwrap_or_default();
        let last = entries.iter().rev().filter(|entry| entry.kind == Kind::Message).find_map(|entry| {
            let feed = self.items.feed(entry.item);
            self.feeds.out(feed).map(|out| (feed, out))
        });
        let Some((feed, out)) = last else { return };
        if !out.is_empty() {
            latency.follow(up, read.at, feed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_of_each_upstream_is_followed_until_its_packet_is_sent() {
        let mut all = LatencyProbe::default();
        let us = Duration::from_micros;
        all.follow(UpstreamId(1), us(100), 0);
        all.follow(UpstreamId(1), us(150), 0);
        all.follow(UpstreamId(2), us(160), 1);
        all.follow(UpstreamId(3), us(170), 0);
        all.sent(2, || unreachable!("no message in feed 2 is followed"));
        all.sent(0, || us(200));
        assert_eq!(all.measured, [(UpstreamId(1), us(100)), (UpstreamId(3), us(30))]);
        all.sent(0, || unreachable!("the samples of feed 0 have ended"));
        all.sent(1, || us(210));
        assert_eq!((all.all.count, all.all.max_ns, all.all.min_ns), (3, 100_000, 30_000));
        all.follow(UpstreamId(1), us(300), 0);
        all.forget();
        all.sent(0, || unreachable!("the sample was dropped"));
    }
}
