//! The server side of RSSL: mounts of consumers, their logins, requests and streams, and the fan-out to them.
//!
//! A [`Worker`] has some of a server's mounts. It is pure: bytes, batches of the hub and time go in; bytes, requests
//! for the hub and mounts to disconnect come out.
//!
//! `worker` and the modules of single subjects (`directory`, `latency`, `slow_consumer`) import each other: each of
//! these defines the state of its subject, which the worker owns, and the worker's methods on it.

mod announce;
mod arena;
mod client_messages;
mod config;
mod delivery;
mod dictionary;
mod directory;
mod fanout;
mod item_trouble;
mod latency;
mod mount;
mod output;
mod outputs;
mod patch;
mod permissions;
mod pool;
mod reason;
mod request;
mod request_queue;
mod sending;
mod session;
mod slots;
mod slow_consumer;
mod streams;
mod subscribers;
mod symbols;
mod tasks;
mod view;
mod worker;

pub use config::{Config, Shared};
pub use delivery::Delivery;
pub use item_trouble::{ItemTrouble, RecoveryOptions, ReportedState, reported_state};
pub use mount::{MountId, MountStats};
pub use permissions::{AllowAll, Denial, Permissions};
pub use pool::{BUFFER, Pool};
pub use reason::Reason;
pub use slow_consumer::{Limits, Overflow};
pub use worker::{ClosedMount, Disconnect, Worker};
