//! The attachment's doorbell: a page that the daemon shares with this process only. The daemon rings it when notices
//! wait for a reply; threads of this process ring it to wake each other.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use utipc_lanes::{Parked, wait_with};
use utipc_os::Result;
use utipc_os::futex::Woken;
use utipc_os::reentry::Gap;
use utipc_os::shm::{Access, Fence, Memory, PAGE, Segment, Watched};

/// Word that changes with each ring.
const SEQ: usize = 0;
/// Word that counts threads asleep.
const SLEEPERS: usize = 4;
/// Word with the number of the request that the daemon has begun last; the handshake is 1.
const BEGUN: usize = 8;
/// Word with the number of the cancelled request, or 0.
const CANCELLED: usize = 12;

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

    /// Cancels the request with this number. False if the daemon has begun it: its reply comes.
    pub(crate) fn cancel(&self, number: u32) -> bool {
        self.page.store32(CANCELLED, number, Release);
        self.page.fence(Fence::Cancel);
        let begun = self.page.load32(BEGUN, Acquire);
        let cancelled = begun != number;
        if !cancelled {
            self.forget_cancelled();
        }
        cancelled
    }

    /// No request is cancelled any more.
    pub(crate) fn forget_cancelled(&self) {
        self.page.store32(CANCELLED, 0, Release);
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
        let _gap = Gap::open();
        let word = Watched { segment: &self.bell.page, at: SEQ, seen: self.seen };
        wait_with(word, others, limit)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.bell.page.add32(SLEEPERS, u32::MAX);
    }
}
