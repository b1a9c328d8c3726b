//! Multicasts in whose range there are more bindings than one step may visit: their receivers are collected step by
//! step, each charged to the sender, and the multicast is sent when all are known.

use std::collections::BTreeSet;

use super::delivery::Delivery;
use crate::addr::{NodeAddr, ServiceRange};
use crate::names::{Holders, NameTable, PORTION, ScopeRule, Walk};
use crate::quota::UserId;
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

    /// The other nodes with a receiver.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeAddr> {
        self.nodes.iter().copied()
    }

    /// Whether it was to go everywhere, and this node has no receiver.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self.reach, Reach::Everywhere) && self.ports.is_empty() && self.diverted.is_empty()
    }

    /// Collects some receivers; true if all are known. The sender is a socket of this node if `is_own`.
    pub(super) fn step(&mut self, table: &NameTable, delivery: &Delivery, is_own: bool) -> bool {
        let Self { message, walk, reach, ports, diverted, nodes, .. } = self;
        let (own, rule, sender) = (table.own_node(), reach.rule(), message.origin_port());
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

    /// Memory that it takes, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let receivers = self.ports.len() + self.diverted.len() + self.nodes.len();
        (size_of::<Self>() + self.message.size() + receivers * RECEIVER_MEMORY) as u64
    }
}
