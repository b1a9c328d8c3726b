//! The pace of requests that the hub makes by itself, in a recovery.

use super::ids::Now;

/// Interval at which a bucket is filled: short enough to spread a recovery, and long enough not to wake up for
/// each item.
const QUANTUM: Now = Now::from_millis(5);

/// A token bucket: a rate in requests per second, spent in portions.
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

    /// Takes one request from the bucket; `false`: none is left before [`Bucket::next`].
    pub(super) fn take(&mut self, now: Now) -> bool {
        if self.rate == 0 {
            return true;
        }
        if now >= self.next {
            let portion = u64::from(self.rate) * QUANTUM.as_millis() as u64 / 1000;
            self.left = u32::try_from(portion).unwrap_or(u32::MAX).max(1);
            // If the rate is below one request for each interval, wait longer for a portion of one.
            self.next = now + QUANTUM.max(Now::from_secs(1) / self.rate);
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Time at which the next portion is due.
    pub(super) fn next(&self) -> Now {
        self.next
    }
}

/// The backoff before a request is made again, after `tries` failures in a row.
pub(super) fn back_off(tries: u8) -> Now {
    Now::from_millis(500 << tries.min(6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_gives_exactly_its_rate() {
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
