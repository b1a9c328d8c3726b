//! How long messages stay in the distributor: of each source server one is followed at a time, from the read that brought
//! it to the packet that takes it away.

use std::time::Duration;

use super::{NONE, SourceSide};
use crate::hub::{Batch, Kind, Now, Read, UpstreamId};
use crate::metrics::LatencyHistogram;

/// A message in the open packet of a feed.
#[derive(Debug)]
struct Followed {
    up: UpstreamId,
    read: Now,
    feed: u16,
}

/// What is measured.
#[derive(Debug, Default)]
pub(super) struct LatencyProbe {
    all: LatencyHistogram,
    /// At most one of each server.
    followed: Vec<Followed>,
    /// Those that were measured since somebody asked.
    measured: Vec<(UpstreamId, Duration)>,
}

impl LatencyProbe {
    fn follow(&mut self, up: UpstreamId, read: Now, feed: u16) {
        if !self.followed.iter().any(|other| other.up == up) {
            self.followed.push(Followed { up, read, feed });
        }
    }

    /// The open packet of a feed has gone.
    pub(super) fn sent(&mut self, feed: u16, clock: impl FnOnce() -> Now) {
        if !self.followed.iter().any(|followed| followed.feed == feed) {
            return;
        }
        let now = clock();
        for gone in self.followed.extract_if(.., |followed| followed.feed == feed) {
            let took = now.saturating_sub(gone.read);
            self.all.record(took);
            self.measured.push((gone.up, took));
        }
    }

    /// The feeds begin anew.
    pub(super) fn forget(&mut self) {
        self.followed.clear();
    }
}

impl SourceSide {
    /// Measures from now on how long messages stay here; batches have to note their reads ([`Batch::timed`]).
    pub fn measure(&mut self) {
        self.latency.get_or_insert_default();
    }

    /// How long messages stayed here, if that is measured.
    #[must_use]
    pub fn latency(&self) -> Option<&LatencyHistogram> {
        self.latency.as_ref().map(|latency| &latency.all)
    }

    /// What was measured since the last call, and of which server.
    pub fn measured(&mut self) -> impl Iterator<Item = (UpstreamId, Duration)> + '_ {
        self.latency.iter_mut().flat_map(|latency| latency.measured.drain(..))
    }

    /// What this read brought has just been put into the feeds: follows the last message of it that went into one.
    #[cold]
    pub(super) fn follow(&mut self, batch: &Batch, read: &Read) {
        let (Some(latency), Some(up)) = (&mut self.latency, read.up) else { return };
        let entries = batch.entries.get(read.entries.0..read.entries.1).unwrap_or_default();
        let last = entries.iter().rev().filter(|entry| entry.kind == Kind::Message).find_map(|entry| {
            let feed = self.feed_of.get(entry.item.index()).copied().unwrap_or(NONE);
            self.feeds.get(usize::from(feed)).map(|out| (feed, out))
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
    fn one_of_each_server_is_followed_until_its_packet_goes() {
        let mut all = LatencyProbe::default();
        let us = Duration::from_micros;
        all.follow(UpstreamId(1), us(100), 0);
        all.follow(UpstreamId(1), us(150), 0);
        all.follow(UpstreamId(2), us(160), 1);
        all.follow(UpstreamId(3), us(170), 0);
        all.sent(2, || unreachable!("nothing of it is followed"));
        all.sent(0, || us(200));
        assert_eq!(all.measured, [(UpstreamId(1), us(100)), (UpstreamId(3), us(30))]);
        all.sent(0, || unreachable!("all of it is gone"));
        all.sent(1, || us(210));
        assert_eq!((all.all.count, all.all.max_ns, all.all.min_ns), (3, 100_000, 30_000));
        all.follow(UpstreamId(1), us(300), 0);
        all.forget();
        all.sent(0, || unreachable!("it is forgotten"));
    }
}
