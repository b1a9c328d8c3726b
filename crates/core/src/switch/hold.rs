//! Links that are held while a receiver of this node is full, or until the next turn if this one has done its work:
//! their messages wait, and are not acknowledged, so that the peer's window fills and its senders wait. Decision 22.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use super::deferral::Deferral;
use super::{PeerEntry, Switch};
use crate::addr::NodeAddr;
use crate::limits::MESSAGE_OVERHEAD;
use crate::outbox::BearerId;
use crate::time::Time;
use crate::wire::Message;

/// Maximum number of bytes that wait from one peer; beyond them it does not respect its window, and is not waited for.
const MAX_HELD: usize = 16 << 20;

/// Memory that a message is charged for while it waits, bytes.
fn charge(message: &Message) -> usize {
    message.size() + MESSAGE_OVERHEAD
}

/// Peers whose messages have waited, for a full receiver or for this turn, and are dispatched now: one message of each
/// after the other.
#[derive(Debug, Default)]
pub(super) struct Draining {
    nodes: BTreeSet<NodeAddr>,
    /// The last of them that was served.
    last: NodeAddr,
}

impl Draining {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn insert(&mut self, addr: NodeAddr) {
        self.nodes.insert(addr);
    }

    fn remove(&mut self, addr: NodeAddr) {
        self.nodes.remove(&addr);
    }

    fn next(&mut self) -> Option<NodeAddr> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        self.last = self.nodes.range(after).next().or(self.nodes.first()).copied()?;
        Some(self.last)
    }
}

/// The state of a peer's messages.
#[derive(Debug, Default)]
pub(super) struct Hold {
    state: State,
    /// Messages at the head of those that wait, and their bytes, as far as they were added up.
    messages: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Messages are dispatched as they arrive.
    #[default]
    Open,
    /// They wait.
    Held,
    /// Those that have waited are dispatched one by one.
    Draining,
}

impl Hold {
    /// Adds up what has been delivered since the last call.
    fn count(&mut self, delivered: &VecDeque<Message>, all: &mut Deferral) {
        let before = self.bytes;
        self.bytes += delivered.iter().skip(self.messages).map(charge).sum::<usize>();
        self.messages = delivered.len();
        all.hold(before, self.bytes);
    }

    fn forget(&mut self, message: &Message, all: &mut Deferral) {
        if self.messages > 0 {
            self.messages -= 1;
            self.bytes -= charge(message);
            all.hold(charge(message), 0);
        }
    }
}

impl Switch {
    /// Holds the messages of a peer until [`Self::resume`].
    pub(crate) fn hold(&mut self, addr: NodeAddr) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        if entry.hold.bytes > MAX_HELD || self.deferral.holds_too_much(entry.hold.bytes) {
            return;
        }
        entry.hold.state = State::Held;
        entry.peer.hold_acks(true);
        entry.receiver.hold_ack(true);
        self.draining.remove(addr);
    }

    /// Holds what a peer's links have delivered, and updates that are due, until there is work left for what has
    /// waited; false if there is nothing.
    pub(super) fn postpone(&mut self, addr: NodeAddr) -> bool {
        let waits = |entry: &PeerEntry| !entry.peer.delivered.is_empty() || entry.names.has_due();
        let Some(entry) = self.peers.get_mut(&addr).filter(|entry| waits(entry)) else { return false };
        if entry.hold.state == State::Open {
            entry.hold.state = State::Draining;
            entry.hold.count(&entry.peer.delivered, &mut self.deferral);
            entry.peer.hold_acks(true);
            entry.receiver.hold_ack(true);
            self.draining.insert(addr);
        }
        true
    }

    /// Whether a peer has no room for a packet: it sends more than its window while its messages wait for a turn.
    pub(super) fn is_hold_full(&self, addr: NodeAddr) -> bool {
        let full = |hold: &Hold| hold.state == State::Draining && hold.bytes > MAX_HELD;
        self.has_work() && self.peers.get(&addr).is_some_and(|entry| full(&entry.hold))
    }

    /// Whether messages of peers wait for the next turn.
    pub(crate) fn has_work(&self) -> bool {
        self.work.is_limited() && !self.draining.is_empty()
    }

    /// Goes on with the messages of a peer, unless it has not got all bindings of this node.
    pub(crate) fn resume(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.get_mut(&addr)
            && entry.bulk.is_none()
            && entry.hold.state != State::Open
        {
            entry.hold.state = State::Draining;
            self.draining.insert(addr);
        }
    }

    /// Applies one update or dispatches one message that has waited; false if there is none, or if the turn has done
    /// its work. Acknowledges after the last one.
    pub(crate) fn dispatch_held(&mut self, now: Time) -> bool {
        if self.draining.is_empty() || self.work.waiting_is_over() {
            return false;
        }
        let Some(addr) = self.draining.next() else { return false };
        self.work.charge_waiting(true);
        let applied = self.apply_due_names(addr);
        self.work.charge_waiting(false);
        if applied {
            return true;
        }
        let entry = self.peers.get_mut(&addr);
        let Some((entry, message)) = entry.and_then(|m| m.peer.delivered.pop_front().map(|first| (m, first)))
        else {
            self.let_go(now, addr);
            return true;
        };
        entry.hold.forget(&message, &mut self.deferral);
        self.work.charge_waiting(true);
        self.dispatch(now, addr, message);
        self.work.charge_waiting(false);
        true
    }

    /// Whether delivered messages of a peer have to wait.
    pub(super) fn is_held(&mut self, addr: NodeAddr) -> bool {
        let Some(entry) = self.peers.get_mut(&addr) else { return false };
        if entry.hold.state == State::Open {
            return false;
        }
        entry.hold.count(&entry.peer.delivered, &mut self.deferral);
        if entry.hold.bytes > MAX_HELD || self.deferral.holds_too_much(entry.hold.bytes) {
            entry.hold.state = State::Draining;
            self.draining.insert(addr);
        }
        true
    }

    /// Forgets that a peer is held: contact with it is lost.
    pub(super) fn forget_hold(&mut self, addr: NodeAddr) {
        self.draining.remove(addr);
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.deferral.hold(entry.hold.bytes, 0);
            entry.hold = Hold::default();
            entry.peer.hold_acks(false);
            entry.receiver.hold_ack(false);
        }
    }

    fn let_go(&mut self, now: Time, addr: NodeAddr) {
        self.forget_hold(addr);
        let Some(entry) = self.peers.get(&addr) else { return };
        let up: Vec<BearerId> =
            entry.peer.links().filter(|(_, slot)| slot.link.is_up()).map(|(bearer, _)| bearer).collect();
        for bearer in up {
            self.send_state(now, addr, bearer);
        }
    }
}
