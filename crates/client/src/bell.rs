//! The attachment's doorbell: a page that the daemon shares with this process only. The daemon rings it when notices
//! wait for a reply; threads of this process ring it to wake each other.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use utipc_lanes::{Parked, wait_with};
use utipc_os::Result;
use utipc_os::futex::Woken;
use utipc_os::shm::{Access, Fence, Memory, PAGE, Segment, Watched};

/// Word that changes with each ring.
const SEQ: usize = 0;
/// Word that counts threads asleep.
const SLEEPERS: usize = 4;

/// The doorbell of one attachment.
#[derive(Debug)]
pub(crate) struct Bell {
    page: Segment,
}

/// A thread that is about to sleep: while this value lives, ringing the bell wakes the thread.
pub(crate) struct Sleeper<'a> {
    bell: &'a Bell,
    seen: u32,
}

impl Bell {
    pub(crate) fn open(fd: &OwnedFd) -> Result<Self> {
        Ok(Self { page: Segment::open(fd, Access::ReadWrite, PAGE)? })
    }

    /// Number of rings, modulo 2^32.
    #[inline]
    pub(crate) fn seq(&self) -> u32 {
        self.page.load32(SEQ, Acquire)
    }

    /// Announces that this thread is going to sleep. Check the condition once more before [`Sleeper::sleep`].
    pub(crate) fn park(&self) -> Sleeper<'_> {
        let seen = self.seq();
        self.page.add32(SLEEPERS, 1);
        self.page.fence(Fence::Park);
        Sleeper { bell: self, seen }
    }

    /// Wakes the other threads of this process; returns the number of rings before.
    pub(crate) fn ring(&self) -> u32 {
        let before = self.page.add32(SEQ, 1);
        self.page.fence(Fence::Ring);
        if self.page.load32(SLEEPERS, Relaxed) > 0 {
            self.page.wake32(SEQ);
        }
        before
    }
}

impl Sleeper<'_> {
    /// Sleeps until the bell or one of `others` is rung, at most `limit`; not at all if one was rung already.
    pub(crate) fn sleep(&self, others: &[(&Parked<'_>, u32)], limit: Option<Duration>) -> Result<Woken> {
        let word = Watched { segment: &self.bell.page, at: SEQ, seen: self.seen };
        wait_with(word, others, limit)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.bell.page.add32(SLEEPERS, u32::MAX);
    }
}
