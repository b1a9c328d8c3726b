//! Full receivers of this node: the local senders that wait for each and take turns when it has room again, and the
//! links from other nodes that are held for it. Decision 50.

mod receiver;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::addr::NodeAddr;
use crate::time::Time;
use crate::waiting::Waiters;
use receiver::Receiver;
pub(crate) use receiver::Room;

/// Time after which unused shares end: a sender that was woken may not send. Ours: on a busy host most threads run
/// again within that time.
const TURN: Duration = Duration::from_millis(20);

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
pub(crate) struct FullReceivers {
    all: BTreeMap<u32, Receiver>,
    /// The receivers for which a sender waits: a message may meet several that are full.
    awaited: BTreeMap<u32, BTreeMap<u32, Waits>>,
    /// Receivers whose senders can have a turn.
    due: BTreeSet<u32>,
    /// When the present turn at each ends.
    turns: Waiters<u32, Time>,
    /// By receiver: the nodes whose links are held for it. The number of peers bounds those of each.
    nodes: BTreeMap<u32, BTreeSet<NodeAddr>>,
    /// Receivers that are not full any more and have such nodes.
    relieved: BTreeSet<u32>,
}

impl FullReceivers {
    /// Whether nothing waits.
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
        let must_wait = !self.has_turn(sender, receiver);
        if must_wait {
            self.enqueue(sender, receiver, Waits::ForAll);
        }
        must_wait
    }

    /// Whether a sender need not wait for its turn at a receiver.
    pub(crate) fn has_turn(&self, sender: u32, receiver: u32) -> bool {
        self.all.get(&receiver).is_none_or(|receiver| receiver.has_share(sender))
    }

    /// A sender waits for this receiver, among others: the first that has a turn for it wakes it.
    pub(crate) fn wait_for_any(&mut self, now: Time, sender: u32, receiver: u32, room: Room) {
        self.open(now, receiver, room);
        self.enqueue(sender, receiver, Waits::ForAny);
    }

    fn open(&mut self, now: Time, receiver: u32, room: Room) -> &mut Receiver {
        self.all.entry(receiver).or_insert_with(|| {
            self.turns.set(receiver, now + TURN);
            Receiver::new(room)
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
        let must_wait = !self.open(now, receiver, room).sent(sender, charge, room);
        if must_wait {
            self.enqueue(sender, receiver, waits);
        }
        must_wait
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
        if waiting.note(room) {
            self.due.insert(receiver);
        } else {
            self.due.remove(&receiver);
        }
    }

    /// Begins the next turn at one of the receivers; returns the senders to wake, `None` if no receiver has room.
    pub(crate) fn next_turn(&mut self, now: Time) -> Option<Vec<u32>> {
        let receiver = self.due.pop_first()?;
        let next = self.all.get_mut(&receiver).and_then(Receiver::next_turn);
        Some(self.begin_turn(now, receiver, next))
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Time {
        self.turns.deadline()
    }

    /// Ends a turn whose time is over; returns the senders that have the next one, `None` if no turn is over.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<Vec<u32>> {
        let receiver = self.turns.pop_up_to(now)?;
        let next = self.all.get_mut(&receiver).and_then(Receiver::end_turn);
        Some(self.begin_turn(now, receiver, next))
    }

    /// The `next` senders have a turn at a receiver; without any, it lets all go. Returns those that can send.
    fn begin_turn(&mut self, now: Time, receiver: u32, next: Option<Vec<u32>>) -> Vec<u32> {
        let mut senders = match next {
            Some(senders) => {
                self.turns.set(receiver, now + TURN);
                senders
            }
            None => {
                self.turns.leave(receiver);
                self.all.remove(&receiver).map(|receiver| receiver.waiting()).unwrap_or_default()
            }
        };
        senders.retain(|sender| self.stops_waiting(*sender, receiver));
        senders
    }

    fn enqueue(&mut self, sender: u32, receiver: u32, waits: Waits) {
        let Some(waiting) = self.all.get_mut(&receiver) else { return };
        if waiting.join(sender) || waits == Waits::ForAll {
            self.awaited.entry(sender).or_default().insert(receiver, waits);
        }
    }

    /// A receiver has let a sender go; whether it need not wait for others.
    fn stops_waiting(&mut self, sender: u32, receiver: u32) -> bool {
        let Some(others) = self.awaited.get_mut(&sender) else { return true };
        others.remove(&receiver);
        let is_free = others.values().all(|waits| *waits == Waits::ForAny);
        if others.is_empty() {
            self.awaited.remove(&sender);
        }
        is_free
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
    fn waiting(senders: u32) -> FullReceivers {
        let mut receivers = FullReceivers::default();
        for sender in 10..10 + senders {
            assert!(receivers.sent(Time::ZERO, (sender, Waits::ForAll), RECEIVER, 100, full()));
        }
        receivers
    }

    #[test]
    fn room_is_divided_among_all_that_wait() {
        let mut receivers = waiting(5);
        receivers.note(RECEIVER, room(500));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(vec![10, 11, 12, 13, 14]));
        let room = room(500).unwrap();
        assert!(!receivers.must_wait(10, RECEIVER));
        assert!(receivers.sent(Time::ZERO, (10, Waits::ForAll), RECEIVER, 100, room), "a share is 100 bytes");
        assert!(receivers.must_wait(10, RECEIVER));
        assert!(receivers.must_wait(20, RECEIVER), "a new sender goes to the end of the queue");
    }

    #[test]
    fn no_more_are_woken_than_messages_fit() {
        let mut receivers = waiting(90);
        receivers.note(RECEIVER, room(400));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(vec![10, 11, 12, 13, 14, 15]));
        receivers.note(RECEIVER, room(400));
        assert_eq!(receivers.next_turn(Time::ZERO), None, "their shares count as taken");
        receivers.note(RECEIVER, room(0));
        assert_eq!(receivers.next_turn(Time::ZERO).map(|woken| (woken[0], woken.len())), Some((16, 10)));
    }

    #[test]
    fn senders_that_were_woken_and_do_not_send_delay_others_for_one_turn() {
        let mut receivers = waiting(30);
        receivers.note(RECEIVER, room(0));
        let mut woken = receivers.next_turn(Time::ZERO).unwrap().len();
        assert_eq!(woken, 10);
        while !receivers.is_empty() {
            let now = receivers.deadline();
            assert!(now <= Time::ZERO + 3 * TURN);
            woken += receivers.handle_timeout(now).unwrap().len();
        }
        assert_eq!(woken, 30);
        assert!(receivers.is_empty() && receivers.awaited.is_empty());
    }

    #[test]
    fn all_are_woken_when_the_receiver_does_not_read_or_closes() {
        let mut receivers = waiting(5);
        receivers.note(RECEIVER, Some(full()));
        assert_eq!(receivers.next_turn(Time::ZERO), None);
        receivers.note(RECEIVER, room(900));
        assert_eq!(receivers.next_turn(Time::ZERO).map(|woken| woken.len()), Some(5));
        assert!(receivers.is_empty());
        let mut receivers = waiting(5);
        receivers.note(RECEIVER, None);
        assert_eq!(receivers.next_turn(Time::ZERO).map(|woken| woken.len()), Some(5));
        assert!(receivers.is_empty() && receivers.deadline() == Time::NEVER);
    }

    #[test]
    fn sender_to_many_is_woken_when_it_waits_for_none_of_them() {
        let mut receivers = FullReceivers::default();
        for receiver in [1, 2] {
            receivers.sent(Time::ZERO, (10, Waits::ForAll), receiver, 100, full());
        }
        receivers.note(1, room(0));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(Vec::new()));
        receivers.note(2, room(0));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(vec![10]));
    }

    #[test]
    fn sender_that_waits_for_any_is_woken_by_each() {
        let mut receivers = FullReceivers::default();
        for receiver in [1, 2] {
            receivers.wait_for_any(Time::ZERO, 10, receiver, full());
            receivers.sent(Time::ZERO, (11, Waits::ForAll), receiver, 100, full());
        }
        assert!(!receivers.has_turn(10, 1) && !receivers.has_turn(10, 2));
        receivers.note(2, room(0));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(vec![10]), "11 waits for both");
        assert!(receivers.has_turn(10, 2) && !receivers.has_turn(10, 1));
        receivers.note(1, room(0));
        assert_eq!(receivers.next_turn(Time::ZERO), Some(vec![10, 11]));
        assert!(receivers.awaited.is_empty());
    }
}
