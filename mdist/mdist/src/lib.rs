//! Market-data distribution: from publishers to consumers that speak RSSL/RWF, over utipc.
//!
//! publisher → `src_dist`: sessions, item table, cache → backbone → `p2ps`: watchlist, cache, fan-out → consumers.

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
