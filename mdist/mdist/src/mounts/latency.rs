//! How long messages stay in the server. Of each mount one is followed at a time, from the read that reads_with_entries it until the
//! socket has taken it: some words for a turn and a mount, whatever the rate.

use super::mount::MountId;
use super::slots::Ticket;
use super::worker::Worker;
use crate::hub::{Batch, Now};
use crate::metrics::LatencyHistogram;

/// A message that is followed.
#[derive(Clone, Copy, Debug)]
struct Followed {
    /// When the read that reads_with_entries it returned.
    read: Now,
    /// Bytes of its mount up to its end.
    end: u64,
}

/// Of one mount.
#[derive(Debug)]
struct One {
    mount: Ticket,
    followed: Option<Followed>,
    /// If it is kept for each mount.
    own: Option<Box<LatencyHistogram>>,
}

/// Of the mounts of one worker.
#[derive(Debug)]
pub(super) struct MountLatencies {
    pub(super) all: LatencyHistogram,
    each: bool,
    /// By place.
    mounts: Vec<Option<One>>,
}

impl MountLatencies {
    /// `each`: for each mount besides all together.
    pub(super) fn new(each: bool) -> Self {
        Self { all: LatencyHistogram::default(), each, mounts: Vec::new() }
    }

    fn place(&mut self, mount: Ticket) -> &mut Option<One> {
        let at = mount.index() as usize;
        if self.mounts.len() <= at {
            self.mounts.resize_with(at + 1, || None);
        }
        &mut self.mounts[at]
    }

    /// What was put out for the mount up to byte `end` came with a read that returned at `read`; of what it has followed
    /// before nothing changes.
    pub(super) fn follow(&mut self, mount: Ticket, read: Now, end: u64) {
        let each = self.each;
        let place = self.place(mount);
        let one = match place {
            Some(one) if one.mount == mount => one,
            _ => place.insert(One { mount, followed: None, own: each.then(Box::default) }),
        };
        one.followed.get_or_insert(Followed { read, end });
    }

    /// The socket has taken the mount's bytes up to `sent`.
    pub(super) fn written(&mut self, mount: Ticket, sent: u64, clock: impl FnOnce() -> Now) {
        let Some(one) = self.mounts.get_mut(mount.index() as usize).and_then(Option::as_mut) else { return };
        if one.mount != mount {
            return;
        }
        let Some(followed) = one.followed.take_if(|followed| followed.end <= sent) else { return };
        let took = clock().saturating_sub(followed.read);
        self.all.record(took);
        if let Some(own) = &mut one.own {
            own.record(took);
        }
    }

    /// Of one mount, if it is kept for each.
    pub(super) fn of(&self, mount: Ticket) -> Option<LatencyHistogram> {
        let one = self.mounts.get(mount.index() as usize)?.as_ref().filter(|one| one.mount == mount);
        self.each.then(|| one.and_then(|one| one.own.as_deref().copied()).unwrap_or_default())
    }
}

impl Worker {
    /// Follows what a batch has put out: for the mounts that are dirty from `from` on.
    #[cold]
    pub(super) fn follow(&mut self, batch: &Batch, from: usize) {
        let (Some(latency), Some(read)) = (&mut self.latency, batch.reads_with_entries().next()) else {
            return;
        };
        for id in self.dirty.get(from..).unwrap_or_default() {
            let (Some(mount), Some(output)) = (self.mounts.get(id.0), self.outputs.get(id.index())) else {
                continue;
            };
            latency.follow(id.0, read.at, mount.tally.bytes_out + output.waiting() as u64);
        }
    }

    /// The mount's socket has just been written to: `clock` tells the time, if somebody wants to know.
    #[inline]
    pub fn written(&mut self, id: MountId, clock: impl FnOnce() -> Now) {
        if let Some(latency) = &mut self.latency
            && let Some(mount) = self.mounts.get(id.0)
        {
            latency.written(id.0, mount.tally.bytes_out, clock);
        }
    }

    /// How long messages stayed here, if that is measured.
    pub fn latency(&self) -> Option<&LatencyHistogram> {
        self.latency.as_ref().map(|latency| &latency.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Now = Now::from_micros;

    #[test]
    fn the_oldest_of_a_mount_is_followed_to_its_last_byte() {
        let mut all = MountLatencies::new(true);
        let mount = Ticket::from_u64(3);
        all.follow(mount, US(100), 50);
        all.follow(mount, US(140), 90);
        all.written(mount, 49, || unreachable!("nothing is over"));
        all.written(mount, 90, || US(160));
        all.written(mount, 90, || unreachable!("nothing is followed"));
        all.follow(mount, US(200), 120);
        all.written(mount, 120, || US(210));
        let own = all.of(mount).unwrap();
        assert_eq!((own.count, own.min_ns, own.max_ns), (2, 10_000, 60_000));
        assert_eq!(all.all, own);
    }

    #[test]
    fn a_new_mount_in_an_old_place_begins_anew() {
        let mut all = MountLatencies::new(true);
        let (old, new) = (Ticket::from_u64(3), Ticket::from_u64(3 | 1 << 32));
        assert_eq!(old.index(), new.index());
        all.follow(old, US(100), 50);
        all.written(new, 70, || unreachable!("it is not its"));
        all.follow(new, US(300), 10);
        all.written(old, 70, || unreachable!("it is gone"));
        all.written(new, 10, || US(301));
        assert_eq!(all.of(new).unwrap().count, 1);
        assert_eq!(all.of(old), Some(LatencyHistogram::default()));
        assert_eq!(MountLatencies::new(false).of(new), None);
    }
}
