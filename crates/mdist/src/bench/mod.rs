//! The tables of the RMDS performance report, run again on this machine: `mdist-bench`.

mod chain;
mod child;
pub mod cpu;
mod place;
pub mod report;
mod run;
mod search;
mod stock;
mod table;

pub use place::Backbone;
pub use run::{Options, run};
