//! The data path between two local sockets: lanes in memory that their processes share.
//!
//! | Question | File |
//! |---|---|
//! | What does a message in a lane look like, and what is checked? | `head.rs` |
//! | Which arenas are there, and who is told that a lane has something? | `pair.rs` |
//! | Which message does a receive get? | `receive.rs`, `inbound.rs` |
//! | By which way does a message leave? | `send.rs`, `outbound.rs` |

pub(crate) mod head;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod pair;
pub(crate) mod receive;
pub(crate) mod send;
#[cfg(test)]
mod tests;
