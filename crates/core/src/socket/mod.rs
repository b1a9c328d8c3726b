//! Endpoints: the protocol state of sockets, as pure state machines.
//!
//! An [`Endpoint`] holds the state, queues and flow control of one socket. It does not know links, clocks or
//! the binding table: it calls its node through the [`Uplink`], gets messages by [`Endpoint::handle_message`],
//! and reports in [`Endpoint::deadline`] when it must be called. A call completes at once or returns that it
//! would block; [`Endpoint::wait_reason`] is then the cause. Spec: tipc.md §8.

mod anycast;
mod built;
mod configure;
mod control;
mod deliver;
mod endpoint;
mod error;
mod flow;
mod full;
mod group;
mod group_lanes;
mod header;
mod lanes;
mod multicast_sync;
mod nagle;
mod options;
mod patience;
mod pending;
mod queue;
mod recv;
mod send;
mod settings;
mod setup;
mod slow_members;
mod state;
mod teardown;
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
pub use patience::{MAX_WAIT, Patience};
pub use state::State;
pub use types::{
    Destination, EndpointStats, GroupMessage, GroupMessageKind, Method, Readiness, Received, RecvOptions,
    Returned, SocketKind, WaitReason,
};
pub use uplink::{BindError, Resolved, SubmitError, Submitted, Uplink};
