//! Lanes between sockets of processes: who gets one, who is told when, what it may take.
//!
//! A lane begins with a command of its writer, so all that the writer has sent before is with the receiver already. The
//! reader is told of it when it has received that: so order holds without a mark in the stream (DESIGN L4).

use std::collections::HashMap;

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, Reply};
use utipc_core::Time;
use utipc_core::limits::MESSAGE_OVERHEAD;
use utipc_core::socket::{Endpoint, SocketOption, State};

use crate::daemon::attachments::attachment::AttachmentId;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::lanes::pairs::{DAEMON, Pairs, side};

/// Lanes that the sockets of one process write, at most.
pub(in crate::daemon) const MAX_LANES_OUT: usize = 16_384;

/// Lanes that they read. Those that a dead process wrote count until they are read.
pub(in crate::daemon) const MAX_LANES_IN: usize = 65_536;

/// The ring that every lane has without asking, log2 of bytes.
const FIRST_RING: u8 = 12;
/// The largest one.
const LAST_RING: u8 = 20;
/// The largest one of a lane to the node where a process has many.
const LAST_RING_OF_MANY: u8 = 18;

/// One lane.
#[derive(Debug)]
pub(in crate::daemon) struct Lane {
    pub(in crate::daemon) from: u32,
    pub(in crate::daemon) to: u32,
    pub(in crate::daemon) from_owner: AttachmentId,
    pub(in crate::daemon) to_owner: AttachmentId,
    /// The reader was told.
    pub(in crate::daemon) told: bool,
    /// The writer has stopped for good (closed, dead, hosted), or has been told to.
    pub(in crate::daemon) ended: bool,
    /// It takes no more part, each side.
    pub(in crate::daemon) writer_done: bool,
    pub(in crate::daemon) reader_done: bool,
    /// Bytes of rings beyond the first that the writer was granted at the cost of the receiver's buffer.
    pub(in crate::daemon) granted: u64,
    /// It counts among [`Broker::draining`].
    pub(in crate::daemon) drains: bool,
}

/// All lanes.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Broker {
    pub(in crate::daemon) pairs: Pairs,
    pub(in crate::daemon) lanes: HashMap<LaneId, Lane>,
    /// The lanes in use, by the ports of writer and reader.
    pub(in crate::daemon) between: HashMap<(u32, u32), LaneId>,
    /// From one port to another: lanes whose writer has stopped and whose reader has not read to the end.
    pub(in crate::daemon) draining: HashMap<(u32, u32), usize>,
    /// Of these, the ones that were read to the end in this turn.
    pub(in crate::daemon) drained: Vec<(u32, u32)>,
    /// Lanes whose memory was found broken.
    pub(in crate::daemon) corrupt: u64,
}

impl Dispatcher {
    /// A lane from `port` to `to`.
    pub(in crate::daemon) fn want_lane(
        &mut self,
        id: AttachmentId,
        port: u32,
        to: u32,
    ) -> Result<Reply, Failure> {
        self.held(id, port)?;
        if to == 0 {
            return if self.open_datagram_lanes(id, port) { Ok(Reply::Done) } else { Err(Failure::State) };
        }
        if self.broker.between.contains_key(&(port, to)) {
            return Ok(Reply::Done);
        }
        if self.driver.stack.endpoint(to).is_none() {
            return Err(Failure::NoSocket(to));
        }
        if self.may_have_lane(port, to) && self.make_lane(port, to) {
            return Ok(Reply::Done);
        }
        Err(Failure::State)
    }

    /// Both ends of a local connection get lanes, as far as they take any.
    pub(in crate::daemon) fn connect_lanes(&mut self, one: u32, other: u32) {
        for (from, to) in [(one, other), (other, one)] {
            if self.may_have_lane(from, to) {
                self.make_lane(from, to);
            }
        }
    }

    /// Whether messages from one socket to another may go by a lane: both belong to one process each, and a connection
    /// leads nowhere else.
    fn may_have_lane(&self, from: u32, to: u32) -> bool {
        let direct = |port| self.sockets.get(&port).is_some_and(|h| h.direct);
        let stack = &self.driver.stack;
        let (Some(sender), Some(receiver)) = (stack.endpoint(from), stack.endpoint(to)) else { return false };
        let fits = match (sender.kind().is_connection_oriented(), receiver.kind().is_connection_oriented()) {
            (false, false) => true,
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
        let broker = &self.broker;
        // What is in an older lane is read first.
        let taken = broker.between.contains_key(&(from, to)) || broker.draining.contains_key(&(from, to));
        fits && direct(from) && direct(to) && !taken
    }

    /// A lane that ended because one of the two sockets was shared, now that it is not: at once, or when all that was sent
    /// before is read.
    pub(in crate::daemon) fn restore_lane(&mut self, from: u32, to: u32) {
        if self.may_have_lane(from, to) {
            self.make_lane(from, to);
        } else if self.broker.draining.contains_key(&(from, to))
            && let Some(holding) = self.sockets.get_mut(&from)
        {
            holding.former.insert((from, to));
        }
    }

    /// Whether the next message in a socket's queue was sent by the node after its sender's lane, of which something is
    /// unread, had come to its end: what is in the lane comes first.
    pub(in crate::daemon) fn follows_a_lane(&self, port: u32) -> bool {
        if self.broker.draining.is_empty() {
            return false;
        }
        let stack = &self.driver.stack;
        let sender = stack.endpoint(port).and_then(|e| e.next_sender(stack.own_node()));
        let drains = |from: &u32| self.broker.draining.get(&(*from, port)).is_some_and(|lanes| *lanes > 0);
        let Some(from) = sender.filter(drains) else { return false };
        // A lane that the reader was not told of yet begins behind what is in the queue.
        let is_later = |id: &LaneId| self.broker.lanes.get(id).is_some_and(|lane| lane.from == from);
        self.sockets.get(&port).is_some_and(|h| !h.unopened.iter().any(|(_, id)| is_later(id)))
    }

    /// Whether what the node has for a connection comes behind what its reader has in a lane. The reader may have asked before
    /// it knew of the lane: one that came and ended, with the connection, in the meantime.
    pub(in crate::daemon) fn is_behind_a_lane(&self, port: u32) -> bool {
        let Some(holding) = self.sockets.get(&port) else { return false };
        let unread = |id: &LaneId| {
            let lane = self.broker.lanes.get(id).filter(|lane| lane.to == port);
            lane.is_some_and(|lane| lane.told && !lane.reader_done && lane.from_owner != DAEMON)
        };
        let connected = |endpoint: &Endpoint| endpoint.kind().is_connection_oriented();
        holding.lanes.iter().any(unread) && self.driver.stack.endpoint(port).is_some_and(connected)
    }

    /// Lanes were read to their ends: who had to wait for that goes on.
    pub(in crate::daemon) fn resume(&mut self, now: Time) {
        for (from, to) in std::mem::take(&mut self.broker.drained) {
            if self.broker.draining.get(&(from, to)) != Some(&0) {
                continue;
            }
            self.broker.draining.remove(&(from, to));
            self.note(now, to);
            if self.sockets.get_mut(&from).is_some_and(|h| h.direct && h.former.remove(&(from, to))) {
                self.restore_lane(from, to);
            }
        }
    }

    fn make_lane(&mut self, from: u32, to: u32) -> bool {
        let owner = |port| self.sockets.get(&port).map(|h| h.owner);
        let (Some(from_owner), Some(to_owner)) = (owner(from), owner(to)) else { return false };
        let full_out = self.attachments.get(&from_owner).is_none_or(|a| a.lanes_out >= MAX_LANES_OUT);
        if full_out || self.attachments.get(&to_owner).is_none_or(|a| a.lanes_in >= MAX_LANES_IN) {
            return false;
        }
        let id = match self.broker.pairs.slot(from_owner, to_owner) {
            Ok(Some(id)) => id,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!("two processes cannot share memory: {error}");
                return false;
            }
        };
        let opened =
            self.broker.pairs.get(id.pair).map(|pair| pair.arena.open_slot(side(id.writer), id.slot.into()));
        if !matches!(opened, Some(Ok(()))) {
            return false;
        }
        self.arm_for_descriptor(id, to);
        let lane = Lane {
            from,
            to,
            from_owner,
            to_owner,
            told: false,
            ended: false,
            writer_done: false,
            reader_done: false,
            granted: 0,
            drains: false,
        };
        self.broker.lanes.insert(id, lane);
        self.broker.between.insert((from, to), id);
        self.driver.stack.add_lane(from, to);
        if let Some(attachment) = self.attachments.get_mut(&from_owner) {
            attachment.lanes_out += 1;
        }
        if let Some(attachment) = self.attachments.get_mut(&to_owner) {
            attachment.lanes_in += 1;
        }
        for port in [from, to] {
            if let Some(holding) = self.sockets.get_mut(&port) {
                holding.lanes.insert(id);
            }
        }
        self.tell(from_owner, Notice::Lane { port: from, other: to, lane: id, end: LaneEnd::Writer });
        let after = self.driver.stack.endpoint(to).map_or(0, Endpoint::taken_with_queue);
        if let Some(holding) = self.sockets.get_mut(&to) {
            holding.unopened.push_back((after, id));
        }
        self.open_lanes(to);
        true
    }

    /// What an option that counts what waits (tipc.md §8.9) says of lanes of which the reader was not told yet.
    pub(in crate::daemon) fn unopened(&self, port: u32, option: SocketOption) -> u32 {
        let Some(holding) = self.sockets.get(&port) else { return 0 };
        let waiting = |(_, id): &(u64, LaneId)| {
            let pair = self.broker.pairs.get(id.pair)?;
            let reader = pair.arena.incoming(side(id.writer).other()).reader(id.slot.into()).ok()?;
            let (messages, bytes) = reader.waiting();
            match option {
                SocketOption::ReceiveQueueDepth => Some(messages),
                SocketOption::ReceiveQueueUsed => {
                    u32::try_from(bytes + u64::from(messages) * MESSAGE_OVERHEAD as u64).ok()
                }
                _ => None,
            }
        };
        holding.unopened.iter().filter_map(waiting).fold(0, u32::saturating_add)
    }

    /// The reader of a new lane may be polled: its writer tells of the first message. So the reader need not look before.
    pub(in crate::daemon) fn arm_for_descriptor(&self, id: LaneId, reader: u32) {
        if self.fars.contains_key(&reader)
            && let Some(pair) = self.broker.pairs.get(id.pair)
        {
            // Refused for a slot that does not exist only.
            let _ = pair.arena.arm_slot(side(id.writer), id.slot.into());
        }
    }

    /// Whether its writer will tell of the next message in a lane.
    fn is_armed(&self, id: LaneId) -> bool {
        let pair = self.broker.pairs.get(id.pair);
        pair.is_some_and(|pair| pair.arena.is_armed(side(id.writer), id.slot.into()))
    }

    /// Tells a reader of the lanes that it may read now.
    pub(in crate::daemon) fn open_lanes(&mut self, port: u32) {
        let taken = self.driver.stack.endpoint(port).map_or(u64::MAX, Endpoint::taken);
        while let Some(holding) = self.sockets.get_mut(&port)
            && let Some((after, id)) = holding.unopened.front().copied()
            && after <= taken
        {
            holding.unopened.pop_front();
            let Some(lane) = self.broker.lanes.get_mut(&id).filter(|l| !l.reader_done) else { continue };
            lane.told = true;
            let (owner, other, gone) = (lane.to_owner, lane.from, lane.writer_done);
            let ended = lane.ended;
            self.tell(owner, Notice::Lane { port, other, lane: id, end: LaneEnd::Reader });
            if ended {
                self.tell(owner, Notice::LaneOver { port, lane: id, end: LaneEnd::Reader, gone });
            }
        }
    }

    /// Memory for larger messages, or for more of them, at the cost of the receiver's buffer. Spec: tipc.md §8.7.
    pub(in crate::daemon) fn grow(
        &mut self,
        id: AttachmentId,
        lane_id: LaneId,
        log2: u8,
        importance: u8,
    ) -> Result<Reply, Failure> {
        if self.is_node_lane_of(lane_id, id) {
            let last = if self.has_few_lanes(id) { LAST_RING } else { LAST_RING_OF_MANY };
            return if log2 <= last { Ok(Reply::Done) } else { Err(Failure::Overload) };
        }
        let Some(lane) = self.broker.lanes.get_mut(&lane_id).filter(|l| l.from_owner == id) else {
            return Err(Failure::State);
        };
        if !(FIRST_RING..=LAST_RING).contains(&log2) || importance > 3 {
            return Err(Failure::State);
        }
        let Some(receiver) = self.driver.stack.endpoint(lane.to) else { return Err(Failure::State) };
        let Some(holding) = self.sockets.get_mut(&lane.to) else { return Err(Failure::State) };
        // The window of a connection bounds what is on the way; its one lane may be as large as they get.
        let wanted =
            if log2 == FIRST_RING || receiver.kind().is_connection_oriented() { 0 } else { 1 << log2 };
        let others = holding.granted - lane.granted;
        let buffer = receiver.option(SocketOption::ReceiveBuffer).unwrap_or(0);
        if others + wanted > u64::from(buffer) << importance {
            return Err(Failure::Overload);
        }
        holding.granted = others + wanted;
        lane.granted = wanted;
        Ok(Reply::Done)
    }

    /// A process is told something beside readiness.
    pub(in crate::daemon) fn tell(&mut self, id: AttachmentId, notice: Notice) {
        let about = match notice {
            // Nothing to be read, as long as nobody has said so.
            Notice::Lane { lane, end: LaneEnd::Reader, .. }
            | Notice::NodeLane { lane, end: LaneEnd::Reader, .. }
            | Notice::LaneOver { lane, end: LaneEnd::Reader, .. }
                if self.is_armed(lane) =>
            {
                None
            }
            Notice::Lane { port, end, .. }
            | Notice::NodeLane { port, end, .. }
            | Notice::LaneOver { port, end, .. } => Some((port, end)),
            _ => None,
        };
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.note(notice);
            if !std::mem::replace(&mut attachment.rings, true) {
                self.rung.push(id);
            }
        }
        if let Some((port, end)) = about {
            self.stir(port, end);
        }
    }
}
