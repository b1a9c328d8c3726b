//! What the daemon tells without being asked. Notices ride on replies, so that their order to each other and to the
//! replies is plain; the attachment's bell rings when some wait that no reply has carried yet.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{NodeAddr, PortId};

use crate::lanes::{LaneEnd, LaneId, PairId};
use crate::reply::Reply;

/// Every packet from the daemon after the welcome; the payload of the reply follows it. Notices are heeded first, in
/// order, then the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// What has changed meanwhile.
    pub notices: Vec<Notice>,
    /// There are more: ask again ([`crate::Request::Notices`]).
    pub more: bool,
    /// The answer.
    pub reply: Reply,
}

/// Something has changed. New ones are added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Notice {
    /// What a socket can do without blocking has changed: look again.
    Readiness {
        /// The socket.
        port: u32,
    },
    /// The node has its address.
    Address(NodeAddr),
    /// There is a lane between a socket of this attachment and another local socket. A writer uses it for every message
    /// to that socket from now on; a reader gets the notice when it may read: what came another way has been received.
    Lane {
        /// Own socket.
        port: u32,
        /// The other socket's port number.
        other: u32,
        /// The lane; its pair's arena is fetched by [`crate::Request::FetchPair`] if it is new.
        lane: LaneId,
        /// Which end.
        end: LaneEnd,
    },
    /// The other end of a lane is done with it (closed, dead or hosted). A writer goes by the node from now on; a reader
    /// reads to the end. Then [`crate::Request::LaneDone`].
    LaneOver {
        /// Own socket.
        port: u32,
        /// The lane.
        lane: LaneId,
        /// Which end this attachment has.
        end: LaneEnd,
        /// The other socket is gone: messages to it come back.
        gone: bool,
    },
    /// A pair has no lanes any more, or nobody at the other side: unmap its arena.
    PairOver(PairId),
    /// Another process holds the socket too: give its data path back ([`crate::Request::MakeHosted`]).
    Share {
        /// The socket.
        port: u32,
    },
    /// There is a lane between a connected socket of this attachment and the daemon, which is the other side of the
    /// pair. From now on all data of the connection in this direction goes by it. Without a connection: all messages for
    /// single sockets of other nodes, or all of such sockets.
    NodeLane {
        /// Own socket.
        port: u32,
        /// The other end of the connection; port 0 without one.
        peer: PortId,
        /// The lane. With a pair's arena comes the descriptor by which the daemon is told (an eventfd).
        lane: LaneId,
        /// Which end this attachment has.
        end: LaneEnd,
    },
    /// From version 2 on. This process is the socket's sole holder again: it may ask for the data path
    /// ([`crate::Request::Lend`]).
    SoleHolder {
        /// The socket.
        port: u32,
    },
}
