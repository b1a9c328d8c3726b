//! The doorbell of an attachment: a shared word that its process checks, and sleeps on, for notices.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use utipc_os::Result;
use utipc_os::shm::{Fence, Memory, Segment};

/// Number of rings, modulo 2^32.
const SEQ: usize = 0;
/// Threads of the process that sleep on it.
const SLEEPERS: usize = 4;

/// A doorbell. A process can damage only its own.
#[derive(Debug)]
pub(super) struct Doorbell {
    segment: Segment,
}

impl Doorbell {
    /// A doorbell, and the descriptor by which the process maps it.
    pub(super) fn new() -> Result<(Doorbell, OwnedFd)> {
        let (segment, fd) = Segment::create("utipc-bell", 8)?;
        Ok((Doorbell { segment }, fd))
    }

    pub(super) fn ring(&self) {
        self.segment.add32(SEQ, 1);
        self.segment.fence(Fence::Ring);
        if self.segment.load32(SLEEPERS, Ordering::Relaxed) != 0 {
            self.segment.wake32(SEQ);
        }
    }
}
