//! Items and services between upstreams and sides: fan-in, cache use, stale and recovery rules. Pure: bytes, time and asks
//! in, one ordered [`Batch`] for the sides and outgoing for the upstreams out.
//!
//! What reaches the sides is what is true upstream: a lost stream is CLOSED_RECOVER there, and the hub asks for it again.
//! What a client is told of that depends on its login (Spec: rssl.md §6.3) and is its mount's business.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod batch;
mod encode;
mod ids;
mod item;
mod pacing;
mod pending_updates;
mod posts;
mod request;
mod services;
mod side_requests;
mod state;
mod streams;
#[cfg(test)]
mod tests;
mod upstream_messages;
mod upstream_requests;
mod upstreams;

pub use batch::{Batch, Entry, FRAME_HEADER, Kind, MAX_FRAMED, Read};
pub use ids::{ItemId, Now, SideId, Token, UpstreamId};
pub use posts::LOGIN_STREAM;
pub use request::{HubRequest, ItemSpec, Target};
pub use services::Directory;
pub(crate) use services::{NoSuchQos, choose_qos};
pub use state::{Hub, Options, Stats};
pub use upstream_messages::UpstreamError;
