//! Memory shared between processes: sealed segments, atomic access to them, sleeping on their words.
//!
//! The contents of segments belong to lanes (`utipc-lanes`) and the binding table's [replica](crate::replica).

mod memory;
mod segment;
mod sleep;

pub use memory::{Fence, LINE, Memory, prefetch};
pub use segment::{Access, PAGE, ReadWord, Segment};
pub use sleep::{Watched, wait_any};
