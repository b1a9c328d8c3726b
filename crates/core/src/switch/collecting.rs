//! Multicasts in whose range there are more bindings than one step may visit: their receivers are collected step by
//! step, each charged to the sender, and the multicast is sent when all are known.

use std::collections::BTreeSet;

use super::{Origin, Switch};
use crate::addr::{NodeAddr, ServiceRange};
use crate::names::{Holders, PORTION, ScopeRule, Walk};
use crate::quota::UserId;
use crate::socket::{SubmitError, Submitted};
use crate::time::Time;
use crate::wire::Message;

/// Memory of a receiver, or of a node with one, bytes; more than it takes.
pub(super) const RECEIVER_MEMORY: usize = 8;

/// The nodes on which a multicast has receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This node, as far as the rule says.
    Here(ScopeRule),
    /// Other nodes.
    Elsewhere,
    /// All nodes.
    Everywhere,
}

impl Reach {
    pub(super) const fn holders(self) -> Holders {
        match self {
            Self::Here(_) => Holders::Local,
            Self::Elsewhere => Holders::Remote,
            Self::Everywhere => Holders::Any,
        }
    }

    const fn rule(self) -> Option<ScopeRule> {
        match self {
            Self::Here(rule) => Some(rule),
            Self::Elsewhere => None,
            Self::Everywhere => Some(ScopeRule::Any),
        }
    }

    const fn has_others(self) -> bool {
        matches!(self, Self::Elsewhere | Self::Everywhere)
    }
}

/// A multicast whose receivers are being collected.
#[derive(Debug)]
pub(crate) struct Collecting {
    pub(crate) message: Message,
    walk: Walk,
    reach: Reach,
    /// Sockets of this node that get a copy.
    pub(crate) ports: BTreeSet<u32>,
    /// Those to which the sender has a lane.
    pub(crate) diverted: BTreeSet<u32>,
    /// Other nodes with a receiver.
    nodes: BTreeSet<NodeAddr>,
    /// What its user is charged.
    pub(crate) charge: Option<(UserId, u64)>,
}

impl Collecting {
    pub(super) fn new(message: Message, range: ServiceRange, reach: Reach) -> Self {
        Self {
            message,
            walk: Walk::new(range, reach.holders()),
            reach,
            ports: BTreeSet::new(),
            diverted: BTreeSet::new(),
            nodes: BTreeSet::new(),
            charge: None,
        }
    }

    /// Whether it goes to other nodes too, so that its sender sends nothing before it.
    pub(crate) const fn has_others(&self) -> bool {
        self.reach.has_others()
    }

    /// Memory that it takes, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let receivers = self.ports.len() + self.diverted.len() + self.nodes.len();
        (size_of::<Self>() + self.message.size() + receivers * RECEIVER_MEMORY) as u64
    }
}

impl Switch {
    /// Begins to collect the receivers of a multicast.
    pub(super) fn begin_collecting(&mut self, message: Message, range: ServiceRange, reach: Reach) {
        let origin = self.origin(&message);
        self.spreads.add_collecting(origin, Collecting::new(message, range, reach));
    }

    /// Collects some receivers; true if all are known.
    pub(crate) fn collect(&mut self, collecting: &mut Collecting) -> bool {
        let Collecting { message, walk, reach, ports, diverted, nodes, .. } = collecting;
        let (is_own, sender) = (self.is_self(message.origin_node()), message.origin_port());
        let (table, delivery) = (self.bindings.table(), &self.delivery);
        let (own, rule) = (table.own_node(), reach.rule());
        table.walk(walk, &mut PORTION.clone(), |_, binding| {
            let port = binding.port.port;
            if binding.port.node != own {
                if reach.has_others() {
                    nodes.insert(binding.port.node);
                }
            } else if rule == Some(ScopeRule::Any) || rule == Some(ScopeRule::Exactly(binding.scope)) {
                if is_own && delivery.has_lane(sender, port) {
                    diverted.insert(port)
                } else {
                    ports.insert(port)
                };
            }
        })
    }

    /// All receivers are known: sends the message to those on other nodes.
    pub(crate) fn send_collected(
        &mut self,
        now: Time,
        collected: &Collecting,
    ) -> Result<Submitted, SubmitError> {
        let Collecting { message, reach, ports, diverted, nodes, .. } = collected;
        let remote: Vec<NodeAddr> = nodes.iter().copied().filter(|node| self.is_reachable(*node)).collect();
        if !remote.is_empty() {
            let sent = self.multicast_remote(now, message, &remote);
            if !self.delivery.is_open(message.origin_port()) {
                // Its socket has been closed.
                self.methods.forget(message.origin_port());
            }
            return sent;
        }
        match reach {
            Reach::Everywhere if ports.is_empty() && diverted.is_empty() => Err(SubmitError::Unreachable),
            _ => Ok(Submitted::Done),
        }
    }

    /// Whether the receivers of the last message of a socket are still being collected.
    pub(crate) fn is_collecting(&self, port: u32) -> bool {
        self.spreads.is_collecting(Origin::Socket(port))
    }
}
