//! Messages that have left a node lane and that their endpoint does not accept yet, and sockets whose end waits for
//! them.

use std::collections::{BTreeMap, VecDeque};

use utipc_core::NodeAddr;
use utipc_core::addr::{PortId, Scope};
use utipc_core::socket::{Destination, SendError};
use utipc_core::wire::{BASIC_HEADER, ErrorCode, MessageType, NAMED_HEADER, SHORT_HEADER, View};

use super::node_lanes::{is_connected, is_datagram};
use super::{Context, Lanes};

/// The end of a connection waits for unsent messages this long, milliseconds at most. Spec: tipc.md §8.3.
const MAX_LINGER_MS: u64 = 8000;

/// Most bytes that wait for full queues on behalf of one socket without a connection, beside one message. Processes
/// check the queues before they send, so there are seldom more than the lane held when a queue became full.
const MAX_PARKED: usize = 1 << 20;

/// Too many bytes wait for one socket.
#[derive(Debug)]
pub(super) struct Full;

/// How a socket ends once everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEnd {
    /// Its connection is shut down.
    Shutdown,
    /// It is closed.
    Close,
}

/// The unsent messages of one socket: of a connection whose lane has ended, or without a connection of nodes to which
/// the queue is full, so that they do not hold up messages to other nodes.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// By destination, in the order of sending; those of a connection under no node.
    messages: BTreeMap<NodeAddr, VecDeque<Message>>,
    bytes: usize,
    /// After the last message the connection is shut down.
    shuts_down: bool,
    /// After that the socket is closed.
    closes: bool,
}

impl Unsent {
    fn add(&mut self, message: Message) {
        self.bytes += message.cost();
        let node = message.route.map_or(NodeAddr::NONE, |route| route.found.node);
        self.messages.entry(node).or_default().push_back(message);
    }

    /// Whether the socket ends after the last message.
    fn is_ending(&self) -> bool {
        self.shuts_down || self.closes
    }
}

/// Where a message without a connection goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// How it is addressed.
    pub(super) to: Destination,
    /// The socket that its sender has found, on another node.
    pub(super) found: PortId,
}

impl Route {
    /// Reads the header of a message in a node lane: its route and the header's length. `None` if it does not lead to
    /// another node.
    pub(super) fn parse(header: &[u8], total: usize, own: NodeAddr) -> Option<(Route, usize)> {
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
        (view.header_size() == need).then_some((Route { to, found }, need))
    }
}

/// A message that waits.
#[derive(Debug)]
struct Message {
    /// `None`: on its connection.
    route: Option<Route>,
    data: Vec<u8>,
}

impl Message {
    fn cost(&self) -> usize {
        self.data.len() + size_of::<Self>()
    }
}

impl Lanes {
    /// A message that the process sends by a command would overtake earlier ones.
    pub fn holds_back(&self, port: u32) -> bool {
        self.outbound.contains_key(&port) || self.unsent.contains_key(&port)
    }

    /// The process has ended the connection; messages that it has sent before are still unsent.
    pub fn is_ending(&self, port: u32) -> bool {
        self.unsent.get(&port).is_some_and(Unsent::is_ending)
    }

    /// Whether messages of a socket that have left their lane are unsent.
    pub fn has_unsent(&self, port: u32) -> bool {
        self.unsent.contains_key(&port)
    }

    /// Messages to this node wait already.
    pub(super) fn waits_for(&self, port: u32, node: NodeAddr) -> bool {
        self.unsent.get(&port).is_some_and(|unsent| unsent.messages.contains_key(&node))
    }

    /// Keeps a message without a connection until the queue to its node has room.
    ///
    /// # Errors
    /// Too many bytes wait already.
    pub(super) fn park(&mut self, port: u32, route: Route, data: &[u8]) -> Result<(), Full> {
        let unsent = self.unsent.entry(port).or_default();
        if unsent.bytes >= MAX_PARKED {
            return Err(Full);
        }
        unsent.add(Message { route: Some(route), data: data.to_vec() });
        Ok(())
    }

    /// Sends the messages of a lane that has ended, now or when the endpoint accepts them.
    pub(super) fn keep_unsent(&mut self, context: &mut Context<'_>, port: u32, messages: Vec<Vec<u8>>) {
        let (own, datagram) = (context.stack.own_node(), is_datagram(context.stack, port));
        if messages.is_empty() || !datagram && !is_connected(context.stack, port) {
            return;
        }
        let unsent = self.unsent.entry(port).or_default();
        for mut data in messages {
            let route = Route::parse(&data, data.len(), own).filter(|_| datagram);
            if datagram && route.is_none() {
                self.corrupt += 1;
                continue;
            }
            let header = route.map_or(SHORT_HEADER, |(_, header)| header);
            data.drain(..header.min(data.len()));
            if !data.is_empty() {
                unsent.add(Message { route: route.map(|(route, _)| route), data });
            }
        }
        self.send_unsent(context, port);
    }

    /// Sends unsent messages as far as the endpoint accepts them, and then ends the socket if that was to follow.
    pub fn send_unsent(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(unsent) = self.unsent.get(&port) else { return };
        if is_datagram(context.stack, port) || is_connected(context.stack, port) {
            let nodes: Vec<NodeAddr> = unsent.messages.keys().copied().collect();
            for node in nodes {
                self.send_unsent_to(context, port, node);
            }
            if self.unsent.get(&port).is_some_and(|unsent| !unsent.messages.is_empty()) {
                return;
            }
        }
        self.drop_unsent(context, port);
    }

    /// Sends the messages that wait for one node.
    fn send_unsent_to(&mut self, context: &mut Context<'_>, port: u32, node: NodeAddr) {
        let Some(unsent) = self.unsent.get_mut(&port) else { return };
        let Some(mut queue) = unsent.messages.remove(&node) else { return };
        let mut freed = 0;
        while let Some(message) = queue.front() {
            match send_from_lane(context, port, &message.data, message.route) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => break,
                Err(_) => queue.truncate(1),
            }
            freed += queue.pop_front().map_or(0, |message| message.cost());
        }
        unsent.bytes = unsent.bytes.saturating_sub(freed);
        if !queue.is_empty() {
            unsent.messages.insert(node, queue);
        }
    }

    /// Ends a connection, or closes a socket: at once, or after its unsent messages.
    pub fn end_socket(&mut self, context: &mut Context<'_>, port: u32, end: SocketEnd) {
        match (self.unsent.get_mut(&port), end) {
            (Some(unsent), _) => {
                if !unsent.is_ending() {
                    self.lingering.push_back((context.now.plus_millis(MAX_LINGER_MS), port));
                }
                // A close does not replace the shutdown before it: the peer reads the end of the shutdown.
                match end {
                    SocketEnd::Shutdown => unsent.shuts_down = true,
                    SocketEnd::Close => unsent.closes = true,
                }
                // New peers would get no answer. A socket without bindings has none to withdraw.
                let _ = context.stack.unbind(context.now, port, None);
            }
            (None, SocketEnd::Close) => context.stack.close(context.now, port),
            // A socket that is not connected refuses it, which the caller knows.
            (None, SocketEnd::Shutdown) => drop(context.stack.shutdown(context.now, port)),
        }
    }

    fn drop_unsent(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(unsent) = self.unsent.remove(&port) else { return };
        if unsent.shuts_down {
            self.end_socket(context, port, SocketEnd::Shutdown);
        }
        if unsent.closes {
            self.end_socket(context, port, SocketEnd::Close);
        }
    }

    /// Drops unsent messages of sockets that have waited too long for their end.
    pub fn expire_unsent(&mut self, context: &mut Context<'_>) {
        while let Some((until, port)) = self.lingering.front().copied()
            && until <= context.now
        {
            self.lingering.pop_front();
            if self.is_ending(port) {
                self.drop_unsent(context, port);
            }
        }
    }
}

/// Hands a message of a lane to its endpoint. Without a connection, an undeliverable message comes back to its sender.
///
/// # Errors
/// Not now, or on a connection: not any more.
pub(super) fn send_from_lane(
    context: &mut Context<'_>,
    port: u32,
    data: &[u8],
    route: Option<Route>,
) -> Result<(), SendError> {
    let (now, stack) = (context.now, &mut *context.stack);
    let Some(Route { to, found }) = route else { return stack.send(now, port, data, None).map(drop) };
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
