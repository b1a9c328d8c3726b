//! Messages between processes of one host through memory that they share.
//!
//! An [`Arena`] belongs to one pair of parties. In it lie, for each direction, lanes: rings with one [`Writer`] and one
//! [`Reader`] each, and two [`Doorbell`]s. No lock, no system call while both sides are awake. What a peer can write is
//! hostile input: it is copied out once and checked on the copy; no reference to it leaves this module.
//!
//! The layout is written down in `docs/spec/lanes.md`.

mod alloc;
mod arena;
mod bits;
mod doorbell;
mod lane;
mod layout;
mod memory;
mod segment;
mod sleep;
mod spin;

pub use arena::{Arena, Incoming, Outgoing};
pub use doorbell::{Doorbell, Parked, Ring, wait};
pub use lane::{Corrupt, Kind, LaneError, MARK_WORDS, Peek, RECORD_MAX, Reader, Record, Recovered, Writer};
pub use layout::{MAX_SLOTS, Shape, Side};
pub use memory::{Fence, Memory, prefetch};
pub use segment::{Access, PAGE, ReadWord, Segment};
pub use sleep::{BELLS_MAX, Watched, wait_with};
pub use spin::{Mode, Spin};
