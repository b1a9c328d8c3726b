//! Waiting: whose turn it is when something that several wait for has room again ([`Waiters`]), and how long a receiver
//! is waited for ([`Patience`]). The owner of the room keeps both, so "for what" is where they are. Decision 50.

mod patience;
mod waiters;

pub use patience::{MAX_WAIT, Patience};
pub use waiters::Waiters;
