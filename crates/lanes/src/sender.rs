//! The sending half of a socket: its lanes.
//!
//! A message goes to the [`Writer`] of the lane to its receiver. If the lane does not take it, a [`LaneError`] gives
//! the reason: the caller requests a larger ring ([`Sender::wants_ring`]), waits, or sends by the node.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use utipc_attach::LaneId;
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Address, SendOptions, SocketKind, header};
use utipc_core::waiting::Patience;
use utipc_core::wire::blocks;
use utipc_os::packets::Far;

use crate::awaited::Awaited;
use crate::layout::{LARGEST_CLASS, RING_SHIFTS};
use crate::message::HEADER_MAX;
use crate::{Corrupt, LaneError, OwnSocket, Pair, Wakeup, Writer};

/// Unread blocks that a connection may have: a quarter of the receive buffer of 2 MiB. Spec: tipc.md §8.5.
pub(crate) const WINDOW: u32 = 512;
/// Maximum number of sockets for which a requested lane is remembered.
const ASKED_MAX: usize = 1024;
/// Connectionless messages to other nodes that go by requests before a node lane is requested.
const REQUESTS_BEFORE_LANE: u32 = 2;
/// Times that the daemon wakes the reader of a lane before its writer does.
const WAKES_BEFORE_FAR_END: u32 = 2;
/// Number of messages that find the lane full between a refused request for a larger ring and the next request.
const PATIENCE: u32 = 256;

/// A larger ring for a lane, for which the daemon has to grant memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The lane.
    pub lane: LaneId,
    /// The ring's class.
    class: u8,
    /// The message does not fit the present ring even if that is empty.
    pub is_needed: bool,
}

impl Growth {
    /// log2 of the ring's size.
    #[must_use]
    pub fn log2(&self) -> u8 {
        RING_SHIFTS[usize::from(self.class.min(LARGEST_CLASS))]
    }
}

/// Whether the memory of a lane's large ring can go back.
#[derive(Debug, PartialEq, Eq)]
pub enum Idle {
    /// The lane has no large ring.
    Small,
    /// The lane is in use, or its reader has not left the large ring yet.
    Busy,
    /// The memory is returned once the reader, which is owed this wake-up, has checked the lane.
    Shrunk(Wakeup),
    /// The memory has gone back: the grant for it can go back too.
    Left,
}

/// A lane that a socket writes.
#[derive(Debug)]
pub struct OutboundLane {
    /// The lane.
    pub id: LaneId,
    pub(crate) pair: Arc<Pair>,
    /// The socket that reads; 0 for the node.
    pub(crate) peer: u32,
    /// Its address in the group, if the lane leads from one member to another.
    pub(crate) member: Option<ServiceAddr>,
    pub(crate) writer: Writer,
    patience: u32,
    /// How long messages without a connection wait for the reader of the full lane.
    pub(crate) for_reader: Patience<Instant>,
    /// Wakes the reader's process if that waits by a descriptor; without it the daemon does.
    far: Option<Far>,
    /// Times that the daemon was asked to.
    daemon_wakes: u32,
    /// The writer's position at the last [`OutboundLane::shrink_if_idle`].
    seen: u64,
    /// The lane has left a larger ring, for which it still has the grant.
    holds_grant: bool,
}

impl OutboundLane {
    /// The writing end of lane `id` to the socket `peer`.
    ///
    /// # Errors
    /// The lane does not exist.
    pub fn new(id: LaneId, pair: Arc<Pair>, peer: u32) -> Result<Self, Corrupt> {
        let writer = pair.out.writer(u32::from(id.slot))?;
        Ok(Self {
            id,
            pair,
            peer,
            member: None,
            writer,
            patience: 0,
            for_reader: Patience::default(),
            far: None,
            daemon_wakes: 0,
            seen: 0,
            holds_grant: false,
        })
    }

    /// Between members of a group: with the address of the member that reads.
    #[must_use]
    pub fn with_member(self, member: Option<ServiceAddr>) -> Self {
        Self { member, ..self }
    }

    /// Sends one message.
    #[inline]
    pub(crate) fn send(
        &mut self,
        options: SendOptions,
        own: PortId,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Result<Wakeup, LaneError> {
        let header = header(options, own, to, address, data.len());
        let header = header.header();
        let wakeup = self.writer.send(header, &[data], blocks(header.len() + data.len()))?;
        Ok(if wakeup == Wakeup::TellDaemon { self.wake_reader(address) } else { wakeup })
    }

    /// Wakes a reader that waits by a descriptor. Returns what is left for the daemon to do.
    #[cold]
    fn wake_reader(&mut self, address: Address) -> Wakeup {
        let done = self.far.as_ref().map(|far| match address {
            // Its only lane is armed after the last packet was read.
            Address::Connection => far.set_readable(),
            // Many senders may wake it at once.
            _ => far.keep_readable(),
        });
        match done {
            Some(true) => return Wakeup::Quiet,
            Some(false) => (self.far, self.daemon_wakes) = (None, 0),
            None => {}
        }
        self.daemon_wakes = self.daemon_wakes.saturating_add(1);
        self.pair.wake_daemon(Wakeup::TellDaemon)
    }

    /// The larger ring to request after `error`; `None` if no ring helps, or one was refused a short time ago.
    #[cold]
    pub(crate) fn wants_ring(&mut self, error: LaneError) -> Option<Growth> {
        let growth = |class, is_needed| Some(Growth { lane: self.id, class, is_needed });
        match error {
            LaneError::Full => match self.writer.class() {
                Some(class) if class < LARGEST_CLASS && self.patience == 0 => growth(class + 1, false),
                _ => {
                    self.patience = self.patience.saturating_sub(1);
                    None
                }
            },
            LaneError::NeedsRing(class) => growth(class, true),
            // `NoRing`: every ring is in use, or the reader is far behind; a ring becomes free later.
            _ => None,
        }
    }

    /// Moves to the ring that the daemon has granted; returns whether the lane has it now.
    pub(crate) fn grow(&mut self, growth: Growth, granted: bool) -> bool {
        let grown = granted && self.writer.grow(growth.class).is_ok();
        if grown {
            self.holds_grant = false;
        } else {
            self.patience = PATIENCE;
        }
        grown
    }

    /// Whether to wait for the reader of the full lane, from now on if no wait has begun. One that does not read is not
    /// waited for.
    #[cold]
    pub(crate) fn waits_for_reader(&mut self, now: Instant) -> bool {
        self.for_reader.begin(now);
        self.is_waited_for(now)
    }

    /// Whether senders wait for the reader of the full lane, or would.
    pub(crate) fn is_waited_for(&mut self, now: Instant) -> bool {
        let waits = !self.for_reader.left(now, self.writer.given_back()).is_zero();
        if !waits {
            self.end_wait(now);
        }
        waits
    }

    /// The wait for the reader is over.
    #[cold]
    pub(crate) fn end_wait(&mut self, now: Instant) {
        self.for_reader.end(now, self.writer.given_back());
    }

    /// The rest of the wait for the reader.
    pub(crate) fn wait_left(&self, now: Instant) -> Option<Duration> {
        self.for_reader.is_waiting().then(|| self.for_reader.left(now, self.writer.given_back()))
    }

    /// Gives a large ring back if nothing was sent since the last call and everything was read.
    pub fn shrink_if_idle(&mut self) -> Idle {
        let (sent, large) = self.writer.extent();
        if !large {
            return if std::mem::take(&mut self.holds_grant) { Idle::Left } else { Idle::Small };
        }
        if std::mem::replace(&mut self.seen, sent) != sent {
            return Idle::Busy;
        }
        match self.writer.shrink_if_idle() {
            Ok(Some(wakeup)) => {
                self.seen = self.writer.extent().0;
                self.holds_grant = true;
                Idle::Shrunk(self.pair.wake_daemon(wakeup))
            }
            Ok(None) if self.writer.extent().1 => Idle::Busy,
            Ok(None) if std::mem::take(&mut self.holds_grant) => Idle::Left,
            Ok(None) => Idle::Small,
            // The lane is over or corrupt, which the next message finds.
            Err(_) => Idle::Small,
        }
    }

    /// Blocks sent that the reader has not given back.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        u32::try_from(self.writer.outstanding_cost()).unwrap_or(u32::MAX)
    }
}

/// Spreads port numbers. The daemon chooses them, so no peer can make them collide.
#[derive(Debug, Default)]
pub(crate) struct PortHasher(u64);

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

/// Which lane of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The lane to a local socket without a connection.
    Socket(u32),
    /// The lane of the connection, or, without a connection, the one to the node.
    Sole,
}

/// The lanes that a socket writes, and its counters.
#[derive(Debug, Default)]
pub struct Sender {
    /// Lanes to local sockets without a connection, by port.
    pub(crate) lanes: HashMap<u32, OutboundLane, BuildHasherDefault<PortHasher>>,
    /// The lane of a connection; without a connection the lane to the node, for other nodes.
    pub(crate) sole: Option<OutboundLane>,
    /// Messages that went to other nodes by requests.
    requests: u32,
    /// Sockets to which a lane was requested.
    asked: HashSet<u32>,
    /// Lanes whose reader's process waits for a descriptor, which the daemon has to make readable.
    to_wake: Vec<LaneId>,
    /// What a call waits for.
    pub(crate) awaited: Awaited,
    /// A wait for the reader of a full lane has begun.
    pub(crate) new_wait: bool,
    /// The node to which the link queue was full at the last message to it, and since when calls sleep for that.
    pub(crate) link_full: Option<(NodeAddr, Instant)>,
    /// Messages sent by lanes to local sockets.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times that a call had to wait for a lane.
    pub window_waits: u64,
    /// Times that a call had to wait for a link.
    pub link_waits: u64,
    /// Messages that came back because the receiver takes no more.
    pub overloads: u64,
}

impl Sender {
    /// Adds a lane.
    pub fn add(&mut self, lane: OutboundLane, kind: SocketKind) {
        self.asked.remove(&lane.peer);
        if kind.is_connection_oriented() || lane.pair.is_to_daemon() {
            self.sole = Some(lane);
        } else {
            self.lanes.insert(lane.peer, lane);
        }
    }

    /// Takes a lane out; `None` if it is not there.
    pub fn remove(&mut self, id: LaneId) -> Option<OutboundLane> {
        if self.sole.as_ref().is_some_and(|lane| lane.id == id) {
            return self.sole.take();
        }
        let peer = self.lanes.values().find(|lane| lane.id == id)?.peer;
        self.lanes.remove(&peer)
    }

    /// Whether any lane exists.
    #[must_use]
    pub fn has_lanes(&self) -> bool {
        self.sole.is_some() || !self.lanes.is_empty()
    }

    /// Whether the lane of a connection, or to the node, exists.
    #[must_use]
    pub fn has_sole_lane(&self) -> bool {
        self.sole.is_some()
    }

    /// Whether a lane to each of these sockets exists.
    #[must_use]
    pub fn reaches_all(&self, ports: &[u32]) -> bool {
        ports.iter().all(|port| self.lanes.contains_key(port))
    }

    /// Notes that a message to a local socket went by the node; returns whether to request a lane: once.
    pub fn note_request_to(&mut self, to: u32) -> bool {
        if self.lanes.contains_key(&to) {
            return false;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        self.asked.insert(to)
    }

    /// Notes that a message to another node went by a request; returns whether to request a node lane.
    pub fn note_remote_request(&mut self) -> bool {
        self.requests += 1;
        self.requests >= REQUESTS_BEFORE_LANE && self.sole.is_none() && self.note_request_to(0)
    }

    /// Forgets to which sockets a lane was refused: one may be requested again.
    pub fn forget_refusals(&mut self) {
        self.asked.clear();
    }

    /// Sends a connectionless message to the local socket `to`.
    ///
    /// # Errors
    /// [`LaneError::NoLane`]; for the rest see [`Writer::send`]. Nothing was sent.
    pub fn send_to(
        &mut self,
        own: OwnSocket,
        options: SendOptions,
        to: u32,
        address: Address,
        data: &[u8],
    ) -> Result<usize, LaneError> {
        self.awaited = Awaited::Nothing;
        let lane = self.lanes.get_mut(&to).ok_or(LaneError::NoLane)?;
        if data.is_empty() {
            return Ok(0);
        }
        let peer = PortId { port: to, node: own.node };
        let wakeup = lane.send(options, own.id(), peer, address, data)?;
        if wakeup == Wakeup::TellDaemon {
            self.to_wake.push(lane.id);
        }
        if lane.for_reader.is_waiting() {
            lane.end_wait(Instant::now());
        }
        self.messages += 1;
        self.bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Checks whether the lane to the local socket `to` takes a connectionless message of `bytes` now. If it does, the
    /// wait for its reader is over, also if the message waits for others.
    ///
    /// # Errors
    /// As [`Sender::send_to`].
    pub fn check_room(&mut self, to: u32, bytes: usize) -> Result<(), LaneError> {
        let lane = self.lanes.get_mut(&to).ok_or(LaneError::NoLane)?;
        lane.writer.check_room(bytes + HEADER_MAX)?;
        if lane.for_reader.is_waiting() {
            lane.end_wait(Instant::now());
        }
        Ok(())
    }

    /// Sends a connectionless message to a socket of another node. The node counts it.
    ///
    /// # Errors
    /// As [`Sender::send_to`].
    pub fn send_remote(
        &mut self,
        own: OwnSocket,
        options: SendOptions,
        to: PortId,
        address: Address,
        data: &[u8],
    ) -> Result<usize, LaneError> {
        self.awaited = Awaited::Nothing;
        let lane = self.sole.as_mut().ok_or(LaneError::NoLane)?;
        if data.is_empty() {
            return Ok(0);
        }
        let wakeup = lane.send(options, own.id(), to, address, data)?;
        if wakeup == Wakeup::TellDaemon {
            self.to_wake.push(lane.id);
        }
        Ok(data.len())
    }

    /// Sends `data`, or the first part of it, on a connection; returns the bytes sent.
    ///
    /// # Errors
    /// [`LaneError::NoLane`]; [`LaneError::WindowFull`]; for the rest see [`Writer::send`]. Nothing was sent.
    pub fn send_connected(
        &mut self,
        own: OwnSocket,
        options: SendOptions,
        data: &[u8],
    ) -> Result<usize, LaneError> {
        self.awaited = Awaited::Nothing;
        let lane = self.sole.as_mut().ok_or(LaneError::NoLane)?;
        let to = PortId { port: lane.peer, node: own.node };
        let mut sent = 0;
        while sent < data.len() {
            if lane.outstanding() > WINDOW {
                lane.writer.refresh()?;
                if lane.outstanding() > WINDOW {
                    return if sent > 0 { Ok(sent) } else { Err(LaneError::WindowFull) };
                }
            }
            let chunk = &data[sent..data.len().min(sent + MAX_USER_DATA)];
            match lane.send(options, own.id(), to, Address::Connection, chunk) {
                Ok(Wakeup::TellDaemon) => self.to_wake.push(lane.id),
                Ok(Wakeup::Quiet | Wakeup::Woken) => {}
                Err(error) if sent == 0 => return Err(error),
                // The next call finds the error again.
                Err(_) => break,
            }
            // The node counts what goes by it.
            if !lane.pair.is_to_daemon() {
                self.messages += 1;
                self.bytes += chunk.len() as u64;
            }
            sent += chunk.len();
        }
        Ok(sent)
    }

    /// The larger ring to request from the daemon after `error` on a lane; `None` if no ring helps, or one was refused
    /// a short time ago.
    pub fn wants_ring(&mut self, route: Route, error: LaneError) -> Option<Growth> {
        self.lane(route)?.wants_ring(error)
    }

    /// Moves a lane to the ring that the daemon has granted or, if `granted` is false, refused; returns whether the
    /// lane has it now.
    pub fn grow(&mut self, growth: Growth, granted: bool) -> bool {
        self.lanes_mut().find(|lane| lane.id == growth.lane).is_some_and(|lane| lane.grow(growth, granted))
    }

    /// Whether to request the far end of the descriptor by which a lane's reader waits: once, when the daemon has woken
    /// it twice.
    pub fn wants_far_end(&mut self, id: LaneId) -> bool {
        self.lanes_mut().any(|lane| lane.id == id && lane.daemon_wakes == WAKES_BEFORE_FAR_END)
    }

    /// Sets the far end of the descriptor by which a lane's reader waits.
    pub fn set_far_end(&mut self, id: LaneId, far: Far) {
        if let Some(lane) = self.lanes_mut().find(|lane| lane.id == id) {
            lane.far = Some(far);
        }
    }

    /// Takes out the lane of a route.
    pub fn remove_route(&mut self, route: Route) -> Option<OutboundLane> {
        match route {
            Route::Socket(port) => self.lanes.remove(&port),
            Route::Sole => self.sole.take(),
        }
    }

    fn lane(&mut self, route: Route) -> Option<&mut OutboundLane> {
        match route {
            Route::Socket(port) => self.lanes.get_mut(&port),
            Route::Sole => self.sole.as_mut(),
        }
    }

    /// All lanes.
    pub fn lanes_mut(&mut self) -> impl Iterator<Item = &mut OutboundLane> {
        self.sole.iter_mut().chain(self.lanes.values_mut())
    }

    /// Leaves all lanes to their arenas, which keep each until it is closed: its memory is free after the reader has
    /// read it to the end.
    pub fn leave_all(&mut self) {
        for lane in self.sole.take().into_iter().chain(self.lanes.drain().map(|(_, lane)| lane)) {
            lane.pair.keep(lane.id.slot, lane.writer);
        }
    }

    /// Takes out the lanes whose reader the daemon has to wake.
    pub fn take_lanes_to_wake(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.to_wake)
    }
}

impl OutboundLane {
    /// Gives back the rings of a closed lane.
    pub fn retire(self) {
        self.writer.retire();
    }
}
