//! The replica.

pub(in crate::daemon) mod congestion;
