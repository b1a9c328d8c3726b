//! Scenarios: a hub between model publishers and model sides, without sockets or clocks.

mod cache_budget;
mod items;
mod lifecycle;
mod models;
mod published;
mod recovery;
mod rig;
mod sides;
mod sweeps;
