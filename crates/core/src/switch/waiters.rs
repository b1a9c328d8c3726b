//! Who waits for a full receiver: local senders, which take turns when it has room again, and links from other nodes,
//! which are held. Decisions 22 and 32.
//!
//! Without turns the sender that runs first fills the room that the receiver has made, is stopped first, and is the
//! first to be woken again: the others send one message in the time in which it sends hundreds.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::addr::NodeAddr;
use crate::time::Time;

/// Time after which unused shares end: a sender that was woken may not send. Ours: on a busy host most threads run
/// again within that time.
const TURN: Duration = Duration::from_millis(20);

/// A receiver's queue as its senders see it, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Messages wait for room behind the queue.
    pub(crate) is_full: bool,
    /// Taken by queued messages.
    pub(crate) charged: usize,
    /// Limit of messages of the lowest importance.
    pub(crate) limit: usize,
}

impl Room {
    fn is_half_free(self, more: usize) -> bool {
        self.charged.saturating_add(more) <= self.limit / 2
    }
}

/// The senders of one receiver. The number of sockets bounds them.
#[derive(Debug)]
struct Waiting {
    /// Those that wait, by ticket: longest waiting first.
    queue: BTreeMap<u64, u32>,
    /// Their tickets.
    waiting: BTreeMap<u32, u64>,
    tickets: u64,
    /// Bytes that those whose turn it is may still send, and their sum.
    shares: BTreeMap<u32, usize>,
    granted: usize,
    /// Charge of the last message, bytes.
    last: usize,
    room: Room,
    /// When unused shares end.
    until: Time,
}

impl Waiting {
    fn new(room: Room, until: Time) -> Self {
        Self {
            queue: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
            shares: BTreeMap::new(),
            granted: 0,
            last: 1,
            room,
            until,
        }
    }

    fn take_share(&mut self, sender: u32) -> Option<usize> {
        let share = self.shares.remove(&sender)?;
        self.granted -= share;
        Some(share)
    }

    /// Puts a sender at the end of the queue; false if it is there.
    fn join(&mut self, sender: u32) -> bool {
        self.take_share(sender);
        if self.waiting.contains_key(&sender) {
            return false;
        }
        self.waiting.insert(sender, self.tickets);
        self.queue.insert(self.tickets, sender);
        self.tickets += 1;
        true
    }

    /// Takes a sender out of the queue.
    fn leave(&mut self, sender: u32) {
        if let Some(ticket) = self.waiting.remove(&sender) {
            self.queue.remove(&ticket);
        }
    }

    /// Whether the next senders can get shares. While the receiver's queue is empty, unused shares do not prevent it,
    /// as long as all shares together fit the queue.
    fn has_turns(&self) -> bool {
        let is_idle = self.room.charged == 0 && self.granted <= self.room.limit;
        let is_used = !self.queue.is_empty() || self.shares.is_empty();
        is_used && !self.room.is_full && (self.room.is_half_free(self.granted) || is_idle)
    }

    /// Divides the room among those that wait, or gives it in messages to the first of them.
    fn grant(&mut self) -> Vec<u32> {
        let free = self.room.limit.saturating_sub(self.room.charged);
        let room = match free.saturating_sub(self.granted) {
            room if self.room.is_half_free(self.granted) => room,
            _ => free,
        };
        let messages = (room / self.last.max(1)).max(1);
        // Those that have not used their shares yet do not get less.
        let share = (room / (self.queue.len() + self.shares.len()).max(1)).max(self.last);
        let woken: Vec<u32> = self.queue.values().copied().take(messages).collect();
        for sender in &woken {
            self.leave(*sender);
            self.shares.insert(*sender, share);
            self.granted += share;
        }
        woken
    }
}

/// What a sender waits for that is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// This receiver, and all others for which it waits: it has sent a multicast.
    ForAll,
    /// Whichever receiver has a turn for it. It stays in the other queues: when it is done with this turn, the room of
    /// the other receivers must not be left to those that did not wait.
    ForAny,
}

/// The receivers at which senders take turns, by port.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    all: BTreeMap<u32, Waiting>,
    /// The receivers in whose queues a sender is: a message may meet several that are full.
    queues: BTreeMap<u32, BTreeMap<u32, Waits>>,
    /// Receivers whose senders can have a turn.
    due: BTreeSet<u32>,
    /// Ends of turns.
    timers: BTreeSet<(Time, u32)>,
    /// By receiver: the nodes whose links are held for it. The number of peers bounds those of each.
    nodes: BTreeMap<u32, BTreeSet<NodeAddr>>,
    /// Receivers that are not full any more and have such nodes.
    relieved: BTreeSet<u32>,
}

impl Waiters {
    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.nodes.is_empty()
    }

    /// Whether local senders wait.
    pub(crate) fn has_senders(&self) -> bool {
        !self.all.is_empty()
    }

    /// The links from a node are held for a receiver.
    pub(crate) fn hold(&mut self, node: NodeAddr, receiver: u32) {
        self.nodes.entry(receiver).or_default().insert(node);
    }

    /// Whether they are held for any.
    pub(crate) fn holds(&self, node: NodeAddr) -> bool {
        self.nodes.values().any(|others| others.contains(&node))
    }

    /// The nodes whose links were held for a receiver that has room again.
    pub(crate) fn next_relieved(&mut self) -> Option<BTreeSet<NodeAddr>> {
        let receiver = self.relieved.pop_first()?;
        Some(self.nodes.remove(&receiver).unwrap_or_default())
    }

    /// Whether a sender has to wait for its turn before it sends; it is in the queue then.
    pub(crate) fn must_wait(&mut self, sender: u32, receiver: u32) -> bool {
        let Some(waiting) = self.all.get_mut(&receiver) else { return false };
        if waiting.shares.contains_key(&sender) {
            return false;
        }
        self.enqueue(sender, receiver, Waits::ForAll);
        true
    }

    /// Whether a sender need not wait for its turn at a receiver.
    pub(crate) fn has_turn(&self, sender: u32, receiver: u32) -> bool {
        self.all.get(&receiver).is_none_or(|waiting| waiting.shares.contains_key(&sender))
    }

    /// A sender waits for this receiver, among others: the first that has a turn for it wakes it.
    pub(crate) fn wait_for_any(&mut self, now: Time, sender: u32, receiver: u32, room: Room) {
        self.open(now, receiver, room);
        self.enqueue(sender, receiver, Waits::ForAny);
    }

    /// The queue of a receiver.
    fn open(&mut self, now: Time, receiver: u32, room: Room) -> &mut Waiting {
        let until = now + TURN;
        self.all.entry(receiver).or_insert_with(|| {
            self.timers.insert((until, receiver));
            Waiting::new(room, until)
        })
    }

    /// A sender's message of `charge` bytes has reached a receiver. Returns whether the sender has to wait now: its
    /// message found the receiver full, or has used up the sender's share.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        (sender, waits): (u32, Waits),
        receiver: u32,
        charge: usize,
        room: Room,
    ) -> bool {
        if !room.is_full && !self.all.contains_key(&receiver) {
            return false;
        }
        let waiting = self.open(now, receiver, room);
        waiting.last = charge;
        let left = waiting.take_share(sender).unwrap_or(0).saturating_sub(charge);
        if !room.is_full && left >= charge {
            waiting.shares.insert(sender, left);
            waiting.granted += left;
            return false;
        }
        self.enqueue(sender, receiver, waits);
        true
    }

    /// Notes the state of a receiver after a call; `None` if it is closed.
    pub(crate) fn note(&mut self, receiver: u32, room: Option<Room>) {
        if self.nodes.contains_key(&receiver) {
            if room.is_some_and(|room| room.is_full) {
                self.relieved.remove(&receiver);
            } else {
                self.relieved.insert(receiver);
            }
        }
        let Some(waiting) = self.all.get_mut(&receiver) else { return };
        let Some(room) = room else {
            waiting.room = Room { is_full: false, charged: usize::MAX, limit: 0 };
            self.due.insert(receiver);
            return;
        };
        let was_full = waiting.room.is_full;
        waiting.room = room;
        // The time for which senders wait is over, and the receiver has not read.
        let gives_up = was_full && !room.is_full && !room.is_half_free(0);
        if gives_up || waiting.has_turns() {
            self.due.insert(receiver);
        } else {
            self.due.remove(&receiver);
        }
    }

    /// Begins the next turn at one of the receivers; returns the senders to wake, `None` if no receiver has room.
    pub(crate) fn next_turn(&mut self, now: Time) -> Option<Vec<u32>> {
        let receiver = self.due.pop_first()?;
        let Some(waiting) = self.all.get_mut(&receiver) else { return Some(Vec::new()) };
        let woken = if !waiting.queue.is_empty() && waiting.has_turns() {
            self.timers.remove(&(waiting.until, receiver));
            waiting.until = now + TURN;
            self.timers.insert((waiting.until, receiver));
            waiting.grant()
        } else {
            self.dissolve(receiver)
        };
        Some(self.leave_queues(receiver, woken))
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Ends a turn whose time is over; returns the senders that have the next one, `None` if no turn is over.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<Vec<u32>> {
        let (at, receiver) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, receiver));
        let Some(waiting) = self.all.get_mut(&receiver) else { return Some(Vec::new()) };
        waiting.until = now + TURN;
        self.timers.insert((waiting.until, receiver));
        waiting.shares.clear();
        waiting.granted = 0;
        let woken = match waiting.room.is_full {
            // The receiver ends this wait itself.
            true => Vec::new(),
            false if waiting.queue.is_empty() => self.dissolve(receiver),
            false => waiting.grant(),
        };
        Some(self.leave_queues(receiver, woken))
    }

    fn enqueue(&mut self, sender: u32, receiver: u32, waits: Waits) {
        let Some(waiting) = self.all.get_mut(&receiver) else { return };
        if waiting.join(sender) || waits == Waits::ForAll {
            self.queues.entry(sender).or_default().insert(receiver, waits);
        }
    }

    fn dissolve(&mut self, receiver: u32) -> Vec<u32> {
        let Some(waiting) = self.all.remove(&receiver) else { return Vec::new() };
        self.timers.remove(&(waiting.until, receiver));
        waiting.queue.into_values().collect()
    }

    /// Those of the senders that a receiver has let go that have not to wait for others.
    fn leave_queues(&mut self, receiver: u32, mut senders: Vec<u32>) -> Vec<u32> {
        senders.retain(|sender| {
            let Some(others) = self.queues.get_mut(sender) else { return true };
            others.remove(&receiver);
            let is_free = others.values().all(|waits| *waits == Waits::ForAny);
            if others.is_empty() {
                self.queues.remove(sender);
            }
            is_free
        });
        senders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVER: u32 = 1;
    const LIMIT: usize = 1000;

    fn room(charged: usize) -> Option<Room> {
        Some(Room { is_full: false, charged, limit: LIMIT })
    }

    fn full() -> Room {
        Room { is_full: true, charged: LIMIT, limit: LIMIT }
    }

    /// Senders from 10 on in the queue of a full receiver, with messages of 100 bytes.
    fn waiting(senders: u32) -> Waiters {
        let mut waiters = Waiters::default();
        for sender in 10..10 + senders {
            assert!(waiters.sent(Time::ZERO, (sender, Waits::ForAll), RECEIVER, 100, full()));
        }
        waiters
    }

    #[test]
    fn room_is_divided_among_all_that_wait() {
        let mut waiters = waiting(5);
        waiters.note(RECEIVER, room(500));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(vec![10, 11, 12, 13, 14]));
        let room = room(500).unwrap();
        assert!(!waiters.must_wait(10, RECEIVER));
        assert!(waiters.sent(Time::ZERO, (10, Waits::ForAll), RECEIVER, 100, room), "a share is 100 bytes");
        assert!(waiters.must_wait(10, RECEIVER));
        assert!(waiters.must_wait(20, RECEIVER), "a new sender goes to the end of the queue");
    }

    #[test]
    fn no_more_are_woken_than_messages_fit() {
        let mut waiters = waiting(90);
        waiters.note(RECEIVER, room(400));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(vec![10, 11, 12, 13, 14, 15]));
        waiters.note(RECEIVER, room(400));
        assert_eq!(waiters.next_turn(Time::ZERO), None, "their shares count as taken");
        waiters.note(RECEIVER, room(0));
        assert_eq!(waiters.next_turn(Time::ZERO).map(|woken| (woken[0], woken.len())), Some((16, 10)));
    }

    #[test]
    fn senders_that_were_woken_and_do_not_send_delay_others_for_one_turn() {
        let mut waiters = waiting(30);
        waiters.note(RECEIVER, room(0));
        let mut woken = waiters.next_turn(Time::ZERO).unwrap().len();
        assert_eq!(woken, 10);
        while !waiters.is_empty() {
            let now = waiters.deadline();
            assert!(now <= Time::ZERO + 3 * TURN);
            woken += waiters.handle_timeout(now).unwrap().len();
        }
        assert_eq!(woken, 30);
        assert!(waiters.is_empty() && waiters.queues.is_empty());
    }

    #[test]
    fn all_are_woken_when_the_receiver_does_not_read_or_closes() {
        let mut waiters = waiting(5);
        waiters.note(RECEIVER, Some(full()));
        assert_eq!(waiters.next_turn(Time::ZERO), None);
        waiters.note(RECEIVER, room(900));
        assert_eq!(waiters.next_turn(Time::ZERO).map(|woken| woken.len()), Some(5));
        assert!(waiters.is_empty());
        let mut waiters = waiting(5);
        waiters.note(RECEIVER, None);
        assert_eq!(waiters.next_turn(Time::ZERO).map(|woken| woken.len()), Some(5));
        assert!(waiters.is_empty() && waiters.deadline() == Time::NEVER);
    }

    #[test]
    fn sender_to_many_is_woken_when_it_waits_for_none_of_them() {
        let mut waiters = Waiters::default();
        for receiver in [1, 2] {
            waiters.sent(Time::ZERO, (10, Waits::ForAll), receiver, 100, full());
        }
        waiters.note(1, room(0));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(Vec::new()));
        waiters.note(2, room(0));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(vec![10]));
    }

    #[test]
    fn sender_that_waits_for_any_is_woken_by_each() {
        let mut waiters = Waiters::default();
        for receiver in [1, 2] {
            waiters.wait_for_any(Time::ZERO, 10, receiver, full());
            waiters.sent(Time::ZERO, (11, Waits::ForAll), receiver, 100, full());
        }
        assert!(!waiters.has_turn(10, 1) && !waiters.has_turn(10, 2));
        waiters.note(2, room(0));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(vec![10]), "11 waits for both");
        assert!(waiters.has_turn(10, 2) && !waiters.has_turn(10, 1));
        waiters.note(1, room(0));
        assert_eq!(waiters.next_turn(Time::ZERO), Some(vec![10, 11]));
        assert!(waiters.queues.is_empty());
    }
}
