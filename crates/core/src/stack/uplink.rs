//! The uplink of the node's own sockets.

use super::spread::STEP_MEMBERS;
use crate::addr::{Importance, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::names::Walk;
use crate::quota::{Ledger, UserId};
use crate::socket::{BindError, Method, Resolved, SubmitError, Submitted, Uplink};
use crate::switch::{Switch, Told};
use crate::time::Time;
use crate::wire::{GroupControl, Message};

/// The switch, with the context of one call.
pub(super) struct Direct<'a> {
    pub(super) switch: &'a mut Switch,
    pub(super) ledger: &'a Ledger,
    pub(super) now: Time,
    /// True for the node's own services, which may bind reserved types.
    pub(super) privileged: bool,
    /// The socket that the caller has already found for the message being sent.
    pub(super) found: Option<Resolved>,
}

impl Uplink for Direct<'_> {
    fn own_node(&self) -> NodeAddr {
        self.switch.own_node()
    }

    fn resolve(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Resolved> {
        self.found.or_else(|| self.switch.resolve(to, domain))
    }

    fn capabilities(&self, node: NodeAddr) -> u16 {
        self.switch.capabilities(node)
    }

    fn mss(&self, node: NodeAddr) -> usize {
        self.switch.mss(node)
    }

    fn is_reachable(&self, node: NodeAddr) -> bool {
        self.switch.is_reachable(node)
    }

    fn is_congested(&self, node: NodeAddr, importance: Importance) -> bool {
        self.switch.is_congested(node, importance)
    }

    fn must_wait(&mut self, sender: u32, to: PortId) -> bool {
        self.switch.senders.receivers.has_senders()
            && to.node == self.switch.own_node()
            && self.switch.senders.receivers.must_wait(sender, to.port)
    }

    fn memory(&mut self, size: usize) -> Vec<u8> {
        self.switch.pool.take(size)
    }

    fn keep(&mut self, user: UserId, message: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        self.switch.pool.memory.keep(user, message, self.ledger.growth(user))
    }

    fn recycle(&mut self, message: Message) {
        self.switch.pool.put(message);
    }

    fn submit(&mut self, to: NodeAddr, message: Message) -> Result<Submitted, SubmitError> {
        self.switch.submit(self.now, to, message)
    }

    fn submit_multicast(&mut self, message: Message) -> Result<Submitted, SubmitError> {
        match self.found {
            Some(found) => self.switch.submit_copy(message, found.port),
            None => self.switch.submit_multicast(self.now, message),
        }
    }

    fn submit_multicast_elsewhere(&mut self, message: Message) -> Result<Submitted, SubmitError> {
        self.switch.submit_multicast_elsewhere(self.now, message)
    }

    fn group_bindings(&mut self, port: u32, service: u32, scope: Scope) -> Vec<(PortId, u32)> {
        let all = ServiceRange::new(service, 0, u32::MAX);
        let mut walk = Walk::snapshot(self.switch.table(), all, true);
        let mut budget = if self.switch.work.is_limited() { STEP_MEMBERS } else { usize::MAX };
        let mut found = Vec::new();
        let is_over = self.switch.table().walk(&mut walk, &mut budget, |age, binding| {
            if binding.scope == scope {
                found.push((age, binding.port, binding.range.lower));
            }
        });
        if !is_over {
            self.switch.spreads.note(port, Told::Found { port, scope, walk });
        }
        found.sort_unstable();
        found.into_iter().map(|(_, port, instance)| (port, instance)).collect()
    }

    fn submit_group(
        &mut self,
        message: Message,
        local: bool,
        nodes: &[NodeAddr],
        replicast: bool,
    ) -> Result<Submitted, SubmitError> {
        self.switch.submit_group(self.now, message, local, nodes, replicast)
    }

    fn tell_group(&mut self, service: u32, scope: Scope, control: GroupControl) -> bool {
        let is_limited = self.switch.work.is_limited();
        if is_limited {
            self.switch.spreads.note(control.origin_port, Told::Left { service, scope, control });
        }
        is_limited
    }

    fn multicast_method(&mut self, port: u32, forced: Option<Method>) {
        self.switch.methods.force(port, forced);
    }

    fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<(), BindError> {
        match self.privileged {
            true => self.switch.bind_reserved(self.now, port, range, scope),
            false => self.switch.bind(self.now, port, range, scope),
        }
    }

    fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Result<(), BindError> {
        self.switch.unbind(self.now, port, which)
    }

    fn register_connection(&mut self, port: u32, peer: PortId) {
        self.switch.delivery.connect(port, peer);
    }

    fn unregister_connection(&mut self, port: u32) {
        self.switch.delivery.disconnect(port);
    }
}
