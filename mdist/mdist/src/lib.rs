//! Market-data distribution from publishers to consumers that speak RSSL/RWF, over utipc. The README in `mdist/` is the
//! map.
//!
//! publisher → `src_dist`: sessions, hub, cache → backbone → `p2ps`: hub, cache, mounts → consumers.

pub mod backbone;
pub mod cache;
pub mod config;
pub mod dictionaries;
pub mod hub;
pub mod metrics;
pub mod mounts;
pub mod net;
pub mod server;
pub mod upstream;
