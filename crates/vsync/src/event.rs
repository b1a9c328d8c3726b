//! Events for the application.

use std::ops::Deref;
use std::sync::Arc;

use crate::view::{MemberId, View, ViewId};

/// The bytes of a message or of a piece of state; keeps the packet that they came in.
#[derive(Clone)]
pub struct Payload {
    packet: Arc<[u8]>,
    start: usize,
    end: usize,
}

impl Payload {
    pub(crate) fn new(packet: Arc<[u8]>, range: core::ops::Range<usize>) -> Self {
        Self { packet, start: range.start, end: range.end }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.packet.get(self.start..self.end).unwrap_or_default()
    }
}

impl core::fmt::Debug for Payload {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Names an atomic message of this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// The end of an atomic message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All members that stay in the primary component deliver it.
    Delivered,
    /// No member delivers it.
    Aborted,
    /// The sender left the primary component before it could learn.
    Unknown,
}

/// Why a member is no longer part of its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The group went on without it. It joins again by itself.
    Superseded,
    /// The application does not take its messages. The member has left.
    SlowConsumer,
    /// A peer's messages contradict the protocol. The member has left.
    Protocol,
}

/// A message for the application.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The view in which it was sent and is delivered.
    pub view: ViewId,
    /// Its packet's place in the order of the view, from 1.
    pub place: u64,
    /// Its sender.
    pub sender: MemberId,
    /// Its bytes.
    pub payload: Payload,
    /// The view ended before this message was known to be stable: the members that move on together have it.
    pub transitional: bool,
}

/// A new view, at its place among the deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// The view.
    pub view: View,
    /// The last view of this member, if it moved on from it.
    pub previous: Option<ViewId>,
    /// Members that moved on from the same view: they delivered the same messages in it.
    pub together: Vec<MemberId>,
    /// Members without the state, which receive it from the most senior member that has it.
    pub joining: Vec<MemberId>,
}

/// Events, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A new view.
    View(ViewChange),
    /// A message.
    Deliver(Delivery),
    /// This member is to give its state, as it is at this place, by
    /// [`provide_state`](crate::Member::provide_state).
    StateWanted {
        /// The view in which members join.
        view: ViewId,
    },
    /// A piece of the state; `first` begins a new state and voids earlier pieces.
    State {
        /// Its bytes.
        bytes: Payload,
        /// It is the first piece.
        first: bool,
        /// It is the last piece; the view follows.
        last: bool,
    },
    /// The end of an atomic message of this member.
    Outcome(Token, Outcome),
    /// The component has no majority; nothing is delivered until it has one.
    Blocked,
    /// This member is no longer part of the group's view; its state is void.
    Excluded(Cause),
    /// This member has left, as the application wanted.
    Left,
    /// A peer has other settings, and is ignored.
    Incompatible(MemberId),
}
