//! Links that are held while a receiver of this node is full, or until the next turn if this one has done its work:
//! their messages wait, and are not acknowledged, so that the peer's window fills and its senders wait. Decision 50.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::peers::PeerEntry;
use crate::addr::NodeAddr;
use crate::limits::MESSAGE_OVERHEAD;
use crate::wire::Message;

/// Maximum number of bytes that wait from one peer; beyond them it does not respect its window, and is not waited for.
const MAX_HELD: usize = 16 << 20;

/// Maximum number of bytes of messages of all peers that wait. Ours: as much as sixteen peers may hold.
const MAX_NODE_HELD_BYTES: usize = 256 << 20;

/// Bytes that the messages of a peer may take while they wait, although the node's memory for these is used up. Ours: a
/// window of small messages, so that a sender is not told of overload at once.
const ASSURED_HELD_BYTES: usize = 16 << 10;

/// Memory that a message is charged for while it waits, bytes.
fn charge(message: &Message) -> usize {
    message.size() + MESSAGE_OVERHEAD
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
    /// Whether a peer has no room for a packet: it sends more than its window while its messages wait for a turn.
    pub(super) fn is_full(&self) -> bool {
        self.state == State::Draining && self.bytes > MAX_HELD
    }
}

/// The messages of all peers that wait.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Peers whose messages have waited, and are dispatched now: one message of each after the other.
    draining: BTreeSet<NodeAddr>,
    /// The last of them that was served.
    last: NodeAddr,
    /// Bytes of the messages that wait.
    bytes: usize,
}

impl Holds {
    /// Whether messages that have waited are dispatched now.
    pub(super) fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// The next peer of which a message that has waited is dispatched.
    pub(super) fn next(&mut self) -> Option<NodeAddr> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        self.last = self.draining.range(after).next().or(self.draining.first()).copied()?;
        Some(self.last)
    }

    /// Holds the messages of a peer until [`Self::resume`].
    pub(super) fn hold(&mut self, addr: NodeAddr, entry: &mut PeerEntry) {
        if !self.is_too_much(entry.hold.bytes) {
            stop(entry, State::Held);
            self.draining.remove(&addr);
        }
    }

    /// Holds what a peer's links have delivered, and updates that are due, until there is work left for what has
    /// waited; false if there is nothing.
    pub(super) fn postpone(&mut self, addr: NodeAddr, entry: &mut PeerEntry) -> bool {
        if entry.peer.delivered.is_empty() && !entry.names.has_due() {
            return false;
        }
        if entry.hold.state == State::Open {
            stop(entry, State::Draining);
            self.count(entry);
            self.draining.insert(addr);
        }
        true
    }

    /// Goes on with the messages of a peer, unless it has not got all bindings of this node.
    pub(super) fn resume(&mut self, addr: NodeAddr, entry: &mut PeerEntry) {
        if entry.bulk.is_none() && entry.hold.state != State::Open {
            entry.hold.state = State::Draining;
            self.draining.insert(addr);
        }
    }

    /// Whether delivered messages of a peer have to wait.
    pub(super) fn holds(&mut self, addr: NodeAddr, entry: &mut PeerEntry) -> bool {
        if entry.hold.state == State::Open {
            return false;
        }
        self.count(entry);
        if self.is_too_much(entry.hold.bytes) {
            entry.hold.state = State::Draining;
            self.draining.insert(addr);
        }
        true
    }

    /// Takes the first message of a peer.
    pub(super) fn take(&mut self, entry: &mut PeerEntry) -> Option<Message> {
        let message = entry.peer.delivered.pop_front()?;
        if entry.hold.messages > 0 {
            entry.hold.messages -= 1;
            entry.hold.bytes -= charge(&message);
            self.bytes -= charge(&message);
        }
        Some(message)
    }

    /// Nothing of a peer waits any more, or contact with it is lost.
    pub(super) fn forget(&mut self, addr: NodeAddr, entry: Option<&mut PeerEntry>) {
        self.draining.remove(&addr);
        let Some(entry) = entry else { return };
        self.bytes -= entry.hold.bytes;
        entry.hold = Hold::default();
        entry.peer.hold_acks(false);
        entry.receiver.hold_ack(false);
    }

    /// Adds up what a peer's links have delivered since the last call.
    fn count(&mut self, entry: &mut PeerEntry) {
        let (hold, delivered) = (&mut entry.hold, &entry.peer.delivered);
        let more: usize = delivered.iter().skip(hold.messages).map(charge).sum();
        hold.messages = delivered.len();
        hold.bytes += more;
        self.bytes += more;
    }

    /// Whether a peer's messages may not wait any longer.
    fn is_too_much(&self, bytes: usize) -> bool {
        bytes > MAX_HELD || self.bytes > MAX_NODE_HELD_BYTES && bytes > ASSURED_HELD_BYTES
    }
}

/// The messages of a peer wait, and are not acknowledged.
fn stop(entry: &mut PeerEntry, state: State) {
    entry.hold.state = state;
    entry.peer.hold_acks(true);
    entry.receiver.hold_ack(true);
}
