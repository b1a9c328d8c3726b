//! Endpoints: what an application calls a socket, as a pure state machine.
//!
//! An [`Endpoint`] holds one socket's state, queues and flow control. It never sees a link, a clock or the binding
//! table: it asks its node through the [`Uplink`], gets messages by [`Endpoint::handle_message`], and tells the time
//! at which it wants to be called by [`Endpoint::deadline`]. Every call does its work at once or says that it would
//! block; [`Endpoint::wait_reason`] then tells who is waited for. Spec: tipc.md §8.

mod control;
mod deliver;
mod endpoint;
mod error;
mod flow;
mod lanes;
mod nagle;
mod options;
mod pending;
mod queue;
mod recv;
mod send;
mod setup;
mod settings;
mod state;
mod teardown;
mod multicast_sync;
mod types;
mod uplink;

#[cfg(test)]
mod tests;

pub use crate::wire::reverse;
pub use endpoint::Endpoint;
pub use error::{AcceptError, ConnectError, Errno, OptionError, RecvError, SendError, StateError};
pub use options::{OptionValue, SocketOption};
pub use state::State;
pub use types::{
    Destination, EndpointStats, Method, Readiness, Received, RecvOptions, Returned, SocketKind, WaitReason,
};
pub use uplink::{BindError, Resolved, SubmitError, Submitted, Uplink};
