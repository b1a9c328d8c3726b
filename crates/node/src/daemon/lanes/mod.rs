//! Lanes.

pub(in crate::daemon) mod awake;
pub(in crate::daemon) mod broker;
pub(in crate::daemon) mod end;
pub(in crate::daemon) mod node_lanes;
pub(in crate::daemon) mod pairs;
pub(in crate::daemon) mod traffic;
