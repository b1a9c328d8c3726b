//! The sockets of the node itself: the topology server on {1,1}, its connections, and the work that is left for them.
//! Spec: tipc.md §10.1.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::addr::{NodeAddr, PortId};
use crate::quota::{Exceeded, Ledger, Resource, UserId};
use crate::topology::{Close, MAX_NODE_CONNECTIONS, Party, TopologyServer};

/// The other end of a connection to the topology server.
#[derive(Clone, Copy, Debug)]
struct Subscriber {
    peer: PortId,
    /// The user that is charged for the connection and its subscriptions.
    user: Option<UserId>,
}

/// A refusal of the topology server, which the protocol does not report to the subscriber: its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedSubscriber {
    /// The socket on this node that asked for too much.
    pub port: u32,
    /// The quota.
    pub quota: Exceeded,
}

/// Work at the topology server that takes more than one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriberWork {
    /// For a connection, by its port there.
    Connection(u32),
    /// For all subscriptions of a user or another node.
    Party(Party),
}

/// Maximum number of refusals that are kept for [`Services::take_refused`].
const MAX_REFUSED: usize = 64;

/// The node's own sockets.
#[derive(Debug, Default)]
pub(super) struct Services {
    listener: Option<u32>,
    /// Connections, each with its subscriber.
    connections: BTreeMap<u32, Subscriber>,
    /// Number of connections of each node.
    of_node: BTreeMap<NodeAddr, usize>,
    /// Own sockets whose state may have changed.
    touched: BTreeSet<u32>,
    /// Work for further steps, and the part of it that is not reported yet.
    unfinished: BTreeSet<SubscriberWork>,
    unreported: VecDeque<SubscriberWork>,
    pub(super) topology: TopologyServer,
    refused: Vec<RefusedSubscriber>,
}

impl Services {
    pub(super) fn set_listener(&mut self, port: u32) {
        self.listener = Some(port);
    }

    pub(super) fn is_listener(&self, port: u32) -> bool {
        self.listener == Some(port)
    }

    pub(super) fn is_connected(&self, port: u32) -> bool {
        self.connections.contains_key(&port)
    }

    pub(super) fn owns(&self, port: u32) -> bool {
        self.is_listener(port) || self.is_connected(port)
    }

    /// The state of an own socket may have changed.
    pub(super) fn touch(&mut self, port: u32) {
        self.touched.insert(port);
    }

    /// A socket has been served.
    pub(super) fn untouch(&mut self, port: u32) {
        self.touched.remove(&port);
    }

    pub(super) fn next_touched(&mut self) -> Option<u32> {
        self.touched.pop_first()
    }

    /// Adds a connection of a subscriber, on this node if `is_here`; false if it must end at once.
    pub(super) fn connect(
        &mut self,
        port: u32,
        peer: PortId,
        user: Option<UserId>,
        is_here: bool,
        ledger: &mut Ledger,
    ) -> bool {
        let charged = user.map(|user| ledger.try_charge(user, Resource::Subscribers, 1));
        let user = user.filter(|_| charged == Some(Ok(())));
        let party = Party { user, node: if is_here { NodeAddr::NONE } else { peer.node } };
        self.connections.insert(port, Subscriber { peer, user });
        let of_node = self.of_node.entry(peer.node).or_default();
        *of_node += 1;
        let too_many = !is_here && *of_node > MAX_NODE_CONNECTIONS;
        let quota = charged.and_then(Result::err);
        if let Some(quota) = quota.filter(|_| is_here) {
            self.note_refused(peer.port, quota);
        }
        if quota.is_some() || too_many {
            self.topology.refused();
            return false;
        }
        let is_connected = self.topology.connect(port, party).is_ok();
        if is_connected {
            self.touch(port);
        }
        is_connected
    }

    /// Forgets a connection.
    pub(super) fn disconnect(&mut self, port: u32, ledger: &mut Ledger) {
        // It may linger until its last message has left, like any closed socket.
        if let Some(Subscriber { peer, user }) = self.connections.remove(&port) {
            if let Some(user) = user {
                ledger.release(user, Resource::Subscribers, 1);
            }
            if let Some(of_node) = self.of_node.get_mut(&peer.node) {
                *of_node -= 1;
                if *of_node == 0 {
                    self.of_node.remove(&peer.node);
                }
            }
        }
        self.untouch(port);
        self.finish(SubscriberWork::Connection(port));
    }

    /// Leaves work for further steps.
    pub(super) fn defer(&mut self, work: SubscriberWork) {
        if self.unfinished.insert(work) {
            self.unreported.push_back(work);
        }
    }

    pub(super) fn is_unfinished(&self, work: SubscriberWork) -> bool {
        self.unfinished.contains(&work)
    }

    /// No step of this work is left.
    pub(super) fn finish(&mut self, work: SubscriberWork) {
        self.unfinished.remove(&work);
    }

    /// The next work that was not reported, and its user.
    pub(super) fn next_unreported(&mut self) -> Option<(UserId, SubscriberWork)> {
        let work = self.unreported.pop_front()?;
        let user = match work {
            SubscriberWork::Connection(port) => self.user_of(port),
            SubscriberWork::Party(party) => party.user,
        };
        Some((user.unwrap_or(UserId::NETWORK), work))
    }

    /// Charges users for the subscriptions that began and ended.
    pub(super) fn settle(&mut self, ledger: &mut Ledger) {
        for (user, change) in self.topology.take_charges() {
            let amount = change.unsigned_abs();
            if change > 0 {
                ledger.charge(user, Resource::Subscriptions, amount);
            } else {
                ledger.release(user, Resource::Subscriptions, amount);
            }
        }
    }

    /// Tells the server how many subscriptions the user of a connection may still have; if none, returns the quota.
    pub(super) fn limit(&mut self, port: u32, ledger: &Ledger) -> Option<Exceeded> {
        let user = self.user_of(port)?;
        self.topology.set_room(port, ledger.room(user, Resource::Subscriptions));
        ledger.exceeded(user, Resource::Subscriptions, 1)
    }

    /// Notes the quota for which the server closes a connection, if it does so for this `reason`.
    pub(super) fn explain(&mut self, port: u32, reason: Close, quota: Option<Exceeded>, ledger: &mut Ledger) {
        let Some(quota) = quota.filter(|_| reason == Close::UserFull) else { return };
        ledger.refuse(quota.user, quota.resource, 1);
        if let Some(subscriber) = self.connections.get(&port)
            && quota.user != UserId::NETWORK
        {
            self.note_refused(subscriber.peer.port, quota);
        }
    }

    /// The sockets whose connection ended because of a quota, since the last call.
    pub(super) fn take_refused(&mut self) -> Vec<RefusedSubscriber> {
        core::mem::take(&mut self.refused)
    }

    fn user_of(&self, port: u32) -> Option<UserId> {
        self.connections.get(&port).and_then(|subscriber| subscriber.user)
    }

    fn note_refused(&mut self, port: u32, quota: Exceeded) {
        if self.refused.len() < MAX_REFUSED {
            self.refused.push(RefusedSubscriber { port, quota });
        }
    }
}
