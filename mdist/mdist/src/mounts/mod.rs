//! The RSSL server side: clients, their logins, requests and streams, and the fan-out to them.
//!
//! A [`Worker`] has some of a server's mounts. It knows neither sockets nor clocks: bytes, batches of the hub and time go in;
//! bytes, asks for the hub and mounts to close come out.

mod arena;
mod config;
mod dictionary;
mod directory;
mod fanout;
mod latency;
mod mount;
mod output;
mod pace;
mod patch;
mod permit;
mod policy;
mod pool;
mod reason;
mod request;
mod session;
mod slots;
mod subscribers;
mod symbols;
mod traffic;
mod view;
mod worker;

pub use config::{Config, Shared};
pub use mount::{MountId, MountStats};
pub use output::{Limits, Overflow};
pub use permit::{AllowAll, Denial, Permissions};
pub use policy::{Event, Told, Wants, told};
pub use pool::{BUFFER, Pool};
pub use reason::Reason;
pub use worker::{Cut, Farewell, Worker};
