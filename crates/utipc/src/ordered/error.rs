//! Why a call on an ordered group fails or waits, and why a membership ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::{Errno, PortId};

/// A call on an ordered group failed; see [`Error::Ordered`](crate::Error::Ordered).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OrderedError {
    /// The message does not fit.
    #[error("the message has {len} bytes, more than {most} (send it in parts)")]
    TooLong {
        /// Its length.
        len: usize,
        /// The largest length.
        most: usize,
    },
    /// The state does not fit.
    #[error("the state has {len} bytes, more than {most} (raise `max_state` at all members)")]
    StateTooLong {
        /// Its length.
        len: usize,
        /// The limit of this member.
        most: usize,
    },
    /// Atomic messages need a primary component.
    #[error("a group in which all components go on has no atomic messages (join it with Partition::Primary)")]
    NeedsPrimary,
    /// The call's time is over.
    #[error("{} {reason}", if limit.is_zero() { "it would block" } else { "timed out" })]
    Waiting {
        /// What the call waited for.
        reason: Waiting,
        /// The time limit; zero if the call was not to wait.
        limit: Duration,
    },
    /// This process is no member any more.
    #[error("the membership has ended: {0}")]
    Ended(Ended),
}

/// What a call on an ordered group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Waiting {
    /// Nothing has arrived.
    Nothing,
    /// This member has no view yet.
    Joining,
    /// The state has not arrived.
    State,
    /// The members agree on the next view.
    ViewChange,
    /// The component has no majority.
    NoMajority,
    /// Earlier messages are not acknowledged by all members.
    Window {
        /// The member that is furthest behind, which only the first member of the view knows.
        slowest: Option<PortId>,
    },
    /// This program does not receive its messages, so that it does not acknowledge them either.
    Unread,
    /// A member of the TIPC group does not read its socket.
    Stalled {
        /// The member.
        member: PortId,
    },
    /// The outcome of an atomic message is open.
    Outcome,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("waiting for a message or a view"),
            Self::Joining => f.write_str(
                "waiting for a view: no member of the group is in contact (start one that may found the group, or \
                 check the links)",
            ),
            Self::State => {
                f.write_str("waiting for the state (the most senior member must answer Incoming::StateWanted)")
            }
            Self::ViewChange => f.write_str("waiting for the members to agree on the next view (try again)"),
            Self::NoMajority => f.write_str(
                "waiting for a majority of the last view (restore the links, or start its members' programs)",
            ),
            Self::Window { slowest: Some(member) } => {
                write!(f, "waiting for member {member} to receive earlier messages")
            }
            Self::Window { slowest: None } => f.write_str("waiting for a member to receive earlier messages"),
            Self::Unread => f.write_str("waiting for this program to receive its own messages (call `receive`)"),
            Self::Stalled { member } => write!(f, "waiting for member {member} to read its socket"),
            Self::Outcome => f.write_str("waiting for the outcome of the message (raise the time limit)"),
        }
    }
}

/// Why a membership has ended.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Ended {
    /// By [`Ordered::leave`](super::Ordered::leave).
    #[error("this member has left")]
    Left,
    /// This program did not receive while others had to wait for it.
    #[error(
        "this program did not receive its messages, and senders waited for it (receive faster, and join again)"
    )]
    SlowConsumer,
    /// Another member's messages contradict the protocol.
    #[error("a member violates the protocol (check that all run the same version, and join again)")]
    Protocol,
    /// The state of the group is longer than this member accepts.
    #[error("the state of the group has more than {most} bytes (raise `max_state`, and join again)")]
    StateTooLong {
        /// The limit of this member.
        most: usize,
    },
    /// The socket failed, as when the daemon ends.
    #[error("{0}, and join again")]
    Transport(Arc<crate::Error>),
    /// The process has been forked: the member stays in the parent.
    #[error("the member stays in the process that joined (join in the child)")]
    Forked,
}

impl OrderedError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::TooLong { .. } | Self::StateTooLong { .. } => Errno::MessageSize,
            Self::NeedsPrimary => Errno::NotSupported,
            Self::Waiting { .. } => Errno::Again,
            Self::Ended(_) => Errno::NotConnected,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    pub(crate) fn is_would_block(&self) -> bool {
        matches!(self, Self::Waiting { limit, .. } if limit.is_zero())
    }
}
