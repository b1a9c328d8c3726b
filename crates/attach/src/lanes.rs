//! Names for lanes, and what their marker records carry.

use serde::{Deserialize, Serialize};

/// A pair of attachments (or an attachment and the daemon) that shares an arena; numbered per daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PairId(pub u32);

/// The pair of this attachment and its daemon.
pub const NODE_PAIR: PairId = PairId(0);

/// One lane: a slot of one direction of a pair's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// The pair.
    pub pair: PairId,
    /// Slot among the lanes of its direction.
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

/// The words of marker records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkWords;

impl MarkWords {
    /// A lane in the word of a SWITCH or OPEN record: pair above, slot below.
    #[must_use]
    pub const fn lane(lane: LaneId) -> u64 {
        (lane.pair.0 as u64) << 16 | lane.slot as u64
    }

    /// The lane that such a word names.
    #[must_use]
    pub const fn to_lane(word: u64) -> LaneId {
        LaneId { pair: PairId((word >> 16) as u32), slot: word as u16 }
    }
}
