//! Dispatch of arrived messages to a module of the switch or to a socket. Spec: tipc.md §2.6, §6.1, §7.7.

use super::collecting::Reach;
use super::{Origin, SPREAD_STEP, Switch};
use crate::addr::{NodeAddr, Scope, ServiceRange};
use crate::discovery::KnownNodes;
use crate::names::ScopeRule;
use crate::outbox::BearerId;
use crate::socket::reverse;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, User};

impl Switch {
    /// Dispatches the messages that a peer's links delivered, in order. Dispatching a message may call this function
    /// again; the outer call then continues with the rest, so the recursion is bounded.
    pub(super) fn dispatch_delivered(&mut self, now: Time, addr: NodeAddr) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        if self.holds.holds(addr, entry) || core::mem::replace(&mut entry.dispatching, true) {
            return;
        }
        self.dispatch_all_delivered(now, addr);
        if let Some(entry) = self.peers.get_mut(&addr) {
            entry.dispatching = false;
        }
    }

    fn dispatch_all_delivered(&mut self, now: Time, addr: NodeAddr) {
        while !((self.work.arriving_is_over() || self.has_due_names(addr)) && self.postpone(addr))
            && let Some(message) = self.peers.get_mut(&addr).and_then(|m| m.peer.delivered.pop_front())
        {
            self.dispatch(now, addr, message);
        }
    }

    /// Holds what a peer has sent until there is work left for what has waited; false if there is nothing.
    fn postpone(&mut self, addr: NodeAddr) -> bool {
        self.peers.get_mut(&addr).is_some_and(|entry| self.holds.postpone(addr, entry))
    }

    /// Holds the messages of a peer until [`Self::resume`].
    pub(crate) fn hold(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.holds.hold(addr, entry);
        }
    }

    /// Goes on with the messages of a peer.
    pub(crate) fn resume(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.holds.resume(addr, entry);
        }
    }

    /// Whether messages of peers wait for the next turn.
    pub(crate) fn has_work(&self) -> bool {
        self.work.is_limited() && self.holds.is_draining()
    }

    /// Applies one update or dispatches one message that has waited; false if there is none, or if the turn has done
    /// its work. Acknowledges after the last one.
    pub(crate) fn dispatch_held(&mut self, now: Time) -> bool {
        if self.work.waiting_is_over() {
            return false;
        }
        let Some(addr) = self.holds.next() else { return false };
        self.work.charge_waiting(true);
        let applied = self.apply_due_names(addr);
        self.work.charge_waiting(false);
        if applied {
            return true;
        }
        let Some(message) = self.peers.get_mut(&addr).and_then(|entry| self.holds.take(entry)) else {
            self.let_go(now, addr);
            return true;
        };
        self.work.charge_waiting(true);
        self.dispatch(now, addr, message);
        self.work.charge_waiting(false);
        true
    }

    fn let_go(&mut self, now: Time, addr: NodeAddr) {
        self.holds.forget(addr, self.peers.get_mut(&addr));
        let Some(entry) = self.peers.get(&addr) else { return };
        for bearer in entry.peer.up_links().map(|(bearer, _)| bearer).collect::<Vec<BearerId>>() {
            self.send_state(now, addr, bearer);
        }
    }

    /// Dispatches one message that a peer's links delivered.
    pub(super) fn dispatch(&mut self, now: Time, addr: NodeAddr, message: Message) {
        self.work.charge(&message);
        match message.user() {
            User::NameDistributor => self.receive_names(now, addr, message),
            User::Crypto => self.receive_key(now, addr, &message),
            User::BcastProtocol => {
                if let Some(entry) = self.peers.get_mut(&addr) {
                    entry.receiver.synchronize(message.last_bcast());
                }
            }
            User::ConnManager => self.deliver(now, message),
            // No node passes on what another one has sent to a group.
            _ if is_group(&message) && message.origin_node() != addr => self.stats.messages_dropped += 1,
            User::GroupProtocol => self.deliver(now, message),
            user if user.is_data() && message.message_type() == MessageType::GroupEvent => {
                self.stats.messages_dropped += 1; // valid only inside a node, never from a peer
            }
            // A returning message of this node would reach sockets of node scope.
            user if user.is_data() && is_to_many(&message) && self.is_self(message.origin_node()) => {
                self.stats.messages_dropped += 1;
            }
            user if user.is_data() => self.deliver(now, message),
            _ => self.stats.messages_dropped += 1,
        }
    }

    /// A peer has sent the key that it is going to use.
    fn receive_key(&mut self, now: Time, from: NodeAddr, message: &Message) {
        let id = self.peers.identity_of(from);
        let taken = id.is_some_and(|id| self.encryption.receive_key(now, id, message.view()));
        self.stats.messages_dropped += u64::from(!taken);
    }

    /// Delivers to a socket of this node, or to all sockets that a multicast addresses.
    pub(super) fn deliver(&mut self, now: Time, message: Message) {
        // A returned multicast has the port of its sender. The dummy of a method change has no port, though it has an
        // error code.
        let is_returned =
            message.error_code() != ErrorCode::Ok && !message.non_sequenced() && message.dest_port() != 0;
        let multicast = message.is_data() && is_to_many(&message) && !is_returned;
        if !message.header_fits() {
            self.stats.messages_dropped += 1;
        } else if multicast {
            self.deliver_multicast(message);
        } else if self.delivery.is_open(message.dest_port()) {
            self.queue_local(message.dest_port(), message);
        } else {
            self.redirect(now, message);
        }
    }

    /// Queues a message for a socket of this node, unless the sender has a lane to it.
    pub(super) fn queue_local(&mut self, port: u32, message: Message) {
        if self.is_self(message.origin_node()) && self.delivery.divert(port, &message) {
            return;
        }
        if !self.spreads.is_empty() {
            let origin = self.origin(&message);
            if self.spreads.holds(origin) {
                return self.spreads.add_one(origin, port, message);
            }
        }
        self.delivery.push(port, message);
    }

    /// Whose messages have to stay in order with this one.
    pub(super) fn origin(&self, message: &Message) -> Origin {
        let node = message.prev_node();
        if node.is_none() || self.is_self(node) {
            Origin::Socket(message.origin_port())
        } else {
            Origin::Node(node)
        }
    }

    fn deliver_multicast(&mut self, mut message: Message) {
        let Some(rule) = scope_rule(&message, self.is_self(message.origin_node())) else {
            self.stats.messages_dropped += 1;
            return;
        };
        let mut ports = self.delivery.take_buffer();
        let range = multicast_range(&message);
        if !self.work.is_limited() {
            self.bindings.table().local_ports(range, rule, &mut ports);
        } else if !self.bindings.table().few_local_ports(range, rule, &mut ports) {
            self.delivery.put_buffer(ports);
            self.work.charge_copies(SPREAD_STEP);
            return self.begin_collecting(message, range, Reach::Here(rule));
        }
        if self.work.is_limited()
            && (ports.len() > SPREAD_STEP || self.spreads.contains(self.origin(&message)))
        {
            self.work.charge_copies(ports.len().min(SPREAD_STEP));
            return self.spread(message, ports);
        }
        self.work.charge_copies(ports.len());
        if let Some((last, others)) = ports.split_last() {
            for port in others {
                let mut copy = message.clone();
                copy.set_dest_port(*port);
                self.queue_local(*port, copy);
            }
            message.set_dest_port(*last);
            self.queue_local(*last, message);
        }
        self.delivery.put_buffer(ports);
    }

    /// Makes the copies of a multicast step by step.
    fn spread(&mut self, message: Message, mut ports: Vec<u32>) {
        let (port, is_own) = (message.origin_port(), self.is_self(message.origin_node()));
        if is_own {
            self.delivery.divert_some(port, &mut ports);
        }
        if !ports.is_empty() {
            self.spreads.add_many(self.origin(&message), message, ports.into_iter().collect());
        }
    }

    /// No socket has the port: an anycast may be looked up once more, everything else is rejected.
    fn redirect(&mut self, now: Time, mut message: Message) {
        let named = message.is_data() && message.message_type() == MessageType::Named;
        let fresh = message.error_code() == ErrorCode::Ok && message.reroute_count() == 0;
        if !named {
            return self.reject(now, message, ErrorCode::NoPort);
        }
        if !fresh {
            return self.reject(now, message, ErrorCode::NoName);
        }
        let only_here = message.lookup_scope() == Scope::Node.number();
        let domain = if only_here { self.own_node() } else { NodeAddr::NONE };
        let Some(found) = self.bindings.table_mut().lookup(message.service(), domain).filter(|f| f.port != 0)
        else {
            return self.reject(now, message, ErrorCode::NoName);
        };
        message.set_reroute_count(1);
        if !self.is_self(found.node) {
            message.set_prev_node(self.own_node());
        }
        message.set_dest_node(found.node);
        message.set_dest_port(found.port);
        let selector = message.link_selector();
        self.route(now, message, found.node, selector).ok();
    }

    pub(crate) fn reject(&mut self, now: Time, message: Message, code: ErrorCode) {
        let Some(returned) = reverse(self.own_node(), message, code) else {
            self.stats.messages_dropped += 1;
            return;
        };
        self.stats.messages_returned += 1;
        let to = returned.dest_node().unwrap_or_default();
        let selector = returned.link_selector();
        self.route(now, returned, to, selector).ok();
    }
}

/// True for multicasts. A broadcast packet has the cluster id in place of the port, so the type decides.
fn is_to_many(message: &Message) -> bool {
    matches!(message.message_type(), MessageType::Mcast | MessageType::GroupBcast | MessageType::GroupMcast)
}

/// Whether a message belongs to a group.
fn is_group(message: &Message) -> bool {
    let kinds = [MessageType::GroupBcast, MessageType::GroupMcast, MessageType::GroupUcast];
    message.user() == User::GroupProtocol || message.is_data() && kinds.contains(&message.message_type())
}

/// The bindings that a message to many reaches: of a group those of the group's scope, which a node's sockets share
/// with no other node. Spec: tipc.md §7.7, §9.7.
fn scope_rule(message: &Message, from_here: bool) -> Option<ScopeRule> {
    if !is_group(message) {
        return Some(if from_here { ScopeRule::Any } else { ScopeRule::Exactly(Scope::Cluster) });
    }
    let scope = Scope::from_number(message.lookup_scope())?;
    (from_here || scope == Scope::Cluster).then_some(ScopeRule::Exactly(scope))
}

/// The range whose sockets a multicast reaches; a group message goes to the members of the whole type.
fn multicast_range(message: &Message) -> ServiceRange {
    match message.message_type() {
        MessageType::Mcast => message.service_range(),
        _ => ServiceRange::new(message.name_type(), 0, u32::MAX),
    }
}
