//! The tables of the RMDS performance report, run again.

pub mod cpu;
pub mod report;
