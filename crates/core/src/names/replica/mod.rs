//! The part of the binding table that answers lookups, in a form that other processes can read while it changes.
//!
//! It consists of 64-bit cells in four areas ([`Areas`]): *leaves* and *branches* (one search tree over all ranges),
//! *records* (one per binding) and *cursors* (the round-robin position of each range). They are on the heap of an
//! embedded node, or in memory shared by a daemon ([`Memory`]). [`View`] reads either; [`Index`] is the only writer.
//!
//! **Order.** The tree holds every range once, by type and lower end, newest first among equal ones, and knows the
//! highest upper end in each of its parts. The first range in that order that reaches an instance is the only candidate
//! of a lookup (tipc.md §1.4). A range with one binding has it in its leaf; other ranges have a ring of records. A
//! lookup among 100,000 ranges reads three lines in each of three branches, which stay in the cache, and one leaf.
//!
//! **Change.** A block that readers may have found is not written again, except for two changes that readers tolerate
//! (see `Branch::replace`). The writer copies what it changes and swaps one reference, so a reader sees the table
//! before or after a change and never waits, even if the writer is stopped or dead. Replaced blocks and records are
//! reused only [`GRACE`] changes later. A reader that finds the version advanced by that many changes may have read
//! reused memory, and starts again. Readers do not trust the contents: references are checked, levels must fall, steps
//! are counted.
//!
//! **Cursors** may be written by any reader. They are hints: one that does not name a binding of its range is ignored,
//! so invalid values only affect the choice among the bindings of a range.
//!
//! | Question | File |
//! |---|---|
//! | How does a reader work? | `view.rs`; long walks: `portion.rs` |
//! | What does a change of a binding write? | `writer.rs` (records, cursors), `tree.rs` |
//! | What do the cells mean? | `layout.rs`, `blocks.rs` |
//! | Where are they, and which are free? | `memory.rs`, `slots.rs` |

mod blocks;
mod choice;
mod layout;
mod memory;
mod portion;
mod slots;
#[cfg(test)]
mod tests;
mod tree;
mod view;
mod writer;

pub use choice::Choice;
pub use layout::{Access, Atomics, GRACE, WriteAccess};
pub use memory::{Areas, Memory, NoMemory, Size};
pub use view::{View, ViewError};
pub use writer::{Index, Place};

pub(super) use memory::Heap;
pub(crate) use portion::Holders;
pub(super) use portion::Portions;
pub(super) use view::Seen;
