//! Items and services between upstreams and sides: fan-in, use of the cache, stale items and recovery. Pure: bytes,
//! time and requests in; one ordered [`Batch`] for the sides and messages for the upstreams out.
//!
//! The sides get the actual state of the stream upstream: a lost stream is CLOSED_RECOVER, and the hub requests
//! it again. Which state a consumer then gets depends on its login; its mount decides that (Spec: rssl.md
//! §6.3).
//!
//! [`Hub`] is defined in `state`; each other module adds the methods of one subject: requests of sides
//! (`side_requests`, `images`, `release`), messages of upstreams (`upstream_messages`, `refresh`), requests to
//! upstreams (`request_queues`, `upstream_streams`, `recovery`, `stale`, `held_back`), upstreams and their services
//! (`upstreams`, `announce`; `sweeps` and `effects` change their items), posts (`posts`) and the cache
//! (`cached_updates`).
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod announce;
mod batch;
mod cached_updates;
mod effects;
mod encode;
mod error;
mod held_back;
mod ids;
mod images;
mod inspect;
mod item;
mod last_values;
mod pacing;
mod pending_posts;
mod posts;
mod recency;
mod recovery;
mod refresh;
mod release;
mod request;
mod request_queues;
mod services;
mod side_requests;
mod stale;
mod state;
mod streams;
mod sweeps;
#[cfg(test)]
mod tests;
mod turn;
mod upstream_messages;
mod upstream_streams;
mod upstreams;

pub use announce::{Announcement, Change};
pub use batch::{Batch, Entry, FRAME_HEADER, Kind, MAX_FRAMED, Read};
pub use error::UpstreamError;
pub use ids::{ItemId, Now, SideId, Token, UpstreamId};
pub use inspect::{FieldView, ItemView, ServiceView};
pub use posts::LOGIN_STREAM;
pub use request::{HubRequest, ItemSpec, Target};
pub use services::Directory;
pub(crate) use services::{NoSuchQos, choose_qos};
pub use state::{Hub, Options, Posts};
pub use turn::HubTurn;
