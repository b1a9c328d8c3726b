//! The same-host data path: lanes, and what a socket does with them.
//!
//! Two processes of one host exchange messages through memory that they share, without the daemon and without a system
//! call while both are awake. An [`Arena`] is the shared memory of one pair of processes. For each direction it holds
//! lanes, rings with one [`Writer`] and one [`Reader`] each, and a [`Doorbell`] for each side. No lock is shared. What
//! a peer can write is hostile input: it is copied out once and checked on the copy.
//!
//! | Question | Place |
//! |---|---|
//! | Where does each word of an arena lie? | `layout.rs`, [docs/spec/lanes.md](../../../docs/spec/lanes.md) |
//! | Which rings are free? | `alloc.rs` |
//! | How does a sleeper wake up? | `doorbell.rs` |
//! | How is a record written, read, recovered? | `lane/` |
//! | What does a message in a lane look like, and what is checked? | `message.rs` |
//! | Which arenas does a process have, and which socket reads which lane? | `pair.rs` |
//! | By which lane does a message leave? | `sender.rs` |
//! | Which message does a receive get? | `receiver/`, `inbound.rs` |
//! | Which sockets get lanes, and how do messages reach other nodes? | `daemon/` |
//!
//! The mapped memory itself, with everything `unsafe`, is `utipc_os::shm`.
//! Decision: [16](../../../docs/decisions/0016-one-crate-for-lanes.md).

mod alloc;
mod arena;
mod awaited;
mod bits;
pub mod daemon;
mod doorbell;
mod inbound;
mod lane;
mod layout;
mod load;
mod members;
mod message;
mod pair;
mod receiver;
pub mod schedule;
mod sender;
#[cfg(test)]
mod tests;

use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::socket::SocketKind;

pub use arena::{Arena, Incoming, Outgoing};
pub use doorbell::{BELLS_MAX, Doorbell, Parked, Wakeup, wait, wait_with};
pub use inbound::{Check, InboundLane, ReceiveCall, Sink};
pub use lane::{
    Corrupt, Kind, LaneError, MARK_WORDS, Peek, RECORD_MAX, Reader, Record, Recovered, Step, Tap, Tapped,
    Writer,
};
pub use layout::{FIRST_RING, LARGEST_CLASS, MAX_SLOTS, RING_SHIFTS, Shape, Side};
pub use message::HEADER_MAX;
pub use pair::{Pair, ReadyLanes};
pub use receiver::{Next, Receiver};
pub use sender::{Growth, Idle, OutboundLane, Route, Sender};
pub use utipc_core::socket::{Address, SendOptions};

/// The socket that sends or receives.
#[derive(Clone, Copy, Debug)]
pub struct OwnSocket {
    /// Address of the node.
    pub node: NodeAddr,
    /// Port number.
    pub port: u32,
    /// Kind.
    pub kind: SocketKind,
}

impl OwnSocket {
    /// Its socket address.
    #[must_use]
    pub fn id(&self) -> PortId {
        PortId { port: self.port, node: self.node }
    }
}
