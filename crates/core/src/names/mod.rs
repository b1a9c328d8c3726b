//! The binding table and its distribution between nodes. Spec: tipc.md §1.2 to §1.4, §6.5, §7.7.
//!
//! [`NameTable`] holds every binding known to this node and answers lookups. It returns its changes as [`Change`]s, in
//! the order in which subscribers and peers must see them. [`Distributor`] turns local changes into messages;
//! [`NameReceiver`] (one per peer) puts a peer's messages in order and applies them. The part that answers lookups can
//! be shared with other processes: [`replica`].

mod bulk;
mod distribute;
mod recent;
pub mod replica;
mod table;
mod walk;

#[cfg(test)]
mod bulk_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod test_memory;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;
#[cfg(test)]
mod walk_tests;

pub use crate::wire::NameItem;
pub(crate) use bulk::{BULK_PORTION, Bulk, Withdrawals};
pub use distribute::{Distributor, NameReceiver, NameReport, NamesOutOfStep};
#[cfg(test)]
pub(crate) use recent::MAX_RECENT;
pub(crate) use recent::Recent;
pub(crate) use replica::Holders;
pub use table::{
    Change, Destinations, ListPosition, Lookup, NameTable, PublishError, ScopeRule, UnbindError,
};
pub(crate) use walk::{PORTION, Walk};

/// Default limit of user bindings on one node; types 0, 1 and 2 are not counted. Ours: twice the limit of a kernel
/// node, which restricts only its own sockets, not the bindings of peers (decision 11).
pub const USER_BINDINGS: usize = 131_072;
/// Highest limit of user bindings that can be set.
pub const MAX_USER_BINDINGS: usize = 262_143;
/// Maximum number of bindings of one peer: the most that a correct node can own, including its node state. Spec:
/// tipc.md §14.2.
pub const MAX_PEER_BINDINGS: usize = MAX_USER_BINDINGS + 1;
/// Maximum number of bindings in the whole table. Ours; at about 400 bytes each, 400 MB.
pub const MAX_BINDINGS: usize = 1 << 20;
/// Bindings that a peer may have although [`MAX_BINDINGS`] is reached. Ours: what an ordinary node has, so that a few
/// peers with many bindings do not hide the services of others; 4096 such peers take 200 MB more.
pub const ASSURED_BINDINGS: usize = 128;
/// Maximum number of name messages of one peer that wait for one with a lower number. Ours: far more than both link
/// windows can hold back; after a larger gap the tables cannot be resynchronised without a new contact.
pub const MAX_WAITING_UPDATES: usize = 16_384;
/// Maximum number of bytes in those messages. Ours: a correct update has 60 bytes, a hostile one up to 66,040.
pub const MAX_WAITING_BYTES: usize = 4 << 20;
