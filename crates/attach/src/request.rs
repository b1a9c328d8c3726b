//! Requests from a process to its daemon.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::socket::{Destination, OptionValue, RecvOptions, SocketKind, SocketOption};

use crate::Reply;
use crate::lanes::{LaneEnd, LaneId, PairId};

/// One request. Postcard encodes variants by their position, here and in every enum that a request contains (such as
/// `SocketOption`): add new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are the parameters of calls in `core::socket`")]
pub enum Request {
    /// A call on a socket of the attachment; with any other port [`crate::Failure::NoSocket`].
    Socket { port: u32, call: SocketCall },
    /// A call about lanes, and about the memory that they lie in.
    Lane(LaneCall),
    /// A call of the process.
    Process(ProcessCall),
    /// Carries a request of the netlink family TIPCv2 as payload: [`crate::Reply::Managed`]. `from`: the position at
    /// which to continue a list, 0 for its beginning.
    Manage { from: u64 },
}

/// A call on a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are the parameters of calls in `core::socket`")]
pub enum SocketCall {
    /// Closes the socket.
    Close,
    /// Binds it.
    Bind { range: ServiceRange, scope: Scope },
    /// Withdraws one binding or all.
    Unbind { which: Option<(ServiceRange, Scope)> },
    /// Makes it a listener.
    Listen,
    /// Begins a connection ([`crate::Notice::Readiness`] announces its result) or sets the default destination.
    Connect { to: Option<Destination> },
    /// Accepts a connection: [`crate::Reply::Accepted`] or would-block.
    Accept,
    /// Ends a connection.
    Shutdown,
    /// Sets an option.
    SetOption { option: SocketOption, value: OptionValue },
    /// Reads an option: [`crate::Reply::Number`].
    GetOption { option: SocketOption },
    /// Sends the payload as one message to all receivers without a lane: [`crate::Reply::Sent`]. Would-block on a
    /// connection with a lane.
    Send { to: Option<Destination> },
    /// As `Send`, but for an anycast, or one copy of a multicast, to the socket `found`, which the process has chosen
    /// from the binding table.
    SendFound { to: Destination, found: PortId },
    /// As `Send`, by a socket in a group, with a key: for a slow member the message replaces the one with the same key,
    /// if the policy says so. [`crate::Failure::State`] if the socket is in no group.
    SendKeyed { to: Option<Destination>, key: u64 },
    /// Receives: [`crate::Reply::Received`] with the data as payload.
    Receive { room: u32, options: RecvOptions },
    /// As `Receive`, after the descriptor's byte was read: whatever the reply is, the daemon makes the descriptor
    /// readable again before it if there is more.
    ReceivePolled { room: u32, options: RecvOptions },
    /// Reads state, readiness and counters: [`crate::Reply::Socket`].
    Look,
    /// Takes the pending error of a connection: [`crate::Reply::Error`].
    TakeError,
    /// Fetches the near end of the socket's descriptor, for polling: [`crate::Reply::Done`] with one descriptor. From
    /// then on its level is the readiness of the socket.
    Descriptor,
    /// As `Descriptor`, but the program owns the descriptor and may pass it on or keep it over an exec: the socket
    /// lives until no attachment holds it and the last copy of the descriptor is closed.
    Keep,
    /// The descriptor's bytes were read: make it readable again if the socket is.
    Rearm,
    /// The descriptor's byte was read: [`crate::Reply::Number`], 1 if the node has something for the socket to receive.
    /// In that case, or if there is `more` in a lane, the daemon makes the descriptor readable again.
    Drained { more: bool },
    /// Fetches a copy of the far end of the socket's descriptor, by which this process makes the descriptor readable
    /// itself: [`crate::Reply::Done`] with one descriptor, or [`crate::Failure::State`] if the socket has none.
    FarEnd,
    /// The socket resumes after its daemon has died, and keeps its descriptor: the far end comes with the request, and
    /// becomes that of the socket. With `near`, the near end comes, in a second request: the program owns it, as after
    /// `Keep`. [`crate::Reply::Done`], or [`crate::Failure::State`] if the descriptor is not such an end.
    Adopt { near: bool },
    /// Makes the socket hosted, for good or until `Lend`: its lanes end. `partly`: the application has read this many
    /// bytes of the message at the front of this lane.
    MakeHosted { partly: Option<(LaneId, u32)> },
    /// Requests the data path of a socket whose sole holder this attachment is.
    Lend,
    /// Requests a lane to another local socket. With `to` 0, for a connectionless socket: node lanes in both
    /// directions. [`crate::Reply::Done`] with the notices about the lanes, or [`crate::Failure::State`] if either
    /// socket cannot have lanes.
    WantLane { to: u32 },
    /// A send that would block waits for the reader of a full lane: the daemon makes the socket's descriptor writable
    /// after this many milliseconds, if the reader does not make it so before.
    AwaitRoom { millis: u8 },
    /// Joins a group, with a policy for slow members: [`crate::Reply::Done`]. The socket becomes hosted, for good.
    Join { request: GroupRequest, policy: GroupPolicy },
    /// Leaves the group.
    Leave,
    /// Lists the members of the socket's group after one of them: [`crate::Reply::GroupMembers`]. Repeat until the list
    /// is empty.
    GroupMembers { after: Option<PortId> },
    /// Requests lanes to all members of the group that the socket is in, and lets members write lanes to it:
    /// [`crate::Reply::Number`] with the notices about the lanes, 1 if there is one to each member, so that all
    /// messages use them. 0: messages go through the node, and lanes that the socket writes have ended;
    /// [`crate::Notice::GroupChanged`] says when to ask again. [`crate::Failure::State`] if the socket is in no group,
    /// or this attachment is not its sole holder. `Send` ends these lanes too.
    GroupLanes,
}

/// A call about lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the comments of the variants describe them")]
pub enum LaneCall {
    /// Fetches the arena of a pair that a notice has announced: [`crate::Reply::Done`] with its descriptor and, if the
    /// peer is the daemon, the eventfd that wakes it.
    FetchPair { pair: PairId },
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
    /// Fetches a copy of the far end of the descriptor of the socket that reads this lane, which this attachment
    /// writes: [`crate::Reply::Done`] with one descriptor, or [`crate::Failure::State`] if the reader has no
    /// descriptor or belongs to another user.
    FarEnd { lane: LaneId },
}

/// A call of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the comments of the variants describe them")]
pub enum ProcessCall {
    /// Opens a socket: [`crate::Reply::Opened`].
    Open { kind: SocketKind },
    /// Claims the socket whose near end (see [`SocketCall::Keep`]) comes with the request: [`crate::Reply::Claimed`].
    Claim,
    /// The process is about to fork: makes all its sockets hosted. [`crate::Reply::Number`], the number of this
    /// inheritance, with a descriptor: every process that has a copy of it may claim the sockets.
    Fork,
    /// Claims all sockets of an inheritance, into whose descriptor the process has written `nonce` (8 bytes,
    /// little-endian). [`crate::Reply::Number`]: the number of sockets.
    Inherit { inheritance: u32, nonce: u64 },
    /// Fetches waiting notices: [`crate::Reply::Done`].
    Notices,
    /// Fetches the binding table, or its current segment after it has moved: [`crate::Reply::Done`] with two
    /// descriptors, the table and the round-robin cursors, or [`crate::Failure::State`] if the daemon does not share
    /// its table.
    FetchTable,
    /// Looks up the socket to which an anycast would go: [`crate::Reply::Found`].
    Lookup { to: ServiceAddr, domain: NodeAddr },
    /// Asks whether all peers have the bindings that the node had when the barrier began: [`crate::Reply::Awaited`].
    /// Without a number it begins one; [`crate::Failure::Limit`] if the process has too many. The daemon forgets it
    /// when it is reached, or after the `last` question.
    Barrier { number: Option<u32>, last: bool },
}

impl SocketCall {
    /// The request of this call on a socket.
    #[must_use]
    pub fn on(self, port: u32) -> Request {
        Request::Socket { port, call: self }
    }
}

impl From<LaneCall> for Request {
    fn from(call: LaneCall) -> Self {
        Self::Lane(call)
    }
}

impl From<ProcessCall> for Request {
    fn from(call: ProcessCall) -> Self {
        Self::Process(call)
    }
}

impl Request {
    /// Whether a payload may follow the request.
    #[must_use]
    pub fn carries_payload(&self) -> bool {
        use SocketCall::{Send, SendFound, SendKeyed};
        match self {
            Self::Socket { call, .. } => matches!(call, Send { .. } | SendFound { .. } | SendKeyed { .. }),
            Self::Manage { .. } => true,
            Self::Lane(_) | Self::Process(_) => false,
        }
    }

    /// Whether programs make the call in event loops, or before forks: they wait less long for its reply.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        use ProcessCall::{Claim, Inherit, Open};
        use SocketCall::{Bind, Connect, Descriptor, GetOption, Keep, Listen, SetOption, Shutdown, Unbind};
        match self {
            Self::Socket { call, .. } => !matches!(
                call,
                Bind { .. }
                    | Unbind { .. }
                    | Listen
                    | Connect { .. }
                    | Shutdown
                    | SetOption { .. }
                    | GetOption { .. }
                    | Descriptor
                    | Keep
            ),
            Self::Process(call) => !matches!(call, Open { .. } | Claim | Inherit { .. }),
            Self::Lane(_) => true,
            Self::Manage { .. } => false,
        }
    }

    /// The reply to assume for a request that may be carried out later, because no call depends on its result.
    #[must_use]
    pub fn assumed_reply(&self) -> Option<Reply> {
        match self {
            Self::Socket { call, .. } => match call {
                SocketCall::Close | SocketCall::Rearm | SocketCall::AwaitRoom { .. } => Some(Reply::Done),
                // The node may have something: the next receive finds out.
                SocketCall::Drained { .. } => Some(Reply::Number(1)),
                _ => None,
            },
            Self::Lane(LaneCall::LaneDone { .. } | LaneCall::Report { .. } | LaneCall::Wake { .. }) => {
                Some(Reply::Done)
            }
            Self::Lane(_) | Self::Process(_) | Self::Manage { .. } => None,
        }
    }
}
