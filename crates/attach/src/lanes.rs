//! Identifiers of pairs and lanes.

use serde::{Deserialize, Serialize};

/// Number of a pair: two attachments that share an arena. Unique per daemon, never reused. For lanes between sockets of
/// one process, that process is both sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PairId(pub u32);

/// Identifier of a lane: a slot of one direction of a pair's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// The pair.
    pub pair: PairId,
    /// Side of the arena that writes: 0 or 1. The other side reads.
    pub writer: u8,
    /// Slot of the lane in its direction.
    pub slot: u16,
}

/// The end of a lane that a socket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaneEnd {
    /// The socket sends.
    Writer,
    /// The socket receives.
    Reader,
}
