//! A complete node in one value: the switch, its sockets, and the topology server that answers on {1,1}.
//!
//! The driver of a node passes the time to every call. After every call it sends [`Stack::frames`] and clears it, then
//! drains [`Stack::poll_event`] and [`Stack::poll_ready`]; and it calls [`Stack::handle_timeout`] when
//! [`Stack::deadline`] has passed. Time must never run backwards.
//!
//! ```
//! use utipc_core::{Destination, Scope, ServiceRange, SocketKind, Stack, StackConfig, Time};
//! let now = Time::ZERO;
//! let mut node = Stack::new(now, StackConfig::default());
//! let server = node.open(now, SocketKind::Rdm).unwrap();
//! node.bind(now, server, ServiceRange::new(18888, 17, 17), Scope::Cluster).unwrap();
//! let client = node.open(now, SocketKind::Rdm).unwrap();
//! node.send(now, client, b"hello", Some(Destination::service(18888, 17))).unwrap();
//! let mut buffer = [0; 100];
//! let got = node.recv(now, server, &mut buffer, Default::default()).unwrap();
//! assert_eq!((&buffer[..got.len], got.source.port), (&b"hello"[..], client));
//! ```

mod anycast;
mod endpoints;
mod groups;
mod lanes;
mod manage;
mod quotas;
mod serve;
mod services;
mod sockets;
mod spread;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::addr::{Importance, NodeAddr, NodeId};
use crate::config::{BearerConfig, BearerError, StackConfig};
use crate::event::Event;
use crate::outbox::{BearerId, FrameBatch};
use crate::quota::Ledger;
use crate::socket::Endpoint;
use crate::switch::{Barrier, Switch};
use crate::time::Time;
use crate::timers::{Timer, Timers};
use crate::wire::MediaAddr;
use endpoints::{Endpoints, room};
use groups::GroupSockets;
use quotas::Charges;
use services::Services;
pub use services::{RefusedSubscriber, SubscriberWork};
use uplink::Direct;

/// The timers of a node.
const TIMERS: Timers<Stack> = Timers(&[
    Timer { due: |stack, _| stack.switch.deadline(), handle: |stack, now| stack.switch.handle_timeout(now) },
    Timer {
        due: |stack, _| stack.services.topology.deadline().unwrap_or(Time::NEVER),
        handle: Stack::services_timeout,
    },
    Timer { due: |stack, _| stack.switch.senders.receivers.deadline(), handle: Stack::receivers_timeout },
    Timer { due: |stack, _| stack.endpoints.deadline(), handle: Stack::sockets_timeout },
]);

/// Maximum number of sockets on one node. Ours: bounds memory; above any known use.
pub const MAX_SOCKETS: usize = 1 << 20;

/// Sockets whose timers one call of [`Stack::handle_timeout`] handles. Ours: about a millisecond.
const TIMERS_PER_CALL: usize = 1024;

/// A socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The node has reached its limit of sockets.
    #[error("the node has {MAX_SOCKETS} sockets (close some)")]
    TooMany,
}

/// A complete TIPC node without clock and media.
#[derive(Debug)]
pub struct Stack {
    switch: Switch,
    endpoints: Endpoints,
    services: Services,
    groups: GroupSockets,
    /// What the sockets of each user use.
    ledger: Ledger,
}

impl Stack {
    /// A node without bearers: its sockets can reach one another.
    #[must_use]
    pub fn new(now: Time, config: StackConfig) -> Self {
        let mut stack = Self {
            switch: Switch::new(now, config),
            endpoints: Endpoints::default(),
            services: Services::default(),
            groups: GroupSockets::default(),
            ledger: Ledger::default(),
        };
        stack.start_services(now);
        stack.process_pending(now);
        stack
    }

    /// Enables a bearer; discovery starts at once.
    ///
    /// # Errors
    /// [`BearerError`] names the property that is out of range, or the limit reached.
    pub fn enable_bearer(&mut self, now: Time, config: BearerConfig) -> Result<BearerId, BearerError> {
        let id = self.switch.enable_bearer(now, config)?;
        self.process_pending(now);
        Ok(id)
    }

    /// Disables a bearer: its links go down, which is reported to the peers.
    pub fn disable_bearer(&mut self, now: Time, id: BearerId) {
        self.switch.disable_bearer(now, id);
        self.process_pending(now);
    }

    /// Number of peers with contact whose bindings have all arrived.
    #[must_use]
    pub fn informed_peers(&self) -> usize {
        self.switch.peers.informed()
    }

    /// Begins to wait until every peer in contact has the bindings of cluster scope that this node has now.
    #[must_use]
    pub fn begin_barrier(&self, now: Time) -> Barrier {
        self.switch.begin_barrier(now)
    }

    /// The peers that do not have these bindings yet, as far as this node knows, in order; empty when the barrier is
    /// reached. Asks them for their acknowledgements, at most every 10 ms: call it again when frames have arrived, and
    /// in such intervals. A peer that goes down does not count any more; one that comes up meanwhile does.
    pub fn awaited(&mut self, now: Time, barrier: &mut Barrier) -> Vec<NodeAddr> {
        let awaited = self.switch.awaited(now, barrier);
        self.process_pending(now);
        awaited
    }

    /// Takes down the link to the peer that had this address on a bearer: its medium reports that the peer is gone. The
    /// link comes back if the peer does.
    pub fn lose_neighbour(&mut self, now: Time, bearer: BearerId, address: MediaAddr) {
        self.switch.lose_neighbour(now, bearer, address);
        self.process_pending(now);
    }

    /// Processes a frame that arrived on a bearer.
    pub fn receive(&mut self, now: Time, bearer: BearerId, frame: &[u8]) {
        if self.switch.receive(now, bearer, frame) {
            self.process_pending(now);
        }
    }

    /// Begins a turn that does at most `work` for peers, in messages to one socket (a binding costs 256), and goes on
    /// with what earlier turns have left, for half as much. While [`Self::has_work`], the next turn is due at once.
    /// Without this call, a node does all work at once.
    pub fn begin_turn(&mut self, now: Time, work: usize) {
        self.switch.work.begin_turn(work);
        self.process_pending(now);
    }

    /// Whether messages of peers wait for the next turn. Packets that arrive meanwhile are not acknowledged.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.switch.has_work()
    }

    /// Handles timers that are due by `now`, a bounded number of them: while more are due, [`Self::deadline`] stays in
    /// the past, and the caller calls again after it has handled frames and commands.
    pub fn handle_timeout(&mut self, now: Time) {
        TIMERS.handle(self, now);
        self.process_pending(now);
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let first = TIMERS.deadline(self, Time::ZERO);
        (first != Time::NEVER).then_some(first)
    }

    /// Timeouts of some sockets.
    fn sockets_timeout(&mut self, now: Time) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(port) = self.endpoints.next_due(now) else { break };
            self.with_endpoint(now, port, |endpoint, uplink| endpoint.handle_timeout(now, uplink));
        }
    }

    /// Frames to send, oldest first; the caller clears the batch.
    pub fn frames(&mut self) -> &mut FrameBatch {
        self.switch.outgoing()
    }

    /// True if [`Self::frames`] would be a single plain acknowledgement; see [`FrameBatch::only_acknowledges`].
    #[must_use]
    pub fn only_acknowledges(&self) -> bool {
        self.switch.frames.only_acknowledges()
    }

    /// True if, since the last call, a message was queued behind a link's window, or the end of a stream was collected.
    /// Such data leaves when an acknowledgement arrives, so the driver should poll the bearers soon.
    pub fn take_backlogged(&mut self) -> bool {
        self.switch.senders.take_backlogged()
    }

    /// If congestion has changed since the last call: the congested nodes, each with its levels (see [`Stack::level`]),
    /// one bit each. Senders of other levels need not wait. A queue stays congested until half of it is free.
    pub fn take_congestion(&mut self) -> Option<&BTreeMap<NodeAddr, u8>> {
        self.switch.senders.take_congestion()
    }

    /// The level of a socket's messages in [`Self::take_congestion`]; the port decides which of two links they take.
    #[must_use]
    pub const fn level(port: u32, importance: Importance) -> u8 {
        importance as u8 | (port as u8 & 1) << 2
    }

    /// The next event for an operator.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.switch.next_event()
    }

    /// True if [`Self::poll_ready`] has a socket to report.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.endpoints.has_ready()
    }

    /// The next socket whose readiness may have changed. A refused call that changed nothing is not reported.
    pub fn poll_ready(&mut self) -> Option<u32> {
        self.endpoints.next_ready()
    }

    /// Address of this node; [`NodeAddr::NONE`] before it has one.
    #[must_use]
    pub fn own_node(&self) -> NodeAddr {
        self.switch.own_node()
    }

    /// Identity of this node, configured or derived from the first bearer.
    #[must_use]
    pub fn identity(&self) -> Option<NodeId> {
        self.switch.identity()
    }

    /// True once the address is final; only then peers can link.
    #[must_use]
    pub fn address_is_final(&self) -> bool {
        self.switch.is_final()
    }

    /// Runs an operation on a socket and processes everything that follows from it.
    fn on<R, E>(
        &mut self,
        now: Time,
        port: u32,
        gone: E,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let result = self.change_endpoint(now, port, f, Result::is_ok).unwrap_or(Err(gone));
        self.process_pending(now);
        result
    }

    /// Runs `f` on a socket and reports the socket as changed.
    fn with_endpoint<R>(
        &mut self,
        now: Time,
        port: u32,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> R,
    ) -> Option<R> {
        self.change_endpoint(now, port, f, |_| true)
    }

    /// Runs `f` on a socket, updates its deadline, and removes it if it is closed. The socket is reported as changed
    /// only if its readiness changed or `news` is true of the result: otherwise a caller that repeats a refused call at
    /// each report would loop forever.
    fn change_endpoint<R>(
        &mut self,
        now: Time,
        port: u32,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> R,
        news: impl FnOnce(&R) -> bool,
    ) -> Option<R> {
        let Some(endpoint) = self.endpoints.get_mut(port) else {
            self.endpoints.set_deadline(port, None);
            return None;
        };
        let privileged = self.services.owns(port);
        let (before, due, group) = (endpoint.readiness(), endpoint.deadline(), groups::of(endpoint));
        let charges = Charges::of(endpoint);
        charges.limit(endpoint, &self.ledger);
        let (switch, ledger) = (&mut self.switch, &self.ledger);
        let result = f(endpoint, &mut Direct { switch, ledger, now, privileged, found: None });
        if endpoint.is_full() {
            endpoint.refill(now);
        }
        charges.update(endpoint, &mut self.ledger);
        let (closed, deadline) = (endpoint.is_closed(), endpoint.deadline());
        let group_after = groups::of(endpoint);
        if endpoint.take_group_change() {
            self.groups.note_changed(port);
        }
        let touched = closed || news(&result) || endpoint.readiness() != before;
        if !self.switch.senders.receivers.is_empty() {
            let room = if closed { None } else { Some(room(endpoint)) };
            self.switch.senders.receivers.note(port, room);
        }
        if closed {
            self.groups.close(port, charges.user());
            self.endpoints.remove(port);
            self.switch.close_port(now, port);
        } else if deadline != due {
            self.endpoints.set_deadline(port, deadline);
        }
        if group_after != group {
            self.groups.change(port, group, group_after);
        }
        if touched {
            self.touch(port);
        }
        Some(result)
    }

    fn touch(&mut self, port: u32) {
        if self.services.owns(port) {
            self.services.touch(port);
        } else {
            self.endpoints.touch(port);
        }
    }

    /// Processes messages, wake-ups and table changes until none is left.
    fn process_pending(&mut self, now: Time) {
        loop {
            if let Some((port, message)) = self.switch.delivery.next() {
                self.handle_local(now, port, message);
            } else if self.begin_spread(now) || self.begin_announcement(now) {
                // Its sender waits.
            } else if let Some((port, node)) = self.switch.senders.next_woken() {
                self.with_endpoint(now, port, |e, uplink| e.wakeup(now, node, uplink));
            } else if self.release_next(now) || self.switch.dispatch_held(now) {
                // Messages may follow.
            } else if !self.serve(now) {
                self.groups.forget_closed();
                return self.charge_memory();
            }
        }
    }
}
