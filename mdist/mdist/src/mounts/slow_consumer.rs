//! The decision to disconnect a slow consumer. Spec: rssl.md §1.8
//!
//! Unread output of a mount waits in output buffers: some are its own, more are borrowed from a pool that all
//! mounts share. A mount that needs more than it may have, or than the pool has, is a slow consumer. Its next message
//! is refused with an [`Overflow`], and the mount is disconnected with that reason; no message is dropped or coalesced.
//!
//! [`Output`](super::output::Output) counts the bytes and asks [`buffers_to_borrow`]. The mount's policy
//! ([`Delivery`](super::delivery::Delivery)) decides about the overflow, and the worker disconnects the mount here.

use super::delivery::Verdict;
use super::pool::Pool;
use super::slots::Ticket;
use super::worker::Worker;

/// Buffers borrowed from the pool at a time, so that the shared counter is not touched for each.
const BORROW: usize = 16;

/// Limits of one mount's output, in output buffers. Spec: rssl.md §1.8
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers that the mount always has, however many other mounts use.
    pub guaranteed: usize,
    /// Maximum number of buffers that it may hold, including borrowed ones.
    pub max: usize,
}

/// The next message does not fit the output of a mount, which may not have more buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{used} output buffers of {max} in use, {pool_free} free in the pool, {bytes} bytes unread")]
pub struct Overflow {
    /// Buffers in use, including those for the refused message.
    pub used: usize,
    /// Maximum number of buffers that the mount may hold.
    pub max: usize,
    /// Buffers left in the shared pool.
    pub pool_free: usize,
    /// Bytes that the consumer had not read.
    pub bytes: usize,
}

/// Takes buffers from the pool for a mount that has `have` and needs `need`, more than that; returns their number.
/// `bytes` is what the consumer has not read.
///
/// # Errors
/// The mount is a slow consumer: it may not have so many buffers, or the pool has not enough.
pub(super) fn buffers_to_borrow(
    limits: Limits,
    have: usize,
    need: usize,
    bytes: usize,
    pool: &Pool,
) -> Result<usize, Overflow> {
    let missing = need.saturating_sub(have);
    let wanted = missing.max(BORROW).min(limits.max.saturating_sub(have));
    let borrowed = if need > limits.max {
        0
    } else if pool.take(wanted) {
        wanted
    } else if pool.take(missing) {
        missing
    } else {
        0
    };
    if borrowed < missing {
        return Err(Overflow { used: need, max: limits.max, pool_free: pool.free(), bytes });
    }
    Ok(borrowed)
}

impl Worker {
    /// Carries out the decision about a mount whose output has no space for its next message.
    pub(super) fn overflowed(&mut self, mount: Ticket, verdict: Verdict) {
        match verdict {
            Verdict::Disconnect(overflow) => self.disconnect(mount, overflow.into()),
        }
    }

    /// Carries out the decisions about mounts whose output had no space for the message that was just fanned out.
    #[inline]
    pub(super) fn disconnect_slow_consumers(&mut self) {
        while let Some((mount, verdict)) = self.outputs.take_overflow() {
            self.overflowed(mount, verdict);
        }
    }
}
