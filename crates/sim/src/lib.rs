//! Deterministic TIPC cluster simulator: complete nodes ([`utipc_core::Stack`]) on virtual time over a faulty
//! network, applications that send, bind, connect and subscribe, and a model of the deliveries that must
//! happen.
//!
//! Everything follows from a seed. [`run`] goes through rounds: a busy period with faults, then a quiet period without.
//! In both the model checks every delivery; at the end of the quiet period it checks that nothing is missing and that
//! all tables agree. [`check::Broken`] lists the invariants. [`peers`] attacks a node with hostile peers instead;
//! [`scale`] measures clusters of up to 4000 nodes.

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
pub mod peers;
mod quiet;
mod reading;
pub mod scale;
pub mod seeds;
mod subscribers;
mod trace;
mod workload;

use serde::Serialize;

pub use cluster::run;
pub use config::{FaultKind, SimConfig};

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Hash of all events in order.
    pub trace: u64,
    /// Number of events.
    pub events: u64,
    /// Rounds completed.
    pub rounds: u64,
    /// Virtual time, milliseconds.
    pub virtual_ms: u64,
    /// Frames sent to the network.
    pub frames: u64,
    /// Connectionless messages delivered; each copy of a multicast counts.
    pub datagrams: u64,
    /// Connectionless messages returned.
    pub returned: u64,
    /// Bytes delivered over connections.
    pub connection_bytes: u64,
    /// Connections set up.
    pub connections: u64,
    /// Connections that broke because their peer was gone or unreachable.
    pub broken_connections: u64,
    /// Topology events received.
    pub topology_events: u64,
    /// Contacts lost.
    pub contacts_lost: u64,
}
