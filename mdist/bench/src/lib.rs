//! The tables of the RMDS performance report, run again on this machine: `mdist-bench`.

mod chain;
mod child;
pub mod cpu;
mod foreign;
mod goals;
mod interrupt;
mod latency;
mod options;
mod place;
pub mod report;
mod run;
mod search;
mod stock;
mod table;
mod throughput;

pub use child::as_child;
pub use options::Options;
pub use place::Backbone;
pub use run::run;
