//! The calls of the library, on each engine: one program, which is linked once. Tests that start themselves again, or
//! measure their process, are programs of their own.

#[path = "../common/mod.rs"]
mod common;

mod anycasts;
mod barrier;
mod connections;
mod daemon;
mod exclusive;
mod group_lanes;
mod groups;
mod lanes;
mod messages;
mod options;
mod ordered;
mod polling;
mod remote_connections;
mod remote_datagrams;
mod remote_ends;
mod slow_members;
#[cfg(feature = "tokio")]
mod task_busy_polls;
#[cfg(feature = "tokio")]
mod tasks;
