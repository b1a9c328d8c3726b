//! The bell of an attachment: a word that its process watches, and sleeps on, for notices.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use utipc_os::Result;
use utipc_os::shm::{Fence, Memory, Segment};

/// How often it was rung, modulo 2^32.
const SEQ: usize = 0;
/// Threads of the process that sleep on it.
const SLEEPERS: usize = 4;

/// See the module's text. What the process does to its own bell harms that process alone.
#[derive(Debug)]
pub(in crate::daemon) struct Bell {
    segment: Segment,
}

impl Bell {
    /// A bell, and the descriptor by which the process shares it.
    pub(in crate::daemon) fn new() -> Result<(Bell, OwnedFd)> {
        let (segment, fd) = Segment::create("utipc-bell", 8)?;
        Ok((Bell { segment }, fd))
    }

    pub(in crate::daemon) fn ring(&self) {
        self.segment.add32(SEQ, 1);
        self.segment.fence(Fence::Ring);
        if self.segment.load32(SLEEPERS, Ordering::Relaxed) != 0 {
            self.segment.wake32(SEQ);
        }
    }
}
