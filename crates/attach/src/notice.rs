//! Notices: changes that the daemon reports unasked. Notices travel with replies, which defines their order relative to
//! each other and to replies; the daemon rings the attachment's doorbell when notices wait for a reply.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};

use crate::lanes::{LaneEnd, LaneId, PairId};
use crate::reply::Reply;

/// Every packet from the daemon after the [`crate::Welcome`]; the payload of the reply follows it. Process the notices
/// in their order, then the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Changes since the last reply.
    pub notices: Vec<Notice>,
    /// Whether more notices wait: fetch them with [`crate::ProcessCall::Notices`].
    pub more: bool,
    /// The reply to the request.
    pub reply: Reply,
}

/// A change that the daemon reports. Add new variants at the end: the order is the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The readiness of a socket has changed: repeat the call that would have blocked.
    Readiness {
        /// The socket.
        port: u32,
    },
    /// The node has got its address.
    Address(NodeAddr),
    /// There is a lane between a socket of this attachment and another local socket. A writer uses it for every message
    /// to that socket from now on. A reader gets the notice when it has received everything that came through the node.
    Lane {
        /// Own socket.
        port: u32,
        /// The other socket's port number.
        other: u32,
        /// The lane. Fetch the arena of its pair by [`crate::LaneCall::FetchPair`] if it is new.
        lane: LaneId,
        /// The end that this attachment has.
        end: LaneEnd,
    },
    /// The other end of a lane does not use it any more (closed, dead or hosted). A writer sends through the node from
    /// now on; a reader reads to the end. Then send [`crate::LaneCall::LaneDone`].
    LaneOver {
        /// Own socket.
        port: u32,
        /// The lane.
        lane: LaneId,
        /// The end that this attachment has.
        end: LaneEnd,
        /// The other socket is gone: messages to it are returned.
        gone: bool,
    },
    /// A pair has no lanes left, or its peer is gone: unmap its arena.
    PairOver(PairId),
    /// Another process holds the socket too: make it hosted ([`crate::SocketCall::MakeHosted`]).
    Share {
        /// The socket.
        port: u32,
    },
    /// There is a node lane between a socket of this attachment and the daemon, which is the other side of the pair.
    /// From now on it carries all data of the connection in this direction. Of a connectionless socket it carries all
    /// messages to, or from, sockets of other nodes, except multicasts to them.
    NodeLane {
        /// Own socket.
        port: u32,
        /// The other end of the connection; port 0 without one.
        peer: PortId,
        /// The lane. The arena of its pair comes with an eventfd that wakes the daemon.
        lane: LaneId,
        /// The end that this attachment has.
        end: LaneEnd,
    },
    /// This process is the socket's sole holder again: it may request the data path
    /// ([`crate::SocketCall::Lend`]).
    SoleHolder {
        /// The socket.
        port: u32,
    },
    /// As `Lane`, between two members of a group.
    GroupLane {
        /// Own socket.
        port: u32,
        /// The other socket's port number.
        other: u32,
        /// The lane.
        lane: LaneId,
        /// The end that this attachment has.
        end: LaneEnd,
        /// The address of the other socket in the group.
        member: ServiceAddr,
    },
    /// A member of the socket's group has come, gone, or begun to take lanes: request its lanes
    /// again ([`crate::SocketCall::GroupLanes`]) before the next message.
    GroupChanged {
        /// The socket.
        port: u32,
    },
}
