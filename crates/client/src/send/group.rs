//! Sending to the members of a group: through a lane to each if all are on this host, otherwise through the node.
//!
//! All messages of a socket take the same path at a time, so each member gets them in order. The daemon says when a
//! member has come or gone; then this module asks for the lanes again. Decision 50.

use utipc_attach::{Failure, Request, SocketCall};
use utipc_core::Load;
use utipc_core::addr::{PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::group::CopyOf;
use utipc_core::socket::{Address, Destination, GroupAddress, SendError};
use utipc_core::wire::MessageType;
use utipc_lanes::{LaneError, Route};

use crate::error::Error;
use crate::send::SendPath;
use crate::send::members::Member;
use crate::send::outbox::SendHalf;

/// Members that are compared for an anycast: those that are next in turn.
const COMPARED: usize = 8;
/// Requests for lanes in a row while members come and go; then a message goes through the node.
const ATTEMPTS: u32 = 3;
/// The range that stands for all members.
const ALL: (u32, u32) = (0, u32::MAX);

/// Whether a message may be written into lanes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Enough,
    /// The reader of a lane has to read first.
    Waits,
    /// No lane takes a message of this size, or the members have changed.
    ByNode,
}

/// The header of copies of one message.
#[derive(Clone, Copy, Debug)]
struct Copies {
    copy_of: CopyOf,
    /// Of a multicast: the instance that its members have in common.
    instance: u32,
}

impl SendPath {
    /// Sends to members: without a destination to all, to a service address to one with that instance, to a range to
    /// all with its lower instance.
    pub(super) fn send_to_members(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        let room = if self.has_lanes_to_members(half)? {
            self.send_by_group_lanes(half, data, to)?
        } else {
            Room::ByNode
        };
        match room {
            Room::Enough => Ok(Some(data.len())),
            Room::Waits => Ok(None),
            Room::ByNode => {
                // The daemon ends lanes that this socket writes before it sends.
                let sent = self.send_through_node(half, data, node_request);
                if half.lanes.has_lanes() {
                    self.leave_group_lanes(half);
                }
                sent
            }
        }
    }

    /// Whether there is a lane to each member.
    fn has_lanes_to_members(&self, half: &mut SendHalf) -> Result<bool, Error> {
        self.process_events(half)?;
        if self.base().state.hosted.get() {
            return Ok(false);
        }
        if let Some(uses_lanes) = half.members.next_uses_lanes() {
            return Ok(uses_lanes);
        }
        for _ in 0..ATTEMPTS {
            match self.base().attachment.request_group_lanes(&self.base().state) {
                Ok(true) => {
                    half.members.use_lanes();
                    // Among them may be one about another member: older than the reply, or newer.
                    self.process_events(half)?;
                    if half.members.uses_lanes() {
                        let members = half.lanes.members().into_iter();
                        half.members.all = members.map(|(port, addr)| Member { port, addr }).collect();
                        return Ok(true);
                    }
                }
                Ok(false) => {
                    self.leave_group_lanes(half);
                    return Ok(false);
                }
                // Other processes have the socket too.
                Err(Error::Failed(_)) => {
                    half.members.use_node();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Stops writing lanes, which the daemon has ended.
    fn leave_group_lanes(&self, half: &mut SendHalf) {
        half.lanes.leave_all();
        half.members.use_node();
        half.members.all.clear();
    }

    fn send_by_group_lanes(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Room, Error> {
        let members = std::mem::take(&mut half.members.all);
        let sent = self.send_to_some(half, &members, data, to);
        half.members.all = members;
        sent
    }

    fn send_to_some(
        &self,
        half: &mut SendHalf,
        members: &[Member],
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Room, Error> {
        let unreachable = || Err(Failure::Send(SendError::HostUnreachable).into());
        match to {
            None => {
                let copies = Copies { copy_of: CopyOf::Broadcast, instance: 0 };
                self.send_copies(half, members, copies, data)
            }
            Some(Destination::Port(to)) => match members.iter().find(|member| member.port == to.port) {
                Some(member) if self.base().is_here(to.node) => self.send_to_one(half, *member, data),
                _ => unreachable(),
            },
            Some(Destination::Service { addr, .. }) => {
                match self.choose_member(half, members, addr.instance, data.len())? {
                    Some(chosen) => self.send_to_one(half, chosen, data),
                    None => unreachable(),
                }
            }
            Some(Destination::Range(range)) if range.is_valid() => {
                let instance = range.lower;
                let some: Vec<_> =
                    members.iter().filter(|member| member.addr.instance == instance).copied().collect();
                match some.as_slice() {
                    [] => unreachable(),
                    [only] => self.send_to_one(half, *only, data),
                    some => {
                        let copies = Copies { copy_of: CopyOf::Multicast, instance };
                        self.send_copies(half, some, copies, data)
                    }
                }
            }
            Some(Destination::Range(_)) => Err(Failure::Send(SendError::InvalidDestination).into()),
        }
    }

    /// The member with this instance that has read most of what this socket has sent to it, of those that are next in
    /// turn and have room; if none has, the one to wait for. `None`: there is no such member.
    fn choose_member(
        &self,
        half: &mut SendHalf,
        members: &[Member],
        instance: u32,
        bytes: usize,
    ) -> Result<Option<Member>, Error> {
        let next = members.partition_point(|member| member.port <= half.members.last_anycast);
        let in_turn = members[next..].iter().chain(&members[..next]);
        let mut best = None;
        for member in in_turn.filter(|member| member.addr.instance == instance).take(COMPARED) {
            let is_full = self.room_for(half, member.port, bytes)? != Room::Enough;
            let load = if is_full { Load::Full } else { Load::of_blocks(half.lanes.unread(member.port)) };
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, *member));
            }
            if load == Load::IDLE {
                break;
            }
        }
        if let Some((_, Member { port, .. })) = best {
            half.members.last_anycast = port;
        }
        Ok(best.map(|(_, member)| member))
    }

    /// Whether the lane to a member takes a message of this size now.
    fn room_for(&self, half: &mut SendHalf, port: u32, bytes: usize) -> Result<Room, Error> {
        loop {
            let Err(error) = half.lanes.check_member_room(port, bytes) else { return Ok(Room::Enough) };
            if self.resolves(half, Route::Socket(port), error)? {
                continue;
            }
            return Ok(match error {
                LaneError::Full | LaneError::NoRing | LaneError::WindowFull => Room::Waits,
                _ => Room::ByNode,
            });
        }
    }

    fn send_to_one(&self, half: &mut SendHalf, member: Member, data: &[u8]) -> Result<Room, Error> {
        let room = self.room_for(half, member.port, data.len())?;
        match room {
            Room::Enough => {
                let copies = Copies { copy_of: CopyOf::Unicast, instance: 0 };
                self.send_copy_to_member(half, member, copies, data)?;
            }
            Room::Waits => half.lanes.wait_for_member(member.port),
            Room::ByNode => {}
        }
        Ok(room)
    }

    /// Sends to these members. No lane gets a copy before all have room.
    fn send_copies(
        &self,
        half: &mut SendHalf,
        members: &[Member],
        copies: Copies,
        data: &[u8],
    ) -> Result<Room, Error> {
        for member in members {
            let room = self.room_for(half, member.port, data.len())?;
            if room == Room::Waits {
                half.lanes.wait_for_member(member.port);
            }
            if room != Room::Enough {
                return Ok(room);
            }
        }
        let before = (half.lanes.messages, half.lanes.bytes);
        for member in members {
            self.send_copy_to_member(half, *member, copies, data)?;
        }
        // All copies count as one message.
        (half.lanes.messages, half.lanes.bytes) = (before.0 + 1, before.1 + data.len() as u64);
        Ok(Room::Enough)
    }

    /// Writes one copy into the lane to a member. If it has ended meanwhile, the node delivers this copy.
    fn send_copy_to_member(
        &self,
        half: &mut SendHalf,
        Member { port, addr }: Member,
        Copies { copy_of, instance }: Copies,
        data: &[u8],
    ) -> Result<(), Error> {
        let found = PortId { port, node: self.base().attachment.address() };
        let (kind, to) = match copy_of {
            CopyOf::Unicast => (MessageType::GroupUcast, Destination::Port(found)),
            CopyOf::Multicast => (
                MessageType::GroupMcast,
                Destination::Range(ServiceRange::new(addr.service, instance, instance)),
            ),
            CopyOf::Broadcast => {
                (MessageType::GroupBcast, Destination::Range(ServiceRange::new(addr.service, ALL.0, ALL.1)))
            }
        };
        let address = Address::Group(GroupAddress {
            kind,
            member: ServiceAddr { instance, ..addr },
            scope: Scope::Cluster,
            seqno: 0,
            ack_request: false,
            copy_of: CopyOf::Unicast,
            after_loss: false,
        });
        if half.lanes.send_to(self.base().own(), self.options(), port, address, data).is_ok() {
            return Ok(());
        }
        half.members.forget();
        let request = SocketCall::SendFound { to, found }.on(self.base().port());
        match self.give_to_node(data, &request) {
            // The node has taken the message, or the member is gone.
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
