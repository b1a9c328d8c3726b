//! Deterministic TIPC cluster simulator: complete nodes ([`utipc_core::Stack`]) on virtual time over a faulty network,
//! applications that send, bind, connect and subscribe, and a model that knows what must arrive where.
//!
//! Everything follows from a seed. [`run`] goes through rounds: a busy time with faults, then quiet without; in both
//! the model checks every delivery, and at the end of the quiet that nothing is missing and all tables agree. The
//! rules stand in [`check::Broken`].

pub mod check;
mod cluster;
pub mod config;
mod connections;
mod contact;
mod datagrams;
mod faults;
mod host;
mod livelock;
mod network;
mod payload;
mod quiet;
mod reading;
mod subscribers;
mod trace;
mod workload;

pub use cluster::run;
pub use config::{FaultKind, SimConfig};

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Hash over everything that happened, in order.
    pub trace: u64,
    /// Things that happened.
    pub events: u64,
    /// Rounds completed.
    pub rounds: u64,
    /// Virtual time, milliseconds.
    pub virtual_ms: u64,
    /// Frames handed to the network.
    pub frames: u64,
    /// Connectionless messages delivered, multicast copies counted singly.
    pub datagrams: u64,
    /// Connectionless messages that came back.
    pub returned: u64,
    /// Bytes delivered over connections.
    pub connection_bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that broke because their peer or the way to it was gone.
    pub broken_connections: u64,
    /// Topology events received.
    pub topology_events: u64,
    /// Contacts lost.
    pub contacts_lost: u64,
}
