//! The broadcast link: one packet to all peers, each of which acknowledges it over its own link.
//!
//! [`BroadcastSender`] (one per node) numbers packets and keeps, with each packet, the set of peers that have not
//! acknowledged it; [`BroadcastReceiver`] (one per peer) puts a peer's packets in order. The two sides send feedback in
//! LINK_PROTOCOL messages of the unicast links, read by [`receive_link_protocol`]. `method` chooses between one
//! broadcast and a copy per destination. Spec: tipc.md §7.

mod bearers;
mod feedback;
mod method;
mod peers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use feedback::{receive_ack, receive_legacy_nack, receive_link_protocol};
pub use method::{
    Choice, ClusterView, DEFAULT_RATIO, MethodCookie, MulticastPolicy, SocketMethods, start_switch,
};
pub use receiver::{BroadcastReceiver, ReceiverStats, Refused};
pub use sender::{
    Accepted, Acknowledged, BroadcastConfig, BroadcastFault, BroadcastSender, DEFAULT_WINDOW,
    SMALLEST_WINDOW, SenderStats,
};

use crate::link::Wakeup;
use crate::outbox::FrameBatch;

/// Everything that the broadcast link writes during one call.
#[derive(Debug)]
pub struct BroadcastIo<'a> {
    /// Destination of frames.
    pub frames: &'a mut FrameBatch,
    /// Ports that may send again.
    pub wakeups: &'a mut Vec<Wakeup>,
}
