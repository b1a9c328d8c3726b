//! What a member of an ordered group receives.

use utipc_vsync as vsync;

use crate::{Member, NodeAddr, PortId};

pub use vsync::Outcome;

/// Name of a view. The views of one member compare in the order in which it had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId {
    /// Counts the attempts to change the view.
    pub round: u64,
    /// The member that proposed the view.
    pub coordinator: PortId,
}

/// A membership on which its members agree, at its place among the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub id: ViewId,
    /// Its members by seniority, which is the same for all of them. The first one orders the messages; a group that
    /// needs a leader can take it.
    pub members: Vec<Member>,
    /// Members that were not in the view before. All, if this is the first view or the member was excluded before.
    pub joined: Vec<Member>,
    /// Members of the view before that are not in this one.
    pub left: Vec<Member>,
    /// Members that come from the same view as this one: they have delivered the same messages in it.
    pub together: Vec<Member>,
    /// Members that begin without the application's state. With [`Builder::state_transfer`](super::Builder) they
    /// receive it.
    pub fresh: Vec<Member>,
}

impl View {
    /// Whether a socket is a member.
    #[must_use]
    pub fn contains(&self, port: PortId) -> bool {
        self.members.iter().any(|member| member.port == port)
    }
}

/// A message of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The payload.
    pub data: Vec<u8>,
    /// The sender, which may be this member.
    pub from: Member,
    /// The view in which it was sent and is delivered.
    pub view: ViewId,
    /// Its place in the order of the view, from 1. Small messages that were sent together share a place.
    pub place: u64,
    /// The view ended before it was known that all of its members have this safe message: the members in
    /// [`View::together`] of the next view have it. Only with [`Partition::All`](super::Partition::All) may others have
    /// gone on without it.
    pub transitional: bool,
}

/// Names an atomic message of this member, from [`Ordered::begin_atomic`](super::Ordered::begin_atomic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtomicId(pub(super) u64);

/// A request for the state of the application, for [`Ordered::give_state`](super::Ordered::give_state).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRequest {
    pub(super) view: vsync::ViewId,
}

/// What happens in an ordered group. Members that move together from one view to the next see the same messages and
/// views in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// A new view.
    View(View),
    /// Members have joined, and this member is to give them the application's state as it is now, after everything that
    /// was received before and nothing else: call [`Ordered::give_state`](super::Ordered::give_state).
    StateWanted(StateRequest),
    /// The state of the application, from the most senior member. The view that admits this member follows, and then
    /// the messages that the state does not contain.
    State(Vec<u8>),
    /// The outcome of an atomic message that no call waits for.
    Outcome {
        /// The message.
        id: AtomicId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// This member's component has no majority. Nothing is delivered until it has one again; a view follows then.
    Blocked,
    /// The group went on without this member, whose state is void. Its own messages since the last that it received
    /// may be lost. It joins again by itself: the state and a view follow.
    Excluded,
    /// This member of the TIPC group is ignored: it has another order, partition policy, window or state transfer.
    Incompatible(Member),
}

impl Incoming {
    /// The message, if this is one.
    #[must_use]
    pub fn message(self) -> Option<Message> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The view, if this is one.
    #[must_use]
    pub fn view(self) -> Option<View> {
        match self {
            Self::View(view) => Some(view),
            _ => None,
        }
    }
}

/// The name of a socket in the protocol.
pub(super) fn id_of(port: PortId) -> vsync::MemberId {
    vsync::MemberId(u64::from(port.node.0) << 32 | u64::from(port.port))
}

/// The socket with a name.
pub(super) fn port_of(id: vsync::MemberId) -> PortId {
    PortId { port: id.0 as u32, node: NodeAddr((id.0 >> 32) as u32) }
}

impl From<vsync::ViewId> for ViewId {
    fn from(id: vsync::ViewId) -> Self {
        Self { round: id.round, coordinator: port_of(id.coordinator) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sockets_correspond() {
        let port = PortId { port: 0xffff_fff0, node: NodeAddr(0x0100_1001) };
        assert_eq!(port_of(id_of(port)), port);
    }
}
