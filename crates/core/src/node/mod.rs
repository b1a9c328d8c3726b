//! Peer nodes: contact state, the links to each peer, and their interplay. Spec: tipc.md §6.

mod contact;
mod parallel;
pub(crate) mod peer;
pub mod state;
