//! Peer nodes: the state of contact, the links to each, and what passes between them. Spec: tipc.md §6.

mod contact;
mod parallel;
pub(crate) mod peer;
pub mod state;
