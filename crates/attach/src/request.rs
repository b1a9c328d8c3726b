//! What a process asks of its daemon.

use serde::{Deserialize, Serialize};
use utipc_core::LinkProperty;
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, OptionValue, RecvOptions, SocketKind, SocketOption};

use crate::lanes::{LaneEnd, LaneId, PairId};

/// One command. Each names a socket of the attachment by its port number; any other gets [`crate::Failure::NoSocket`].
/// Postcard encodes variants by their position, here and in every enum that a request contains (such as `SocketOption`):
/// add new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the calls of `core::socket` take")]
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
    /// Begins a connection, or sets the default destination; the end is told by a notice.
    Connect { port: u32, to: Option<Destination> },
    /// Takes a connection: [`crate::Reply::Accepted`] or would-block.
    Accept { port: u32 },
    /// Ends a connection.
    Shutdown { port: u32 },
    /// Sets an option.
    SetOption { port: u32, option: SocketOption, value: OptionValue },
    /// Reads an option: [`crate::Reply::Number`].
    GetOption { port: u32, option: SocketOption },
    /// Sends the payload as one message, wherever no lane leads: [`crate::Reply::Sent`]. Would-block on a connection with
    /// a lane.
    Send { port: u32, to: Option<Destination> },
    /// Receives: [`crate::Reply::Received`] with the data as payload.
    Receive { port: u32, room: u32, options: RecvOptions },
    /// State, readiness, counters: [`crate::Reply::Socket`].
    Look { port: u32 },
    /// The pending error of a connection, once: [`crate::Reply::Error`].
    TakeError { port: u32 },
    /// The socket's own descriptor, for polling and passing on: [`crate::Reply::Done`] with one descriptor. From then on
    /// its readiness is kept up to date.
    Descriptor { port: u32 },
    /// The descriptor's bytes were read away: make it readable again if the socket is.
    Rearm { port: u32 },
    /// From version 3 on. The descriptor that comes with it (of [`Request::Keep`]) is one of this process now: take part in
    /// its socket. [`crate::Reply::Claimed`]. The inode's number is the descriptor's; the nonce is 0.
    Claim { inode: u64, nonce: u64 },
    /// Gives the data path of a socket back (before a fork), for good or until `Lend`: its lanes end. Of the message at the
    /// front of lane `partly.0` the application has read `partly.1` bytes.
    MakeHosted { port: u32, partly: Option<(LaneId, u32)> },
    /// Asks for the data path of a socket that only this attachment holds.
    Lend { port: u32 },
    /// The arena of a pair that a notice named: [`crate::Reply::Done`] with one descriptor.
    FetchPair { pair: PairId },
    /// A lane from `port` to another local socket, or with `to` 0, without a connection, lanes to the node and back: done,
    /// with the notice on the same reply; or [`crate::Failure::State`] if the other socket, or this one, takes none.
    WantLane { port: u32, to: u32 },
    /// A larger ring for a lane that this attachment writes, 2^`log2` bytes; importance of the message that needs it.
    /// Done, or [`crate::Failure::Overload`].
    Grow { lane: LaneId, log2: u8, importance: u8 },
    /// This end of a lane will not be used any more: it was read to its end, or its writer has stopped after
    /// [`crate::Notice::LaneOver`]. A writer may use its rings again when it has the answer.
    LaneDone { lane: LaneId, end: LaneEnd },
    /// A lane holds what cannot be: it ends, and so does the connection that it belongs to.
    Report { lane: LaneId },
    /// A receiver polls its descriptor: tell it that its socket has something to read in a lane that this attachment
    /// writes, or room in one that it reads.
    Wake { lane: LaneId },
    /// Where an anycast would go: [`crate::Reply::Found`].
    Lookup { to: ServiceAddr, domain: NodeAddr },
    /// The node itself: [`crate::Reply::Node`].
    Node,
    /// Its neighbours after the first `skip`: [`crate::Reply::Peers`]. Ask until the list is empty.
    Peers { skip: u32 },
    /// Its links after the first `skip`: [`crate::Reply::Links`]. Ask until the list is empty.
    Links { skip: u32 },
    /// Bindings after the first `skip`: [`crate::Reply::Bindings`].
    Bindings { skip: u32 },
    /// The binding table, to look for oneself (again when it has moved): [`crate::Reply::Done`] with two descriptors, the
    /// table and the turns among equals. A daemon that does not share its table answers [`crate::Failure::State`], and so
    /// does every daemon of version 1.
    FetchTable,
    /// Sockets of the node after the first `skip`, for operators: [`crate::Reply::Sockets`].
    Sockets { skip: u32 },
    /// The connection peer or any port: is it here, and whose? [`crate::Reply::Number`]: 1 if the port is on this node.
    IsLocal { port: PortId },
    /// Changes a property of the link with this name: done, or [`crate::Failure::NoLink`]. The range is checked on both
    /// sides.
    SetLink { name: String, property: LinkProperty },
    /// What the node has counted: [`crate::Reply::Counters`].
    Counters,
    /// Nothing but the notices that wait: [`crate::Reply::Done`].
    Notices,
    /// From version 2 on. As `Send`, of an anycast or a copy of a multicast to the one socket that the process has found
    /// for it in the table; the payload follows.
    SendFound { port: u32, to: Destination, found: PortId },
    /// From version 2 on. The process is about to fork: all its sockets become hosted, and are held by whoever holds the
    /// descriptor that comes with the answer, [`crate::Reply::Number`], the number of this heritage.
    Fork,
    /// From version 2 on. A nonce (8 bytes, little-endian) was written into the descriptor of a heritage: take part in all
    /// its sockets. [`crate::Reply::Number`]: how many they are.
    Inherit { heritage: u32, nonce: u64 },
    /// From version 2 on. The descriptor's byte was read away: [`crate::Reply::Number`], 1 if the node has something for
    /// the socket to receive. Then it is readable again; so it is if the process says that there is `more` in a lane.
    Settle { port: u32, more: bool },
    /// From version 3 on. A request of the family TIPCv2, which follows as payload: [`crate::Reply::Managed`]. Of a list
    /// the part from `from` on; 0 is its beginning.
    Manage { from: u64 },
    /// From version 3 on. As `Descriptor`, for the program to own, pass on, and keep over an exec: the socket lives until an
    /// attachment holds it no more and the last copy of the descriptor is closed.
    Keep { port: u32 },
}
