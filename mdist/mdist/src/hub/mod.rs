//! Items and services between upstreams and sides: fan-in, cache use, stale and recovery rules. Pure: bytes, time and asks
//! in, one ordered [`Batch`] for the sides and orders for the upstreams out.
//!
//! What reaches the sides is what is true upstream: a lost stream is CLOSED_RECOVER there, and the hub asks for it again.
//! What a client is told of that depends on its login (Spec: rssl.md §6.3) and is its mount's business.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod ask;
mod asks;
mod batch;
mod edit;
mod engine;
mod flow;
mod ids;
mod item;
mod kept;
mod pace;
mod posts;
mod requests;
mod services;
mod sources;
mod streams;
#[cfg(test)]
mod tests;

pub use ask::{Ask, ItemSpec, Target};
pub use batch::{Batch, Entry, FRAME_HEADER, Kind, MAX_FRAMED, Read};
pub use engine::{Engine, Options, Stats};
pub use flow::Broken;
pub use ids::{ItemId, Now, SideId, Token, UpstreamId};
pub use posts::LOGIN_STREAM;
pub use services::Directory;
pub(crate) use services::{NoSuchQos, choose_qos};
