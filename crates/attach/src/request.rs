//! Requests from a process to its daemon.

use serde::{Deserialize, Serialize};
use utipc_core::LinkProperty;
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
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
    /// Binds a socket.
    Bind { port: u32, range: ServiceRange, scope: Scope },
    /// Withdraws one binding or all.
    Unbind { port: u32, which: Option<(ServiceRange, Scope)> },
    /// Makes a socket a listener.
    Listen { port: u32 },
    /// Begins a connection ([`crate::Notice::Readiness`] announces its result) or sets the default destination.
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
    /// Reads state, readiness and counters of a socket: [`crate::Reply::Socket`].
    Look { port: u32 },
    /// Takes the pending error of a connection: [`crate::Reply::Error`].
    TakeError { port: u32 },
    /// Fetches the near end of the socket's descriptor, for polling: [`crate::Reply::Done`] with one descriptor. From
    /// then on its level is the readiness of the socket.
    Descriptor { port: u32 },
    /// The descriptor's bytes were read: make it readable again if the socket is.
    Rearm { port: u32 },
    /// From version 3 on. Claims the socket whose near end (see [`Request::Keep`]) comes with the request:
    /// [`crate::Reply::Claimed`]. `inode` is the descriptor's inode number; the nonce is 0.
    Claim { inode: u64, nonce: u64 },
    /// Makes a socket hosted, for good or until `Lend`: its lanes end. `partly`: the application has read this many
    /// bytes of the message at the front of this lane.
    MakeHosted { port: u32, partly: Option<(LaneId, u32)> },
    /// Requests the data path of a socket whose sole holder this attachment is.
    Lend { port: u32 },
    /// Fetches the arena of a pair that a notice has announced: [`crate::Reply::Done`] with its descriptor and, if the
    /// peer is the daemon, the eventfd that wakes it.
    FetchPair { pair: PairId },
    /// Requests a lane from `port` to another local socket. With `to` 0, for a connectionless socket: node lanes in
    /// both directions. [`crate::Reply::Done`] with the notices about the lanes, or [`crate::Failure::State`] if either
    /// socket cannot have lanes.
    WantLane { port: u32, to: u32 },
    /// Requests a ring of 2^`log2` bytes for a lane that this attachment writes, larger or smaller than before. A
    /// larger ring counts against the receiver's buffer, which messages of higher `importance` may fill further.
    /// [`crate::Reply::Done`], or [`crate::Failure::Overload`] if the buffer does not allow it.
    Grow { lane: LaneId, log2: u8, importance: u8 },
    /// Reports that this end of a lane is not used any more: the reader has read to its end, or the writer has stopped
    /// after [`crate::Notice::LaneOver`]. A writer may reuse the lane's rings after the reply.
    LaneDone { lane: LaneId, end: LaneEnd },
    /// Reports a corrupt lane: the daemon ends it, and the connection that it belongs to.
    Report { lane: LaneId },
    /// Wakes a process that polls a descriptor, because there is something to read in a lane that this attachment
    /// writes, or room in a lane that it reads.
    Wake { lane: LaneId },
    /// Looks up the socket to which an anycast would go: [`crate::Reply::Found`].
    Lookup { to: ServiceAddr, domain: NodeAddr },
    /// Fetches address, identity and bearers of the node: [`crate::Reply::Node`].
    Node,
    /// Lists the neighbours after the first `skip`: [`crate::Reply::Peers`]. Repeat until the list is empty. Here and
    /// in the other lists `skip` is 0 or the number of entries fetched so far; otherwise [`crate::Failure::State`].
    Peers { skip: u32 },
    /// Lists the links after the first `skip`: [`crate::Reply::Links`]. Repeat until the list is empty.
    Links { skip: u32 },
    /// Lists the bindings after the first `skip`: [`crate::Reply::Bindings`].
    Bindings { skip: u32 },
    /// Fetches the binding table, or its current segment after it has moved: [`crate::Reply::Done`] with two
    /// descriptors, the table and the round-robin cursors. A daemon that does not share its table, such as one of
    /// version 1, replies [`crate::Failure::State`].
    FetchTable,
    /// Lists the sockets of the node after the first `skip`, for operators: [`crate::Reply::Sockets`].
    Sockets { skip: u32 },
    /// Asks whether a port is on this node: [`crate::Reply::Number`], 1 if it is.
    IsLocal { port: PortId },
    /// Changes a property of the link with this name: [`crate::Reply::Done`] or [`crate::Failure::NoLink`]. Both sides
    /// check the value's range.
    SetLink { name: String, property: LinkProperty },
    /// Fetches the counters of the node: [`crate::Reply::Counters`].
    Counters,
    /// Fetches waiting notices: [`crate::Reply::Done`].
    Notices,
    /// From version 2 on. As `Send`, but for an anycast, or one copy of a multicast, to the socket `found`, which the
    /// process has chosen from the binding table.
    SendFound { port: u32, to: Destination, found: PortId },
    /// From version 2 on. The process is about to fork: makes all its sockets hosted. [`crate::Reply::Number`], the
    /// number of this inheritance, with a descriptor: every process that has a copy of it may claim the sockets.
    Fork,
    /// From version 2 on. Claims all sockets of an inheritance, into whose descriptor the process has written `nonce`
    /// (8 bytes, little-endian). [`crate::Reply::Number`]: the number of sockets.
    Inherit { inheritance: u32, nonce: u64 },
    /// From version 2 on. The descriptor's byte was read: [`crate::Reply::Number`], 1 if the node has something for the
    /// socket to receive. In that case, or if there is `more` in a lane, the daemon makes the descriptor readable
    /// again.
    Drained { port: u32, more: bool },
    /// From version 3 on. Carries a request of the netlink family TIPCv2 as payload: [`crate::Reply::Managed`]. `from`:
    /// the position at which to continue a list, 0 for its beginning.
    Manage { from: u64 },
    /// From version 3 on. As `Descriptor`, but the program owns the descriptor and may pass it on or keep it over an
    /// exec: the socket lives until no attachment holds it and the last copy of the descriptor is closed.
    Keep { port: u32 },
    /// From version 4 on. Fetches a copy of the far end of a socket's descriptor, by which this process makes the
    /// descriptor readable itself: of the own socket `port`, or, with `lane`, of the socket that reads this lane, which
    /// this attachment writes: [`crate::Reply::Done`] with one descriptor, or [`crate::Failure::State`] if the reader
    /// has no descriptor or belongs to another user.
    FarEnd { port: u32, lane: Option<LaneId> },
    /// From version 4 on. A send that would block waits for the reader of a full lane: the daemon makes the socket's
    /// descriptor writable after this many milliseconds, if the reader does not make it so before.
    AwaitRoom { port: u32, millis: u8 },
    /// From version 5 on. A socket resumes after its daemon has died, and keeps its descriptor: the far end comes with
    /// the request, and becomes that of `port`. With `near`, the near end comes, in a second request: the program owns
    /// it, as after `Keep`. [`crate::Reply::Done`], or [`crate::Failure::State`] if the descriptor is not such an end.
    Adopt { port: u32, near: bool },
    /// From version 6 on. Joins a group: [`crate::Reply::Done`]. The socket becomes hosted, for good.
    Join { port: u32, request: GroupRequest },
    /// From version 6 on. Leaves the group.
    Leave { port: u32 },
    /// From version 7 on. Asks whether all peers have the bindings that the node had when the barrier began:
    /// [`crate::Reply::Awaited`]. Without a number it begins one; [`crate::Failure::Limit`] if the process has too
    /// many. The daemon forgets it when it is reached, or after the `last` question.
    Barrier { number: Option<u32>, last: bool },
    /// From version 8 on. As `Join`, with a policy for slow members.
    JoinWith { port: u32, request: GroupRequest, policy: GroupPolicy },
    /// From version 8 on. As `Send`, by a socket in a group, with a key: for a slow member the message replaces the one
    /// with the same key, if the policy says so. [`crate::Failure::State`] if the socket is in no group.
    SendKeyed { port: u32, to: Option<Destination>, key: u64 },
    /// From version 8 on. Lists the members of the socket's group after one of them: [`crate::Reply::GroupMembers`].
    /// Repeat until the list is empty.
    GroupMembers { port: u32, after: Option<PortId> },
    /// From version 9 on. As `Receive`, after the descriptor's byte was read: whatever the reply is, the daemon makes
    /// the descriptor readable again before it if there is more.
    ReceivePolled { port: u32, room: u32, options: RecvOptions },
    /// From version 10 on. Requests lanes to all members of the group that the socket is in, and lets members write
    /// lanes to it: [`crate::Reply::Number`] with the notices about the lanes, 1 if there is one to each member, so
    /// that all messages use them. 0: messages go through the node, and lanes that the socket writes have ended;
    /// [`crate::Notice::GroupChanged`] says when to ask again. [`crate::Failure::State`] if the socket is in no group,
    /// or this attachment is not its sole holder. `Send` ends these lanes too.
    GroupLanes { port: u32 },
}
