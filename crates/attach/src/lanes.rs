//! Names for lanes.

use serde::{Deserialize, Serialize};

/// A pair of attachments that share an arena; numbered per daemon, never reused. A process whose sockets talk to each
/// other is a pair by itself and has both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PairId(pub u32);

/// One lane: a slot of one direction of a pair's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// The pair.
    pub pair: PairId,
    /// Side of the arena that writes: 0 or 1. The other side reads.
    pub writer: u8,
    /// Slot of the lane in its direction.
    pub slot: u16,
}

/// Which end of a lane a socket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaneEnd {
    /// It sends.
    Writer,
    /// It receives.
    Reader,
}
