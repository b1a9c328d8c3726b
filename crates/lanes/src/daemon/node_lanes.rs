//! Lanes between a process and its node, for traffic with other nodes: how they begin, and what happens when one end is
//! done. What is in them then: `node_end.rs`.
//!
//! The node is one side of the pair, as process [`DAEMON`]. It reads what the process sends into the endpoint as fast
//! as that accepts it, and writes what the endpoint receives as far as there is room; the rest waits in the endpoint.

use crate::{Reader, Recovered, Writer};
use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::NodeAddr;
use utipc_core::addr::PortId;
use utipc_core::socket::{Endpoint, State};
use utipc_core::stack::Stack;

use super::open::{MAX_READ, MAX_WRITTEN};
use super::pairs::side;
use super::quotas::{Charge, RESERVED, largest_inbound, may_charge, reserved_inbound};
use super::state::{LaneEvent, LaneState};
use super::table::Lane;
use super::{Context, DAEMON, Job, Lanes, ProcessId};

/// Messages that a connection has carried before it gets lanes: many carry one request and its reply.
const MESSAGES_BEFORE: u64 = 2;

/// Number of lanes of a process up to which each may have the largest ring; 120 of these fit the memory of a pair.
const FEW_LANES: usize = 48;

/// When the daemon reads a lane that a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// When its writer reports a message.
    Armed,
    /// Handled in its user's turn.
    Listed,
    /// When the endpoint accepts messages again.
    Blocked,
}

/// A lane that a process writes.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) lane: LaneId,
    pub(super) reader: Reader,
    pub(super) attention: Attention,
}

/// A lane that a process reads.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) lane: LaneId,
    pub(super) writer: Writer,
    /// Its end is written: the process fetches what follows by requests.
    pub(super) ended: bool,
    /// Filled in its user's turn.
    pub(super) is_unfilled: bool,
}

/// Whether a socket is connectionless.
pub fn is_datagram(stack: &Stack, port: u32) -> bool {
    stack.endpoint(port).is_some_and(|e| !e.kind().is_connection_oriented())
}

pub(super) fn is_connected(stack: &Stack, port: u32) -> bool {
    stack.endpoint(port).map(Endpoint::state) == Some(State::Established)
}

/// The peer of a connection to another node that has carried [`MESSAGES_BEFORE`] messages.
fn remote_peer(stack: &Stack, port: u32) -> Option<PortId> {
    let endpoint = stack.endpoint(port)?;
    let stats = endpoint.stats();
    let used = stats.sent_messages + stats.received_messages >= MESSAGES_BEFORE;
    let ready = used && endpoint.state() == State::Established && !endpoint.is_partly_read();
    let is_remote = |node: NodeAddr| !node.is_none() && node != stack.own_node();
    endpoint.peer().filter(|peer| ready && is_remote(peer.node))
}

impl Lanes {
    /// Whether a process sends by a node lane, and receives by one.
    pub fn serves(&self, port: u32) -> (bool, bool) {
        (self.outbound.contains(&port), self.delivers(port))
    }

    /// Whether a process receives by a node lane.
    fn delivers(&self, port: u32) -> bool {
        self.inbound.get(&port).is_some_and(|lane| !lane.ended)
    }

    /// Whether the next message of a socket comes by its node lane, and not by a request.
    pub fn comes_by_lane(&self, stack: &Stack, port: u32) -> bool {
        self.delivers(port)
            && stack
                .endpoint(port)
                .is_none_or(|e| e.kind().is_connection_oriented() || e.next_is_remote(stack.own_node()))
    }

    /// Gives a connection to another node its lanes, if they are useful to it.
    pub fn consider_node_lanes(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(socket) = self.sockets.get(&port).filter(|socket| socket.lanes.is_empty()) else { return };
        let Some(user) = socket.user else { return };
        let Some(peer) = remote_peer(context.stack, port) else { return };
        if !self.has_room_for_node_lanes(user) || self.has_unsent(port) {
            return;
        }
        if let Some(lane) = self.open_node_lane(context, user, port, DAEMON) {
            self.begin_outbound(context, lane, user, port, peer);
        }
        if let Some(lane) = self.open_node_lane(context, DAEMON, port, user) {
            self.begin_inbound(context, lane, user, port, peer);
        }
    }

    fn has_room_for_node_lanes(&self, id: ProcessId) -> bool {
        let process = self.processes.get(&id).filter(|process| process.takes_lanes);
        process.is_some_and(|process| process.written < MAX_WRITTEN && process.read < MAX_READ)
    }

    /// Gives a socket without a connection its lanes to and from other nodes; returns whether it has them.
    pub(super) fn open_datagram_lanes(
        &mut self,
        context: &mut Context<'_>,
        user: ProcessId,
        port: u32,
    ) -> bool {
        let has = (self.outbound.contains(&port), self.inbound.contains(&port));
        if has == (true, true) {
            return true;
        }
        let in_group = context.stack.endpoint(port).is_some_and(|endpoint| endpoint.group().is_some());
        let direct = self.user(port) == Some(user) && !in_group;
        if !direct || !self.has_room_for_node_lanes(user) || !is_datagram(context.stack, port) {
            return false;
        }
        if !has.0
            && let Some(lane) = self.open_node_lane(context, user, port, DAEMON)
        {
            self.begin_outbound(context, lane, user, port, PortId::default());
        }
        if !has.1
            && let Some(lane) = self.open_node_lane(context, DAEMON, port, user)
        {
            self.begin_inbound(context, lane, user, port, PortId::default());
            self.deliver(context, port);
        }
        self.outbound.contains(&port)
    }

    /// Makes a lane for `port`; one of `writer` and `reader` is the daemon.
    fn open_node_lane(
        &mut self,
        context: &mut Context<'_>,
        writer: ProcessId,
        port: u32,
        reader: ProcessId,
    ) -> Option<LaneId> {
        let user = context.stack.user_of(port);
        let few = self.has_few_lanes(if writer == DAEMON { reader } else { writer });
        let memory = if writer == DAEMON { reserved_inbound(few) } else { RESERVED };
        if !may_charge(context.stack, user, memory) {
            return None;
        }
        let id = match self.pairs.slot(writer, reader) {
            Ok(id) => id?,
            Err(error) => {
                context.warn(format!("a process cannot share memory with the daemon: {error}"));
                return None;
            }
        };
        let token = self.pairs.token(id.pair);
        let pair = self.pairs.get_mut(id.pair)?;
        let near = pair.near.as_mut()?;
        if near.watched.is_none() {
            near.watched =
                context.watch.watch(if writer == DAEMON { reader } else { writer }, &near.knock, token);
            // The arena is still empty.
            near.bell.tell_daemon(true);
        }
        let opened = near.watched.is_some() && pair.arena.open_slot(side(id.writer), id.slot.into()).is_ok();
        if !opened {
            self.pairs.free_slot(context.now, id);
            return None;
        }
        let is_outbound = reader == DAEMON;
        if !is_outbound {
            self.arm_for_descriptor(id, port);
        }
        let (from, to) = if is_outbound { (port, 0) } else { (0, port) };
        // The daemon takes larger rings for the lanes that it writes without a grant.
        let class = if is_outbound { 0 } else { largest_inbound(few) };
        let (state, charge) = (LaneState::OPEN, Charge::begin(context.stack, user, memory));
        let lane = Lane::new((from, writer), (to, reader), state, charge);
        self.insert(id, Lane { class, ..lane });
        Some(id)
    }

    fn begin_outbound(
        &mut self,
        context: &mut Context<'_>,
        lane: LaneId,
        user: ProcessId,
        port: u32,
        peer: PortId,
    ) {
        let near = self.pairs.near(lane.pair);
        let Some(reader) = near.and_then(|near| near.inc.reader(lane.slot.into()).ok()) else { return };
        // The first turn reads it and arms it.
        self.outbound.insert(port, Outbound { lane, reader, attention: Attention::Listed });
        context.later(port, Job::CarryOut(port));
        self.notify(context, user, Notice::NodeLane { port, peer, lane, end: LaneEnd::Writer });
    }

    fn begin_inbound(
        &mut self,
        context: &mut Context<'_>,
        lane: LaneId,
        user: ProcessId,
        port: u32,
        peer: PortId,
    ) {
        let near = self.pairs.near(lane.pair);
        let Some(writer) = near.and_then(|near| near.out.writer(lane.slot.into()).ok()) else { return };
        self.inbound.insert(port, Inbound { lane, writer, ended: false, is_unfilled: false });
        self.notify(context, user, Notice::NodeLane { port, peer, lane, end: LaneEnd::Reader });
    }

    /// The process has few enough lanes for each to have a large ring in the pair's memory.
    pub(super) fn has_few_lanes(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.written.max(process.read) <= FEW_LANES)
    }

    /// Makes requests of the process for this socket wait until its lane is read out, or no longer wait.
    pub(super) fn set_reads_out(&mut self, port: u32, reads_out: bool) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.reads_out = reads_out;
        }
        if !reads_out {
            self.finished.push(port);
        }
    }

    /// The daemon is done with a lane that it writes, and so is the reader.
    pub(super) fn finish_inbound(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        lane: LaneId,
        writer: Writer,
    ) {
        self.advance(lane, LaneEvent::WriterDone);
        self.advance(lane, LaneEvent::ReaderDone);
        // Before another lane in the slot begins in the same ring.
        writer.retire();
        self.free_if_done(context, lane);
        self.set_reads_out(port, false);
    }

    /// Ends reading by a process that has not asked for the end of its socket's lanes: unread messages are lost.
    pub(super) fn drop_inbound(&mut self, context: &mut Context<'_>, port: u32) {
        if let Some(inbound) = self.inbound.remove(&port) {
            self.mark_gone(inbound.lane);
            self.serve_later(context, inbound.lane.pair);
            self.finish_inbound(context, port, inbound.lane, inbound.writer);
        }
    }

    /// The unread messages of a lane that was marked gone; `None` if it has none.
    pub(super) fn recovered(&mut self, lane: LaneId) -> Option<Recovered> {
        let class = self.lanes.get(&lane)?.class;
        let recovered = self.pairs.get(lane.pair)?.arena.recover(side(lane.writer), lane.slot.into(), class);
        self.corrupt += u64::from(recovered.is_err());
        recovered.ok()
    }

    /// The daemon is done with a lane that a process writes.
    pub(super) fn finish_outbound(&mut self, context: &mut Context<'_>, port: u32, lane: LaneId, gone: bool) {
        if self.lanes.get(&lane).is_some_and(|lane| lane.from == port && lane.reader == DAEMON) {
            self.advance(lane, LaneEvent::ReaderDone);
            self.dismiss_writer(context, lane, gone);
            self.free_if_done(context, lane);
        }
        self.set_reads_out(port, false);
    }

    /// Ends writing by a process; what is in the lane is lost.
    pub(super) fn drop_outbound(&mut self, context: &mut Context<'_>, port: u32, gone: bool) {
        if let Some(outbound) = self.outbound.remove(&port) {
            self.mark_gone(outbound.lane);
            self.finish_outbound(context, port, outbound.lane, gone);
        }
    }

    /// Ends a node lane with a malformed record, and its connection.
    pub(super) fn refuse_outbound(&mut self, context: &mut Context<'_>, port: u32) {
        self.corrupt += 1;
        self.drop_outbound(context, port, true);
        context.stack.abort(context.now, port);
    }
}
