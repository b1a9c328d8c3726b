//! Sockets of a process that is attached to a utipc daemon.
//!
//! The daemon keeps every endpoint. A call here becomes a request to the daemon or, for data, a record in a lane
//! (decisions 8 and 16). A [`Node`] is a handle on the daemon's node, a [`Socket`] a handle on one of its endpoints.
//!
//! | Question | File |
//! |---|---|
//! | Where is the daemon, and what if there is none? | `place.rs`, `node.rs` |
//! | How does a process attach? | `handshake.rs` |
//! | How does a round trip work, and how is the daemon's death noticed? | `attachment.rs`, `bell.rs` |
//! | Which path does a message take, and where does the next one come from? | `sending.rs`, `receiving.rs` |
//! | Which lanes does a socket have, and when does it lose them? | `data_path.rs`, the crate `utipc-lanes` |
//! | Which sockets are bound to a service? | `names.rs`, `lookup.rs` |
//! | What does a call do while it waits? | `waiting.rs` |
//! | When is a descriptor readable? | `polling.rs`, `descriptor.rs` |
//! | Where do notices go? | `notices.rs`, `registry.rs`, `state.rs` |
//! | When does an idle lane give memory back? | `idle.rs` |
//! | How does a forked child take sockets over? | `fork.rs`, `inheritance.rs` |
//! | How does a socket go on with the next daemon? | `resume.rs` |
//! | How does a program pass a socket to another process, or keep it over an exec? | `passing.rs` |

mod anycast;
mod attachment;
mod bell;
mod data_path;
mod descriptor;
mod error;
mod fork;
mod handshake;
mod idle;
mod inheritance;
mod looking;
mod lookup;
mod members;
mod multicast;
mod names;
mod near_ends;
mod node;
mod notices;
mod overdue;
mod passing;
mod place;
mod polling;
mod receiving;
mod registry;
mod resume;
mod sending;
mod socket;
mod state;
mod waiting;

pub use error::Error;
pub use node::Node;
pub use passing::may_be_claimed;
pub use place::Place;
pub use socket::Socket;

pub use utipc_attach::{Failure, Refusal, SocketView};
pub use utipc_os::Wait;
pub use utipc_os::spin::Mode as Spin;
