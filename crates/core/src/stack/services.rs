//! The node's own service: the topology server on {1,1}, reached by an ordinary connection. Spec: tipc.md §10.1.

use std::collections::{BTreeMap, BTreeSet};

use super::Stack;
use crate::addr::{NodeAddr, Scope, ServiceAddr};
use crate::limits::TOPOLOGY_SERVER;
use crate::socket::{OptionValue, RecvError, RecvOptions, SendError, SocketKind, SocketOption};
use crate::time::Time;
use crate::topology::{MAX_NODE_CONNECTIONS, SUBSCRIPTION_LEN, TopologyServer, TopologyStats};

/// Most bytes of a request that are read: one more than a subscription, to detect a longer one.
const REQUEST_BUFFER: usize = SUBSCRIPTION_LEN + 1;

/// The node's own sockets.
#[derive(Debug, Default)]
pub(super) struct Services {
    listener: Option<u32>,
    /// Connections, each with its subscriber's node.
    connections: BTreeMap<u32, NodeAddr>,
    /// Number of connections of each node.
    of_node: BTreeMap<NodeAddr, usize>,
    /// Own sockets whose state may have changed.
    touched: BTreeSet<u32>,
    topology: TopologyServer,
}

impl Services {
    pub(super) fn owns(&self, port: u32) -> bool {
        self.listener == Some(port) || self.connections.contains_key(&port)
    }

    pub(super) fn touch(&mut self, port: u32) {
        self.touched.insert(port);
    }
}

impl Stack {
    pub(super) fn start_services(&mut self, now: Time) {
        let Ok(port) = self.open(now, SocketKind::SeqPacket) else { return };
        self.services.listener = Some(port);
        let range = ServiceAddr { service: TOPOLOGY_SERVER, instance: TOPOLOGY_SERVER }.into();
        self.with_endpoint(now, port, |endpoint, uplink| {
            let critical = OptionValue::Number(3);
            endpoint.set_option(SocketOption::Importance, critical, uplink).ok();
            endpoint.bind(range, Scope::Node, uplink).ok();
            endpoint.listen().ok()
        });
    }

    /// Counters of the topology server.
    #[must_use]
    pub fn topology_stats(&self) -> TopologyStats {
        self.services.topology.stats()
    }

    pub(super) fn services_deadline(&self) -> Option<Time> {
        self.services.topology.deadline()
    }

    pub(super) fn services_timeout(&mut self, now: Time) {
        self.services.topology.handle_timeout(now);
    }

    /// Does one step of the node's own services; false if there was nothing to do.
    pub(super) fn serve(&mut self, now: Time) -> bool {
        if let Some(change) = self.switch.changes.pop_front() {
            self.services.topology.announce(&change.binding, change.up, change.edge);
        } else if let Some(port) = self.services.touched.pop_first() {
            if self.services.listener == Some(port) {
                self.accept_subscribers(now, port);
            } else {
                self.read_subscriber(now, port);
                self.write_subscriber(now, port);
            }
        } else if let Some((port, _)) = self.services.topology.poll_closed() {
            self.drop_subscriber(now, port);
        } else if let Some(port) = self.services.topology.poll_ready() {
            self.write_subscriber(now, port);
        } else {
            return false;
        }
        true
    }

    fn accept_subscribers(&mut self, now: Time, listener: u32) {
        while let Ok((port, peer)) = self.accept_quietly(now, listener) {
            self.services.connections.insert(port, peer.node);
            let of_node = self.services.of_node.entry(peer.node).or_default();
            *of_node += 1;
            let here = peer.node.is_none() || peer.node == self.switch.own_node();
            if !here && *of_node > MAX_NODE_CONNECTIONS {
                self.services.topology.refused();
                self.drop_subscriber(now, port);
            } else if self.services.topology.connect(port).is_err() {
                self.drop_subscriber(now, port);
            } else {
                self.services.touch(port);
            }
        }
    }

    fn read_subscriber(&mut self, now: Time, port: u32) {
        let mut buffer = [0; REQUEST_BUFFER];
        loop {
            let received = self.with_endpoint(now, port, |endpoint, uplink| {
                endpoint.recv(now, &mut buffer, RecvOptions::default(), uplink)
            });
            match received {
                Some(Ok(got)) if got.len > 0 => {
                    let request = buffer.get(..got.len).unwrap_or_default();
                    let table = self.switch.table();
                    let result = self
                        .services
                        .topology
                        .request(now, port, request, |range, each| table.snapshot(range, each));
                    if result.is_err() {
                        return self.drop_subscriber(now, port);
                    }
                }
                Some(Err(RecvError::WouldBlock)) => break,
                _ => return self.drop_subscriber(now, port),
            }
        }
        self.services.touched.remove(&port);
    }

    fn write_subscriber(&mut self, now: Time, port: u32) {
        while let Some(event) = self.services.topology.next_event(port).copied() {
            let sent =
                self.with_endpoint(now, port, |endpoint, uplink| endpoint.send(now, &event, None, uplink));
            match sent {
                Some(Ok(_)) => self.services.topology.event_sent(port),
                Some(Err(SendError::WouldBlock)) => break,
                _ => return self.drop_subscriber(now, port),
            }
        }
        self.services.touched.remove(&port);
    }

    fn drop_subscriber(&mut self, now: Time, port: u32) {
        self.services.topology.disconnect(port);
        self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.shutdown(now, uplink).ok();
            endpoint.close(now, uplink);
        });
        // It may linger until its last message has left, like any closed socket.
        if let Some(node) = self.services.connections.remove(&port)
            && let Some(of_node) = self.services.of_node.get_mut(&node)
        {
            *of_node -= 1;
            if *of_node == 0 {
                self.services.of_node.remove(&node);
            }
        }
        self.services.touched.remove(&port);
    }
}
