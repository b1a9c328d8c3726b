//! The largest packet that the path of a link carries, found by probes. Spec: tipc.md §4.7, decision 41.
//!
//! A link starts with a size that every path carries. A probe is a STATE that requests a reply, with bytes after the
//! message that its receiver ignores, whatever its implementation. The first probe has the size that bearer and peer
//! allow; if it is lost, the search goes through common sizes upwards. Data packets never exceed a proven size. If only
//! large packets are lost for some time, the path has become narrower: the search starts over.

use crate::limits::BASE_PACKET;
use crate::time::Time;

/// Sizes of IP packets that common paths carry, bytes: IPv6's least, tunnels, PPPoE, Ethernet, jumbo frames.
const COMMON: [u16; 9] = [1280, 1400, 1420, 1450, 1492, 1500, 4000, 8896, 9000];
/// Probes of one size without an answer after which the path does not carry it. Source: RFC 8899, MAX_PROBES.
const ATTEMPTS: u8 = 3;
/// Time after which a search that ended below the limit is repeated, milliseconds. Source: RFC 8899,
/// PMTU_RAISE_TIMER.
const RAISE_MS: u64 = 600_000;
/// Ticks after which a probe, of size or not, is not answered any more. Ours: at least 0.75 s by default.
pub(super) const REPLY_TICKS: usize = 3;
/// Consecutive rounds in which every large packet was lost after which the path is searched again. Ours: chance loses
/// as many in a row rarely, and then the first probe restores the size.
const LOST_ROUNDS: u8 = 3;
/// Shortest distance of two rounds, milliseconds: losses of one burst count once.
const ROUND_MS: u64 = 50;

/// Counts rounds in which large packets were lost and none arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeLosses {
    rounds: u8,
    next_round: Option<Time>,
    /// Large packets that had arrived at the last round.
    arrived: u64,
}

impl LargeLosses {
    /// A large packet is missing, and `arrived` large packets have arrived so far. True if too many rounds have passed
    /// without one.
    pub(crate) fn lost(&mut self, now: Time, arrived: u64) -> bool {
        if self.arrived != arrived {
            *self = Self { arrived, ..Self::default() };
        }
        if self.next_round.is_some_and(|at| now < at) {
            return false;
        }
        self.next_round = Some(now.plus_millis(ROUND_MS));
        self.rounds += 1;
        if self.rounds < LOST_ROUNDS {
            return false;
        }
        self.rounds = 0;
        true
    }
}

/// Phase of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The next probe has the size of the limit.
    First,
    /// Through the common sizes upwards; so many probes of the next one were lost.
    Upwards(u8),
    /// Over, until this time.
    Over(Time),
}

/// The packet size of a path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Size that every path is assumed to carry, bytes.
    base: u16,
    /// Bytes of IP and UDP headers.
    encapsulation: u16,
    /// Size that bearer and peer allow, bytes.
    limit: u16,
    /// Proven size, bytes.
    size: u16,
    search: Search,
    /// Size of the probe whose reply is awaited, and ticks since it left.
    probe: Option<(u16, u8)>,
    /// Size at the end of the last search.
    reported: Option<u16>,
    losses: LargeLosses,
}

impl Path {
    /// A path of a bearer with an MTU of `limit` bytes, of which `base` bytes need no proof.
    pub(super) fn new(limit: u16, base: u16, encapsulation: u16) -> Self {
        let search = if base < limit { Search::First } else { Search::Over(Time::NEVER) };
        Self {
            base,
            encapsulation,
            limit,
            size: base.min(limit),
            search,
            probe: None,
            reported: None,
            losses: LargeLosses::default(),
        }
    }

    /// Largest packet to send, bytes.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Largest packet that bearer and peer allow, bytes.
    pub(super) fn limit(&self) -> u16 {
        self.limit
    }

    /// The peer takes packets of at most `limit` bytes.
    pub(super) fn restrict(&mut self, limit: u16) {
        if limit >= self.limit {
            return;
        }
        self.limit = limit;
        if self.size >= limit {
            self.size = limit;
            self.probe = None;
            self.search = Search::Over(Time::NEVER);
        }
    }

    /// Size of the probe to send now, bytes; `None` if nothing is to be probed. The caller sends it.
    pub(super) fn next_probe(&mut self, now: Time) -> Option<u16> {
        if let Search::Over(until) = self.search {
            if now < until || self.size == self.limit {
                return None;
            }
            self.search = Search::First;
        }
        if self.probe.is_some() {
            return None;
        }
        let common = COMMON.iter().map(|size| size.saturating_sub(self.encapsulation));
        let next = common.filter(|size| (self.size + 1..self.limit).contains(size)).min();
        let size = match self.search {
            Search::Upwards(_) => next.unwrap_or(self.limit),
            _ => self.limit,
        };
        self.probe = Some((size, 0));
        Some(size)
    }

    /// A reply has arrived. If a probe of size waited for it, the path carries that size.
    pub(super) fn answered(&mut self) -> bool {
        let Some((size, _)) = self.probe.take() else { return false };
        self.size = size;
        self.search = if size == self.limit { Search::Over(Time::NEVER) } else { Search::Upwards(0) };
        true
    }

    /// One tick; `is_silent` if nothing has arrived since the last one. Gives a probe up that was not answered.
    pub(super) fn tick(&mut self, now: Time, is_silent: bool) {
        let Some((_, ticks)) = &mut self.probe else { return };
        *ticks += 1;
        if !is_silent && usize::from(*ticks) < REPLY_TICKS {
            return;
        }
        self.give_up(now);
    }

    /// The probe that waits for a reply gets none that could be told from that to another one.
    pub(super) fn give_up(&mut self, now: Time) {
        if self.probe.take().is_none() {
            return;
        }
        self.search = match self.search {
            Search::Upwards(lost) if lost + 1 >= ATTEMPTS => Search::Over(now.plus_millis(RAISE_MS)),
            Search::Upwards(lost) => Search::Upwards(lost + 1),
            _ => Search::Upwards(0),
        };
    }

    /// Another request for a reply leaves: a reply does not prove a size any more.
    pub(super) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// A packet above [`BASE_PACKET`] bytes is missing at the peer, and `arrived` such packets have arrived so far.
    /// True if the size is reduced: it must be proven again.
    pub(super) fn lost(&mut self, now: Time, arrived: u64) -> bool {
        self.losses.lost(now, arrived) && self.distrust()
    }

    /// Returns to the size that every path carries, and searches again; false if that size is in use.
    pub(super) fn distrust(&mut self) -> bool {
        if self.size <= self.base {
            return false;
        }
        self.size = self.base;
        self.probe = None;
        self.search = Search::First;
        true
    }

    /// True once after a search that ended with another size than the last one; at first that is the limit.
    pub(super) fn take_report(&mut self) -> bool {
        let is_over = matches!(self.search, Search::Over(_));
        let is_new = is_over && self.reported.unwrap_or(self.limit) != self.size;
        if is_new {
            self.reported = Some(self.size);
        }
        is_new
    }
}

/// True for a packet whose loss may be due to its size.
pub(crate) fn is_large(size: usize) -> bool {
    size > BASE_PACKET as usize
}
