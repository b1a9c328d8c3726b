//! Communication groups. Spec: tipc.md §9.

use utipc_core::socket::{GroupMessageKind, Received};

use crate::engine::Wait;
use crate::{
    Destination, GroupPolicy, GroupRequest, MemberInfo, Node, PortId, Result, ServiceAddress, ServiceRange,
    Socket,
};

/// A membership in a communication group: a set of sockets on any nodes that send to one another.
///
/// A message goes to one member ([`Group::send`], [`Group::anycast`]), to all members with an instance
/// ([`Group::multicast`]) or to all ([`Group::broadcast`]). Each member receives the messages of one sender in the
/// order in which they were sent, over all four calls, none twice and none left out, as long as both are members. A
/// member that does not read stops those who send to it: their calls wait, and [`Socket::wait_reason`] names it. With a
/// policy ([`Group::join_with_policy`]) it does not: messages to it are dropped or replaced by newer ones, or it is
/// evicted.
///
/// Dropping the value leaves the group; the other members are told.
///
/// ```
/// # use utipc::{Group, GroupIncoming, GroupRequest, Node};
/// # let node = Node::builder().isolated().start()?;
/// let red = Group::join(&node, GroupRequest::new(4300, 1).with_events())?;
/// let blue = Group::join(&node, GroupRequest::new(4300, 2))?;
/// let Some(joined) = red.receive()?.joined() else { panic!("blue is the first news") };
/// assert_eq!(joined.instance, 2);
///
/// red.broadcast(b"to all")?;
/// red.anycast(2, b"to one of them")?;
/// blue.send(red.socket().port(), b"to you")?;
/// for expected in [&b"to all"[..], b"to one of them"] {
///     assert!(matches!(blue.receive()?, GroupIncoming::Message { data, .. } if data == expected));
/// }
/// let GroupIncoming::Message { data, from, .. } = red.receive()? else { panic!("blue has sent") };
/// assert_eq!((&data[..], from), (&b"to you"[..], joined));
///
/// drop(blue);
/// assert_eq!(red.receive()?, GroupIncoming::Left(joined));
/// # Ok::<(), utipc::Error>(())
/// ```
#[derive(Debug)]
pub struct Group {
    socket: Socket,
    request: GroupRequest,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Its socket, the destination for [`Group::send`].
    pub port: PortId,
    /// Its instance, which other members may share.
    pub instance: u32,
}

/// How a message was sent to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SentTo {
    /// To this member alone: by [`Group::send`], by [`Group::anycast`], or by [`Group::multicast`] if no other member
    /// has this one's instance.
    Member,
    /// To all members with this one's instance.
    Instance,
    /// To all members.
    All,
    /// Not known: the kernel engine does not tell.
    Unknown,
}

/// What a member receives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupIncoming {
    /// A message of a member.
    Message {
        /// The payload.
        data: Vec<u8>,
        /// The sender.
        from: Member,
        /// To whom it was sent.
        to: SentTo,
    },
    /// A member has joined, or was there before; only with [`GroupRequest::with_events`].
    Joined(Member),
    /// A member has left, has ended, or its node is lost; only with [`GroupRequest::with_events`]. Everything that it
    /// sent and that arrived comes before this event.
    Left(Member),
    /// A member was left out because it held others up; only with [`GroupRequest::with_events`], and if this socket
    /// joined with a policy. With the port of this socket: this one was, which is reported also without events. Sends
    /// fail then, until it leaves the group and joins again.
    Evicted(Member),
}

impl GroupIncoming {
    /// `None` for a message of a socket that is no member.
    fn new(received: Received, data: Vec<u8>) -> Option<Self> {
        let Received { source, group, .. } = received;
        let group = group?;
        let from = Member { port: source, instance: group.member.instance };
        let to = match group.kind {
            GroupMessageKind::Joined => return Some(Self::Joined(from)),
            GroupMessageKind::Left => return Some(Self::Left(from)),
            GroupMessageKind::Evicted => return Some(Self::Evicted(from)),
            GroupMessageKind::Unicast => SentTo::Member,
            GroupMessageKind::Multicast => SentTo::Instance,
            GroupMessageKind::Broadcast => SentTo::All,
            GroupMessageKind::Unknown => SentTo::Unknown,
        };
        Some(Self::Message { data, from, to })
    }

    /// The member that has joined, if this tells so.
    #[must_use]
    pub fn joined(&self) -> Option<Member> {
        match self {
            Self::Joined(member) => Some(*member),
            _ => None,
        }
    }

    /// The member that has left, or was evicted, if this tells so.
    #[must_use]
    pub fn left(&self) -> Option<Member> {
        match self {
            Self::Left(member) | Self::Evicted(member) => Some(*member),
            _ => None,
        }
    }
}

impl Group {
    /// Opens a socket and joins a group. The call does not wait for other members: a node that has just started learns
    /// of them as it finds its neighbours.
    ///
    /// # Errors
    /// [`Error::Join`](crate::Error::Join) for a group below 64, or a kernel without groups; errors of [`Node::rdm`].
    pub fn join(node: &Node, request: GroupRequest) -> Result<Self> {
        Self::join_with(node.rdm()?, request)
    }

    /// Joins a group with a socket that the caller has opened: RDM or DGRAM, which is the same here.
    ///
    /// # Errors
    /// As [`Group::join`]; also if the socket is in a group, or makes connections.
    pub fn join_with(socket: Socket, request: GroupRequest) -> Result<Self> {
        socket.join(request)?;
        Ok(Self { socket, request })
    }

    /// Joins a group with a policy for slow members, which concerns what this member sends.
    ///
    /// ```
    /// # use utipc::{Group, GroupPolicy, GroupRequest, Node, SlowMember};
    /// # let node = Node::builder().isolated().start()?;
    /// let policy = GroupPolicy::new(SlowMember::Drop);
    /// let red = Group::join_with_policy(node.rdm()?, GroupRequest::new(4300, 1), policy)?;
    /// let blue = Group::join(&node, GroupRequest::new(4300, 2))?;
    /// for _ in 0..10 {
    ///     red.broadcast(&[7; 60_000])?; // blue does not read, and red does not wait
    /// }
    /// assert!(red.members()?[0].slow.dropped > 0);
    /// # drop(blue);
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Socket::join_with_policy`].
    pub fn join_with_policy(socket: Socket, request: GroupRequest, policy: GroupPolicy) -> Result<Self> {
        socket.join_with_policy(request, policy)?;
        Ok(Self { socket, request })
    }

    /// The members, by address, and what each of them did not get because it is slow.
    ///
    /// # Errors
    /// As [`Socket::group_members`].
    pub fn members(&self) -> Result<Vec<MemberInfo>> {
        self.socket.group_members()
    }

    /// What the membership was requested with.
    #[must_use]
    pub fn request(&self) -> GroupRequest {
        self.request
    }

    /// The socket of this member, for time limits, options, polling and [`Socket::wait_reason`].
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Leaves the group and returns the socket. Messages that have arrived can still be received from it.
    ///
    /// # Errors
    /// [`Error::DaemonDied`](crate::Error::DaemonDied) without a daemon.
    pub fn leave(self) -> Result<Socket> {
        self.socket.leave()?;
        Ok(self.socket)
    }

    /// Sends to all members; to this one only with [`GroupRequest::with_loopback`].
    ///
    /// # Errors
    /// As [`Socket::send_to`]; [`Error::is_unreachable`](crate::Error::is_unreachable) if there is no other member.
    pub fn broadcast(&self, data: &[u8]) -> Result<usize> {
        self.socket.send(data)
    }

    /// Sends to all members with an instance.
    ///
    /// # Errors
    /// As [`Group::broadcast`], if there is no such member.
    pub fn multicast(&self, instance: u32, data: &[u8]) -> Result<usize> {
        self.socket.send_to(data, ServiceRange::new(self.request.member.service, instance, instance))
    }

    /// Sends to one of the members with an instance, the one with the least unread; equals take turns.
    ///
    /// # Errors
    /// As [`Group::multicast`].
    pub fn anycast(&self, instance: u32, data: &[u8]) -> Result<usize> {
        self.socket.send_to(data, ServiceAddress::new(self.request.member.service, instance))
    }

    /// Sends to one member.
    ///
    /// # Errors
    /// As [`Group::broadcast`], if the socket is no member.
    pub fn send(&self, to: PortId, data: &[u8]) -> Result<usize> {
        self.socket.send_to(data, Destination::Port(to))
    }

    /// [`Group::broadcast`] with a key: a slow member gets the newest message of each key, if this one joined with
    /// [`SlowMember::Conflate`](crate::SlowMember::Conflate). The other calls send with key 0.
    ///
    /// # Errors
    /// As [`Group::broadcast`].
    pub fn broadcast_keyed(&self, key: u64, data: &[u8]) -> Result<usize> {
        self.socket.send_keyed(data, None, key)
    }

    /// [`Group::multicast`] with a key.
    ///
    /// # Errors
    /// As [`Group::multicast`].
    pub fn multicast_keyed(&self, instance: u32, key: u64, data: &[u8]) -> Result<usize> {
        let to = ServiceRange::new(self.request.member.service, instance, instance);
        self.socket.send_keyed(data, Some(to.into()), key)
    }

    /// [`Group::send`] with a key.
    ///
    /// # Errors
    /// As [`Group::send`].
    pub fn send_keyed(&self, to: PortId, key: u64, data: &[u8]) -> Result<usize> {
        self.socket.send_keyed(data, Some(Destination::Port(to)), key)
    }

    /// [`Group::receive`], and whether earlier messages of the same member are missing: its policy has dropped them, or
    /// replaced them by newer ones. Only if this socket joined with a policy.
    ///
    /// # Errors
    /// As [`Group::receive`].
    pub fn receive_with_loss(&self) -> Result<(GroupIncoming, bool)> {
        self.socket.receive_in_group_with_loss(self.socket.receive_wait())
    }

    /// Receives the next message or event. Messages of one member arrive in order, and so do its joining and leaving
    /// among them.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock), [`Error::TimedOut`](crate::Error::TimedOut),
    /// [`Error::Receive`](crate::Error::Receive).
    pub fn receive(&self) -> Result<GroupIncoming> {
        self.socket.receive_in_group(self.socket.receive_wait())
    }
}

impl Socket {
    /// Receives what a member has sent or done. Skips messages from before the join.
    pub(crate) fn receive_in_group(&self, wait: Wait) -> Result<GroupIncoming> {
        self.receive_in_group_with_loss(wait).map(|(incoming, _)| incoming)
    }

    pub(crate) fn receive_in_group_with_loss(&self, wait: Wait) -> Result<(GroupIncoming, bool)> {
        loop {
            let mut data = Vec::new();
            let received = self.receive_all_of(&mut data, wait)?;
            let after_loss = received.after_loss;
            if let Some(incoming) = GroupIncoming::new(received, data) {
                return Ok((incoming, after_loss));
            }
        }
    }
}
