//! Sending to the members of a group: through a lane to each if all are on this host, otherwise through the node.
//!
//! All messages of a socket take the same path at a time, so each member gets them in order. The daemon says when a
//! member has come or gone; then this module asks for the lanes again. Decision 39.

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, Reply, Request, SocketCall};
use utipc_core::Load;
use utipc_core::addr::{PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::group::CopyOf;
use utipc_core::socket::{Address, Destination, GroupAddress, SendError};
use utipc_core::wire::MessageType;
use utipc_lanes::{LaneError, Route};
use utipc_os::lock;

use crate::attachment::Attachment;
use crate::state::{SendHalf, SocketState};
use crate::{Error, Socket};

/// Messages that go through the node before the lanes that were refused are requested again.
const MESSAGES_BY_NODE: u32 = 256;
/// Members that are compared for an anycast: those that are next in turn.
const COMPARED: usize = 8;
/// Requests for lanes in a row while members come and go; then a message goes through the node.
const ATTEMPTS: u32 = 3;
/// The range that stands for all members.
const ALL: (u32, u32) = (0, u32::MAX);

/// How the messages of a socket to its group travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Path {
    /// The daemon has to be asked.
    #[default]
    Unknown,
    /// There is a lane to each member.
    Lanes,
    /// Through the node; the daemon is asked again after this many messages.
    Node(u32),
}

/// The members of a socket's group, as far as messages go to them by lanes.
#[derive(Debug, Default)]
pub(crate) struct Members {
    path: Path,
    /// With [`Path::Lanes`]: port and address of each member, by port.
    all: Vec<(u32, ServiceAddr)>,
    /// The member that got the last anycast.
    last_anycast: u32,
}

impl Members {
    /// The members have changed.
    pub(crate) fn forget(&mut self) {
        self.path = Path::Unknown;
    }

    /// A lane has ended. If it was in use, its reader has left, or does not take lanes any more.
    pub(crate) fn lane_is_over(&mut self) {
        if self.path == Path::Lanes {
            self.forget();
        }
    }
}

/// Whether a message may be written into lanes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Enough,
    /// The reader of a lane has to read first.
    Waits,
    /// No lane takes a message of this size, or the members have changed.
    ByNode,
}

impl Attachment {
    /// Lets a socket that has joined a group use lanes. Without them its messages go through the node.
    pub(crate) fn use_group_lanes(&self, socket: &SocketState) -> Result<(), Error> {
        let halves = (lock(&socket.receiver), lock(&socket.sender));
        // Before the notices about lanes are processed.
        socket.hosted.store(false, Relaxed);
        let requested = self.request_group_lanes(socket);
        if requested.is_err() {
            socket.hosted.store(true, Relaxed);
        }
        drop(halves);
        match requested {
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests lanes to all members; returns whether there are.
    pub(crate) fn request_group_lanes(&self, socket: &SocketState) -> Result<bool, Error> {
        let request = SocketCall::GroupLanes.on(socket.port);
        self.call(&request, &[], |reply, _| match reply {
            Reply::Number(number) => Some(number != 0),
            _ => None,
        })
    }
}

impl Socket {
    /// Sends to members: without a destination to all, to a service address to one with that instance, to a range to
    /// all with its lower instance.
    pub(crate) fn send_to_members(
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
        self.process_sender_events(half)?;
        if self.state.hosted.load(Relaxed) {
            return Ok(false);
        }
        match half.members.path {
            Path::Lanes => return Ok(true),
            Path::Node(left @ 1..) => {
                half.members.path = Path::Node(left - 1);
                return Ok(false);
            }
            Path::Node(0) | Path::Unknown => {}
        }
        for _ in 0..ATTEMPTS {
            match self.attachment.request_group_lanes(&self.state) {
                Ok(true) => {
                    half.members.path = Path::Lanes;
                    // Among them may be news of another member: older than the reply, or newer.
                    self.process_sender_events(half)?;
                    if half.members.path == Path::Lanes {
                        half.members.all = half.lanes.members();
                        return Ok(true);
                    }
                }
                Ok(false) => {
                    self.leave_group_lanes(half);
                    return Ok(false);
                }
                // Other processes have the socket too.
                Err(Error::Failed(_)) => {
                    half.members.path = Path::Node(MESSAGES_BY_NODE);
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
        half.members.path = Path::Node(MESSAGES_BY_NODE);
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
        members: &[(u32, ServiceAddr)],
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Room, Error> {
        let unreachable = || Err(Failure::Send(SendError::HostUnreachable).into());
        match to {
            None => self.send_copies(half, (members, None), data),
            Some(Destination::Port(to)) => match members.iter().find(|(port, _)| *port == to.port) {
                Some(member) if self.is_here(to.node) => self.send_to_one(half, *member, data),
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
                    members.iter().filter(|(_, addr)| addr.instance == instance).copied().collect();
                match some.as_slice() {
                    [] => unreachable(),
                    [only] => self.send_to_one(half, *only, data),
                    some => self.send_copies(half, (some, Some(instance)), data),
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
        members: &[(u32, ServiceAddr)],
        instance: u32,
        bytes: usize,
    ) -> Result<Option<(u32, ServiceAddr)>, Error> {
        let next = members.partition_point(|(port, _)| *port <= half.members.last_anycast);
        let in_turn = members[next..].iter().chain(&members[..next]);
        let mut best = None;
        for member in in_turn.filter(|(_, addr)| addr.instance == instance).take(COMPARED) {
            let is_full = self.room_for(half, member.0, bytes)? != Room::Enough;
            let load = if is_full { Load::Full } else { Load::of_blocks(half.lanes.unread(member.0)) };
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, *member));
            }
            if load == Load::IDLE {
                break;
            }
        }
        if let Some((_, (port, _))) = best {
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

    fn send_to_one(
        &self,
        half: &mut SendHalf,
        (port, member): (u32, ServiceAddr),
        data: &[u8],
    ) -> Result<Room, Error> {
        let room = self.room_for(half, port, data.len())?;
        match room {
            Room::Enough => self.send_copy_to_member(half, (port, member), (CopyOf::Unicast, 0), data)?,
            Room::Waits => half.lanes.wait_for_member(port),
            Room::ByNode => {}
        }
        Ok(room)
    }

    /// Sends to these members, which have `instance` in common if it is given. No lane gets a copy before all have
    /// room.
    fn send_copies(
        &self,
        half: &mut SendHalf,
        (members, instance): (&[(u32, ServiceAddr)], Option<u32>),
        data: &[u8],
    ) -> Result<Room, Error> {
        for (port, _) in members {
            let room = self.room_for(half, *port, data.len())?;
            if room == Room::Waits {
                half.lanes.wait_for_member(*port);
            }
            if room != Room::Enough {
                return Ok(room);
            }
        }
        let copy = instance.map_or((CopyOf::Broadcast, 0), |instance| (CopyOf::Multicast, instance));
        let before = (half.lanes.messages, half.lanes.bytes);
        for member in members {
            self.send_copy_to_member(half, *member, copy, data)?;
        }
        // All copies count as one message.
        (half.lanes.messages, half.lanes.bytes) = (before.0 + 1, before.1 + data.len() as u64);
        Ok(Room::Enough)
    }

    /// Writes one copy into the lane to a member. If it has ended meanwhile, the node delivers this copy.
    fn send_copy_to_member(
        &self,
        half: &mut SendHalf,
        (port, member): (u32, ServiceAddr),
        (copy_of, instance): (CopyOf, u32),
        data: &[u8],
    ) -> Result<(), Error> {
        let (kind, to) = match copy_of {
            CopyOf::Unicast => {
                (MessageType::GroupUcast, Destination::Port(PortId { port, node: self.attachment.address() }))
            }
            CopyOf::Multicast => (
                MessageType::GroupMcast,
                Destination::Range(ServiceRange::new(member.service, instance, instance)),
            ),
            CopyOf::Broadcast => {
                (MessageType::GroupBcast, Destination::Range(ServiceRange::new(member.service, ALL.0, ALL.1)))
            }
        };
        let address = Address::Group(GroupAddress {
            kind,
            member: ServiceAddr { instance, ..member },
            scope: Scope::Cluster,
            seqno: 0,
            ack_request: false,
            copy_of: CopyOf::Unicast,
            after_loss: false,
        });
        if half.lanes.send_to(self.own(), self.state.options(), port, address, data).is_ok() {
            return Ok(());
        }
        half.members.forget();
        let found = PortId { port, node: self.attachment.address() };
        let request = SocketCall::SendFound { to, found }.on(self.port());
        match self.give_to_node(data, &request) {
            // The node has taken the message, or the member is gone.
            Ok(_) | Err(Error::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
