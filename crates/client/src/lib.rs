//! Sockets of a process that is attached to a utipc daemon.
//!
//! The daemon keeps every endpoint. A call here becomes a request to the daemon or, for data, a record in a lane
//! (decisions 8 and 16). A [`Node`] is a handle on the daemon's node, a [`Socket`] a handle on one of its endpoints. A
//! socket consists of components, each of which owns its state: its life, its send path, its receive path and its
//! readiness. No file uses one that stands above it here:
//!
//! | Question | File |
//! |---|---|
//! | How does a program pass a socket to another process, or keep it over an exec? | `socket/passing.rs` |
//! | Where is the daemon, and what if there is none? | `node.rs`, `attacher.rs`, `place.rs` |
//! | Which calls are requests to the daemon? | `socket/` |
//! | How does a forked child take a socket over, and how does it go on with the next daemon? | `life/` |
//! | Which path does a message take? | `send/` |
//! | Where does the next message come from? | `receive/` |
//! | When is a descriptor readable, and how does a program poll busily? | `ready/` |
//! | What does a call do while it waits? | `waiting.rs` |
//! | What do all components use? | `base.rs` |
//! | How does a process attach, share lanes, look names up, fork? | `attachment/` |
//! | Which state of a socket do notices change? | `state/`, `send/outbox.rs`, `receive/inbox.rs` |

mod attacher;
mod attachment;
mod base;
mod error;
mod life;
mod node;
mod place;
mod ready;
mod receive;
mod send;
mod socket;
mod state;
mod waiting;

pub use error::Error;
pub use node::Node;
pub use place::Place;
pub use ready::Readiness;
pub use ready::busy_poll::{BusyPoll, Pollable, Polled, TaskPoll};
pub use socket::Socket;
pub use socket::passing::may_be_claimed;

pub use utipc_attach::{Failure, Refusal, SocketView};
pub use utipc_os::Wait;
pub use utipc_os::spin::Mode as Spin;
