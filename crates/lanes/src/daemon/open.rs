//! Lanes between sockets of processes: which sockets get one, when the reader may use it, how much memory it may take.
//!
//! A lane begins with a request of its writer, so the receiver's queue already has everything that the writer sent
//! before. The reader is notified of the lane when it has received that: order holds without a mark in the stream.

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, Reply};
use utipc_core::socket::{Endpoint, SocketOption, State};
use utipc_core::stack::Stack;

use super::groups::Members;
use super::pairs::side;
use super::quotas::{Charge, may_charge, reserved};
use super::state::{LaneEvent, LaneState};
use super::table::Lane;
use super::work::STEP_LANES;
use super::{Context, DAEMON, Effect, Job, Lanes, ProcessId};
use crate::layout::{FIRST_RING, LARGEST_CLASS, RING_SHIFTS};

/// Maximum number of lanes that the sockets of one process write.
pub(super) const MAX_WRITTEN: usize = 16_384;

/// Maximum number of lanes that they read. Lanes of a dead writer count until they are read.
pub(super) const MAX_READ: usize = 65_536;

/// Lanes of a connection that are checked, oldest first: more than correct processes have at a time.
const LANES_OF_CONNECTION: usize = 64;

/// Maximum number of lanes that one call makes readable.
const OPENED_MAX: usize = STEP_LANES;

/// The class of the largest ring of a node lane where a process has many.
pub(super) const LARGEST_OF_MANY: u8 = 2;

/// The class of the smallest ring with this log2 of its size, or a larger one.
fn class_of(log2: u8) -> Option<u8> {
    let class = RING_SHIFTS.iter().position(|shift| log2 <= *shift).filter(|_| log2 >= FIRST_RING)?;
    u8::try_from(class).ok()
}

impl Lanes {
    /// Makes the lane that a process asks for: from `port` to `to`, or to the node if that is 0.
    pub fn want(
        &mut self,
        context: &mut Context<'_>,
        id: ProcessId,
        port: u32,
        to: u32,
    ) -> Result<Reply, Failure> {
        if to == 0 {
            let has_lanes = self.open_datagram_lanes(context, id, port);
            return if has_lanes { Ok(Reply::Done) } else { Err(Failure::State) };
        }
        if self.connects(port, to) {
            return Ok(Reply::Done);
        }
        if context.stack.endpoint(to).is_none() {
            return Err(Failure::NoSocket(to));
        }
        if self.may_have_lane(context.stack, port, to) && self.make(context, port, to, None) {
            return Ok(Reply::Done);
        }
        Err(Failure::State)
    }

    /// Gives both ends of a local connection lanes, as far as their processes take any.
    pub fn connect(&mut self, context: &mut Context<'_>, ports: [u32; 2]) {
        let [one, two] = ports;
        for (from, to) in [(one, two), (two, one)] {
            if self.may_have_lane(context.stack, from, to) {
                self.make(context, from, to, None);
            }
        }
    }

    /// Whether messages from one socket to another may go by a lane: each belongs to one process, and a connection
    /// leads to the other socket.
    fn may_have_lane(&self, stack: &Stack, from: u32, to: u32) -> bool {
        let (Some(sender), Some(receiver)) = (stack.endpoint(from), stack.endpoint(to)) else { return false };
        // Between members of a group lanes have their own rules: see `groups.rs`.
        let is_member = |endpoint: &Endpoint| endpoint.group().is_some();
        let fits = match (sender.kind().is_connection_oriented(), receiver.kind().is_connection_oriented()) {
            (false, false) => !is_member(sender) && !is_member(receiver),
            (true, true) => {
                let joined = |e: &Endpoint, peer: u32| {
                    let local = |node| node == stack.own_node() || utipc_core::NodeAddr::is_none(node);
                    e.state() == State::Established
                        && e.peer().is_some_and(|p| p.port == peer && local(p.node))
                };
                joined(sender, to) && joined(receiver, from) && !sender.has_unsent()
            }
            _ => false,
        };
        fits && self.may_open(from, to)
    }

    /// Whether a lane from one socket to another can begin; an older lane must be drained first.
    pub(super) fn may_open(&self, from: u32, to: u32) -> bool {
        self.is_direct(from) && self.is_direct(to) && !self.lanes.is_taken(from, to)
    }

    /// Makes a lane that ended because one of the two sockets was shared: at once, or when everything sent earlier is
    /// read.
    fn restore(&mut self, context: &mut Context<'_>, from: u32, to: u32) {
        if self.may_have_lane(context.stack, from, to) {
            self.make(context, from, to, None);
        } else if self.lanes.is_draining(from, to)
            && let Some(socket) = self.sockets.get_mut(&from)
        {
            socket.suspended.insert((from, to), ());
        }
    }

    /// One process holds the socket again: some lanes come back, from `last` on. Whether there are more.
    pub(super) fn step_lend(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        id: ProcessId,
        last: &mut Option<(u32, u32)>,
    ) -> bool {
        let Some(socket) = self.sockets.get_mut(&port) else { return false };
        if last.is_none() {
            socket.user = Some(id);
        } else if socket.user != Some(id) {
            // It is shared again.
            return false;
        }
        let some = socket.suspended.some_after(*last, STEP_LANES);
        *last = some.last().copied();
        for ports in &some {
            socket.suspended.remove(ports);
        }
        for (from, to) in &some {
            self.restore(context, *from, *to);
        }
        !some.is_empty()
    }

    /// Whether the next message in a socket's queue came by the node after its sender's lane had ended, while that lane
    /// is not drained: the messages in the lane come first.
    pub fn follows_a_lane(&self, stack: &Stack, port: u32) -> bool {
        if !self.lanes.has_draining() {
            return false;
        }
        let sender = stack.endpoint(port).and_then(|e| e.next_sender(stack.own_node()));
        let Some(from) = sender.filter(|from| self.lanes.drains(*from, port)) else { return false };
        // An unopened lane begins behind the messages in the queue.
        self.sockets.get(&port).is_some_and(|socket| !socket.unopened.has_one_of(from))
    }

    /// Whether the queue of a connection comes behind unread messages in a lane. The reader may have asked before it
    /// knew of the lane: one that began and ended, with the connection, in the meantime. This also holds while the lane
    /// from the node is read out.
    pub fn is_behind_a_lane(&self, stack: &Stack, port: u32) -> bool {
        let Some(socket) = self.sockets.get(&port) else { return false };
        if socket.reads_out {
            return true;
        }
        let is_unread = |id: &LaneId| {
            let lane = self.lanes.get(id).filter(|lane| lane.to == port);
            lane.is_some_and(|lane| lane.state.is_read() && lane.writer != DAEMON)
        };
        let is_connection = |endpoint: &Endpoint| endpoint.kind().is_connection_oriented();
        stack.endpoint(port).is_some_and(is_connection)
            && socket.lanes.some_after(None, LANES_OF_CONNECTION).iter().any(is_unread)
    }

    /// Whether a lane to a connected socket has messages that its reader has not taken.
    pub fn has_unread(&self, port: u32) -> bool {
        let Some(socket) = self.sockets.get(&port) else { return false };
        let has_unread = |id: &LaneId| {
            let lane = self.lanes.get(id).filter(|lane| lane.to == port && !lane.state.is_reader_done())?;
            let arena = &self.pairs.get(id.pair)?.arena;
            let reader = arena.resume(side(id.writer), id.slot.into(), lane.class).ok()?;
            reader.has_waiting().then_some(())
        };
        socket.lanes.some_after(None, LANES_OF_CONNECTION).iter().any(|id| has_unread(id).is_some())
    }

    /// Whether messages of a connection go by the lane between these ports, so that a request would overtake them.
    pub fn connects(&self, from: u32, to: u32) -> bool {
        self.lanes.between(from, to).is_some()
    }

    /// Lanes, by the ports of writer and reader, that were drained in this turn. Each goes to [`Self::resume`].
    pub fn take_drained(&mut self) -> Vec<(u32, u32)> {
        self.lanes.take_drained()
    }

    /// The lane between these ports comes back after it was drained, if it only ended because the writer was shared.
    pub fn resume(&mut self, context: &mut Context<'_>, (from, to): (u32, u32)) {
        let is_wanted = |socket: &mut super::SocketLanes| {
            socket.user.is_some() && socket.suspended.remove(&(from, to)).is_some()
        };
        if self.sockets.get_mut(&from).is_some_and(is_wanted) {
            self.restore(context, from, to);
        }
    }

    pub(super) fn make(
        &mut self,
        context: &mut Context<'_>,
        from: u32,
        to: u32,
        group: Option<Members>,
    ) -> bool {
        let (Some(writer), Some(reader)) = (self.user(from), self.user(to)) else { return false };
        let is_full = self.processes.get(&writer).is_none_or(|p| p.written >= MAX_WRITTEN)
            || self.processes.get(&reader).is_none_or(|p| p.read >= MAX_READ);
        if is_full {
            return false;
        }
        let user = context.stack.user_of(from);
        let reserved = reserved(context.stack, from);
        if !may_charge(context.stack, user, reserved) {
            return false;
        }
        let id = match self.pairs.slot(writer, reader) {
            Ok(Some(id)) => id,
            Ok(None) => return false,
            Err(error) => {
                context.warn(format!("two processes cannot share memory: {error}"));
                return false;
            }
        };
        let pair = self.pairs.get(id.pair);
        let opened = pair.map(|pair| pair.arena.open_slot(side(id.writer), id.slot.into()));
        if !matches!(opened, Some(Ok(()))) {
            return false;
        }
        self.arm_for_descriptor(id, to);
        let (state, charge) = (LaneState::UNOPENED, Charge::begin(context.stack, user, reserved));
        let after = context.stack.endpoint(to).map_or(0, Endpoint::taken_with_queue);
        let group = group.map(|members| Members { after, ..members });
        let lane = Lane {
            opens_after: Some(after),
            group,
            ..Lane::new((from, writer), (to, reader), state, charge)
        };
        let notice = lane.notice(id, LaneEnd::Writer);
        context.stack.add_lane(from, to);
        self.insert(id, lane);
        if group.is_some()
            && let Some(socket) = self.sockets.get_mut(&from)
        {
            socket.group_lanes.insert(id, ());
        }
        self.notify(context, writer, notice);
        if let Some(socket) = self.sockets.get_mut(&to) {
            socket.unopened.add(after, id, from);
        }
        self.open_unopened(context, to);
        true
    }

    /// If the reader of a new lane is polled, its writer reports the first message, so that the reader need not check
    /// before.
    pub(super) fn arm_for_descriptor(&self, id: LaneId, reader: u32) {
        if self.sockets.get(&reader).is_some_and(|socket| socket.polled)
            && let Some(pair) = self.pairs.get(id.pair)
        {
            // Fails only for a slot that does not exist.
            let _ = pair.arena.arm_slot(side(id.writer), id.slot.into());
        }
    }

    /// Whether the writer of a lane will report the next message.
    pub(super) fn is_armed(&self, id: LaneId) -> bool {
        let pair = self.pairs.get(id.pair);
        pair.is_some_and(|pair| pair.arena.is_armed(side(id.writer), id.slot.into()))
    }

    /// Continues opening lanes; see [`Job::Open`].
    pub(super) fn open_more(&mut self, context: &mut Context<'_>, port: u32) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.is_opening = false;
            self.open_unopened(context, port);
        }
    }

    /// Notifies a reader of the lanes that it may read now.
    pub fn open_unopened(&mut self, context: &mut Context<'_>, port: u32) {
        let taken = context.stack.endpoint(port).map_or(u64::MAX, Endpoint::taken);
        let mut left = OPENED_MAX;
        while let Some(socket) = self.sockets.get_mut(&port)
            && let Some((after, id)) = socket.unopened.first()
            && after <= taken
        {
            if left == 0 {
                if !std::mem::replace(&mut socket.is_opening, true) {
                    context.later(port, Job::Open(port));
                }
                return;
            }
            left -= 1;
            socket.unopened.remove((after, id));
            let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.state.is_reader_done()) else {
                continue;
            };
            lane.opens_after = None;
            lane.advance(LaneEvent::Open);
            let (reader, notice, state) = (lane.reader, lane.notice(id, LaneEnd::Reader), lane.state);
            self.notify(context, reader, notice);
            if state.has_ended() {
                let gone = state.is_writer_done();
                self.notify(context, reader, Notice::LaneOver { port, lane: id, end: LaneEnd::Reader, gone });
            }
        }
    }

    /// Grants memory for larger messages, or for more of them, at the cost of the receiver's buffer. Spec: tipc.md
    /// §8.7.
    pub fn grow(
        &mut self,
        stack: &mut Stack,
        id: ProcessId,
        lane_id: LaneId,
        log2: u8,
        importance: u8,
    ) -> Result<Reply, Failure> {
        let has_few_lanes = self.has_few_lanes(id);
        let Some(lane) = self.lanes.get_mut(&lane_id).filter(|lane| lane.writer == id) else {
            return Err(Failure::State);
        };
        let Some(class) = class_of(log2).filter(|_| importance <= 3) else { return Err(Failure::State) };
        // A ring that the reader has not left stays granted, and counts.
        let arena = self.pairs.get(lane_id.pair).map(|pair| &pair.arena);
        let held = arena.map_or(0, |arena| arena.reader_class(side(lane_id.writer), lane_id.slot.into()));
        let class = class.max(held.min(lane.class));
        let log2 = RING_SHIFTS[usize::from(class)];
        if lane.reader == DAEMON {
            let largest = if has_few_lanes { LARGEST_CLASS } else { LARGEST_OF_MANY };
            if class > largest.max(lane.class) || !lane.charge.resize(stack, log2) {
                return Err(Failure::Overload);
            }
            lane.class = class;
            if let Some(outbound) = self.outbound.get_mut(&lane.from).filter(|lane| lane.lane == lane_id) {
                outbound.reader.set_largest(class);
            }
            return Ok(Reply::Done);
        }
        let Some(receiver) = stack.endpoint(lane.to) else { return Err(Failure::State) };
        let Some(socket) = self.sockets.get_mut(&lane.to) else { return Err(Failure::State) };
        // The window of a connection bounds its unread messages, so its lane may have the largest ring.
        let wanted =
            if log2 == FIRST_RING || receiver.kind().is_connection_oriented() { 0 } else { 1 << log2 };
        let others = socket.granted.saturating_sub(lane.granted);
        let buffer = receiver.option(SocketOption::ReceiveBuffer).unwrap_or(0);
        if others + wanted > u64::from(buffer) << importance {
            return Err(Failure::Overload);
        }
        if !lane.charge.resize(stack, log2) {
            return Err(Failure::Overload);
        }
        socket.granted = others + wanted;
        lane.granted = wanted;
        lane.class = class;
        Ok(Reply::Done)
    }

    /// Handles a report that one end of a lane has something for the other, which waits by its descriptor.
    pub fn wake(&mut self, context: &mut Context<'_>, id: ProcessId, lane: LaneId) -> Result<Reply, Failure> {
        let Some(lane) = self.lanes.get(&lane) else { return Err(Failure::State) };
        let (writes, reads) = (lane.writer == id, lane.reader == id);
        if writes {
            context.effects.push(Effect::Readable(lane.to));
        }
        if reads {
            context.effects.push(Effect::Writable(lane.from));
        }
        if writes || reads { Ok(Reply::Done) } else { Err(Failure::State) }
    }

    /// The process and the port that read a lane of which process `id` is the writer.
    pub fn reader(&self, id: ProcessId, lane: LaneId) -> Option<(ProcessId, u32)> {
        let lane = self.lanes.get(&lane).filter(|lane| lane.writer == id && lane.reader != DAEMON)?;
        Some((lane.reader, lane.to))
    }

    /// The descriptors of a pair's memory, for one of its processes.
    pub fn fetch_pair(
        &mut self,
        id: ProcessId,
        pair: utipc_attach::PairId,
    ) -> Option<Vec<std::os::fd::OwnedFd>> {
        self.pairs.fetch(pair, id)
    }
}
