//! A node hosted for many processes: what `utipcd` runs.
//!
//! One thread owns the node, its bearers and a connection to each process (an *attachment*); processes send commands
//! and get answers (crate `utipc-attach`). Every socket lives in the daemon's node from its opening to its end
//! (decision 8), so a process may vanish at any instruction. A process is trusted with its own sockets and nothing
//! else: whatever it sends, leaves unread or writes into memory that it shares delays nobody but itself.
//!
//! | Question | File |
//! |---|---|
//! | What happens in which order? | `hub.rs` |
//! | Who gets in? | `entrance.rs`, `policy.rs` |
//! | What does a command do? | `commands.rs`; about the node: `questions.rs` |
//! | How does a process learn that something has changed? | `notices.rs`, `bell.rs` |
//! | How does data get from process to process without the daemon? | `broker.rs`, `pairs.rs`, `lane_end.rs` |
//! | How does it get from a process to other nodes and back? | `node_lanes.rs`, `node_traffic.rs`; to whom it has to wait: `congestion.rs` |
//! | When does the daemon sleep? | `awake.rs` |
//! | What does an application poll? | `descriptors.rs` |
//! | What becomes of sockets that a forked child inherits? | `heritage.rs` |
//! | What does an administrator see and change? | `manage/` |
//! | What if the program owns the descriptor: passes it on, execs? | `keeping.rs` |
//! | What becomes of a process that is gone? | `recovery.rs` |

mod attachments;
mod config;
mod counters;
mod descriptors;
mod dispatcher;
mod handle;
mod inheritance;
mod lanes;
mod manage;
mod table;

pub use attachments::policy::{Policy, Who};
pub use config::{DaemonConfig, DaemonError, Limits, Named};
pub use counters::DaemonCounters;
pub use handle::Daemon;
pub use utipc_attach::Greeting;
