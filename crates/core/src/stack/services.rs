//! The node's own service: the topology server on {1,1}, reached by an ordinary connection. Spec: tipc.md §10.1.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Stack;
use super::subscribers::SubscriberWork;
use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr};
use crate::limits::TOPOLOGY_SERVER;
use crate::quota::{Exceeded, Resource, UserId};
use crate::socket::{OptionValue, SocketKind, SocketOption};
use crate::time::Time;
use crate::topology::{MAX_NODE_CONNECTIONS, Party, TopologyServer, TopologyStats};

/// The other end of a connection to the topology server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscriber {
    pub(super) peer: PortId,
    /// The user that is charged for the connection and its subscriptions.
    pub(super) user: Option<UserId>,
}

/// A refusal of the topology server, which the protocol does not report to the subscriber: its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedSubscriber {
    /// The socket on this node that asked for too much.
    pub port: u32,
    /// The quota.
    pub quota: Exceeded,
}

/// Maximum number of refusals that are kept for [`Stack::take_refused_subscribers`].
const MAX_REFUSED: usize = 64;

/// The node's own sockets.
#[derive(Debug, Default)]
pub(super) struct Services {
    listener: Option<u32>,
    /// Connections, each with its subscriber.
    pub(super) connections: BTreeMap<u32, Subscriber>,
    /// Number of connections of each node.
    of_node: BTreeMap<NodeAddr, usize>,
    /// Own sockets whose state may have changed.
    pub(super) touched: BTreeSet<u32>,
    /// Work for further steps, and the part of it that is not reported yet.
    pub(super) unfinished: BTreeSet<SubscriberWork>,
    pub(super) unreported: VecDeque<SubscriberWork>,
    pub(super) topology: TopologyServer,
    refused: Vec<RefusedSubscriber>,
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

    pub(super) fn services_deadline(&self) -> Time {
        self.services.topology.deadline().unwrap_or(Time::NEVER)
    }

    pub(super) fn services_timeout(&mut self, now: Time) {
        self.services.topology.handle_timeout(now);
        self.settle_subscriptions();
    }

    /// The sockets whose connection to the topology server ended because of a quota, since the last call.
    pub fn take_refused_subscribers(&mut self) -> Vec<RefusedSubscriber> {
        core::mem::take(&mut self.services.refused)
    }

    pub(super) fn note_refused(&mut self, port: u32, quota: Exceeded) {
        if self.services.refused.len() < MAX_REFUSED {
            self.services.refused.push(RefusedSubscriber { port, quota });
        }
    }

    /// Charges users for the subscriptions that began and ended.
    pub(super) fn settle_subscriptions(&mut self) {
        for (user, change) in self.services.topology.take_charges() {
            let amount = change.unsigned_abs();
            if change > 0 {
                self.ledger.charge(user, Resource::Subscriptions, amount);
            } else {
                self.ledger.release(user, Resource::Subscriptions, amount);
            }
        }
    }

    /// Does one step of the node's own services; false if there was nothing to do.
    pub(super) fn serve(&mut self, now: Time) -> bool {
        if let Some(node) = self.switch.next_lost() {
            self.tell_groups_of_loss(now, node);
        } else if let Some(change) = self.switch.bindings.next_change() {
            self.with_visits(|topology, visits| topology.announce(&change, visits));
            self.tell_group(now, &change);
        } else if let Some(port) = self.services.touched.pop_first() {
            if self.services.listener == Some(port) {
                self.accept_subscribers(now, port);
            } else {
                self.serve_subscriber(now, port);
            }
        } else if let Some(party) = self.services.topology.poll_behind() {
            self.serve_party(party);
        } else if let Some((port, _)) = self.services.topology.poll_closed() {
            self.drop_subscriber(now, port);
        } else if let Some(port) = self.services.topology.poll_ready() {
            self.send_first_events(now, port);
        } else {
            return false;
        }
        true
    }

    fn accept_subscribers(&mut self, now: Time, listener: u32) {
        while let Ok((port, peer)) = self.accept_quietly(now, listener) {
            let here = peer.node.is_none() || peer.node == self.switch.own_node();
            let user = if here { self.user_of(peer.port) } else { Some(UserId::NETWORK) };
            let charged = user.map(|user| self.ledger.try_charge(user, Resource::Subscribers, 1));
            let user = user.filter(|_| charged == Some(Ok(())));
            let party = Party { user, node: if here { NodeAddr::NONE } else { peer.node } };
            self.services.connections.insert(port, Subscriber { peer, user });
            let of_node = self.services.of_node.entry(peer.node).or_default();
            *of_node += 1;
            if let Some(Err(quota)) = charged {
                if here {
                    self.note_refused(peer.port, quota);
                }
                self.services.topology.refused();
                self.drop_subscriber(now, port);
            } else if !here && *of_node > MAX_NODE_CONNECTIONS {
                self.services.topology.refused();
                self.drop_subscriber(now, port);
            } else if self.services.topology.connect(port, party).is_err() {
                self.drop_subscriber(now, port);
            } else {
                self.services.touch(port);
            }
        }
    }

    pub(super) fn drop_subscriber(&mut self, now: Time, port: u32) {
        self.with_visits(|topology, visits| topology.disconnect(port, visits));
        self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.shutdown(now, uplink).ok();
            endpoint.close(now, uplink);
        });
        // It may linger until its last message has left, like any closed socket.
        if let Some(Subscriber { peer, user }) = self.services.connections.remove(&port) {
            if let Some(user) = user {
                self.ledger.release(user, Resource::Subscribers, 1);
            }
            if let Some(of_node) = self.services.of_node.get_mut(&peer.node) {
                *of_node -= 1;
                if *of_node == 0 {
                    self.services.of_node.remove(&peer.node);
                }
            }
        }
        self.services.touched.remove(&port);
        self.services.unfinished.remove(&SubscriberWork::Connection(port));
    }
}
