//! Metrics of every component in the OpenMetrics format, mounts and disconnects as JSON; over HTTP.
//!
//! A component counts in plain integers of one thread ([`components`]) and publishes them once a second with relaxed
//! stores, without a lock. So readers see values that are up to a second old. Names and meanings:
//! docs/operating/mdist-metrics.md.

pub mod components;
mod http;
mod latency;
mod line;
mod market;
mod process;
mod published;
mod registry;
mod upstreams;

pub use http::Server;
pub use latency::{LatencyHistogram, MOUNTS, Measured, SOURCE};
pub use line::{Line, Lines};
pub use market::{LISTED, Market, Watched, list};
pub use published::{Component, Counting, Definition, Published};
pub use registry::{DISCONNECTS, Metrics, PUBLISH_INTERVAL};
