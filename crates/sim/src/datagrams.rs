//! Model of connectionless messages. Each is delivered once and in order, or returned once. It may be lost only
//! if a contact is lost.

use std::collections::BTreeMap;

use utipc_bench_kit::numbered::Head;
use utipc_core::{PortId, Scope, ServiceRange};

use crate::check::Broken;
use crate::contact::Contacts;

/// Addressing of a message; each class of a socket has its own numbers and order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Class {
    Unicast = 0,
    Anycast = 1,
    Multicast = 2,
}

const CLASS_SHIFT: u32 = 60;

/// Destination of a message.
#[derive(Debug)]
pub(crate) enum Target {
    /// One socket, and the sender's epoch of the contact.
    Unicast { to: u64, epoch: u64 },
    /// Any bound socket; contacts lost anywhere so far.
    Anycast { losses: u64 },
    /// These sockets, with the sender's contact epoch for each.
    Multicast { range: ServiceRange, waiting: BTreeMap<u64, u64> },
}

/// A connectionless socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) node: usize,
    pub(crate) port: PortId,
    pub(crate) open: bool,
    bound: Vec<(ServiceRange, Scope)>,
    sent: [u64; 3],
    outstanding: BTreeMap<u64, Target>,
    /// Number of the last message from each sender. Multicasts have one number for each range, because only
    /// multicasts to the same range are ordered: a sender changes between broadcast and replicast for each
    /// range separately.
    last: BTreeMap<(u64, u64, Option<ServiceRange>), u64>,
}

/// All connectionless sockets of a run, by model number.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    sockets: BTreeMap<u64, Socket>,
    open: BTreeMap<PortId, u64>,
    last_closed: Option<u64>,
    pub(crate) delivered: u64,
    pub(crate) returned: u64,
}

impl Datagrams {
    pub(crate) fn opened(&mut self, node: usize, port: PortId) -> u64 {
        let id = self.sockets.len() as u64 + 1;
        let (sent, outstanding, last) = ([0; 3], BTreeMap::new(), BTreeMap::new());
        self.sockets
            .insert(id, Socket { node, port, open: true, bound: Vec::new(), sent, outstanding, last });
        self.open.insert(port, id);
        id
    }

    pub(crate) fn get(&self, id: u64) -> &Socket {
        &self.sockets[&id]
    }

    fn get_mut(&mut self, id: u64) -> &mut Socket {
        self.sockets.get_mut(&id).expect("socket numbers come from the model")
    }

    /// The sockets that are open.
    pub(crate) fn open_sockets(&self) -> Vec<u64> {
        self.open.values().copied().collect()
    }

    /// The socket closed most recently.
    pub(crate) fn last_closed(&self) -> Option<u64> {
        self.last_closed
    }

    /// The open socket with this port, if it is bound within `range` and node `from` can know it.
    pub(crate) fn bound_at(&self, port: PortId, range: ServiceRange, from: usize) -> Option<u64> {
        let id = *self.open.get(&port)?;
        let socket = self.get(id);
        let known = |scope| socket.node == from || scope == Scope::Cluster;
        socket.bound.iter().any(|(b, scope)| known(*scope) && b.overlaps(&range)).then_some(id)
    }

    pub(crate) fn bound(&mut self, id: u64, range: ServiceRange, scope: Scope) {
        self.get_mut(id).bound.push((range, scope));
    }

    /// Records that a binding was withdrawn. Multicasts in flight no longer need to arrive.
    pub(crate) fn unbound(&mut self, id: u64, range: ServiceRange, scope: Scope) {
        let bound = &mut self.get_mut(id).bound;
        if let Some(at) = bound.iter().position(|b| *b == (range, scope)) {
            bound.remove(at);
        }
        self.expect_nothing_at(id);
    }

    pub(crate) fn closed(&mut self, id: u64) {
        self.last_closed = Some(id);
        let socket = self.get_mut(id);
        socket.open = false;
        socket.bound.clear();
        let port = socket.port;
        self.open.remove(&port);
        self.expect_nothing_at(id);
    }

    fn expect_nothing_at(&mut self, receiver: u64) {
        for socket in self.sockets.values_mut() {
            for target in socket.outstanding.values_mut() {
                if let Target::Multicast { waiting, .. } = target {
                    waiting.remove(&receiver);
                }
            }
        }
    }

    /// Number of the next message of a class.
    pub(crate) fn next_number(&self, sender: u64, class: Class) -> u64 {
        (class as u64) << CLASS_SHIFT | (self.get(sender).sent[class as usize] + 1)
    }

    /// Records that the node accepted the message with that number.
    pub(crate) fn sent(&mut self, sender: u64, class: Class, target: Target) {
        let number = self.next_number(sender, class);
        let socket = self.get_mut(sender);
        socket.sent[class as usize] += 1;
        socket.outstanding.insert(number, target);
    }

    pub(crate) fn delivered(
        &mut self,
        receiver: u64,
        head: Head,
        range: Option<ServiceRange>,
        contacts: &Contacts,
    ) -> Result<(), Broken> {
        let Head { flow: sender, number: seq, .. } = head;
        let range = range.filter(|_| seq >> CLASS_SHIFT == Class::Multicast as u64);
        let what = || format!("message {seq:x} of socket {sender} to socket {receiver}");
        let class = seq >> CLASS_SHIFT;
        self.delivered += 1;
        if class != Class::Anycast as u64 {
            let last = self.get_mut(receiver).last.entry((sender, class, range)).or_default();
            if seq == *last {
                return Err(Broken::Duplicate(what()));
            }
            if seq < *last {
                return Err(Broken::Order(format!("{} was delivered after {last:x}", what())));
            }
            *last = seq;
        }
        let to_node = self.get(receiver).node;
        let Some(from) = self.sockets.get_mut(&sender) else { return Err(Broken::Corrupted(what())) };
        let base = class << CLASS_SHIFT;
        match from.outstanding.get_mut(&seq) {
            Some(Target::Unicast { to, epoch }) => {
                let (to, epoch) = (*to, *epoch);
                if to != receiver {
                    return Err(Broken::Corrupted(format!("{} was addressed to socket {to}", what())));
                }
                from.outstanding.remove(&seq);
                let same =
                    |t: &Target| matches!(t, Target::Unicast { to: t, epoch: e } if *t == to && *e == epoch);
                if let Some((early, _)) = from.outstanding.range(base..seq).find(|(_, t)| same(t)) {
                    return Err(Broken::Order(format!("{} was delivered before {early:x}", what())));
                }
            }
            Some(Target::Anycast { .. }) => {
                from.outstanding.remove(&seq);
            }
            Some(Target::Multicast { waiting, range }) => {
                let range = *range;
                let Some(epoch) = waiting.remove(&receiver) else { return Ok(()) };
                if waiting.is_empty() {
                    from.outstanding.remove(&seq);
                }
                // A broadcast that waited for the window may be sent only in the next contact, after a gap.
                if contacts.epoch(from.node, to_node) != epoch {
                    return Ok(());
                }
                let same = |t: &Target| matches!(t, Target::Multicast { waiting, range: r } if *r == range && waiting.get(&receiver) == Some(&epoch));
                if let Some((early, _)) = from.outstanding.range(base..seq).find(|(_, t)| same(t)) {
                    return Err(Broken::Order(format!("{} was delivered before {early:x}", what())));
                }
            }
            None if class == Class::Multicast as u64 => {}
            None => return Err(Broken::Duplicate(what())),
        }
        Ok(())
    }

    /// Records that a message was returned to its sender. `no_port`: because the socket does not exist.
    pub(crate) fn returned(&mut self, sender: u64, head: Head, no_port: bool) -> Result<(), Broken> {
        let what = format!("message {:x} of socket {}", head.number, head.flow);
        if head.flow != sender {
            return Err(Broken::Corrupted(format!("{what} was returned to socket {sender}")));
        }
        self.returned += 1;
        match self.get_mut(sender).outstanding.remove(&head.number) {
            Some(Target::Unicast { to, .. }) if no_port && self.get(to).open => {
                Err(Broken::Refused(format!("{what}: socket {to} is open")))
            }
            None if head.number >> CLASS_SHIFT != Class::Multicast as u64 => {
                Err(Broken::Duplicate(format!("{what} was delivered and returned")))
            }
            _ => Ok(()),
        }
    }

    /// Checks after the quiet period that every message which was neither delivered nor returned was lost with
    /// a contact.
    pub(crate) fn check_outstanding(&mut self, contacts: &Contacts) -> Result<(), Broken> {
        let nodes: BTreeMap<u64, (usize, bool)> =
            self.sockets.iter().map(|(id, s)| (*id, (s.node, s.open))).collect();
        for (sender, socket) in &mut self.sockets {
            let outstanding = std::mem::take(&mut socket.outstanding);
            if !socket.open {
                continue;
            }
            for (number, target) in outstanding {
                let lost = match &target {
                    Target::Unicast { to, epoch } => contacts.epoch(socket.node, nodes[to].0) == *epoch,
                    Target::Anycast { losses } => contacts.losses == *losses,
                    Target::Multicast { waiting, .. } => waiting
                        .iter()
                        .any(|(to, epoch)| nodes[to].1 && contacts.epoch(socket.node, nodes[to].0) == *epoch),
                };
                if lost {
                    let (at, gone) = (socket.node, describe(&target, &nodes));
                    return Err(Broken::Lost(format!(
                        "message {number:x} of socket {sender} at node {at} to {gone}"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Describes where a message should have arrived.
fn describe(target: &Target, nodes: &BTreeMap<u64, (usize, bool)>) -> String {
    let socket = |to: &u64| {
        let (node, open) = nodes[to];
        format!("socket {to} at node {node} ({})", if open { "open" } else { "closed" })
    };
    match target {
        Target::Unicast { to, .. } => socket(to),
        Target::Anycast { .. } => "anybody".into(),
        Target::Multicast { waiting, .. } => waiting.keys().map(socket).collect::<Vec<_>>().join(", "),
    }
}
