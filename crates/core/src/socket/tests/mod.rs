//! A cluster in memory: nodes without links, a network that keeps order and loses nothing, virtual time.

mod built;
mod connection;
mod datagram;
mod group;
mod group_captures;
mod hostile;
mod multicast;
mod options;
mod setup;
mod stream;
mod teardown;
mod vectors;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::limits::{CAPABILITIES, MAX_MESSAGE};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, Packet, SHORT_HEADER, User};

const A: NodeAddr = NodeAddr(0x0100_1001);
const B: NodeAddr = NodeAddr(0x0100_1002);

/// The state that the nodes share.
struct Wire {
    in_flight: VecDeque<(NodeAddr, Message)>,
    log: Vec<(NodeAddr, Message)>,
    bindings: Vec<(ServiceRange, Scope, PortId)>,
    next_binding: usize,
    capabilities: BTreeMap<NodeAddr, u16>,
    mss: usize,
    congested: BTreeSet<(NodeAddr, NodeAddr)>,
    down: BTreeSet<NodeAddr>,
    connections: BTreeMap<PortId, PortId>,
    methods: BTreeMap<u32, Option<Method>>,
}

struct Access<'a> {
    wire: &'a mut Wire,
    own: NodeAddr,
}

impl Uplink for Access<'_> {
    fn own_node(&self) -> NodeAddr {
        self.own
    }

    fn resolve(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Resolved> {
        if !domain.is_none() && domain != self.own {
            return Some(Resolved { port: 0, node: domain, scope: 3 });
        }
        let all: Vec<PortId> = self.wire.bound(to.into());
        self.wire.next_binding += 1;
        let found = all.get(self.wire.next_binding % all.len().max(1))?;
        Some(Resolved { port: found.port, node: found.node, scope: 2 })
    }

    fn capabilities(&self, node: NodeAddr) -> u16 {
        self.wire.capabilities.get(&node).copied().unwrap_or(CAPABILITIES)
    }

    fn mss(&self, node: NodeAddr) -> usize {
        if node == self.own { MAX_MESSAGE } else { self.wire.mss }
    }

    fn is_reachable(&self, node: NodeAddr) -> bool {
        !self.wire.down.contains(&node)
    }

    fn submit(&mut self, to: NodeAddr, msg: Message) -> Result<Submitted, SubmitError> {
        assert_eq!(msg.prev_node(), self.own);
        assert!(msg.dest_node().is_none_or(|node| node == to));
        assert_eq!(msg.size(), msg.bytes().len());
        if self.wire.down.contains(&to) {
            return Err(SubmitError::Unreachable);
        }
        self.wire.log.push((self.own, msg.clone()));
        self.wire.in_flight.push_back((to, msg));
        let full = self.wire.congested.contains(&(self.own, to));
        Ok(if full { Submitted::Congested(to) } else { Submitted::Done })
    }

    fn submit_multicast(&mut self, msg: Message) -> Result<Submitted, SubmitError> {
        let nodes: BTreeSet<_> = self.wire.bound(msg.service_range()).iter().map(|p| p.node).collect();
        if nodes.is_empty() {
            return Err(SubmitError::Unreachable);
        }
        self.wire.log.push((self.own, msg.clone()));
        self.wire.in_flight.extend(nodes.into_iter().map(|node| (node, msg.clone())));
        let full = self.wire.congested.contains(&(self.own, NodeAddr::NONE));
        Ok(if full { Submitted::Congested(NodeAddr::NONE) } else { Submitted::Done })
    }

    fn submit_multicast_elsewhere(&mut self, msg: Message) -> Result<Submitted, SubmitError> {
        let own = self.own;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            self.wire.bindings.drain(..).partition(|(.., port)| port.node == own);
        self.wire.bindings = elsewhere;
        let submitted = self.submit_multicast(msg);
        self.wire.bindings.extend(here);
        submitted
    }

    fn group_bindings(&mut self, _port: u32, service: u32, scope: Scope) -> Vec<(PortId, u32)> {
        let of_group =
            |(range, of, _): &&(ServiceRange, Scope, PortId)| range.service == service && *of == scope;
        self.wire.bindings.iter().filter(of_group).map(|(range, _, port)| (*port, range.lower)).collect()
    }

    fn submit_group(
        &mut self,
        msg: Message,
        local: bool,
        nodes: &[NodeAddr],
        _: bool,
    ) -> Result<Submitted, SubmitError> {
        let here = local.then_some(self.own);
        for node in nodes.iter().copied().chain(here) {
            let mut copy = msg.clone();
            copy.set_is_replicast(true);
            if node != self.own {
                copy.set_dest_node(node);
            }
            self.wire.log.push((self.own, copy.clone()));
            self.wire.in_flight.push_back((node, copy));
        }
        Ok(Submitted::Done)
    }

    fn multicast_method(&mut self, port: u32, forced: Option<Method>) {
        self.wire.methods.insert(port, forced);
    }

    fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<(), BindError> {
        if range.service < crate::limits::RESERVED_TYPES {
            return Err(BindError::Reserved);
        }
        self.wire.bindings.push((range, scope, PortId { port, node: self.own }));
        Ok(())
    }

    fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Result<(), BindError> {
        let me = PortId { port, node: self.own };
        let before = self.wire.bindings.len();
        self.wire.bindings.retain(|(r, s, p)| *p != me || which.is_some_and(|w| w != (*r, *s)));
        if self.wire.bindings.len() == before { Err(BindError::NotBound) } else { Ok(()) }
    }

    fn register_connection(&mut self, port: u32, peer: PortId) {
        self.wire.connections.insert(PortId { port, node: self.own }, peer);
    }

    fn unregister_connection(&mut self, port: u32) {
        self.wire.connections.remove(&PortId { port, node: self.own });
    }
}

impl Wire {
    fn bound(&self, range: ServiceRange) -> Vec<PortId> {
        self.bindings.iter().filter(|(r, ..)| r.overlaps(&range)).map(|(.., p)| *p).collect()
    }
}

/// Sockets on several nodes.
struct Cluster {
    now: Time,
    wire: Wire,
    sockets: BTreeMap<PortId, Endpoint>,
    next_port: u32,
}

impl Cluster {
    fn new() -> Self {
        let wire = Wire {
            in_flight: VecDeque::new(),
            log: Vec::new(),
            bindings: Vec::new(),
            next_binding: 0,
            capabilities: BTreeMap::new(),
            mss: 1388,
            congested: BTreeSet::new(),
            down: BTreeSet::new(),
            connections: BTreeMap::new(),
            methods: BTreeMap::new(),
        };
        Self { now: Time::from_millis(1000), wire, sockets: BTreeMap::new(), next_port: 100 }
    }

    /// Calls `f` with a socket and its node.
    fn on<R>(&mut self, at: PortId, f: impl FnOnce(&mut Endpoint, Time, &mut dyn Uplink) -> R) -> R {
        let mut access = Access { wire: &mut self.wire, own: at.node };
        f(self.sockets.get_mut(&at).expect("the socket exists"), self.now, &mut access)
    }

    fn open_as(&mut self, node: NodeAddr, kind: SocketKind, port: u32) -> PortId {
        let id = PortId { port, node };
        self.sockets.insert(id, Endpoint::new(self.now, kind, port, u64::from(port)));
        id
    }

    fn open(&mut self, node: NodeAddr, kind: SocketKind) -> PortId {
        self.next_port += 1;
        self.open_as(node, kind, self.next_port)
    }

    fn bind(&mut self, at: PortId, service: u32, lower: u32, upper: u32) {
        let range = ServiceRange::new(service, lower, upper);
        self.on(at, |s, _, up| s.bind(range, Scope::Cluster, up)).unwrap();
    }

    fn bound(&mut self, node: NodeAddr, kind: SocketKind, service: u32) -> PortId {
        let id = self.open(node, kind);
        self.bind(id, service, 1, 1);
        id
    }

    fn listener(&mut self, node: NodeAddr, kind: SocketKind, service: u32) -> PortId {
        let id = self.bound(node, kind, service);
        self.on(id, |s, _, _| s.listen()).unwrap();
        id
    }

    fn connect(&mut self, at: PortId, to: Destination) -> Result<(), ConnectError> {
        self.on(at, |s, now, up| s.connect(now, Some(to), up))
    }

    fn accept_as(&mut self, listener: PortId, port: u32) -> Result<PortId, AcceptError> {
        let syn = self.on(listener, |s, _, _| s.next_request())?;
        let id = PortId { port, node: listener.node };
        let mut access = Access { wire: &mut self.wire, own: id.node };
        let new = Endpoint::accepted(self.now, port, 7, &self.sockets[&listener], syn, &mut access);
        self.sockets.insert(id, new);
        Ok(id)
    }

    fn accept(&mut self, listener: PortId) -> Result<PortId, AcceptError> {
        self.next_port += 1;
        self.accept_as(listener, self.next_port)
    }

    /// A connection: the client at B, the server at A.
    fn pair(&mut self, kind: SocketKind) -> (PortId, PortId) {
        let listener = self.listener(A, kind, 3000);
        let client = self.open(B, kind);
        self.connect(client, Destination::service(3000, 1)).unwrap();
        self.run();
        let server = self.accept(listener).unwrap();
        self.run();
        assert_eq!(self.state(client), State::Established);
        assert_eq!(self.state(server), State::Established);
        self.wire.log.clear();
        (client, server)
    }

    fn state(&self, at: PortId) -> State {
        self.sockets[&at].state()
    }

    fn send(&mut self, at: PortId, data: &[u8]) -> Result<usize, SendError> {
        self.on(at, |s, now, up| s.send(now, data, None, up))
    }

    fn send_to(&mut self, at: PortId, data: &[u8], to: Destination) -> Result<usize, SendError> {
        self.on(at, |s, now, up| s.send(now, data, Some(to), up))
    }

    fn recv_with(
        &mut self,
        at: PortId,
        len: usize,
        o: RecvOptions,
    ) -> Result<(Vec<u8>, Received), RecvError> {
        let mut buffer = vec![0; len];
        let received = self.on(at, |s, now, up| s.recv(now, &mut buffer, o, up))?;
        buffer.truncate(received.len);
        Ok((buffer, received))
    }

    fn recv(&mut self, at: PortId, len: usize) -> Result<Vec<u8>, RecvError> {
        Ok(self.recv_with(at, len, RecvOptions::default())?.0)
    }

    fn set(&mut self, at: PortId, option: SocketOption, n: u32) {
        self.on(at, |s, _, up| s.set_option(option, OptionValue::Number(n), up)).unwrap();
    }

    fn shutdown(&mut self, at: PortId) {
        self.on(at, |s, now, up| s.shutdown(now, up)).unwrap();
    }

    fn close(&mut self, at: PortId) {
        self.on(at, |s, now, up| s.close(now, up));
        self.reap();
    }

    fn reap(&mut self) {
        self.sockets.retain(|_, s| !s.is_closed());
    }

    fn readiness(&self, at: PortId) -> Readiness {
        self.sockets[&at].readiness()
    }

    fn wait_reason(&self, at: PortId) -> Option<WaitReason> {
        self.sockets[&at].wait_reason()
    }

    /// Blocks that the peer of a connection has not acknowledged.
    fn unacked(&self, at: PortId) -> u32 {
        self.sockets[&at].session().expect("an established connection").unacked()
    }

    /// Delivers everything in flight, and the messages that result.
    fn run(&mut self) {
        for _ in 0..100_000 {
            let Some((node, msg)) = self.wire.in_flight.pop_front() else { return };
            self.deliver(node, msg);
        }
        panic!("the nodes never stop sending");
    }

    fn deliver(&mut self, node: NodeAddr, msg: Message) {
        if msg.is_data() && msg.message_type() == MessageType::Mcast && msg.error_code() == ErrorCode::Ok {
            let ports: BTreeSet<_> = self.wire.bound(msg.service_range()).into_iter().collect();
            for at in ports.into_iter().filter(|p| p.node == node) {
                self.inject(at, msg.clone());
            }
            return;
        }
        if matches!(msg.message_type(), MessageType::GroupBcast | MessageType::GroupMcast) && msg.is_data() {
            let group = ServiceRange::new(msg.name_type(), 0, u32::MAX);
            for at in self.wire.bound(group).into_iter().filter(|p| p.node == node) {
                self.inject(at, msg.clone());
            }
            return;
        }
        let at = PortId { port: msg.dest_port(), node };
        if self.sockets.contains_key(&at) {
            return self.inject(at, msg);
        }
        let code =
            if msg.message_type() == MessageType::Named { ErrorCode::NoName } else { ErrorCode::NoPort };
        if let Some(back) = reverse(node, msg, code) {
            self.wire.log.push((node, back.clone()));
            self.wire.in_flight.push_back((back.dest_node().unwrap(), back));
        }
    }

    fn inject(&mut self, at: PortId, msg: Message) {
        self.on(at, |s, now, up| s.handle_message(now, msg, up));
        self.reap();
    }

    /// Advances the time; handles due timeouts and delivers messages on the way.
    fn pass(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.run();
            let due = self.sockets.iter().filter_map(|(id, s)| Some((s.deadline()?, *id))).min();
            match due {
                Some((at, id)) if at <= end => {
                    self.now = self.now.max(at);
                    self.on(id, |s, now, up| s.handle_timeout(now, up));
                    self.reap();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Congests the link between two nodes.
    fn congest(&mut self, from: NodeAddr, to: NodeAddr) {
        self.wire.congested.insert((from, to));
    }

    fn end_congestion(&mut self, from: NodeAddr, to: NodeAddr) {
        self.wire.congested.remove(&(from, to));
        let all: Vec<_> = self.sockets.keys().filter(|p| p.node == from).copied().collect();
        for at in all {
            self.on(at, |s, now, up| s.wakeup(now, to, up));
        }
        self.reap();
    }

    /// Contact between `node` and all others is lost.
    fn lose(&mut self, node: NodeAddr) {
        self.wire.down.insert(node);
        self.wire.in_flight.clear();
        let broken: Vec<_> =
            self.wire.connections.iter().filter(|(at, peer)| peer.node == node && at.node != node).collect();
        let broken: Vec<_> = broken.into_iter().map(|(at, peer)| (*at, *peer)).collect();
        for (at, peer) in broken {
            self.inject(at, conn(peer, at.port, ErrorCode::NoNode, &[]));
        }
    }

    /// Messages sent since the log was last taken.
    fn take_log(&mut self) -> Vec<Message> {
        self.wire.log.drain(..).map(|(_, m)| m).collect()
    }
}

/// A message on a connection, as `from` would send it.
fn conn(from: PortId, to_port: u32, code: ErrorCode, data: &[u8]) -> Message {
    let mut msg = Packet::build(User::Low, MessageType::Conn.into(), SHORT_HEADER, data);
    msg.set_prev_node(from.node);
    msg.set_origin_port(from.port);
    msg.set_dest_port(to_port);
    msg.set_error_code(code);
    msg
}

fn control(from: PortId, to: PortId, kind: u8) -> Message {
    let mut msg = Packet::build(User::ConnManager, kind, 40, &[]);
    msg.set_prev_node(from.node);
    msg.set_origin_node(from.node);
    msg.set_origin_port(from.port);
    msg.set_dest_node(to.node);
    msg.set_dest_port(to.port);
    msg
}
