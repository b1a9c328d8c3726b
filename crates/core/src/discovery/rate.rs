//! Limits how fast unknown nodes can make this node allocate memory. Spec: tipc.md §14.2.
//!
//! Unknown nodes are counted by the host that they claim as their place, so that a flood that names one host leaves the
//! others their share. A flood that invents hosts as well meets the number of shares.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::time::Time;
use crate::wire::MediaAddr;

/// Unknown nodes that one host may have at once: as many nodes as run on a host for tests.
const BURST: u32 = 64;
/// Unknown nodes of one host per second after that.
const PER_SECOND: u32 = 8;
/// Hosts that have a share of their own. A share ends when it is full again, after an eighth of a second if the host
/// had one unknown node: at most 2048 invented hosts per second are admitted.
const SHARES: usize = 256;
/// Unknown nodes at once, and per second after that, of hosts that have used up their share or have none: a host whose
/// place a flood claims gets some of them.
const COMMON: (u32, u32) = (512, 256);

/// A token bucket.
#[derive(Clone, Debug)]
struct Bucket {
    /// Available tokens, in thousandths.
    tokens: u64,
    refilled: Time,
}

impl Bucket {
    /// A full bucket.
    fn new(now: Time, burst: u32) -> Self {
        Self { tokens: u64::from(burst) * 1000, refilled: now }
    }

    fn refill(&mut self, now: Time, (burst, per_second): (u32, u32)) {
        let earned = now.as_millis().saturating_sub(self.refilled.as_millis());
        if earned > 0 {
            let earned = earned.saturating_mul(u64::from(per_second));
            self.tokens = self.tokens.saturating_add(earned).min(u64::from(burst) * 1000);
            self.refilled = now;
        }
    }

    /// Takes one token; false if none is left.
    fn admit(&mut self, now: Time, limits: (u32, u32)) -> bool {
        self.refill(now, limits);
        let admitted = self.tokens >= 1000;
        if admitted {
            self.tokens -= 1000;
        }
        admitted
    }

    fn is_full(&self) -> bool {
        self.tokens >= u64::from(BURST) * 1000
    }
}

/// A host, as a media address names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    Ethernet([u8; 6]),
    Ip(IpAddr),
}

impl From<MediaAddr> for Host {
    fn from(media: MediaAddr) -> Self {
        match media {
            MediaAddr::Ethernet(mac) => Self::Ethernet(mac),
            MediaAddr::Udp(at) => Self::Ip(at.ip()),
        }
    }
}

/// The shares of hosts in the unknown nodes that are admitted.
#[derive(Clone, Debug)]
pub(super) struct RateLimit {
    shares: BTreeMap<Host, Bucket>,
    common: Bucket,
    /// When shares that are full again were dropped last.
    swept: Time,
}

impl RateLimit {
    /// Full shares for all hosts.
    pub(super) fn new(now: Time) -> Self {
        Self { shares: BTreeMap::new(), common: Bucket::new(now, COMMON.0), swept: now }
    }

    /// Whether an unknown node at this place is admitted.
    pub(super) fn admit(&mut self, now: Time, place: MediaAddr) -> bool {
        const LIMITS: (u32, u32) = (BURST, PER_SECOND);
        let host = Host::from(place);
        if !self.shares.contains_key(&host) && self.shares.len() >= SHARES {
            self.sweep(now);
        }
        let has_room = self.shares.len() < SHARES;
        let share = match self.shares.get_mut(&host) {
            Some(share) => Some(share),
            None if has_room => Some(self.shares.entry(host).or_insert_with(|| Bucket::new(now, BURST))),
            None => None,
        };
        share.is_some_and(|share| share.admit(now, LIMITS)) || self.common.admit(now, COMMON)
    }

    /// Drops the shares that are full again: a host that comes back begins with a full one.
    fn sweep(&mut self, now: Time) {
        if now == self.swept {
            return;
        }
        self.swept = now;
        self.shares.retain(|_, share| {
            share.refill(now, (BURST, PER_SECOND));
            !share.is_full()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: u32) -> MediaAddr {
        MediaAddr::Udp((IpAddr::from(host.to_be_bytes()), 6118).into())
    }

    #[test]
    fn flood_of_one_host_leaves_the_others_their_share() {
        let mut limit = RateLimit::new(Time::ZERO);
        let admitted = (0..100_000).filter(|_| limit.admit(Time::ZERO, place(1))).count() as u32;
        assert_eq!(admitted, BURST + COMMON.0);
        assert!((0..BURST).all(|_| limit.admit(Time::ZERO, place(2))) && !limit.admit(Time::ZERO, place(2)));
    }

    #[test]
    fn flood_of_invented_hosts_is_bounded_and_leaves_room_for_others() {
        let (mut limit, mut admitted, mut tried) = (RateLimit::new(Time::ZERO), 0, 0);
        for ms in 1..=10_000 {
            let now = Time::from_millis(ms);
            for _ in 0..100 {
                tried += 1;
                admitted += u32::from(limit.admit(now, place(tried)));
            }
        }
        assert!(limit.shares.len() <= SHARES && admitted < 10 * (2048 + 256) + 1024, "{admitted} of {tried}");
        let mut limit = RateLimit::new(Time::ZERO);
        let all = (1..=10_000).all(|ms| limit.admit(Time::from_millis(ms), place(ms as u32)));
        assert!(all, "a thousand invented hosts a second keep no honest node out");
    }
}
