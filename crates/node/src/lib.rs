//! A TIPC node: drives utipc-core over utipc-os.
//!
//! [`Node`] is the embedded engine: it owns the protocol ([`Stack`](utipc_core::stack::Stack)), the bearers and the
//! event loop. **The caller drives**: a blocking call runs the loop on its own thread until its condition holds, and a
//! background thread takes over only while no call is in progress. See [`run`](mod@run) for the rules.
//!
//! | Question | File |
//! |---|---|
//! | Who calls the protocol, and when do its frames leave? | `driver.rs` |
//! | Which thread runs the loop? | `run.rs` |
//! | What becomes a log line or a counter? | `observe.rs` |
//! | How does a frame reach the medium? | `bearers/` |
//! | How do other processes use this node? | `daemon/` |
//! | How do they look something up without asking? | `table.rs` |

pub mod bearers;
pub mod daemon;
mod driver;
mod observe;
pub mod run;
pub mod table;

pub use driver::{NodeConfig, Plan, Slot, Want};
pub use observe::{Counters, DropCounters};
pub use run::{Node, StartError};
