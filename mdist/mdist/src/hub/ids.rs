//! Identifiers at the hub: items, upstreams, sides, tokens.

use std::time::Duration;

/// Monotonic time since an origin that the driver chose; the hub has no clock. Also used for durations.
pub type Now = Duration;

/// One item of a hub. Dense; reused only after every side has given back its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub u32);

impl ItemId {
    /// No item, for batch entries that concern none.
    pub const NONE: Self = Self(u32::MAX);

    /// The item's stream id in messages between hub and sides: id + 1, so always positive.
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

/// One upstream of the hub: a provider, a point-to-point server, or a backbone source. Dense numbers, given by the
/// driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub u16);

/// One reader of the hub's log: a worker's mounts (p2ps) or the source end of the backbone (src_dist). Numbered by the
/// driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SideId(pub u16);

impl SideId {
    /// All sides, for entries that are addressed to every side.
    pub const ALL: Self = Self(u16::MAX);
}

/// A number that a side chooses for a request. The answer contains it; the hub does not interpret it.
pub type Token = u64;
