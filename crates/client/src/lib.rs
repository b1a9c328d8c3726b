//! Sockets of a process that is attached to a utipc daemon.
//!
//! The daemon keeps every endpoint; a call here is a command to it, or, where two sockets of this host talk, a record in
//! a lane that both processes map (decision 8). A [`Node`] is the daemon's node as this process sees it, a [`Socket`] one
//! of its endpoints.
//!
//! | Question | File |
//! |---|---|
//! | Where is the daemon, and what if there is none? | `place.rs`, `node.rs` |
//! | What does a round trip look like, and who notices that the daemon died? | `attachment.rs` |
//! | By which way does a message leave, and where does the next one come from? | `sending.rs`, `receiving.rs`, `lanes/` |
//! | Who is bound to what? | `names.rs` |
//! | What does a call that waits do? | `waiting.rs` |
//! | Where do notices go? | `shared.rs` |
//! | What becomes of the memory of lanes that are not used? | `idle.rs` |
//! | What does a forked child have? | `fork.rs` |
//! | What if the program owns the descriptor: passes it on, execs? | `passing.rs` |

mod attachment;
mod bell;
mod descriptor;
mod error;
mod fork;
mod idle;
mod lanes;
mod names;
mod node;
mod passing;
mod place;
mod receiving;
mod residents;
mod sending;
mod shared;
mod socket;
mod waiting;

pub use error::Error;
pub use node::Node;
pub use passing::may_be_claimed;
pub use place::Place;
pub use socket::Socket;

pub use utipc_attach::{Failure, Refusal, SocketView};
pub use utipc_os::Wait;
pub use utipc_os::spin::Mode as Spin;
