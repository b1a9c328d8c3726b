//! Keeping a sender's multicasts in order while it changes from broadcast to replicast or back: the two come by
//! different links, so the sender sends a SYN by each, and the receiver waits for both. Spec: tipc.md §7.6.

use std::collections::VecDeque;

use crate::addr::NodeAddr;
use crate::time::Time;
use crate::wire::Message;

/// Wait for the twin at most this long, milliseconds: longer than a link with the usual tolerance can be silent
/// before it is reset (10 × 1500), after which the twin will not come.
pub(super) const MAX_WAIT_MS: u64 = 60_000;

/// What became of a message.
#[derive(Debug)]
pub(super) enum Filtered {
    /// Deliver it.
    Deliver(Message),
    /// Deliver these, in this order.
    Release(Vec<Message>),
    /// It waits.
    Held,
    /// It would have to wait, and there is no room.
    Overflow(Message),
}

#[derive(Debug)]
struct Waiting {
    since: Time,
    msg: Message,
}

/// The messages that wait, of all senders.
#[derive(Debug, Default)]
pub(super) struct Twins {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

fn same_sender(a: &Message, b: &Message) -> bool {
    a.origin_port() == b.origin_port() && a.origin_node() == b.origin_node()
}

impl Twins {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Filters a multicast for a socket on node `own`; at most `limit` bytes wait.
    pub(super) fn filter(&mut self, now: Time, own: NodeAddr, msg: Message, limit: usize) -> Filtered {
        let synching = msg.syn() || !self.waiting.is_empty();
        if !synching || msg.origin_node() == own {
            return Filtered::Deliver(msg);
        }
        let first = self.waiting.iter().position(|w| same_sender(&w.msg, &msg));
        let other_method = |w: &Waiting| w.msg.is_replicast() != msg.is_replicast();
        let twin_of = first.filter(|i| self.waiting.get(*i).is_some_and(other_method));
        match (first, twin_of, msg.syn()) {
            (None, _, false) | (Some(_), Some(_), false) => Filtered::Deliver(msg),
            (Some(_), Some(i), true) => self.release(i, msg),
            _ => self.hold(now, msg, limit),
        }
    }

    fn hold(&mut self, now: Time, msg: Message, limit: usize) -> Filtered {
        if self.bytes + super::queue::charge(&msg) > limit {
            return Filtered::Overflow(msg);
        }
        self.bytes += super::queue::charge(&msg);
        self.waiting.push_back(Waiting { since: now, msg });
        Filtered::Held
    }

    fn remove(&mut self, index: usize) -> Option<Message> {
        let waiting = self.waiting.remove(index)?;
        self.bytes -= super::queue::charge(&waiting.msg);
        Some(waiting.msg)
    }

    /// Both SYNs are there: one is a dummy without data; then comes what waited behind, up to the next SYN.
    fn release(&mut self, twin: usize, msg: Message) -> Filtered {
        let Some(twin) = self.remove(twin) else {
            return Filtered::Deliver(msg);
        };
        let mut out = vec![if msg.data().is_empty() { twin } else { msg }];
        self.drain_sender(&mut out, 0);
        out.retain(|m| !m.data().is_empty());
        Filtered::Release(out)
    }

    /// Moves the messages of the sender of `out`'s first message from `index` on to `out`, up to the next SYN.
    fn drain_sender(&mut self, out: &mut Vec<Message>, mut index: usize) {
        while let Some(waiting) = self.waiting.get(index) {
            if !out.first().is_some_and(|m| same_sender(m, &waiting.msg)) {
                index += 1;
            } else if waiting.msg.syn() {
                break;
            } else {
                out.extend(self.remove(index));
            }
        }
    }

    /// When the oldest message has waited too long.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.front().map(|w| w.since.plus_millis(MAX_WAIT_MS))
    }

    /// Gives up on the twin of the oldest message if it has waited too long: it and what waits behind it, in
    /// order. Messages of the dummy kind are dropped.
    pub(super) fn expire(&mut self, now: Time) -> Vec<Message> {
        let mut out = Vec::new();
        if self.deadline().is_some_and(|at| at <= now) {
            out.extend(self.remove(0));
            self.drain_sender(&mut out, 0);
            out.retain(|m| !m.data().is_empty());
        }
        out
    }
}
