//! The binding table and its distribution between nodes. Spec: tipc.md §1.2 to §1.4, §6.5, §7.7.
//!
//! [`NameTable`] holds every binding that this node knows and answers lookups. What changes in it is returned as
//! [`Change`]s, in the order in which subscribers and peers must learn of them. [`Distributor`] turns the own changes
//! into messages, [`NameReceiver`] (one per peer) puts a peer's messages into order and applies them. What answers
//! lookups can be shared with other processes: [`replica`].

mod distribute;
pub mod replica;
mod table;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod test_memory;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;

pub use crate::wire::NameItem;
pub use distribute::{Distributor, NameReceiver, NameReport, NamesOutOfStep};
pub use table::{Change, Destinations, Lookup, NameTable, PublishError, ScopeRule, UnbindError};

/// User bindings on one node unless it is told otherwise; types 0, 1 and 2 are not counted. Ours: twice a kernel node's,
/// which limits what its own sockets bind and takes from peers what they have (decision 11).
pub const USER_BINDINGS: usize = 131_072;
/// The most that a node can be told.
pub const MAX_USER_BINDINGS: usize = 262_143;
/// Bindings that one peer may have: what a correct node can own, its node state included. Spec: tipc.md §14.2.
pub const MAX_PEER_BINDINGS: usize = MAX_USER_BINDINGS + 1;
/// Bindings in the whole table. Ours; at about 400 bytes each this bounds the table to some 400 MB.
pub const MAX_BINDINGS: usize = 1 << 20;
/// Name messages of one peer that wait for one with a lower number. Ours: far more than both link windows can hold
/// back; a peer that exceeds it is out of step for good.
pub const MAX_WAITING_UPDATES: usize = 16_384;
/// Their size, bytes. Ours: a correct update has 60 bytes, a hostile one up to 66,040.
pub const MAX_WAITING_BYTES: usize = 4 << 20;
