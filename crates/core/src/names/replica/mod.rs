//! The part of the binding table that answers lookups, in a form that other processes can read while it changes.
//!
//! It is made of 64-bit cells in four areas ([`Areas`]): *leaves* and *branches* (one search tree over all ranges),
//! *records* (one per binding) and *turns* (whose turn is next, per range). They lie on the heap of an embedded node, or
//! in memory that a daemon shares ([`Memory`]); [`View`] reads either, [`Index`] is the one writer.
//!
//! **Order.** The tree holds every range once, by type and lower end, newest first among equal ones, and knows of each
//! part of itself the highest upper end: the first range in that order that reaches an instance is the only candidate
//! of a lookup (tipc.md §1.4). A range with one binding has it in its leaf; the others have a ring of records. A lookup
//! among 100,000 ranges reads three lines in each of three branches, which stay in the cache, and then one leaf.
//!
//! **Change.** A block that a reader may have found is never written again, but for two changes that readers can bear
//! (see `Branch::replace`): the writer copies what it changes and exchanges one reference, so a reader sees the table
//! before or after a change, and never waits, not for a stopped writer and not for a dead one. Blocks and records that
//! have been replaced are used again only [`GRACE`] changes later; a reader that finds the version moved by so much
//! since it began knows that it may have seen anything, and begins again. Nothing it reads is trusted: references are
//! checked, levels fall, steps are counted.
//!
//! **Turns** may be written by any reader. They are hints: one that names no binding of its range is not followed, so
//! whoever writes nonsense there only changes the choice among the bindings of a range.
//!
//! | Question | File |
//! |---|---|
//! | What does a reader do? | `view.rs` |
//! | What does a binding change? | `writer.rs` (records, turns), `tree.rs` |
//! | What do the cells mean? | `layout.rs`, `blocks.rs` |
//! | Where are they, and which are free? | `memory.rs`, `slots.rs` |

mod blocks;
mod layout;
mod memory;
mod slots;
#[cfg(test)]
mod tests;
mod tree;
mod view;
mod writer;

pub use layout::{Access, Atomics, GRACE, WriteAccess};
pub use memory::{Areas, Memory, NoMemory, Size};
pub use view::{View, ViewError};
pub use writer::{Index, Place};

pub(super) use memory::Heap;
pub(super) use view::Seen;
