//! Ordered groups: virtual synchrony. All members of a group receive the same messages and the same changes of its
//! membership, in one order.
//!
//! # Replicated state
//! Members that begin with the same state and change it by the messages that they receive, in their order, always have
//! the same state. A member that joins later receives the state of another one at its place in the order.
//!
//! ```
//! use utipc::ordered::{Incoming, Ordered, Outcome};
//! # let node = utipc::Node::builder().isolated().start()?;
//!
//! // One member founds the group, at its first start.
//! let red = Ordered::builder(4500).founder().state_transfer().join(&node)?;
//! let Incoming::View(view) = red.receive()? else { panic!("the first event is a view") };
//! assert_eq!(view.members.len(), 1);
//! red.multicast(b"a")?;
//! let mut log = red.receive()?.message().expect("a member receives its own messages").data;
//!
//! let blue = Ordered::builder(4500).state_transfer().join(&node)?;
//! let Incoming::View(view) = red.receive()? else { panic!("blue joins") };
//! assert_eq!((view.members.len(), view.joined[0].port), (2, blue.port()));
//! let Incoming::StateWanted(request) = red.receive()? else { panic!("blue needs the state") };
//! red.give_state(request, log.clone())?;
//! assert_eq!(blue.receive()?, Incoming::State(b"a".to_vec()));
//! assert_eq!(blue.receive()?.view().expect("the view follows the state").members, view.members);
//!
//! // Both receive it at the same place, or none does.
//! assert_eq!(blue.multicast_atomic(b"b")?, Outcome::Delivered);
//! for member in [&red, &blue] {
//!     assert_eq!(member.receive()?.message().expect("a message").data, b"b");
//! }
//! log.push(b'b');
//!
//! blue.leave()?;
//! assert_eq!(red.receive()?.view().expect("blue has left").left[0], view.joined[0]);
//! # Ok::<(), utipc::Error>(())
//! ```
//!
//! # Guarantees
//! * *One order*: if two members both deliver two messages, they deliver them in the same order. Messages of one member
//!   keep the order in which it sent them.
//! * *Views agree*: members that move together from one view to the next have delivered the same messages before it.
//! * *Safe* messages ([`Order::Safe`]) are delivered when all members have them. A member that crashes may have
//!   delivered agreed messages that the others do not deliver, or deliver in another order.
//! * *Atomic* messages are safe messages whose sender learns the [`Outcome`].
//! * *Partitions*: with [`Partition::Primary`], only the component with a majority of the last view goes on. The others
//!   receive [`Incoming::Blocked`], and later [`Incoming::Excluded`], the state and a view.
//!
//! # Threads
//! Each membership has one thread, which keeps the protocol's times while the program is busy. All calls take `&self`.
//! A program that receives too little makes the senders of all members wait, and leaves after
//! [`Builder::slow_limit`].

mod builder;
mod control;
mod driver;
mod error;
mod incoming;
mod link;
mod member;
mod membership;

use std::time::Duration;

pub use builder::{Builder, Order, Partition};
pub use error::{Ended, OrderedError, Waiting};
pub use incoming::{AtomicId, Incoming, Message, Outcome, StateRequest, View, ViewId};
pub use member::Ordered;

/// Bytes of a message, at most.
pub const MAX_MESSAGE: usize = utipc_vsync::MAX_MESSAGE;
/// Members of a view, at most. More may join the TIPC group; they wait for a place.
pub const MAX_MEMBERS: usize = utipc_vsync::MAX_MEMBERS;

/// Limits of this member alone.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_state: usize,
    slow: Duration,
}

/// Counters of a member of an ordered group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Views.
    pub views: u64,
    /// Attempts of this member to change the view.
    pub ballots: u64,
    /// Messages of the protocol sent.
    pub sent: u64,
    /// Messages delivered to the application.
    pub delivered: u64,
    /// Messages in the TIPC group that were malformed, impossible, or of sockets that are no members.
    pub refused: u64,
    /// Members that did not read their sockets, so that this one went on without them.
    pub stalled_members: u64,
}
