//! The daemon: a node that serves many processes, as `utipcd` does.
//!
//! One thread owns the node, its bearers and a connection to each process (an *attachment*); processes send
//! requests and get replies (crate `utipc-attach`). Every socket lives in the daemon's node from its opening to
//! its end (decision 8), so a process may vanish at any instruction. A process can affect its own sockets only:
//! no packet that it sends, leaves unread or writes into shared memory delays another process.
//!
//! Each component owns its state, which no other file touches. Calls go downwards in this table only: what a component
//! has to leave to one above it, it returns or lists (jobs of users, ended attachments, closed descriptors).
//!
//! | Component | Owns |
//! |---|---|
//! | `dispatcher` | all of these; the event loop, and the shares of users in it |
//! | `turns` | how long turns of the event loop are, and why |
//! | `manage` | the management requests of administrators |
//! | `requests` | requests in execution, and those that wait; barriers |
//! | `tasks` | long work in steps: ends of processes and sockets, forks; inheritances |
//! | `sockets` | the node driver, and what it has for processes: the following components |
//! | `attachments` | connections, replies, notices and doorbells of processes; the doorway and the policy |
//! | `holders` | the holders of sockets, and the limits of each process |
//! | `utipc_lanes::daemon` | shared memory between processes, and between processes and the node |
//! | `descriptors` | far ends of the descriptors that applications poll |
//! | `inheritance` | sockets handed over to forked children; orphaned sockets |
//! | `reactors` | the event loop, which contains one for each user |
//! | `quotas` | limits of each user; the ledger is the stack's ([`utipc_core::quota::Ledger`]) |
//! | `memory` | when memory that users have released goes back to the system |
//! | `barriers` | barriers that processes wait for |
//! | `table` | the replica of the binding table, and the congestion state |

mod attachments;
mod barriers;
mod config;
mod counters;
mod descriptors;
mod dispatcher;
mod handle;
mod holders;
mod inheritance;
mod manage;
mod memory;
mod orders;
mod quotas;
mod reactors;
mod requests;
mod sockets;
mod table;
mod tasks;
mod token;
mod turns;

pub use attachments::{Policy, Users};
pub use config::{DaemonConfig, DaemonError, FixedName, Limits};
pub use counters::{DaemonCounters, QuotaCounters};
pub use handle::{Daemon, List, Meter, Pulse, Unread};
pub use turns::{LongestTurn, TurnCounters};
pub use utipc_attach::Greeting;
pub use utipc_os::heap::Heap;
