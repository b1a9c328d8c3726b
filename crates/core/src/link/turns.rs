//! The order in which ports that wait for a queue are woken: the one that has sent least first. Decision 50.
//!
//! In the order of their waiting, the port that is woken first fills the room, waits first, and is woken first again.

use std::collections::BTreeMap;

use crate::waiting::Waiters;

/// Ports beyond which those without a history worth keeping are forgotten. Ours: seldom reached.
const MANY: usize = 1024;

/// The waiting ports of one queue, and what they have sent while others waited (start-time fair queueing).
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By the bytes that a port has sent, and the number of its registration.
    waiting: Waiters<u32, (u64, u64)>,
    /// Bytes that a port has sent, on the clock's scale.
    sent: BTreeMap<u32, u64>,
    /// What the port that was woken last had sent: a port that comes later does not get what it has missed.
    clock: u64,
    tickets: u64,
    /// A port has waited since the queue was empty last.
    is_contended: bool,
}

impl Turns {
    /// Number of waiting ports.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Counts a message of `size` bytes; without contention there is nothing to count.
    pub(crate) fn count(&mut self, port: u32, size: usize) {
        if !self.is_contended && self.sent.is_empty() {
            return;
        }
        let clock = self.clock;
        let sent = self.sent.entry(port).or_insert(clock);
        *sent = clock.max(*sent).saturating_add(size as u64);
        if self.sent.len() > MANY + 2 * self.waiting.len() {
            self.sent.retain(|_, sent| *sent > clock);
        }
    }

    /// Registers a port that waits.
    pub(crate) fn register(&mut self, port: u32) {
        self.is_contended = true;
        let sent = self.sent.get(&port).copied().unwrap_or(0).max(self.clock);
        if self.waiting.join(port, (sent, self.tickets)) {
            self.tickets += 1;
        }
    }

    /// Wakes up to `room` ports.
    pub(crate) fn wake(&mut self, room: usize, mut wake: impl FnMut(u32)) {
        for _ in 0..room.min(self.waiting.len()) {
            let Some(((sent, _), port)) = self.waiting.pop() else { return };
            self.clock = self.clock.max(sent);
            wake(port);
        }
    }

    /// The queue is empty. Forgets what ports have sent if none has waited since the last time.
    pub(crate) fn emptied(&mut self) {
        if !core::mem::take(&mut self.is_contended) && self.waiting.is_empty() {
            (self.clock, self.tickets) = (0, 0);
            self.sent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(turns: &mut Turns, room: usize) -> Vec<u32> {
        let mut woken = Vec::new();
        turns.wake(room, |port| woken.push(port));
        woken
    }

    #[test]
    fn ports_that_have_sent_the_same_are_woken_in_the_order_of_their_waiting() {
        let mut turns = Turns::default();
        for port in [7, 3, 9, 3] {
            turns.register(port);
        }
        assert_eq!((turns.waiting(), woken(&mut turns, 2)), (3, vec![7, 3]));
        assert_eq!(woken(&mut turns, 2), [9]);
    }

    #[test]
    fn port_that_fills_the_room_is_woken_when_the_others_have_sent_as_much() {
        let mut turns = Turns::default();
        for port in 0..10 {
            turns.register(port);
        }
        let mut messages = [0; 10];
        for _ in 0..100 {
            let mut room = 5;
            let all = woken(&mut turns, room);
            for port in all {
                // The first port takes all the room, the others send one message each.
                for _ in 0..room.max(1) {
                    turns.count(port, 100);
                    messages[port as usize] += 1;
                }
                room = 0;
                turns.register(port);
            }
        }
        let (most, least) = (messages.iter().max().unwrap(), messages.iter().min().unwrap());
        assert!(most - least <= 5, "{messages:?}");
    }

    #[test]
    fn port_that_comes_late_does_not_get_what_it_has_missed() {
        let mut turns = Turns::default();
        turns.register(1);
        for _ in 0..50 {
            assert_eq!(woken(&mut turns, 1), [1]);
            turns.count(1, 1000);
            turns.register(1);
        }
        turns.register(2);
        let mut order = Vec::new();
        for _ in 0..6 {
            let port = woken(&mut turns, 1)[0];
            order.push(port);
            turns.count(port, 1000);
            turns.register(port);
        }
        assert!(order.iter().filter(|port| **port == 2).count() <= 4, "{order:?}");
    }

    #[test]
    fn history_ends_with_the_contention_and_is_bounded() {
        let mut turns = Turns::default();
        turns.count(1, 100);
        assert!(turns.sent.is_empty(), "no port waits");
        turns.register(1);
        woken(&mut turns, 1);
        for port in 0..10_000 {
            turns.count(port, 100);
            turns.register(port);
            woken(&mut turns, 1);
        }
        assert!(turns.sent.len() <= MANY + 1, "{}", turns.sent.len());
        turns.emptied();
        assert!(!turns.sent.is_empty(), "ports have waited since");
        turns.emptied();
        assert!(turns.sent.is_empty());
    }
}
