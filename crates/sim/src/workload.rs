//! Actions of the applications.

use std::collections::BTreeMap;

use utipc_bench_kit::numbered::{self, HEAD, Head};
use utipc_core::socket::{OptionValue, SendError, SocketOption};
use utipc_core::{Destination, PortId, Scope, ServiceAddr, ServiceRange, SocketKind};

use crate::check::{Broken, Violation};
use crate::cluster::{Action, Cluster};
use crate::connections::End;
use crate::datagrams::{Class, Target};
use crate::host::{Role, Running};

/// Service types of connectionless sockets.
const TYPES: std::ops::Range<u32> = 1000..1003;
/// Instances in use.
const INSTANCES: u64 = 60;
/// Service type of the SEQPACKET server of each node; the instance is the node's index.
const SEQPACKET_SERVER: u32 = 2000;
/// Service type of the STREAM server of each node.
const STREAM_SERVER: u32 = 2001;
/// Maximum number of messages in a flood.
const FLOOD: u64 = 300;
/// One in this many bursts is a flood.
const FLOOD_ONCE_IN: u64 = 60;
/// Number of steps of a bulk transfer.
const BULK_STEPS: u32 = 40;
/// Number of steps of a bulk transfer whose reader sleeps, so that only the window stops the transfer.
const LONG_BULK_STEPS: u32 = 150;
/// Pieces sent in each step, and their size in bytes.
const BULK_PIECES: usize = 8;
const BULK_PIECE: usize = 20_000;
/// Maximum number of connectionless sockets of one node.
const MAX_DATAGRAM_SOCKETS: usize = 4;
/// Maximum number of client connections of one node.
const MAX_CLIENTS: usize = 5;

impl Cluster {
    pub(crate) fn running(&mut self, node: usize) -> Option<&mut Running> {
        self.hosts[node].running.as_mut()
    }

    pub(crate) fn start_applications(&mut self, node: usize) -> Result<(), Violation> {
        if let Some(running) = self.running(node) {
            running.started = true;
        }
        let instance = node as u32;
        for (kind, service) in
            [(SocketKind::SeqPacket, SEQPACKET_SERVER), (SocketKind::Stream, STREAM_SERVER)]
        {
            let now = self.now;
            let Some(running) = self.running(node) else { return Ok(()) };
            let port = running.stack.open(now, kind).expect("a new node has room for a socket");
            let range = ServiceRange::new(service, instance, instance);
            running.stack.bind(now, port, range, Scope::Cluster).expect("a new node has room for a binding");
            running.stack.listen(now, port).expect("a new socket can listen");
            running.roles.insert(port, Role::Listener);
        }
        for _ in 0..2 {
            self.open_datagram_socket(node)?;
        }
        self.subscribe(node, node)?;
        let incarnation = self.hosts[node].incarnation;
        self.plan(self.now.plus_millis(10), Action::Act { node, incarnation });
        Ok(())
    }

    /// Removes the sockets of a node that has crashed from the model.
    pub(crate) fn forget_applications(&mut self, running: Running) {
        for role in running.roles.into_values() {
            match role {
                Role::Datagram(id) => self.datagrams.closed(id),
                Role::Connection { id, end } => self.connections.died(id, end),
                Role::Subscriber { id, .. } => self.connections.died(id, 0),
                Role::Listener => {}
            }
        }
    }

    /// Performs one action of a node's applications, and schedules the next.
    pub(crate) fn act(&mut self, node: usize) -> Result<(), Violation> {
        if !self.busy || !self.hosts[node].running.as_ref().is_some_and(|r| r.started) {
            return Ok(());
        }
        match self.rng.below(100) {
            0..30 => self.send_unicast(node)?,
            30..42 => self.send_anycast(node)?,
            42..58 => self.send_multicast(node)?,
            58..66 => self.bind_something(node),
            66..71 => self.unbind_something(node),
            71..73 => self.replace_socket(node)?,
            73..78 => self.open_connection(node)?,
            78..96 => self.use_connection(node)?,
            96 => self.close_connection(node)?,
            97 => self.start_bulk_transfer(node),
            98 => self.force_method(node),
            _ => {
                let server = self.rng.below(self.config.nodes as u64) as usize;
                self.subscribe(node, server)?;
            }
        }
        self.flush(node)?;
        let wait = self.rng.below(self.config.pace_us * 2);
        let incarnation = self.hosts[node].incarnation;
        let at = self.now + std::time::Duration::from_micros(wait);
        self.plan(at, Action::Act { node, incarnation });
        Ok(())
    }

    fn draw_len(&mut self) -> usize {
        let most = [200, 200, 200, 1300, 1300, 4000, 4000, 66_000][self.rng.below(8) as usize];
        let most = if self.rng.below(4) > 0 { most.min(4000) } else { most };
        HEAD + self.rng.below(most - HEAD as u64) as usize
    }

    /// Number of messages in a burst: mostly a few, sometimes more than any queue or window holds.
    fn draw_burst(&mut self, most: u64) -> u64 {
        let most = if self.rng.below(FLOOD_ONCE_IN) == 0 { FLOOD } else { most };
        1 + self.rng.below(most)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let n = self.rng.below(all.len() as u64) as usize;
        all.get(n).copied()
    }

    fn own_sockets(&self, node: usize) -> Vec<u64> {
        let Some(running) = &self.hosts[node].running else { return Vec::new() };
        running
            .roles
            .values()
            .filter_map(|r| if let Role::Datagram(id) = r { Some(*id) } else { None })
            .collect()
    }

    fn open_datagram_socket(&mut self, node: usize) -> Result<(), Violation> {
        let (now, addr) = (self.now, self.hosts[node].addr);
        let Some(running) = self.running(node) else { return Ok(()) };
        let port = running.stack.open(now, SocketKind::Rdm).expect("a node has room for a few sockets");
        let id = self.datagrams.opened(node, PortId { port, node: addr });
        if let Some(running) = self.running(node) {
            running.roles.insert(port, Role::Datagram(id));
        }
        let importance = OptionValue::Number(self.rng.below(4) as u32);
        if let Some(running) = self.running(node) {
            let set = running.stack.set_option(now, port, SocketOption::Importance, importance);
            set.expect("every socket has an importance");
            // By default undeliverable messages are dropped; the model wants them returned.
            let set =
                running.stack.set_option(now, port, SocketOption::DestDroppable, OptionValue::Number(0));
            set.expect("every socket has this option");
        }
        self.bind_socket(node, id);
        Ok(())
    }

    fn draw_range(&mut self) -> ServiceRange {
        let service = TYPES.start + self.rng.below(u64::from(TYPES.end - TYPES.start)) as u32;
        let lower = self.rng.below(INSTANCES) as u32;
        let width = if self.rng.below(2) == 0 { 0 } else { self.rng.below(INSTANCES / 3) as u32 };
        ServiceRange::new(service, lower, lower + width)
    }

    fn bind_socket(&mut self, node: usize, id: u64) {
        let range = self.draw_range();
        let scope = if self.rng.below(5) == 0 { Scope::Node } else { Scope::Cluster };
        let (now, port) = (self.now, self.datagrams.get(id).port.port);
        let Some(running) = self.running(node) else { return };
        if running.bound.len() < 40 && running.stack.bind(now, port, range, scope).is_ok() {
            running.bound.push((id, range, scope));
            self.datagrams.bound(id, range, scope);
        }
    }

    fn bind_something(&mut self, node: usize) {
        let own = self.own_sockets(node);
        if let Some(id) = self.pick(&own) {
            self.bind_socket(node, id);
        }
    }

    fn unbind_something(&mut self, node: usize) {
        let bound = self.hosts[node].running.as_ref().map(|r| r.bound.clone()).unwrap_or_default();
        let Some((id, range, scope)) = self.pick(&bound) else { return };
        let (now, port) = (self.now, self.datagrams.get(id).port.port);
        let Some(running) = self.running(node) else { return };
        if running.stack.unbind(now, port, Some((range, scope))).is_ok() {
            if let Some(at) = running.bound.iter().position(|b| *b == (id, range, scope)) {
                running.bound.remove(at);
            }
            self.datagrams.unbound(id, range, scope);
        }
    }

    fn replace_socket(&mut self, node: usize) -> Result<(), Violation> {
        let own = self.own_sockets(node);
        if let Some(id) =
            self.pick(&own).filter(|_| own.len() >= MAX_DATAGRAM_SOCKETS || self.rng.below(2) == 0)
        {
            let (now, port) = (self.now, self.datagrams.get(id).port.port);
            self.datagrams.closed(id);
            if let Some(running) = self.running(node) {
                running.roles.remove(&port);
                running.bound.retain(|(bound, ..)| *bound != id);
                running.stack.close(now, port);
            }
        }
        if self.own_sockets(node).len() < MAX_DATAGRAM_SOCKETS {
            self.open_datagram_socket(node)?;
        }
        Ok(())
    }

    fn force_method(&mut self, node: usize) {
        let own = self.own_sockets(node);
        let option =
            [SocketOption::MulticastBroadcast, SocketOption::MulticastReplicast][self.rng.below(2) as usize];
        let Some(id) = self.pick(&own) else { return };
        let (now, port) = (self.now, self.datagrams.get(id).port.port);
        if let Some(running) = self.running(node) {
            running
                .stack
                .set_option(now, port, option, OptionValue::None)
                .expect("an RDM socket has a method");
        }
    }

    /// Sends one message and records it in the model.
    fn send(&mut self, node: usize, id: u64, class: Class, to: Destination) -> Result<(), SendError> {
        let number = self.datagrams.next_number(id, class);
        let data = Head { flow: id, number, len: self.draw_len(), kind: 0 }.message();
        let (now, port) = (self.now, self.datagrams.get(id).port.port);
        let running = self.running(node).ok_or(SendError::Broken)?;
        running.stack.send(now, port, &data, Some(to)).map(|_| ())
    }

    fn send_unicast(&mut self, node: usize) -> Result<(), Violation> {
        let (own, all) = (self.own_sockets(node), self.datagrams.open_sockets());
        let (Some(from), Some(to)) = (self.pick(&own), self.pick(&all)) else { return Ok(()) };
        let to = self.datagrams.last_closed().filter(|_| self.rng.below(20) == 0).unwrap_or(to);
        let target = self.datagrams.get(to);
        let (port, there) = (target.port, target.node);
        for _ in 0..self.draw_burst(12) {
            match self.send(node, from, Class::Unicast, Destination::Port(port)) {
                Ok(()) => {
                    let epoch = self.contacts.epoch(node, there);
                    self.datagrams.sent(from, Class::Unicast, Target::Unicast { to, epoch });
                }
                Err(SendError::HostUnreachable) if self.contacts.is_up(node, there) => {
                    let what = format!("send from node {node} to node {there}, which is in contact");
                    return Err(self.broken(node, Broken::Refused(what)));
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn send_anycast(&mut self, node: usize) -> Result<(), Violation> {
        let own = self.own_sockets(node);
        let Some(from) = self.pick(&own) else { return Ok(()) };
        let range = self.draw_range();
        let to = Destination::service(range.service, range.lower);
        for _ in 0..1 + self.rng.below(4) {
            if self.send(node, from, Class::Anycast, to).is_err() {
                break;
            }
            let losses = self.contacts.losses;
            self.datagrams.sent(from, Class::Anycast, Target::Anycast { losses });
        }
        Ok(())
    }

    fn send_multicast(&mut self, node: usize) -> Result<(), Violation> {
        let own = self.own_sockets(node);
        let Some(from) = self.pick(&own) else { return Ok(()) };
        let range = self.draw_range();
        for _ in 0..self.draw_burst(6) {
            // Every socket in the sender's table must get a copy.
            let table = self.hosts[node].running.as_ref().map(|r| r.stack.bindings()).unwrap_or_default();
            let listed = table.iter().filter(|b| b.range.overlaps(&range));
            let waiting: BTreeMap<u64, u64> = listed
                .filter_map(|b| self.datagrams.bound_at(b.port, range, node))
                .map(|to| (to, self.contacts.epoch(node, self.datagrams.get(to).node)))
                .collect();
            let owed = !waiting.is_empty();
            match self.send(node, from, Class::Multicast, Destination::Range(range)) {
                Ok(()) => {
                    let what = format!(
                        "socket {from} multicast {:x} to {range}: {waiting:?}",
                        self.datagrams.next_number(from, Class::Multicast)
                    );
                    self.note(b'e', node, what.as_bytes());
                    self.datagrams.sent(from, Class::Multicast, Target::Multicast { range, waiting });
                }
                Err(SendError::HostUnreachable) if owed => {
                    let what = format!("multicast from node {node} to {range}, which is bound");
                    return Err(self.broken(node, Broken::Refused(what)));
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn clients(&self, node: usize) -> usize {
        let is_client = |r: &&Role| matches!(r, Role::Connection { end: 0, .. });
        self.hosts[node].running.as_ref().map_or(0, |r| r.roles.values().filter(is_client).count())
    }

    fn open_connection(&mut self, node: usize) -> Result<(), Violation> {
        let server = self.rng.below(self.config.nodes as u64) as usize;
        if self.clients(node) >= MAX_CLIENTS || !self.contacts.is_up(node, server) {
            return Ok(());
        }
        let kind = [SocketKind::SeqPacket, SocketKind::Stream][self.rng.below(2) as usize];
        let service = if kind == SocketKind::Stream { STREAM_SERVER } else { SEQPACKET_SERVER };
        let to = Destination::service(service, server as u32);
        let (now, addr) = (self.now, self.hosts[node].addr);
        let implied = self.rng.below(3) == 0;
        let Some(running) = self.running(node) else { return Ok(()) };
        let port = running.stack.open(now, kind).expect("a node has room for a few sockets");
        let id = self.connections.begin(
            now,
            kind,
            (node, PortId { port, node: addr }),
            server,
            false,
            &self.contacts,
        );
        let data = self.next_piece(id, 0);
        let Some(running) = self.running(node) else { return Ok(()) };
        let begun = if implied {
            running.stack.send(now, port, &data, Some(to)).ok()
        } else {
            running.stack.connect(now, port, Some(to)).ok().map(|()| 0)
        };
        match begun {
            Some(amount) => {
                running.roles.insert(port, Role::Connection { id, end: 0 });
                self.count_sent(id, 0, amount);
            }
            None => {
                running.stack.close(now, port);
                self.connections.closed(id, 0);
            }
        }
        Ok(())
    }

    /// The next data that an end of a connection sends.
    fn next_piece(&mut self, id: u64, end: usize) -> Vec<u8> {
        let len = self.draw_len();
        self.piece_of(id, end, len)
    }

    fn piece_of(&self, id: u64, end: usize, len: usize) -> Vec<u8> {
        let (stream, sent) = (self.connections.stream(id, end), self.connections.get(id).sent[end]);
        if self.connections.get(id).kind == SocketKind::Stream {
            let mut data = vec![0; len];
            numbered::fill(stream, sent, &mut data);
            data
        } else {
            Head { flow: stream, number: sent, len, kind: 0 }.message()
        }
    }

    fn count_sent(&mut self, id: u64, end: usize, amount: usize) {
        let stream = self.connections.get(id).kind == SocketKind::Stream;
        let amount = if stream { amount as u64 } else { u64::from(amount > 0) };
        self.connections.sent(id, end, amount);
    }

    fn own_ends(&self, node: usize) -> Vec<(u32, u64, usize)> {
        let Some(running) = &self.hosts[node].running else { return Vec::new() };
        let ends = running.roles.iter().filter_map(|(port, r)| match r {
            Role::Connection { id, end } => Some((*port, *id, *end)),
            _ => None,
        });
        ends.filter(|(_, id, end)| self.connections.get(*id).ends[*end] == End::Open).collect()
    }

    fn use_connection(&mut self, node: usize) -> Result<(), Violation> {
        let ends = self.own_ends(node);
        let Some((port, id, end)) = self.pick(&ends) else { return Ok(()) };
        for _ in 0..self.draw_burst(10) {
            let data = self.next_piece(id, end);
            let now = self.now;
            let Some(running) = self.running(node) else { return Ok(()) };
            match running.stack.send(now, port, &data, None) {
                Ok(amount) => self.count_sent(id, end, amount),
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn start_bulk_transfer(&mut self, node: usize) {
        let ends = self.own_ends(node);
        if let Some((port, id, end)) = self.pick(&ends) {
            let reader_sleeps = self.rng.below(2) == 0;
            if reader_sleeps {
                self.pause_reader(id, 1 - end);
            }
            let left = if reader_sleeps { LONG_BULK_STEPS } else { BULK_STEPS };
            let incarnation = self.hosts[node].incarnation;
            self.plan(self.now, Action::BulkSend { node, incarnation, port, left });
        }
    }

    /// Sends on a connection until it would block, and continues a little later.
    pub(crate) fn bulk_send(&mut self, node: usize, port: u32, left: u32) -> Result<(), Violation> {
        let end = self.own_ends(node).into_iter().find(|(p, ..)| *p == port);
        let Some((_, id, end)) = end.filter(|_| self.busy && left > 0) else { return Ok(()) };
        for _ in 0..BULK_PIECES {
            let data = self.piece_of(id, end, BULK_PIECE);
            let now = self.now;
            let Some(running) = self.running(node) else { return Ok(()) };
            match running.stack.send(now, port, &data, None) {
                Ok(amount) => self.count_sent(id, end, amount),
                Err(_) => break,
            }
        }
        let incarnation = self.hosts[node].incarnation;
        self.plan(self.now.plus_millis(3), Action::BulkSend { node, incarnation, port, left: left - 1 });
        Ok(())
    }

    fn close_connection(&mut self, node: usize) -> Result<(), Violation> {
        let ends = self.own_ends(node);
        let Some((port, id, end)) = self.pick(&ends) else { return Ok(()) };
        let now = self.now;
        self.connections.closed(id, end);
        if let Some(running) = self.running(node) {
            running.roles.remove(&port);
            running.stack.close(now, port);
        }
        Ok(())
    }

    /// Connects to the topology server of `server`, unless the node already has a subscriber there.
    fn subscribe(&mut self, node: usize, server: usize) -> Result<(), Violation> {
        let there = self.hosts[server].addr;
        let (now, addr) = (self.now, self.hosts[node].addr);
        let known = !there.is_none() && self.contacts.is_up(node, server);
        let Some(running) = self.hosts[node].running.as_mut().filter(|_| known) else { return Ok(()) };
        let has = |r: &Role| matches!(r, Role::Subscriber { server: s, .. } if *s == server);
        if running.roles.values().any(has) {
            return Ok(());
        }
        let kind = SocketKind::SeqPacket;
        let port = running.stack.open(now, kind).expect("a node has room for a few sockets");
        let to = Destination::Service { addr: ServiceAddr { service: 1, instance: 1 }, domain: there };
        let id = self.connections.begin(
            now,
            kind,
            (node, PortId { port, node: addr }),
            server,
            true,
            &self.contacts,
        );
        if running.stack.connect(now, port, Some(to)).is_ok() {
            let (asked, reported) = (0, Default::default());
            running.roles.insert(port, Role::Subscriber { id, server, asked, reported });
        } else {
            running.stack.close(now, port);
            self.connections.closed(id, 0);
        }
        Ok(())
    }
}
