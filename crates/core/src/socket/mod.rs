//! Endpoints: the protocol state of sockets, as pure state machines.
//!
//! An [`Endpoint`] holds the state, queues and flow control of one socket. It does not know links, clocks or
//! the binding table: it calls its node through the [`Uplink`], gets messages by [`Endpoint::handle_message`],
//! and reports in [`Endpoint::deadline`] when it must be called. A call completes at once or returns that it
//! would block; [`Endpoint::wait_reason`] is then the cause. Spec: tipc.md §8.
//!
//! | What | Where |
//! |---|---|
//! | calls of the application | `calls.rs` |
//! | messages and questions of the node | `deliver.rs`, `lanes.rs`, `built.rs` |
//! | what endpoints of all roles have | `base.rs`: options, queue, congestion, memory; `call.rs` |
//! | a connectionless socket; its group | `datagram/`; `group/` |
//! | a socket of a connection-oriented kind: request, session, end | `connection/` |
//! | a listener | `listener.rs` |

mod account;
mod base;
mod built;
mod call;
mod calls;
mod congestion;
mod connection;
mod datagram;
mod deliver;
mod endpoint;
mod error;
mod group;
mod header;
mod lanes;
mod listener;
mod options;
mod queue;
mod reading;
mod settings;
mod state;
mod types;
mod uplink;

#[cfg(test)]
mod tests;

pub use crate::wire::reverse;
pub use built::{Built, Unsent};
pub use endpoint::Endpoint;
pub use error::{AcceptError, ConnectError, Errno, OptionError, RecvError, SendError, StateError};
pub use header::{Address, GroupAddress, SendOptions, header};
pub use options::{OptionValue, SocketOption};
pub use state::State;
pub use types::{
    Destination, EndpointStats, GroupMessage, GroupMessageKind, Method, Readiness, Received, RecvOptions,
    Returned, SocketKind, WaitReason,
};
pub use uplink::{BindError, Resolved, SubmitError, Submitted, Uplink};
