//! Memory that processes share: sealed segments, atomic access to them, sleeping on their words.
//!
//! What lies in a segment is the business of others: lanes (`utipc-lanes`), the binding table's [replica](crate::replica).

mod memory;
mod segment;
mod sleep;

pub use memory::{Fence, LINE, Memory, prefetch};
pub use segment::{Access, PAGE, ReadWord, Segment};
pub use sleep::{Watched, wait_any};
