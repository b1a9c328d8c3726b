//! Entries about links.

use super::{MAX_TEXT, Properties};
use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{link, longest, stats};

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
pub struct Stats([Option<u32>; stats::COUNT as usize]);

impl Default for Stats {
    fn default() -> Self {
        Self([None; stats::COUNT as usize])
    }
}

impl Stats {
    /// The value of a counter; 0 if it is absent.
    #[must_use]
    pub fn get(&self, which: u16) -> u32 {
        self.0.get(usize::from(which).wrapping_sub(1)).copied().flatten().unwrap_or(0)
    }

    /// Sets a counter; counters are 32 bits wide and wrap.
    pub fn set(&mut self, which: u16, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(which).wrapping_sub(1)) {
            *place = Some(value as u32);
        }
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
    /// Properties. The window is the one in use, of the broadcast link the largest.
    pub properties: Properties,
    /// Counters.
    pub stats: Stats,
    /// Packets received.
    pub received: u32,
    /// Packets sent.
    pub sent: u32,
    /// Its last failure, if it has failed. A utipc extension.
    pub down: Option<Down>,
    /// Time since which it is up, in milliseconds since 1970. A utipc extension.
    pub up_since: Option<u64>,
    /// Where it leads. A utipc extension.
    pub path: Option<Path>,
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
                out.optional_u32(which, value);
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
    }

    pub(super) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        let mut counters = Stats::default();
        let nested = nest.nest(link::STATS).unwrap_or_default();
        for (which, place) in (1..).zip(&mut counters.0) {
            *place = nested.u32(which)?;
        }
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
        })
    }
}
