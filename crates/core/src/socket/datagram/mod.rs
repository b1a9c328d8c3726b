//! A connectionless socket: datagrams, multicasts, and a group that it may be in. Spec: tipc.md §7, §8.7, §9.

mod multicast_sync;
mod overflow;
mod receive;
mod send;

use super::base::Base;
use super::call::Call;
use super::error::{ConnectError, SendError};
use super::group::GroupCall;
use super::types::{Destination, Readiness, WaitReason};
use crate::group::Group;
use crate::time::Time;
use crate::wire::ErrorCode;
use multicast_sync::MulticastSync;
use overflow::Overflow;

/// The receivers of the last message, among which the node may choose. Decision 50.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Anycast {
    /// At most one, or it was no anycast.
    #[default]
    One,
    /// The receiver was chosen among several: only if all are full the next message waits.
    Several,
    /// All were full. Ends with the next wake-up, of whichever.
    AllFull,
}

/// What a connectionless socket has beside a [`Base`].
#[derive(Debug, Default)]
pub(super) struct Datagram {
    /// Destination of sends without one.
    default_to: Option<Destination>,
    anycast: Anycast,
    overflow: Overflow,
    sync: MulticastSync,
    /// The group that the socket is in.
    group: Option<Box<Group>>,
}

impl Datagram {
    pub(super) fn default_to(&self) -> Option<Destination> {
        self.default_to
    }

    /// Sets the destination of sends without one, or removes it.
    pub(super) fn connect(&mut self, to: Option<Destination>) -> Result<(), ConnectError> {
        if self.group.is_some() {
            return Err(ConnectError::InGroup);
        }
        if matches!(to, Some(Destination::Range(range)) if !range.is_valid()) {
            return Err(SendError::InvalidDestination.into());
        }
        self.default_to = to;
        Ok(())
    }

    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_deref()
    }

    pub(super) fn group_mut(&mut self) -> Option<&mut Group> {
        self.group.as_deref_mut()
    }

    /// The socket has joined a group, or left it.
    pub(super) fn set_group(&mut self, group: Option<Box<Group>>) {
        self.group = group;
    }

    /// A call about the group, if the socket is in one.
    #[inline]
    pub(super) fn group_call<'a>(&'a mut self, call: &'a mut Call<'_>) -> Option<GroupCall<'a>> {
        let waiting = self.overflow.bytes() + self.sync.bytes();
        Some(GroupCall::new(self.group.as_deref_mut()?, waiting as u64, call))
    }

    /// The receivers of the last message.
    pub(super) fn anycast(&self) -> Anycast {
        self.anycast
    }

    pub(super) fn set_anycast(&mut self, anycast: Anycast) {
        self.anycast = anycast;
    }

    /// Whether receivers are chosen among several, so that no congestion delays a message.
    fn chooses_receiver(&self, base: &Base) -> bool {
        self.anycast != Anycast::One && !base.congestion.is_held()
    }

    /// Bytes of the messages that wait outside of the queue, and of the members of the group.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        let group = self.group.as_ref().map_or(0, |group| group.bytes());
        (self.overflow.bytes() + self.sync.bytes() + group) as u64
    }

    #[inline]
    pub(super) fn readiness(&self, base: &Base) -> Readiness {
        let takes_datagrams = match self.chooses_receiver(base) {
            true => self.anycast != Anycast::AllFull,
            false => base.congestion.is_empty(),
        };
        // Not before there is, or was, a member to send to; nor while a send waits for one.
        let is_open = |group: &Group| group.has_met() && group.blocked_by().is_none();
        Readiness {
            readable: !base.queue.is_empty(),
            writable: takes_datagrams && self.group().is_none_or(is_open),
            ..Readiness::default()
        }
    }

    /// What the last call would still wait for, if that concerns receivers or members.
    pub(super) fn wait_reason(&self, reason: WaitReason) -> Option<WaitReason> {
        match reason {
            WaitReason::ReceiversFull { .. } => (self.anycast == Anycast::AllFull).then_some(reason),
            WaitReason::MemberWindow { .. } | WaitReason::MemberAck { .. } => {
                super::group::wait_reason(self.group()?)
            }
            _ => None,
        }
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        let late = self.group().and_then(Group::deadline);
        // The most frequent case: called around every operation, mostly on idle sockets.
        if self.sync.is_empty() && !self.overflow.is_full() {
            return late;
        }
        [self.sync.deadline(), self.overflow.deadline(), late].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time, call: &mut Call<'_>) {
        for msg in self.sync.expire(now) {
            self.admit(now, msg, call);
        }
        if let Some(mut call) = self.group_call(call) {
            call.handle_timeout(now);
        }
        for msg in self.overflow.expire(now, &mut call.base.queue) {
            call.respond_overload(msg);
        }
    }

    /// A link, or a receiver on the own node, accepts messages again.
    pub(super) fn wakeup(&mut self, call: &mut Call<'_>) {
        if self.anycast == Anycast::AllFull {
            self.anycast = Anycast::Several;
        }
        if let Some(mut call) = self.group_call(call) {
            call.send_kept();
        }
    }

    /// Ends the receives that wait. Messages of a group stay.
    pub(super) fn shut_down(&mut self, call: &mut Call<'_>) {
        call.base.shut_down();
        if self.group.is_none() && !call.base.is_closed() {
            self.return_all(ErrorCode::ConnShutdown, call);
        }
    }

    /// The socket has left its group and is closed.
    pub(super) fn close(&mut self, call: &mut Call<'_>) {
        self.return_all(ErrorCode::NoPort, call);
        self.overflow = Overflow::default();
        self.sync = MulticastSync::default();
        call.base.close();
    }

    fn return_all(&mut self, code: ErrorCode, call: &mut Call<'_>) {
        call.base.queue.drop_partly_read();
        call.return_all(code);
        for msg in self.overflow.take_all() {
            call.respond(msg, code);
        }
    }
}
