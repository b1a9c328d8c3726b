//! The tables of the RMDS performance report, run again.
