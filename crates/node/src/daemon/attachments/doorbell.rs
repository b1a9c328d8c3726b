//! The doorbell of an attachment: a shared word that its process checks, and sleeps on, for notices.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use utipc_os::Result;
use utipc_os::shm::{Fence, Memory, Segment};

/// Number of rings, modulo 2^32.
const SEQ: usize = 0;
/// Threads of the process that sleep on it.
const SLEEPERS: usize = 4;
/// Number of the request that the daemon has begun last; the handshake is 1. See docs/spec/attach.md §2.
const BEGUN: usize = 8;
/// Number of the request that the process has cancelled, because the daemon did not begin it in time; or 0.
const CANCELLED: usize = 12;

/// A doorbell. A process can damage only its own.
#[derive(Debug)]
pub(super) struct Doorbell {
    segment: Segment,
}

impl Doorbell {
    /// A doorbell, and the descriptor by which the process maps it.
    pub(super) fn new() -> Result<(Doorbell, OwnedFd)> {
        let (segment, fd) = Segment::create("utipc-bell", 16)?;
        segment.store32(BEGUN, 1, Ordering::Release);
        Ok((Doorbell { segment }, fd))
    }

    /// Notes that the next request begins; returns false if the process has cancelled it.
    pub(super) fn begin_request(&self, number: &mut u32) -> bool {
        *number = number.wrapping_add(1).max(1);
        self.segment.store32(BEGUN, *number, Ordering::Release);
        self.segment.fence(Fence::Cancel);
        self.segment.load32(CANCELLED, Ordering::Acquire) != *number
    }

    pub(super) fn ring(&self) {
        self.segment.add32(SEQ, 1);
        self.segment.fence(Fence::Ring);
        if self.segment.load32(SLEEPERS, Ordering::Relaxed) != 0 {
            self.segment.wake32(SEQ);
        }
    }
}
