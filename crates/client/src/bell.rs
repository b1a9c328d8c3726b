//! The attachment's bell: a word in memory that the daemon shares with this process alone. The daemon rings it when
//! something has changed that no reply has told; threads of this process ring it for each other.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use utipc_os::Result;
use utipc_os::shm::{Access, Fence, Memory, PAGE, Segment};

/// Word that changes with each ring.
const SEQ: usize = 0;
/// Word that counts threads asleep.
const SLEEPERS: usize = 4;

#[derive(Debug)]
pub(crate) struct Bell {
    page: Segment,
}

impl Bell {
    pub(crate) fn open(fd: &OwnedFd) -> Result<Self> {
        Ok(Self { page: Segment::open(fd, Access::ReadWrite, PAGE)? })
    }

    /// Read it before the last look at what the bell announces.
    pub(crate) fn seq(&self) -> u32 {
        self.page.load32(SEQ, Acquire)
    }

    /// Sleeps until the bell is rung (at once if it was since `seen`), at most `limit`.
    pub(crate) fn wait(&self, seen: u32, limit: Option<Duration>) {
        self.page.add32(SLEEPERS, 1);
        self.page.fence(Fence::Park);
        self.page.wait32(SEQ, seen, limit);
        self.page.add32(SLEEPERS, u32::MAX);
    }

    /// Wakes the other threads of this process.
    pub(crate) fn ring(&self) {
        self.page.add32(SEQ, 1);
        self.page.fence(Fence::Ring);
        if self.page.load32(SLEEPERS, Relaxed) > 0 {
            self.page.wake32(SEQ);
        }
    }
}
