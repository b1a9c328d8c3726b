//! Everything that a socket sends to: its lanes; what has no lane goes by the node.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::{Importance, NodeAddr, PortId};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Destination, SocketKind, WaitReason};
use utipc_lanes::Wakeup;

use super::head::{Address, Style};
use super::outbound::{Growth, OutLane, Put};
use super::pair::Pair;
use super::receive::Own;
use crate::names::{Alone, Group};

/// Blocks that a connection may have unread: a quarter of the receive buffer of 2 MiB. Spec: tipc.md §8.5.
const WINDOW: u32 = 512;
/// Sockets that were asked for a lane and have none, remembered at most.
const ASKED_MAX: usize = 1024;
/// Messages without a connection that go to other nodes by commands before there is a lane.
const FAR_BEFORE: u32 = 2;

/// What a send leads to.
#[derive(Debug)]
pub(crate) enum Step {
    /// So many bytes are on their way.
    Sent(usize),
    /// Wait for this lane's reader.
    Blocked,
    /// The receiver of a connectionless message is full.
    Overload,
    /// Ask the daemon for a larger ring, tell by [`Sender::granted`], then go on.
    Grow(Growth),
    /// No lane: send by the node.
    Node,
    /// A lane holds what no honest process writes: leave it and report it.
    Corrupt(LaneId),
}

/// Spreads port numbers: the daemon chooses them, so nobody can make them collide.
#[derive(Debug, Default)]
struct PortHasher(u64);

impl Hasher for PortHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        let product = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The sending half of a socket.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    lanes: HashMap<u32, OutLane, BuildHasherDefault<PortHasher>>,
    /// The lane of a connection; it has no other. Without a connection: the lane to the node, for other nodes.
    connection: Option<OutLane>,
    /// Messages that went to other nodes by commands.
    far: u32,
    /// Asked for a lane.
    asked: HashSet<u32>,
    /// Who got the last multicast.
    pub(crate) group: Option<Group>,
    /// Who got the last anycast, if there was no choice.
    pub(crate) alone: Option<Alone>,
    /// Where messages without a destination go.
    pub(crate) default_to: Option<Destination>,
    /// Lanes whose reader's process waits for a descriptor: the daemon tells it that there is something.
    tell: Vec<LaneId>,
    /// The lane that a call waits for: the socket at its end.
    blocked: Option<u32>,
    /// It waits for more than room there: node and level of a message that finds a full queue.
    congested: Option<(NodeAddr, u8)>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) window_waits: u64,
    pub(crate) link_waits: u64,
    pub(crate) overloads: u64,
}

impl Sender {
    /// Adds a lane.
    pub(crate) fn add(&mut self, lane: OutLane, kind: SocketKind) {
        self.asked.remove(&lane.other);
        if kind.is_connection_oriented() || lane.pair.is_nodes() {
            self.connection = Some(lane);
        } else {
            self.lanes.insert(lane.other, lane);
        }
    }

    /// Takes a lane out; `None` if it is not there.
    pub(crate) fn remove(&mut self, id: LaneId) -> Option<OutLane> {
        if self.connection.as_ref().is_some_and(|lane| lane.id == id) {
            return self.connection.take();
        }
        let other = self.lanes.values().find(|lane| lane.id == id)?.other;
        self.lanes.remove(&other)
    }

    pub(crate) fn has_lanes(&self) -> bool {
        self.connection.is_some() || !self.lanes.is_empty()
    }

    /// Whether a lane to this local socket shall be asked for, after a message to it went by the node: once.
    pub(crate) fn wants_lane(&mut self, to: u32) -> bool {
        if self.lanes.contains_key(&to) {
            return false;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        self.asked.insert(to)
    }

    /// Whether a lane to the node shall be asked for, after a message for another node went there by a command.
    pub(crate) fn wants_node_lane(&mut self) -> bool {
        self.far += 1;
        self.far >= FAR_BEFORE && self.connection.is_none() && self.wants_lane(0)
    }

    /// Whether there is a lane to each of these sockets.
    pub(crate) fn reaches_all(&self, ports: &[u32]) -> bool {
        ports.iter().all(|port| self.lanes.contains_key(port))
    }

    /// Sockets that took no lane may be asked again.
    pub(crate) fn forget_refusals(&mut self) {
        self.asked.clear();
    }

    /// One step of sending a message without a connection to the local socket `to` by its lane; call again after having
    /// done what it says.
    pub(crate) fn step_to(&mut self, own: Own, style: Style, to: u32, address: Address, data: &[u8]) -> Step {
        self.blocked = None;
        let Some(lane) = self.lanes.get_mut(&to) else { return Step::Node };
        if data.is_empty() {
            return Step::Sent(0);
        }
        match lane.put(style, PortId { port: own.port, node: own.node }, address, data) {
            Put::Sent(ring) => {
                if ring == Wakeup::TellDaemon {
                    self.tell.push(lane.id);
                }
                self.messages += 1;
                self.bytes += data.len() as u64;
                Step::Sent(data.len())
            }
            Put::Full(Some(growth)) => Step::Grow(growth),
            Put::Full(None) => {
                self.overloads += 1;
                Step::Overload
            }
            Put::Over => Step::Node,
            Put::Corrupt => Step::Corrupt(lane.id),
        }
    }

    /// One step of sending a message without a connection to a socket of another node; call again after having done what
    /// it says. `Blocked`: the node has not read what is in the lane.
    pub(crate) fn step_far(
        &mut self,
        own: Own,
        style: Style,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Step {
        (self.blocked, self.congested) = (None, None);
        let Some(lane) = &mut self.connection else { return Step::Node };
        if data.is_empty() {
            return Step::Sent(0);
        }
        match lane.put_far(style, PortId { port: own.port, node: own.node }, to, address, data) {
            Put::Sent(ring) => {
                if ring == Wakeup::TellDaemon {
                    self.tell.push(lane.id);
                }
                // It is counted by the node.
                Step::Sent(data.len())
            }
            Put::Full(Some(growth)) => Step::Grow(growth),
            Put::Full(None) => {
                self.block();
                Step::Blocked
            }
            Put::Over => Step::Node,
            Put::Corrupt => Step::Corrupt(lane.id),
        }
    }

    /// There is a lane to the node.
    pub(crate) fn has_node_lane(&self) -> bool {
        self.connection.is_some()
    }

    /// The call waits until the queue to a node takes messages of its level.
    pub(crate) fn wait_for(&mut self, node: NodeAddr, level: u8) {
        self.blocked = self.connection.as_ref().map(|lane| lane.other);
        self.congested = Some((node, level));
        self.link_waits += 1;
    }

    /// Node and level of the full queue for which the call waits.
    pub(crate) fn congested(&self) -> Option<(NodeAddr, u8)> {
        self.congested.filter(|_| self.blocked.is_some())
    }

    /// One step of sending on a connection; call again after having done what it says.
    pub(crate) fn step_connected(&mut self, own: Own, style: Style, data: &[u8]) -> Step {
        self.blocked = None;
        let Some(lane) = &mut self.connection else { return Step::Node };
        if data.is_empty() {
            return Step::Sent(0);
        }
        let origin = PortId { port: own.port, node: own.node };
        let mut sent = 0;
        while sent < data.len() {
            if lane.outstanding() > WINDOW {
                if lane.writer.refresh().is_err() {
                    return Step::Corrupt(lane.id);
                }
                if lane.outstanding() > WINDOW {
                    break;
                }
            }
            let chunk = &data[sent..data.len().min(sent + MAX_USER_DATA)];
            match lane.put(style, origin, Address::Connection, chunk) {
                Put::Sent(ring) => {
                    if ring == Wakeup::TellDaemon {
                        self.tell.push(lane.id);
                    }
                    // What goes by the node is counted there.
                    if !lane.pair.is_nodes() {
                        self.messages += 1;
                        self.bytes += chunk.len() as u64;
                    }
                    sent += chunk.len();
                }
                Put::Full(Some(growth)) if sent == 0 => return Step::Grow(growth),
                Put::Over if sent == 0 => return Step::Node,
                Put::Corrupt if sent == 0 => return Step::Corrupt(lane.id),
                // The next call finds it again.
                Put::Full(_) | Put::Over | Put::Corrupt => break,
            }
        }
        if sent > 0 {
            return Step::Sent(sent);
        }
        self.blocked = Some(lane.other);
        self.window_waits += 1;
        Step::Blocked
    }

    /// The daemon has granted a ring, or not.
    pub(crate) fn granted(&mut self, growth: Growth, granted: bool) -> bool {
        self.find(growth.lane).is_some_and(|lane| lane.granted(growth, granted))
    }

    fn find(&mut self, id: LaneId) -> Option<&mut OutLane> {
        self.lanes_mut().find(|lane| lane.id == id)
    }

    /// The call waits for room in a lane after all, though it could not be had larger.
    pub(crate) fn block(&mut self) {
        self.blocked = self.connection.as_ref().map(|lane| lane.other);
        self.window_waits += 1;
    }

    /// The lane that a call waits for.
    fn awaited(&mut self) -> Option<&mut OutLane> {
        let other = self.blocked?;
        self.connection.as_mut().filter(|lane| lane.other == other)
    }

    /// The arena of the lane that a call waits for.
    pub(crate) fn awaited_pair(&mut self) -> Option<Arc<Pair>> {
        self.awaited().map(|lane| Arc::clone(&lane.pair))
    }

    /// Before sleeping: asks the reader to wake this process; true if a send may succeed already.
    pub(crate) fn want_room(&mut self, bytes: usize) -> bool {
        let Some(lane) = self.awaited() else { return true };
        if lane.writer.want_room().is_err() {
            return true;
        }
        let size = bytes.min(MAX_USER_DATA) + super::head::HEAD_MAX;
        let bounded = lane.other != 0;
        (!bounded || lane.outstanding() <= WINDOW) && lane.writer.has_room(size).unwrap_or(true)
    }

    /// The call that waits for a lane does so by the socket's descriptor: asks for the daemon to be told of room for
    /// `bytes`; true if a send may succeed already.
    pub(crate) fn want_room_told(&mut self, bytes: usize) -> bool {
        if let Some(lane) = self.awaited() {
            lane.writer.tell_daemon(true);
        }
        self.want_room(bytes)
    }

    /// Why the last send would block, if it still would.
    pub(crate) fn wait_reason(&mut self, node: NodeAddr) -> Option<WaitReason> {
        if let Some((node, level)) = self.congested() {
            let importance = Importance::from_number(u32::from(level & 3)).unwrap_or(Importance::Low);
            return Some(WaitReason::LinkCongested { node, importance });
        }
        // Of what the node waits for, the node knows.
        let lane = self.awaited().filter(|lane| !lane.pair.is_nodes())?;
        let _ = lane.writer.refresh();
        let peer = PortId { port: lane.other, node };
        Some(WaitReason::PeerWindow { peer, unacked: lane.outstanding(), window: WINDOW })
    }

    /// Each lane that may hold a large ring.
    pub(crate) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut OutLane> {
        self.connection.iter_mut().chain(self.lanes.values_mut())
    }

    /// All lanes, for whoever keeps them until they are closed.
    pub(crate) fn take_all(&mut self) -> Vec<OutLane> {
        self.connection.take().into_iter().chain(self.lanes.drain().map(|(_, lane)| lane)).collect()
    }

    /// Lanes about which the daemon has to tell their reader's process.
    pub(crate) fn take_tell(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.tell)
    }
}
