//! What the daemon tells without being asked. Notices ride on replies, so that their order to each other and to the
//! replies is plain; the attachment's bell rings when some wait that no reply has carried yet.

use serde::{Deserialize, Serialize};
use utipc_core::addr::NodeAddr;

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
    /// There is a lane between a socket of this attachment and another local socket. A writer uses it from the reply on
    /// with which this came; a reader once it is open.
    Lane {
        /// Own socket.
        port: u32,
        /// The other socket's port number.
        other: u32,
        /// The lane; its pair's arena is fetched by [`crate::Request::FetchPair`] if it is new.
        lane: LaneId,
        /// Which end.
        end: LaneEnd,
        /// The reader's node holds no message for it: it may read at once; else after [`Notice::LaneOpen`].
        open: bool,
    },
    /// The other end of a lane is gone (closed, dead or hosted): a writer stops and goes by the node, a reader reads to
    /// the last whole record.
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
    /// Nobody is at the other side of a pair any more: unmap its arena when its lanes are over.
    PairOver(PairId),
    /// Another process holds the socket too: give its data path back ([`crate::Request::MakeHosted`]).
    Share {
        /// The socket.
        port: u32,
    },
    /// Every message that was at the node before a lane was made has been received: the lane may be read.
    LaneOpen {
        /// Own socket, the reader.
        port: u32,
        /// The lane.
        lane: LaneId,
    },
}
