//! The TIPC protocol as pure state machines. Bytes, time and commands go in; frames, deliveries, events and the next
//! deadline come out. The crate uses no sockets, clock, threads, locks or ambient randomness (decision 1).
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod addr;
pub mod broadcast;
mod collections;
pub mod config;
pub mod crypto;
pub mod discovery;
pub mod error;
pub mod event;
pub mod group;
pub mod limits;
pub mod link;
mod load;
pub mod memory;
pub mod monitor;
pub mod names;
pub mod node;
pub mod outbox;
#[cfg(feature = "planted-faults")]
pub mod planted;
#[cfg(not(feature = "planted-faults"))]
mod planted;
pub mod pool;
pub mod quota;
pub mod rng;
pub mod shares;
pub mod socket;
pub mod stack;
mod switch;
pub mod time;
pub mod timers;
pub mod topology;
#[cfg(test)]
mod vectors;
pub mod waiting;
pub mod wire;

pub use addr::{Binding, ClusterId, Importance, NodeAddr, NodeId, PortId, Scope, ServiceAddr, ServiceRange};
pub use config::{BearerConfig, BearerError, StackConfig};
pub use error::WireError;
pub use event::{Drop, Event};
pub use load::Load;
pub use outbox::{BearerId, FrameBatch, FrameRef, FrameSink, Target};
pub use rng::Rng;
pub use socket::{Destination, Endpoint, Received, RecvOptions, SocketKind};
pub use stack::{OpenError, Stack, SubscriberWork};
pub use switch::{
    Barrier, BearerInfo, BearerProperty, BroadcastInfo, Joined, LinkInfo, LinkProperty, MonitorInfo, Origin,
    PeerError, PeerInfo, PropertyError, SwitchStats,
};
pub use time::Time;
pub use wire::{MediaAddr, Message, View};
