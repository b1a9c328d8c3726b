//! Lanes between a process and its node: the last stretch of connections that lead to other nodes. How they begin and how
//! they end; what goes through them is the business of `node_traffic.rs`.
//!
//! The node is one side of the pair, as attachment [`DAEMON`]. It reads what the process sends into the endpoint as fast as
//! that takes it, and writes what the endpoint receives as far as there is room; the rest waits in the endpoint.

use std::collections::{BTreeMap, HashMap, VecDeque};

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::addr::{PortId, Scope};
use utipc_core::socket::{Destination, Endpoint, SendError, State};
use utipc_core::wire::{BASIC_HEADER, ErrorCode, MessageType, NAMED_HEADER, SHORT_HEADER, View};
use utipc_core::{NodeAddr, Time};
use utipc_lanes::{Kind, Reader, Side, Writer};
use utipc_os::reactor::Interest;

use crate::daemon::dispatcher::{Dispatcher, token};
use crate::daemon::lanes::broker::{Lane, MAX_LANES_IN, MAX_LANES_OUT};
use crate::daemon::lanes::end::Why;
use crate::daemon::lanes::pairs::{DAEMON, side};

/// Messages that a connection has carried before it gets lanes: many carry but a question and an answer.
const MESSAGES_BEFORE: u64 = 2;

/// The end of a connection waits for what is still to be sent this long, milliseconds at most. Spec: tipc.md §8.3.
const MAX_LINGER_MS: u64 = 8000;

/// Lanes of a process up to which each may have the largest ring; 120 of these fit the memory of a pair.
const FEW_LANES: usize = 48;

/// Bytes that are taken out of a lane which ends; its rings hold less.
const MAX_UNREAD: usize = 3 << 20;

/// Bytes that wait for full queues on behalf of one socket without a connection, beside one message. Processes look at the
/// queues before they send, so they are seldom more than what was in the lane when one became full.
const MAX_PARKED: usize = 1 << 20;

/// No more waits for one socket.
#[derive(Debug)]
pub(in crate::daemon) struct Full;

/// Who looks at a lane that a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Attention {
    /// Nobody: its writer tells.
    Armed,
    /// The next turn: it is in the list.
    Listed,
    /// Nobody, until the endpoint takes messages again.
    Blocked,
}

/// What a process sends on a connection.
#[derive(Debug)]
pub(in crate::daemon) struct Outbound {
    pub(in crate::daemon) lane: LaneId,
    pub(in crate::daemon) reader: Reader,
    pub(in crate::daemon) attention: Attention,
}

/// What a process receives on a connection.
#[derive(Debug)]
pub(in crate::daemon) struct Inbound {
    pub(in crate::daemon) lane: LaneId,
    pub(in crate::daemon) writer: Writer,
    /// Its end is written: what follows is fetched by commands.
    pub(in crate::daemon) ended: bool,
}

/// How a socket ends once everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum End {
    Shut,
    Close,
}

/// Messages that have left their lane, and that the endpoint does not take yet: those of a connection whose lane is over,
/// or without a connection those for nodes to which the queue is full. They must not hold up the others.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Unsent {
    /// By destination, in the order of sending; of a connection under no node.
    data: BTreeMap<NodeAddr, VecDeque<Parcel>>,
    bytes: usize,
    /// What is to follow.
    end: Option<End>,
}

impl Unsent {
    fn add(&mut self, parcel: Parcel) {
        self.bytes += parcel.cost();
        let node = parcel.to.map_or(NodeAddr::NONE, |to| to.found.node);
        self.data.entry(node).or_default().push_back(parcel);
    }
}

/// Where a message without a connection goes.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Way {
    /// How it is addressed.
    pub(in crate::daemon) to: Destination,
    /// The socket that its sender has found, on another node.
    pub(in crate::daemon) found: PortId,
}

impl Way {
    /// What the header of a message in a lane to the node says; `None` if it is none that leads to another node.
    pub(in crate::daemon) fn of(header: &[u8], total: usize, own: NodeAddr) -> Option<(Way, usize)> {
        let view = View::parse_header(header, total).ok().filter(|view| view.is_data())?;
        let node = view.dest_node().filter(|node| !node.is_none() && *node != own)?;
        let found = PortId { port: view.dest_port(), node };
        let (to, need) = match view.message_type() {
            MessageType::Direct => (Destination::Port(found), BASIC_HEADER),
            MessageType::Named => {
                let domain =
                    if view.lookup_scope() == Scope::Cluster.number() { NodeAddr::NONE } else { node };
                (Destination::Service { addr: view.service(), domain }, NAMED_HEADER)
            }
            _ => return None,
        };
        (view.header_size() == need).then_some((Way { to, found }, need))
    }
}

/// A message that waits.
#[derive(Debug)]
struct Parcel {
    /// `None`: on its connection.
    to: Option<Way>,
    data: Vec<u8>,
}

impl Parcel {
    fn cost(&self) -> usize {
        self.data.len() + size_of::<Self>()
    }
}

/// All lanes of the node, by the port of the process's socket.
#[derive(Debug, Default)]
pub(in crate::daemon) struct NodeLanes {
    pub(in crate::daemon) outbound: HashMap<u32, Outbound>,
    pub(in crate::daemon) inbound: HashMap<u32, Inbound>,
    /// Outbound lanes to look at in this turn.
    pub(in crate::daemon) listed: VecDeque<u32>,
    unsent: HashMap<u32, Unsent>,
    /// Until when what is unsent may wait, oldest first.
    lingering: VecDeque<(Time, u32)>,
    /// One message on its way.
    pub(in crate::daemon) message: Vec<u8>,
}

impl NodeLanes {
    /// Whether a process sends by a lane, and receives by one.
    pub(in crate::daemon) fn serves(&self, port: u32) -> (bool, bool) {
        (self.outbound.contains_key(&port), self.delivers(port))
    }

    /// What the process receives comes by a lane.
    pub(in crate::daemon) fn delivers(&self, port: u32) -> bool {
        self.inbound.get(&port).is_some_and(|lane| !lane.ended)
    }

    /// What the process sends now would overtake what it has sent before.
    pub(in crate::daemon) fn holds_back(&self, port: u32) -> bool {
        self.outbound.contains_key(&port) || self.unsent.contains_key(&port)
    }

    /// The process has ended the connection; what it has sent before is on its way yet.
    pub(in crate::daemon) fn is_ending(&self, port: u32) -> bool {
        self.unsent.get(&port).is_some_and(|unsent| unsent.end.is_some())
    }

    /// Messages to this node wait already.
    pub(in crate::daemon) fn waits_for(&self, port: u32, node: NodeAddr) -> bool {
        self.unsent.get(&port).is_some_and(|unsent| unsent.data.contains_key(&node))
    }

    /// A message without a connection waits for room in the queue to its node; `Err` if too much does.
    pub(in crate::daemon) fn park(&mut self, port: u32, way: Way, data: &[u8]) -> Result<(), Full> {
        let unsent = self.unsent.entry(port).or_default();
        if unsent.bytes >= MAX_PARKED {
            return Err(Full);
        }
        unsent.add(Parcel { to: Some(way), data: data.to_vec() });
        Ok(())
    }

    /// Data of a lane that is over waits for the endpoint.
    pub(in crate::daemon) fn has_unsent(&self, port: u32) -> bool {
        self.unsent.contains_key(&port)
    }

    /// When [`Dispatcher::expire_unsent`] has something to do.
    pub(in crate::daemon) fn deadline(&self) -> Option<Time> {
        self.lingering.front().map(|(until, _)| *until)
    }
}

impl Dispatcher {
    /// Gives a connection to another node its lanes, if it is one that has use for them.
    pub(in crate::daemon) fn consider_node_lanes(&mut self, port: u32) {
        let Some(holding) = self.sockets.get(&port).filter(|h| h.direct && h.lanes.is_empty()) else {
            return;
        };
        let owner = holding.owner;
        let Some(peer) = self.far_peer(port) else { return };
        let Some(attachment) = self.attachments.get(&owner).filter(|a| a.takes_node_lanes) else { return };
        let room = attachment.lanes_out < MAX_LANES_OUT && attachment.lanes_in < MAX_LANES_IN;
        if !room || self.node_lanes.unsent.contains_key(&port) {
            return;
        }
        if let Some(lane) = self.open_node_lane(owner, port, DAEMON) {
            self.begin_outbound(lane, owner, port, peer);
        }
        if let Some(lane) = self.open_node_lane(DAEMON, port, owner) {
            self.begin_inbound(lane, owner, port, peer);
        }
    }

    /// Gives a socket without a connection its lanes for messages to other nodes and from there; whether it has them.
    pub(in crate::daemon) fn open_datagram_lanes(&mut self, owner: u32, port: u32) -> bool {
        let (outbound, inbound) = (&self.node_lanes.outbound, &self.node_lanes.inbound);
        let has = (outbound.contains_key(&port), inbound.contains_key(&port));
        if has == (true, true) {
            return true;
        }
        let direct = self.sockets.get(&port).is_some_and(|h| h.direct && h.owner == owner);
        let full = self.attachments.get(&owner).is_none_or(|a| {
            !a.takes_node_lanes || a.lanes_out >= MAX_LANES_OUT || a.lanes_in >= MAX_LANES_IN
        });
        if !direct || full || !self.is_datagram(port) {
            return false;
        }
        if !has.0
            && let Some(lane) = self.open_node_lane(owner, port, DAEMON)
        {
            self.begin_outbound(lane, owner, port, PortId::default());
        }
        if !has.1
            && let Some(lane) = self.open_node_lane(DAEMON, port, owner)
        {
            self.begin_inbound(lane, owner, port, PortId::default());
            self.deliver(crate::driver::now(), port);
        }
        self.node_lanes.outbound.contains_key(&port)
    }

    /// What the socket receives next comes by its lane, and not by a command.
    pub(in crate::daemon) fn comes_by_lane(&self, port: u32) -> bool {
        let own = self.driver.stack.own_node();
        self.node_lanes.delivers(port)
            && self
                .driver
                .stack
                .endpoint(port)
                .is_none_or(|e| e.kind().is_connection_oriented() || e.next_is_remote(own))
    }

    /// A socket without connections.
    pub(in crate::daemon) fn is_datagram(&self, port: u32) -> bool {
        self.driver.stack.endpoint(port).is_some_and(|e| !e.kind().is_connection_oriented())
    }

    /// The peer of a connection that has lasted for a while and leads to another node.
    fn far_peer(&self, port: u32) -> Option<PortId> {
        let endpoint = self.driver.stack.endpoint(port)?;
        let stats = endpoint.stats();
        let used = stats.sent_messages + stats.received_messages >= MESSAGES_BEFORE;
        let ready = used && endpoint.state() == State::Established && !endpoint.is_partly_read();
        let far = |node: NodeAddr| !node.is_none() && node != self.driver.stack.own_node();
        endpoint.peer().filter(|peer| ready && far(peer.node))
    }

    /// A lane from one side to the other for `port`, and both sides' books about it.
    fn open_node_lane(&mut self, from: u32, port: u32, to: u32) -> Option<LaneId> {
        let id = match self.broker.pairs.slot(from, to) {
            Ok(id) => id?,
            Err(error) => {
                tracing::warn!("a process cannot share memory with the daemon: {error}");
                return None;
            }
        };
        let pair = self.broker.pairs.get_mut(id.pair)?;
        let near = pair.near.as_mut()?;
        if !near.watched {
            let token = token::LANES | u64::from(id.pair.0);
            near.watched = self.reactor.add(&near.knock, token, Interest::Knock).is_ok();
            // Nobody has written anything yet.
            near.bell.tell_daemon(true);
        }
        let opened = near.watched && pair.arena.open_slot(side(id.writer), id.slot.into()).is_ok();
        if !opened {
            self.broker.pairs.give_back(crate::driver::now(), id);
            return None;
        }
        let outbound = to == DAEMON;
        if !outbound {
            self.arm_for_descriptor(id, port);
        }
        let lane = Lane {
            from: if outbound { port } else { 0 },
            to: if outbound { 0 } else { port },
            from_owner: from,
            to_owner: to,
            told: true,
            ended: false,
            writer_done: false,
            reader_done: false,
            granted: 0,
            drains: false,
        };
        self.broker.lanes.insert(id, lane);
        if let Some(attachment) = self.attachments.get_mut(&from) {
            attachment.lanes_out += 1;
        }
        if let Some(attachment) = self.attachments.get_mut(&to) {
            attachment.lanes_in += 1;
        }
        if let Some(holding) = self.sockets.get_mut(&port) {
            holding.lanes.insert(id);
        }
        Some(id)
    }

    fn begin_outbound(&mut self, lane: LaneId, owner: u32, port: u32, peer: PortId) {
        let near = self.broker.pairs.get(lane.pair).and_then(|pair| pair.near.as_ref());
        let Some(reader) = near.and_then(|near| near.inc.reader(lane.slot.into()).ok()) else { return };
        // Nothing is in it yet: whatever comes is looked at once.
        let outbound = Outbound { lane, reader, attention: Attention::Listed };
        self.node_lanes.outbound.insert(port, outbound);
        self.node_lanes.listed.push_back(port);
        self.tell(owner, Notice::NodeLane { port, peer, lane, end: LaneEnd::Writer });
    }

    fn begin_inbound(&mut self, lane: LaneId, owner: u32, port: u32, peer: PortId) {
        let near = self.broker.pairs.get(lane.pair).and_then(|pair| pair.near.as_ref());
        let Some(writer) = near.and_then(|near| near.out.writer(lane.slot.into()).ok()) else { return };
        self.node_lanes.inbound.insert(port, Inbound { lane, writer, ended: false });
        self.tell(owner, Notice::NodeLane { port, peer, lane, end: LaneEnd::Reader });
    }

    /// A process has so few lanes that the memory of a pair is enough for a large ring of each.
    pub(in crate::daemon) fn has_few_lanes(&self, owner: u32) -> bool {
        self.attachments.get(&owner).is_some_and(|a| a.lanes_out.max(a.lanes_in) <= FEW_LANES)
    }

    /// Whether a process writes this lane to the node.
    pub(in crate::daemon) fn is_node_lane_of(&self, lane: LaneId, owner: u32) -> bool {
        self.broker.lanes.get(&lane).is_some_and(|l| l.from_owner == owner && l.to_owner == DAEMON)
    }

    /// The process uses the lanes of a socket no more: what it has sent goes to the endpoint, what it has not received
    /// goes back there. Both before anything else that it asks for.
    pub(in crate::daemon) fn end_node_lanes(&mut self, now: Time, port: u32, why: Why) {
        if let Some(inbound) = self.node_lanes.inbound.remove(&port) {
            let read = why.read_of(inbound.lane);
            self.end_inbound(now, port, inbound, read);
        }
        self.stop_outbound(now, port, why.is_gone());
    }

    /// The process writes no more; what it has written is sent.
    pub(in crate::daemon) fn stop_outbound(&mut self, now: Time, port: u32, gone: bool) {
        if self.node_lanes.outbound.contains_key(&port) {
            self.carry_out(now, port, usize::MAX);
        }
        let Some(outbound) = self.node_lanes.outbound.remove(&port) else { return };
        let bodies = self.end_outbound(outbound.lane, gone);
        let (own, datagram) = (self.driver.stack.own_node(), self.is_datagram(port));
        if bodies.is_empty() || !datagram && !self.is_connected(port) {
            return;
        }
        let unsent = self.node_lanes.unsent.entry(port).or_default();
        for mut body in bodies {
            let to = Way::of(&body, body.len(), own).filter(|_| datagram);
            if datagram && to.is_none() {
                self.broker.corrupt += 1;
                continue;
            }
            let header = to.map_or(SHORT_HEADER, |(_, header)| header);
            body.drain(..header.min(body.len()));
            if !body.is_empty() {
                unsent.add(Parcel { to: to.map(|(way, _)| way), data: body });
            }
        }
        self.send_unsent(now, port);
    }

    /// The process reads no more; what it has not read goes back to the endpoint.
    pub(in crate::daemon) fn stop_inbound(&mut self, now: Time, port: u32) {
        if let Some(inbound) = self.node_lanes.inbound.remove(&port) {
            self.end_inbound(now, port, inbound, 0);
        }
    }

    fn is_connected(&self, port: u32) -> bool {
        self.driver.stack.endpoint(port).map(Endpoint::state) == Some(State::Established)
    }

    fn end_inbound(&mut self, now: Time, port: u32, inbound: Inbound, read: usize) {
        let Inbound { lane: id, writer, .. } = inbound;
        if let Some(pair) = self.broker.pairs.get(id.pair) {
            // Refused for a slot that does not exist only.
            let _ = pair.arena.mark_gone(Side::Zero, id.slot.into());
        }
        // That rang the daemon's own bell.
        self.serve_lanes(now, id.pair);
        let unread = self.recover(id);
        if !self.driver.stack.take_back(now, port, unread, read) {
            self.broker.corrupt += 1;
        }
        if let Some(lane) = self.broker.lanes.get_mut(&id) {
            (lane.ended, lane.writer_done, lane.reader_done) = (true, true, true);
        }
        self.finish_lane(now, id);
        writer.retire();
    }

    /// Ends a lane that a process writes: the messages in it that the endpoint has not taken.
    pub(in crate::daemon) fn end_outbound(&mut self, id: LaneId, gone: bool) -> Vec<Vec<u8>> {
        if let Some(pair) = self.broker.pairs.get(id.pair) {
            // Refused for a slot that does not exist only.
            let _ = pair.arena.mark_gone(side(id.writer), id.slot.into());
        }
        let unsent = self.recover(id);
        if let Some(lane) = self.broker.lanes.get_mut(&id) {
            (lane.ended, lane.reader_done) = (true, true);
        }
        self.dismiss_writer(id, gone);
        unsent
    }

    /// The messages in a lane of the node whose reader has stopped. An honest process never has more than fit its rings.
    fn recover(&mut self, id: LaneId) -> Vec<Vec<u8>> {
        let Some(pair) = self.broker.pairs.get(id.pair) else { return Vec::new() };
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        let found = pair.arena.recover(side(id.writer), id.slot.into()).and_then(|mut left| {
            let mut body = Vec::new();
            while bytes < MAX_UNREAD
                && let Some(kind) = left.next_into(&mut body)?
            {
                if kind == Kind::Data {
                    bytes += body.len() + size_of::<Vec<u8>>();
                    bodies.push(std::mem::take(&mut body));
                }
            }
            Ok(())
        });
        self.broker.corrupt += u64::from(found.is_err());
        bodies
    }

    /// Ends a connection, or closes a socket: at once, or after what was sent before.
    pub(in crate::daemon) fn end_socket(&mut self, now: Time, port: u32, end: End) {
        match (self.node_lanes.unsent.get_mut(&port), end) {
            (Some(unsent), _) => {
                unsent.end = Some(end);
                // Nobody is there to answer any more.
                let _ = self.driver.stack.unbind(now, port, None);
                self.node_lanes.lingering.push_back((now.plus_millis(MAX_LINGER_MS), port));
            }
            (None, End::Close) => self.driver.stack.close(now, port),
            // Refused by a socket that is not connected, of which the caller knows.
            (None, End::Shut) => drop(self.driver.stack.shutdown(now, port)),
        }
    }

    /// Sends what has left its lane, as far as the endpoint takes it, and then does what was to follow.
    pub(in crate::daemon) fn send_unsent(&mut self, now: Time, port: u32) {
        if !self.node_lanes.unsent.contains_key(&port) {
            return;
        }
        if self.is_datagram(port) || self.is_connected(port) {
            let nodes: Vec<NodeAddr> =
                self.node_lanes.unsent.get(&port).into_iter().flat_map(|u| u.data.keys().copied()).collect();
            for node in nodes {
                self.send_unsent_to(now, port, node);
            }
            if self.node_lanes.unsent.get(&port).is_some_and(|unsent| !unsent.data.is_empty()) {
                return;
            }
        }
        self.drop_unsent(now, port);
    }

    /// What waits for one node.
    fn send_unsent_to(&mut self, now: Time, port: u32, node: NodeAddr) {
        let Some(mut queue) = self.node_lanes.unsent.get_mut(&port).and_then(|u| u.data.remove(&node)) else {
            return;
        };
        let mut freed = 0;
        while let Some(parcel) = queue.front() {
            match self.send_from_lane(now, port, &parcel.data, parcel.to) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => break,
                Err(_) => queue.truncate(1),
            }
            freed += queue.pop_front().map_or(0, |parcel| parcel.cost());
        }
        if let Some(unsent) = self.node_lanes.unsent.get_mut(&port) {
            unsent.bytes = unsent.bytes.saturating_sub(freed);
            if !queue.is_empty() {
                unsent.data.insert(node, queue);
            }
        }
    }

    /// Hands a message of a lane to its endpoint. One without a connection that can go nowhere comes back to its sender.
    ///
    /// # Errors
    /// Not now, or on a connection: not any more.
    pub(in crate::daemon) fn send_from_lane(
        &mut self,
        now: Time,
        port: u32,
        data: &[u8],
        way: Option<Way>,
    ) -> Result<(), SendError> {
        let stack = &mut self.driver.stack;
        let Some(Way { to, found }) = way else { return stack.send(now, port, data, None).map(drop) };
        let sent = match to {
            Destination::Port(_) => stack.send(now, port, data, Some(to)),
            to => stack.send_found(now, port, data, to, found),
        };
        let code = match sent {
            Err(SendError::WouldBlock) => return Err(SendError::WouldBlock),
            Ok(_) => return Ok(()),
            Err(SendError::HostUnreachable) => ErrorCode::NoNode,
            Err(_) => ErrorCode::Overload,
        };
        stack.fail_to_send(now, port, data, to, found, code);
        Ok(())
    }

    fn drop_unsent(&mut self, now: Time, port: u32) {
        if let Some(end) = self.node_lanes.unsent.remove(&port).and_then(|unsent| unsent.end) {
            self.end_socket(now, port, end);
        }
    }

    /// Gives up what has waited for too long.
    pub(in crate::daemon) fn expire_unsent(&mut self, now: Time) {
        while let Some((until, port)) = self.node_lanes.lingering.front().copied()
            && until <= now
        {
            self.node_lanes.lingering.pop_front();
            if self.node_lanes.is_ending(port) {
                self.drop_unsent(now, port);
            }
        }
    }

    /// What a process has written into a lane of the node makes no sense: its connection ends.
    pub(in crate::daemon) fn refuse_outbound(&mut self, now: Time, port: u32) {
        self.broker.corrupt += 1;
        if let Some(outbound) = self.node_lanes.outbound.remove(&port) {
            drop(self.end_outbound(outbound.lane, true));
            self.finish_lane(now, outbound.lane);
        }
        self.driver.stack.abort(now, port);
    }
}
