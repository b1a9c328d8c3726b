//! A node that serves many processes: what `utipcd` runs.
//!
//! One thread owns the node, its bearers and a connection to each process (an *attachment*); processes send requests
//! and get replies (crate `utipc-attach`). Every socket lives in the daemon's node from its opening to its end
//! (decision 8), so a process may vanish at any instruction. A process is trusted with its own sockets only: whatever
//! it sends, leaves unread or writes into memory that it shares delays no other process.
//!
//! Each component owns its state and touches nothing else; the dispatcher owns the components.
//!
//! | Component | Owns |
//! |---|---|
//! | `attachments` | connections, notices and doorbells of processes; the doorway, policy and limits |
//! | `sockets` | sockets, their holders, and what these are charged with |
//! | `utipc_lanes::daemon` | shared memory between processes, and between processes and the node |
//! | `descriptors` | far ends of the descriptors that applications poll |
//! | `inheritance` | what forks leave to children; orphaned sockets |
//! | `manage` | what an administrator sees and changes |
//! | `table` | the replica of the binding table, and the congestion state beside it |
//! | `dispatcher` | the node driver, all of these, and the event loop |

mod attachments;
mod config;
mod counters;
mod descriptors;
mod dispatcher;
mod handle;
mod inheritance;
mod manage;
mod orders;
mod sockets;
mod table;
mod token;

pub use attachments::{Policy, Users};
pub use config::{DaemonConfig, DaemonError, Limits, Named};
pub use counters::DaemonCounters;
pub use handle::Daemon;
pub use utipc_attach::Greeting;
