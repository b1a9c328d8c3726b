//! The names of things at the hub: items, upstreams, sides, tokens.

use std::time::Duration;

/// Monotonic time since a start that the driver chose once; the hub has no clock of its own.
pub type Now = Duration;

/// One open item of a hub. Dense; used again only after every side that held it has let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub u32);

impl ItemId {
    /// Stands in batch entries that concern no item.
    pub const NONE: Self = Self(u32::MAX);

    /// The stream id of the item in messages between hub and sides: id + 1, so always positive.
    #[must_use]
    pub const fn stream(self) -> i32 {
        self.0.wrapping_add(1).cast_signed()
    }

    /// Index into a table of items.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One source of the hub: a provider, a p2ps above us, or a backbone source. The driver numbers them, densely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub u16);

/// One reader of the hub: a worker's mounts (p2ps) or the source end of the backbone (src_dist). Numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SideId(pub u16);

impl SideId {
    /// Addressed to every side.
    pub const ALL: Self = Self(u16::MAX);
}

/// A side's own name for whoever asked: it comes back with the answer and means nothing to the hub.
pub type Token = u64;
