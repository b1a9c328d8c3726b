//! What a socket asks for when it joins a group, and why that is refused. Spec: tipc.md §9.1.

use thiserror::Error;

use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr};
use crate::limits::RESERVED_TYPES;
use crate::socket::{BindError, Errno};

use super::policy::SlowCounters;
use super::state::MemberState;

/// TIPC_GROUP_LOOPBACK.
const LOOPBACK: u32 = 1;
/// TIPC_GROUP_MEMBER_EVTS.
const MEMBER_EVENTS: u32 = 2;
/// Highest number of a scope that a request may have: node.
const HIGHEST_SCOPE: u32 = 3;

/// Membership of a socket in a group. Spec: tipc.md §9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupRequest {
    /// The group (a service type, 64 or above), and the instance by which other members address this one.
    pub member: ServiceAddr,
    /// How far the group extends. Groups of different scope are different groups.
    pub scope: Scope,
    /// The socket also gets its own messages: it is a member for itself.
    pub loopback: bool,
    /// Members that join and leave are reported to the socket.
    pub events: bool,
}

impl GroupRequest {
    /// Membership in a group of the cluster, without loopback and events.
    #[must_use]
    pub const fn new(group: u32, instance: u32) -> Self {
        let member = ServiceAddr { service: group, instance };
        Self { member, scope: Scope::Cluster, loopback: false, events: false }
    }

    /// With the socket's own messages.
    #[must_use]
    pub const fn with_loopback(self) -> Self {
        Self { loopback: true, ..self }
    }

    /// With events of members.
    #[must_use]
    pub const fn with_events(self) -> Self {
        Self { events: true, ..self }
    }

    /// Limited to this node.
    #[must_use]
    pub const fn on_this_node(self) -> Self {
        Self { scope: Scope::Node, ..self }
    }

    /// The request of a program: type, instance, scope and flags of `struct tipc_group_req`.
    ///
    /// # Errors
    /// [`JoinError::Reserved`], [`JoinError::Scope`].
    pub const fn from_words([group, instance, scope, flags]: [u32; 4]) -> Result<Self, JoinError> {
        if group < RESERVED_TYPES {
            return Err(JoinError::Reserved);
        }
        if scope > HIGHEST_SCOPE {
            return Err(JoinError::Scope(scope));
        }
        let scope = if scope == HIGHEST_SCOPE { Scope::Node } else { Scope::Cluster };
        let member = ServiceAddr { service: group, instance };
        Ok(Self { member, scope, loopback: flags & LOOPBACK != 0, events: flags & MEMBER_EVENTS != 0 })
    }

    /// The request as a program makes it.
    #[must_use]
    pub const fn to_words(self) -> [u32; 4] {
        let flags = self.loopback as u32 * LOOPBACK + self.events as u32 * MEMBER_EVENTS;
        [self.member.service, self.member.instance, self.scope.number() as u32, flags]
    }
}

/// A socket could not join a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum JoinError {
    /// The group's number is below 64.
    #[error("group below 64 is reserved (join a group of 64 or above)")]
    Reserved,
    /// The scope is unknown.
    #[error("invalid scope {0} (2 for the cluster, 3 for the node)")]
    Scope(u32),
    /// The socket is in a group.
    #[error("the socket is in a group already (leave it, or use another socket)")]
    AlreadyJoined,
    /// Sockets of this kind make connections.
    #[error("only RDM and DGRAM sockets join groups (open another socket)")]
    WrongKind,
    /// The binding was refused.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The engine is without groups.
    #[error("the engine of this socket is without groups (use another engine)")]
    Unsupported,
    /// A value of the policy is out of its range.
    #[error(
        "group policy out of range (1 to 65536 keys, 1 byte to 64 MiB, a limit of 1 ms to one hour for an eviction)"
    )]
    Policy,
    /// The engine is without policies.
    #[error(
        "the engine of this socket always waits for slow members (use the default policy, or another engine)"
    )]
    PolicyUnsupported,
}

impl JoinError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Reserved | Self::AlreadyJoined => Errno::Access,
            Self::Scope(_) | Self::Policy => Errno::Invalid,
            Self::WrongKind => Errno::NoProtocolOption,
            Self::Unsupported | Self::PolicyUnsupported => Errno::NotSupported,
            Self::Bind(error) => error.errno(),
        }
    }
}

/// A socket could not leave its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LeaveError {
    /// The socket is in no group.
    #[error("the socket is in no group (join one first)")]
    NotJoined,
}

impl LeaveError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::NotJoined => Errno::Invalid,
        }
    }
}

/// A member, for operators and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberInfo {
    /// The member's socket; its node is [`crate::NodeAddr::NONE`] if it is on this node.
    pub port: PortId,
    /// Its instance.
    pub instance: u32,
    /// State.
    pub state: MemberState,
    /// Blocks that may still be sent to it.
    pub window: u16,
    /// Blocks that it may still send.
    pub advertised: u32,
    /// Blocks received from it and not read.
    pub unread: u32,
    /// Messages of it that wait for an earlier one.
    pub deferred: usize,
    /// What it did not get because it is slow.
    pub slow: SlowCounters,
}

impl MemberInfo {
    /// With the node `own`, if the member is on this node.
    #[must_use]
    pub fn on(self, own: NodeAddr) -> Self {
        Self { port: self.port.on(own), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_requests_are_the_same() {
        for flags in 0..4 {
            for scope in [2, 3] {
                let words = [4300, 7, scope, flags];
                assert_eq!(GroupRequest::from_words(words).unwrap().to_words(), words);
            }
        }
        assert_eq!(GroupRequest::from_words([4300, 7, 0, 0]), Ok(GroupRequest::new(4300, 7)));
        assert_eq!(GroupRequest::from_words([4300, 7, 1, 0]), Ok(GroupRequest::new(4300, 7)));
        let local = GroupRequest::new(4300, 7).on_this_node().with_loopback().with_events();
        assert_eq!(GroupRequest::from_words([4300, 7, 3, 3]), Ok(local));
    }

    #[test]
    fn reserved_groups_and_unknown_scopes_are_refused() {
        assert_eq!(GroupRequest::from_words([63, 1, 2, 0]), Err(JoinError::Reserved));
        assert_eq!(GroupRequest::from_words([64, 1, 4, 0]), Err(JoinError::Scope(4)));
        assert_eq!(JoinError::Reserved.errno(), Errno::Access);
        assert_eq!(JoinError::Scope(4).errno(), Errno::Invalid);
        assert_eq!(LeaveError::NotJoined.errno(), Errno::Invalid);
    }
}
