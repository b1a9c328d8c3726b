//! Virtual synchrony above TIPC groups, as a pure state machine: events of a transport, time and calls in; messages,
//! deliveries, views and the next deadline out. No socket, clock, thread or lock, and no `unsafe`.
//!
//! The members of a group agree on a sequence of views. In a view all messages have one total order; members that move
//! together from one view to the next have delivered the same messages. Decision 31 has the protocol and its proof.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod batch;
mod config;
mod event;
mod log;
mod member;
mod plan;
#[cfg(feature = "planted-faults")]
pub mod planted;
#[cfg(not(feature = "planted-faults"))]
mod planted;
mod state;
mod view;
mod wire;

pub use config::{
    CHUNK_WINDOW, Components, Config, Founding, MAX_CHUNK, MAX_IN_FLIGHT, MAX_MESSAGE, MAX_PACKET, Ordering,
};
pub use event::{Cause, Delivery, Event, Outcome, Payload, Token, ViewChange};
pub use member::{Member, Progress, SendError, StateError, Stats, Target, Transmit};
pub use state::{Event as Step, Illegal, State};
pub use view::{Ballot, MAX_MEMBERS, MemberId, Seat, View, ViewId};
pub use wire::{Class, WireError};
