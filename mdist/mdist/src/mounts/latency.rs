//! Latency of messages in the server.
//!
//! For each mount one message at a time is measured, from the read that delivered it until the mount's socket
//! has accepted it. So the cost per turn and mount does not depend on the rate.

use super::mount::MountId;
use super::slots::Ticket;
use super::worker::Worker;
use crate::hub::{Batch, Now};
use crate::metrics::LatencyHistogram;

/// A message whose latency is being measured.
#[derive(Clone, Copy, Debug)]
struct Followed {
    /// Time when the read that delivered it returned.
    read: Now,
    /// Bytes sent to its mount, up to and including this message.
    end: u64,
}

/// Latency of one mount.
#[derive(Debug)]
struct One {
    mount: Ticket,
    followed: Option<Followed>,
    /// Its latency, if each mount is measured.
    own: Option<Box<LatencyHistogram>>,
}

/// Latencies of the mounts of one worker.
#[derive(Debug)]
pub(super) struct MountLatencies {
    pub(super) all: LatencyHistogram,
    each: bool,
    /// By index of the mount.
    mounts: Vec<Option<One>>,
}

impl MountLatencies {
    /// Measures all mounts together and, if `each`, also every mount by itself.
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

    /// Begins to measure the message whose last byte is byte `end` of the mount, and which was delivered by a
    /// read that returned at `read`. No effect if another message of the mount is being measured.
    pub(super) fn follow(&mut self, mount: Ticket, read: Now, end: u64) {
        let each = self.each;
        let place = self.place(mount);
        let one = match place {
            Some(one) if one.mount == mount => one,
            _ => place.insert(One { mount, followed: None, own: each.then(Box::default) }),
        };
        one.followed.get_or_insert(Followed { read, end });
    }

    /// Records that the socket has accepted the mount's bytes up to `sent`.
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

    /// The latency of one mount; `None` if single mounts are not measured.
    pub(super) fn of(&self, mount: Ticket) -> Option<LatencyHistogram> {
        let one = self.mounts.get(mount.index() as usize)?.as_ref().filter(|one| one.mount == mount);
        self.each.then(|| one.and_then(|one| one.own.as_deref().copied()).unwrap_or_default())
    }
}

impl Worker {
    /// Begins to measure messages of a batch, for the dirty mounts from number `from` on.
    #[cold]
    pub(super) fn follow(&mut self, batch: &Batch, from: usize) {
        let (Some(latency), Some(read)) = (&mut self.latency, batch.reads_with_entries().next()) else {
            return;
        };
        for id in self.outputs.dirty().get(from..).unwrap_or_default() {
            let (Some(mount), Some(output)) = (self.mounts.get(id.0), self.outputs.get(id.0)) else {
                continue;
            };
            latency.follow(id.0, read.at, mount.tally.bytes_out + output.waiting() as u64);
        }
    }

    /// Records that the mount's socket was written to. `clock` is read only if latency is measured.
    #[inline]
    pub fn written(&mut self, id: MountId, clock: impl FnOnce() -> Now) {
        if let Some(latency) = &mut self.latency
            && let Some(mount) = self.mounts.get(id.0)
        {
            latency.written(id.0, mount.tally.bytes_out, clock);
        }
    }

    /// Latency of messages in the server, if it is measured.
    pub fn latency(&self) -> Option<&LatencyHistogram> {
        self.latency.as_ref().map(|latency| &latency.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Now = Now::from_micros;

    #[test]
    fn oldest_message_of_a_mount_is_followed_to_its_last_byte() {
        let mut all = MountLatencies::new(true);
        let mount = Ticket::from_u64(3);
        all.follow(mount, US(100), 50);
        all.follow(mount, US(140), 90);
        all.written(mount, 49, || unreachable!("the message is not written whole"));
        all.written(mount, 90, || US(160));
        all.written(mount, 90, || unreachable!("no message is followed"));
        all.follow(mount, US(200), 120);
        all.written(mount, 120, || US(210));
        let own = all.of(mount).unwrap();
        assert_eq!((own.count, own.min_ns, own.max_ns), (2, 10_000, 60_000));
        assert_eq!(all.all, own);
    }

    #[test]
    fn reused_index_starts_without_latency() {
        let mut all = MountLatencies::new(true);
        let (old, new) = (Ticket::from_u64(3), Ticket::from_u64(3 | 1 << 32));
        assert_eq!(old.index(), new.index());
        all.follow(old, US(100), 50);
        all.written(new, 70, || unreachable!("another mount follows it"));
        all.follow(new, US(300), 10);
        all.written(old, 70, || unreachable!("the mount is gone"));
        all.written(new, 10, || US(301));
        assert_eq!(all.of(new).unwrap().count, 1);
        assert_eq!(all.of(old), Some(LatencyHistogram::default()));
        assert_eq!(MountLatencies::new(false).of(new), None);
    }
}
