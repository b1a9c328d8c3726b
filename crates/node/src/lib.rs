//! A TIPC node: drives utipc-core over utipc-os.
//!
//! [`Node`] is a node embedded in a program: it owns the protocol ([`Stack`](utipc_core::stack::Stack)), the bearers
//! and the event loop. **The caller drives**: a blocking call runs the loop on its own thread until its condition
//! holds, and a background thread takes over only while no call is in progress. See [`run`](mod@run) for the rules.
//!
//! | Question | File |
//! |---|---|
//! | What is a turn of the event loop? | `driver/` |
//! | Which thread drives the event loop? | `run/` |
//! | What is logged and counted? | `observe.rs` |
//! | How are frames sent and received? | `bearers/` |
//! | How do other processes use this node? | `daemon/` |
//! | How do they look up bindings without a request? | `table/` |

pub mod bearers;
mod capture;
pub mod daemon;
mod driver;
pub mod key_file;
mod observe;
pub mod run;
pub mod table;

pub use driver::{NodeConfig, Plan, StartError};
pub use observe::{Counters, DropCounters};
pub use run::{Node, Slot, Want};
