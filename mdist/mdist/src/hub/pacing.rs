//! How fast the hub makes requests of its own.

use super::ids::Now;

/// How often a bucket is filled: small enough to spread a recovery, large enough not to wake up for every item.
const QUANTUM: Now = Now::from_millis(5);

/// A rate in requests per second, spent in portions.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Requests per second; 0: no limit.
    rate: u32,
    left: u32,
    next: Now,
}

impl Bucket {
    pub(super) fn new(rate: u32) -> Self {
        Self { rate, left: 0, next: Now::ZERO }
    }

    /// Whether one more request may be made now.
    pub(super) fn take(&mut self, now: Now) -> bool {
        if self.rate == 0 {
            return true;
        }
        if now >= self.next {
            let portion = u64::from(self.rate) * QUANTUM.as_millis() as u64 / 1000;
            self.left = u32::try_from(portion).unwrap_or(u32::MAX).max(1);
            // A rate below one request a quantum waits longer between portions of one.
            self.next = now + QUANTUM.max(Now::from_secs(1) / self.rate);
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// When the next portion comes.
    pub(super) fn next(&self) -> Now {
        self.next
    }
}

/// How long after its `tries`th failure in a row a request is made again.
pub(super) fn back_off(tries: u8) -> Now {
    Now::from_millis(500 << tries.min(6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        for rate in [1, 100, 20_000] {
            let mut b = Bucket::new(rate);
            let given = (0..10_000)
                .map(Now::from_millis)
                .map(|t| (0..1000).filter(|_| b.take(t)).count())
                .sum::<usize>();
            let wanted = rate as usize * 10;
            assert!(given >= wanted && given <= wanted + wanted / 100 + 1, "{given} of {wanted}");
        }
    }
}
