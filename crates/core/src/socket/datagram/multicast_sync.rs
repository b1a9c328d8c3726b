//! Keeps a sender's multicasts in order when it changes between broadcast and replicast. The two arrive over different
//! links, so the sender sends a SYN by each method, and the receiver waits until it has both. Spec: tipc.md §7.6.

use std::collections::VecDeque;

use crate::addr::NodeAddr;
use crate::planted::{self, Fault};
use crate::socket::queue::charge;
use crate::time::Time;
use crate::wire::Message;

/// Longest wait for the second SYN, milliseconds. It may never come: broadcast reaches sockets that the sender does not
/// know yet and therefore does not replicate to. As long as a sender keeps its method where it cannot announce a change
/// (tipc.md §7.6).
pub(super) const MAX_WAIT_MS: u64 = 5000;

/// Decision about a multicast.
#[derive(Debug)]
pub(super) enum Filtered {
    /// Deliver it.
    Deliver(Message),
    /// Deliver these messages, in this order.
    Release(Vec<Message>),
    /// The message was queued.
    Held,
    /// The message would have to be queued, but the limit is reached.
    Overflow(Message),
}

#[derive(Debug)]
struct Waiting {
    since: Time,
    msg: Message,
}

/// The waiting messages of all senders.
#[derive(Debug, Default)]
pub(super) struct MulticastSync {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

fn same_sender(a: &Message, b: &Message) -> bool {
    a.origin_port() == b.origin_port() && a.origin_node() == b.origin_node()
}

/// True if the two SYNs belong together: one is a dummy without data, and both have the same range.
fn are_counterparts(a: &Message, b: &Message) -> bool {
    a.data().is_empty() != b.data().is_empty() && a.service_range() == b.service_range()
}

/// `verdict`, with `out` delivered first.
fn after(mut out: Vec<Message>, verdict: Filtered) -> Filtered {
    match verdict {
        _ if out.is_empty() => verdict,
        Filtered::Deliver(msg) | Filtered::Overflow(msg) => {
            out.push(msg);
            Filtered::Release(out)
        }
        Filtered::Release(mut more) => {
            out.append(&mut more);
            Filtered::Release(out)
        }
        Filtered::Held => Filtered::Release(out),
    }
}

impl MulticastSync {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes charged for the waiting messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Filters a multicast for a socket on node `own`; at most `limit` bytes are queued.
    pub(super) fn filter(&mut self, now: Time, own: NodeAddr, msg: Message, limit: usize) -> Filtered {
        let synching = msg.syn() || !self.waiting.is_empty();
        if !synching || msg.origin_node() == own {
            return Filtered::Deliver(msg);
        }
        let mut out = Vec::new();
        // A SYN by the other method that does not match shows that the counterpart of the waiting SYN will not come:
        // release the waiting one.
        while let Some(first) = self.first_of(&msg)
            && msg.syn()
            && first.is_replicast() != msg.is_replicast()
            && !are_counterparts(first, &msg)
        {
            self.pass(&msg, &mut out);
        }
        let first = self.first_of(&msg);
        let verdict = match first.map(|w| w.is_replicast() != msg.is_replicast()) {
            None | Some(true) if !msg.syn() => Filtered::Deliver(msg),
            Some(true) => self.release(msg),
            _ => self.hold(now, msg, limit),
        };
        after(out, verdict)
    }

    /// The oldest waiting message of the sender of `msg`.
    fn first_of(&self, msg: &Message) -> Option<&Message> {
        self.waiting.iter().map(|w| &w.msg).find(|m| same_sender(m, msg))
    }

    /// Moves the oldest waiting message of the sender of `msg`, and those behind it, to `out`.
    fn pass(&mut self, msg: &Message, out: &mut Vec<Message>) {
        if let Some(i) = self.waiting.iter().position(|w| same_sender(&w.msg, msg)) {
            let mut released = Vec::from_iter(self.remove(i));
            self.drain_sender(&mut released, 0);
            released.retain(|m| !m.data().is_empty());
            out.append(&mut released);
        }
    }

    fn hold(&mut self, now: Time, msg: Message, limit: usize) -> Filtered {
        if self.bytes + charge(&msg) > limit || self.waiting.try_reserve(1).is_err() {
            return Filtered::Overflow(msg);
        }
        self.bytes += charge(&msg);
        self.waiting.push_back(Waiting { since: now, msg });
        Filtered::Held
    }

    fn remove(&mut self, index: usize) -> Option<Message> {
        let waiting = self.waiting.remove(index)?;
        self.bytes -= charge(&waiting.msg);
        Some(waiting.msg)
    }

    /// Both SYNs have arrived: releases the one with data, then the messages behind it up to the next SYN.
    fn release(&mut self, msg: Message) -> Filtered {
        let first = self.waiting.iter().position(|w| same_sender(&w.msg, &msg));
        let Some(counterpart) = first.and_then(|i| self.remove(i)) else {
            return Filtered::Deliver(msg);
        };
        let keep_counterpart = msg.data().is_empty() != planted::active(Fault::WrongSyn);
        let mut out = vec![if keep_counterpart { counterpart } else { msg }];
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

    /// Time at which the oldest message has waited too long.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.front().map(|w| w.since.plus_millis(MAX_WAIT_MS))
    }

    /// If the oldest message has waited too long, releases it and the messages behind it, in order. Dummies are
    /// dropped.
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
