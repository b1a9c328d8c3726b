//! Entries about links.

use super::{MAX_TEXT, Properties};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{link, longest, stats, wide};

/// The last failure of a link. A utipc extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The reason as text.
    pub reason: String,
    /// The time, in milliseconds since 1970.
    pub time: u64,
}

/// Where a link leads. A utipc extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Address of the peer.
    pub peer: u32,
    /// Media address of the peer, as text.
    pub media: String,
    /// Name of the bearer.
    pub bearer: String,
}

/// Counters of a link, numbered as in the kernel; absent ones are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats([Option<u64>; stats::COUNT as usize]);

impl Default for Stats {
    fn default() -> Self {
        Self([None; stats::COUNT as usize])
    }
}

impl Stats {
    /// The value of a counter as the kernel shows it, with 32 bits that wrap; 0 if it is absent.
    #[must_use]
    pub fn get(&self, which: u16) -> u32 {
        self.wide(which) as u32
    }

    /// The value of a counter; 0 if it is absent. The kernel reports 32 bits.
    #[must_use]
    pub fn wide(&self, which: u16) -> u64 {
        self.0.get(usize::from(which).wrapping_sub(1)).copied().flatten().unwrap_or(0)
    }

    /// Sets a counter.
    pub fn set(&mut self, which: u16, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(which).wrapping_sub(1)) {
            *place = Some(value);
        }
    }
}

/// Counters of a link that do not fit the kernel's attributes. A utipc extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wide {
    /// Number of the bearer.
    pub bearer: u32,
    /// Packet size that bearer and peer allow, in bytes.
    pub mtu_limit: u32,
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Malformed or illegal messages.
    pub malformed: u64,
    /// Sum of the transmit queue's lengths over the samples.
    pub queue_sum: u64,
    /// Samples of the transmit queue's length.
    pub queue_samples: u64,
}

impl Wide {
    fn write(&self, out: &mut Writer<'_>, stats: &Stats) {
        out.nest(link::WIDE, |out| {
            for (which, value) in (1..).zip(stats.0) {
                if let Some(value) = value {
                    out.u64(which, value);
                }
            }
            out.u32(wide::BEARER, self.bearer);
            out.u32(wide::MTU_LIMIT, self.mtu_limit);
            out.u64(wide::RECEIVED, self.received);
            out.u64(wide::SENT, self.sent);
            out.u64(wide::MALFORMED, self.malformed);
            out.u64(wide::QUEUE_SUM, self.queue_sum);
            out.u64(wide::QUEUE_SAMPLES, self.queue_samples);
        });
    }

    /// Reads the nest, and the counters in it.
    fn read(nest: Nest<'_>, stats: &mut Stats) -> Result<Self, Errno> {
        for (which, place) in (1..).zip(&mut stats.0) {
            *place = nest.u64(which)?;
        }
        let short = |kind| nest.u32(kind).map(Option::unwrap_or_default);
        let long = |kind| nest.u64(kind).map(Option::unwrap_or_default);
        Ok(Self {
            bearer: short(wide::BEARER)?,
            mtu_limit: short(wide::MTU_LIMIT)?,
            received: long(wide::RECEIVED)?,
            sent: long(wide::SENT)?,
            malformed: long(wide::MALFORMED)?,
            queue_sum: long(wide::QUEUE_SUM)?,
            queue_samples: long(wide::QUEUE_SAMPLES)?,
        })
    }
}

/// A link, or one side of the broadcast link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The own address reduced to its cluster, as the kernel reports it here.
    pub destination: u32,
    /// Packet size in bytes.
    pub mtu: u32,
    /// Whether it is the broadcast link.
    pub broadcast: bool,
    /// Whether it can carry traffic.
    pub up: bool,
    /// Whether it carries traffic.
    pub active: bool,
    /// Properties. The window is the current one; for the broadcast link, the largest.
    pub properties: Properties,
    /// Counters.
    pub stats: Stats,
    /// Packets received.
    pub received: u32,
    /// Packets sent.
    pub sent: u32,
    /// Its last failure, if it has failed. A utipc extension.
    pub down: Option<Down>,
    /// Time at which it came up, in milliseconds since 1970. A utipc extension.
    pub up_since: Option<u64>,
    /// Where it leads. A utipc extension.
    pub path: Option<Path>,
    /// More numbers, and counters with 64 bits. A utipc extension.
    pub wide: Option<Wide>,
}

impl Link {
    pub(super) fn write(&self, out: &mut Writer<'_>, extended: bool) {
        out.text(link::NAME, &self.name);
        if !self.broadcast {
            out.u32(link::DEST, self.destination);
            out.u32(link::MTU, self.mtu);
        }
        out.flag(link::BROADCAST, self.broadcast);
        out.u32(link::RX, self.received);
        out.u32(link::TX, self.sent);
        out.flag(link::UP, self.up);
        out.flag(link::ACTIVE, self.active);
        self.properties.write(out, link::PROP);
        out.nest(link::STATS, |out| {
            for (which, value) in (1..).zip(self.stats.0) {
                out.optional_u32(which, value.map(|value| value as u32));
            }
        });
        if let Some(down) = self.down.as_ref().filter(|_| extended) {
            out.text(link::DOWN_REASON, &down.reason);
            out.u64(link::DOWN_TIME, down.time);
        }
        if let Some(since) = self.up_since.filter(|_| extended) {
            out.u64(link::UP_TIME, since);
        }
        if let Some(path) = self.path.as_ref().filter(|_| extended) {
            out.u32(link::PEER, path.peer);
            out.text(link::PEER_MEDIA, &path.media);
            out.text(link::BEARER, &path.bearer);
        }
        if let Some(wide) = self.wide.as_ref().filter(|_| extended) {
            wide.write(out, &self.stats);
        }
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let mut counters = Stats::default();
        let nested = nest.nest(link::STATS).unwrap_or_default();
        for (which, place) in (1..).zip(&mut counters.0) {
            *place = nested.u32(which)?.map(u64::from);
        }
        let wide = nest.nest(link::WIDE).map(|nest| Wide::read(nest, &mut counters)).transpose()?;
        let number = |kind| nest.u32(kind).map(Option::unwrap_or_default);
        let down = match (nest.text(link::DOWN_REASON, MAX_TEXT)?, nest.u64(link::DOWN_TIME)?) {
            (Some(reason), Some(time)) => Some(Down { reason, time }),
            _ => None,
        };
        Ok(Self {
            name: nest.text(link::NAME, longest::LINK)?.ok_or(Errno::INVALID)?,
            destination: number(link::DEST)?,
            mtu: number(link::MTU)?,
            broadcast: nest.flag(link::BROADCAST),
            up: nest.flag(link::UP),
            active: nest.flag(link::ACTIVE),
            properties: Properties::read_within(nest, link::PROP)?,
            stats: counters,
            received: number(link::RX)?,
            sent: number(link::TX)?,
            down,
            up_since: nest.u64(link::UP_TIME)?,
            path: match nest.u32(link::PEER)? {
                Some(peer) => Some(Path {
                    peer,
                    media: nest.text(link::PEER_MEDIA, MAX_TEXT)?.unwrap_or_default(),
                    bearer: nest.text(link::BEARER, longest::BEARER)?.unwrap_or_default(),
                }),
                None => None,
            },
            wide,
        })
    }
}
