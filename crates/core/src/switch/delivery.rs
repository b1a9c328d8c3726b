//! Messages for sockets of this node: the ports, what is queued for them, and the lanes that lead past the switch.

use std::collections::{BTreeSet, VecDeque};

use super::connections::Connections;
use crate::addr::{NodeAddr, PortId};
use crate::rng::Rng;
use crate::wire::{ErrorCode, Message};

/// The sockets of this node as receivers.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    ports: BTreeSet<u32>,
    /// Messages for sockets.
    queue: VecDeque<(u32, Message)>,
    /// Pairs of sockets with a lane: messages of the first to the second do not go through the switch.
    lanes: BTreeSet<(u32, u32)>,
    /// Receivers that the current message must reach over a lane.
    diverted: Vec<u32>,
    connections: Connections,
    /// For the receivers of a multicast.
    buffer: Vec<u32>,
}

impl Delivery {
    /// Allocates a free port number: a random one, or the next free one.
    pub(super) fn open(&mut self, rng: &mut Rng) -> u32 {
        let mut port = rng.next_u32().max(1);
        while !self.ports.insert(port) {
            port = port.wrapping_add(1).max(1);
        }
        port
    }

    pub(super) fn close(&mut self, port: u32) {
        self.ports.remove(&port);
        self.connections.remove(port);
    }

    /// A socket is connected to this peer from now on.
    pub(crate) fn connect(&mut self, port: u32, peer: PortId) {
        self.connections.insert(port, peer);
    }

    /// The connection of a socket has ended.
    pub(crate) fn disconnect(&mut self, port: u32) {
        self.connections.remove(port);
    }

    pub(super) fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// The sockets with a connection to a node, and its ends there.
    pub(super) fn connections_to(&self, node: NodeAddr) -> Vec<(u32, PortId)> {
        self.connections.to(node)
    }

    pub(super) fn is_open(&self, port: u32) -> bool {
        self.ports.contains(&port)
    }

    pub(super) fn push(&mut self, port: u32, message: Message) {
        self.queue.push_back((port, message));
    }

    /// The next message, and the socket that it is for.
    pub(crate) fn next(&mut self) -> Option<(u32, Message)> {
        self.queue.pop_front()
    }

    /// A buffer for the receivers of a multicast; [`Self::put_buffer`] keeps its memory.
    pub(super) fn take_buffer(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.buffer)
    }

    pub(super) fn put_buffer(&mut self, buffer: Vec<u32>) {
        self.buffer = buffer;
    }

    pub(crate) fn add_lane(&mut self, from: u32, to: u32) {
        self.lanes.insert((from, to));
    }

    pub(crate) fn remove_lane(&mut self, from: u32, to: u32) {
        self.lanes.remove(&(from, to));
    }

    pub(crate) fn has_lane(&self, from: u32, to: u32) -> bool {
        !self.lanes.is_empty() && self.lanes.contains(&(from, to))
    }

    /// Leaves out a receiver to which the sender of this message, a socket of this node, has a lane.
    pub(super) fn divert(&mut self, port: u32, message: &Message) -> bool {
        let by_lane = self.has_lane(message.origin_port(), port)
            && message.is_data()
            && message.error_code() == ErrorCode::Ok;
        if by_lane {
            self.diverted.push(port);
        }
        by_lane
    }

    /// Leaves out those of several receivers to which a socket has lanes.
    pub(super) fn divert_some(&mut self, from: u32, ports: &mut Vec<u32>) {
        if self.lanes.range((from, 0)..=(from, u32::MAX)).next().is_some() {
            let Self { lanes, diverted, .. } = self;
            diverted.extend(ports.extract_if(.., |to| lanes.contains(&(from, *to))));
        }
    }

    /// The receivers that were left out since the last call.
    pub(crate) fn take_diverted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.diverted)
    }
}
