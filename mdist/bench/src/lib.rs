//! The tables of the RMDS performance report, run again on this machine: `mdist-bench`.

mod chain;
mod foreign;
mod latency;
mod options;
mod place;
pub mod report;
mod run;
mod search;
mod table;
mod targets;
mod throughput;
mod vendor;

pub use options::Options;
pub use place::Backbone;
pub use run::run;
