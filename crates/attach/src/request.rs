//! Requests of a process to its daemon.

use serde::{Deserialize, Serialize};
use utipc_core::LinkProperty;
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, RecvOptions, SocketKind, SocketOption};

use crate::lanes::{LaneEnd, LaneId, PairId};

/// One request. A port names a socket of the attachment; any other port gets [`crate::Failure::NoSocket`]. Postcard
/// encodes variants by their position, here and in every enum that a request contains (such as `SocketOption`): add new
/// ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are the parameters of calls in `core::socket`")]
pub enum Request {
    /// Opens a socket: [`crate::Reply::Opened`].
    Open { kind: SocketKind },
    /// Closes a socket.
    Close { port: u32 },
    /// Binds it.
    Bind { port: u32, range: ServiceRange, scope: Scope },
    /// Withdraws one binding or all.
    Unbind { port: u32, which: Option<(ServiceRange, Scope)> },
    /// Makes it a listener.
    Listen { port: u32 },
    /// Begins a connection, whose result a notice reports, or sets the default destination.
    Connect { port: u32, to: Option<Destination> },
    /// Accepts a connection: [`crate::Reply::Accepted`] or would-block.
    Accept { port: u32 },
    /// Ends a connection.
    Shutdown { port: u32 },
    /// Sets an option.
    SetOption { port: u32, option: SocketOption, value: OptionValue },
    /// Reads an option: [`crate::Reply::Number`].
    GetOption { port: u32, option: SocketOption },
    /// Sends the payload as one message to all receivers without a lane: [`crate::Reply::Sent`]. Would-block on a
    /// connection with a lane.
    Send { port: u32, to: Option<Destination> },
    /// Receives: [`crate::Reply::Received`] with the data as payload.
    Receive { port: u32, room: u32, options: RecvOptions },
    /// State, readiness, counters: [`crate::Reply::Socket`].
    Look { port: u32 },
    /// Takes the pending error of a connection: [`crate::Reply::Error`].
    TakeError { port: u32 },
    /// Fetches the near end of the socket's descriptor, for polling: [`crate::Reply::Done`] with one descriptor. From
    /// then on its level is the readiness of the socket.
    Descriptor { port: u32 },
    /// The descriptor's bytes were read: make it readable again if the socket is.
    Rearm { port: u32 },
    /// From version 3 on. Claims the socket of the descriptor that comes with the request (see [`Request::Keep`]),
    /// which this process has now: [`crate::Reply::Claimed`]. `inode` is the descriptor's inode number; the nonce is 0.
    Claim { inode: u64, nonce: u64 },
    /// Gives the data path of a socket back, for good or until `Lend`: its lanes end. The application has read
    /// `partly.1` bytes of the message at the front of lane `partly.0`.
    MakeHosted { port: u32, partly: Option<(LaneId, u32)> },
    /// Asks for the data path of a socket whose sole holder this attachment is.
    Lend { port: u32 },
    /// Fetches the arena of a pair that a notice named: [`crate::Reply::Done`] with its descriptor, and, if the peer is
    /// the daemon, the eventfd that wakes it.
    FetchPair { pair: PairId },
    /// Asks for a lane from `port` to another local socket or, with `to` 0 and without a connection, for node lanes in
    /// both directions: done, with the notice on the same reply; or [`crate::Failure::State`] if either socket takes
    /// none.
    WantLane { port: u32, to: u32 },
    /// Asks for a larger ring, 2^`log2` bytes, for a lane that this attachment writes; `importance` is that of the
    /// message that needs it. Done, or [`crate::Failure::Overload`].
    Grow { lane: LaneId, log2: u8, importance: u8 },
    /// This end of a lane is not used any more: it was read to its end, or its writer has stopped after
    /// [`crate::Notice::LaneOver`]. A writer may reuse its rings after the reply.
    LaneDone { lane: LaneId, end: LaneEnd },
    /// Reports a corrupt lane: it ends, and so does the connection that it belongs to.
    Report { lane: LaneId },
    /// Wakes a process that polls its descriptor: its socket has something to read in a lane that this attachment
    /// writes, or room in one that it reads.
    Wake { lane: LaneId },
    /// Looks up where an anycast would go: [`crate::Reply::Found`].
    Lookup { to: ServiceAddr, domain: NodeAddr },
    /// Fetches address, identity and bearers of the node: [`crate::Reply::Node`].
    Node,
    /// Lists the neighbours after the first `skip`: [`crate::Reply::Peers`]. Ask until the list is empty.
    Peers { skip: u32 },
    /// Lists the links after the first `skip`: [`crate::Reply::Links`]. Ask until the list is empty.
    Links { skip: u32 },
    /// Lists the bindings after the first `skip`: [`crate::Reply::Bindings`].
    Bindings { skip: u32 },
    /// Fetches the binding table, again after it has moved: [`crate::Reply::Done`] with two descriptors, the table and
    /// the cursors of round robin. A daemon that does not share its table replies [`crate::Failure::State`], and so
    /// does every daemon of version 1.
    FetchTable,
    /// Lists the sockets of the node after the first `skip`, for operators: [`crate::Reply::Sockets`].
    Sockets { skip: u32 },
    /// Asks whether a port is on this node: [`crate::Reply::Number`], 1 if it is.
    IsLocal { port: PortId },
    /// Changes a property of the link with this name: done, or [`crate::Failure::NoLink`]. The range is checked on both
    /// sides.
    SetLink { name: String, property: LinkProperty },
    /// Fetches the counters of the node: [`crate::Reply::Counters`].
    Counters,
    /// Fetches waiting notices: [`crate::Reply::Done`].
    Notices,
    /// From version 2 on. As `Send`, but sends an anycast, or one copy of a multicast, to the socket that the process
    /// has found in the binding table.
    SendFound { port: u32, to: Destination, found: PortId },
    /// From version 2 on. The process is about to fork: all its sockets become hosted. Every process that has the
    /// descriptor that comes with the reply holds them too. [`crate::Reply::Number`]: the number of this inheritance.
    Fork,
    /// From version 2 on. Claims all sockets of an inheritance, into whose descriptor the process has written `nonce`
    /// (8 bytes, little-endian). [`crate::Reply::Number`]: how many they are.
    Inherit { inheritance: u32, nonce: u64 },
    /// From version 2 on. The descriptor's byte was read: [`crate::Reply::Number`], 1 if the node has something for the
    /// socket to receive. In that case, or if there is `more` in a lane, the daemon makes the descriptor readable
    /// again.
    Settle { port: u32, more: bool },
    /// From version 3 on. A request of the family TIPCv2, which follows as payload: [`crate::Reply::Managed`]. `from`
    /// is where to continue a list; 0 is its beginning.
    Manage { from: u64 },
    /// From version 3 on. As `Descriptor`, for the program to own, pass on, and keep over an exec: the socket lives
    /// until no attachment holds it and the last copy of the descriptor is closed.
    Keep { port: u32 },
}
