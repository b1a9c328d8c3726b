//! Limits how fast unknown nodes can make this node allocate memory. Spec: tipc.md §14.2.

use crate::time::Time;

/// Unknown nodes accepted at once: a whole rack that starts together.
pub(super) const BURST: u32 = 512;
/// Unknown nodes accepted per second after that.
pub(super) const PER_SECOND: u32 = 128;

/// A token bucket.
#[derive(Clone, Debug)]
pub(super) struct RateLimit {
    /// Available tokens, in thousandths.
    tokens: u64,
    refilled: Time,
}

impl RateLimit {
    /// A full bucket.
    pub(super) fn new(now: Time) -> Self {
        Self { tokens: u64::from(BURST) * 1000, refilled: now }
    }

    /// Takes one token; false if none is left.
    pub(super) fn admit(&mut self, now: Time) -> bool {
        let earned = now.as_millis().saturating_sub(self.refilled.as_millis());
        if earned > 0 {
            let earned = earned.saturating_mul(u64::from(PER_SECOND));
            self.tokens = self.tokens.saturating_add(earned).min(u64::from(BURST) * 1000);
            self.refilled = now;
        }
        let admitted = self.tokens >= 1000;
        if admitted {
            self.tokens -= 1000;
        }
        admitted
    }
}
