//! One full receiver: the local senders that wait for it, and what each may send when it has room again. Decision 50.
//!
//! Without shares the sender that runs first fills the room that the receiver has made, is stopped first, and is the
//! first to be woken again: the others send one message in the time in which it sends hundreds.

use std::collections::BTreeMap;

use crate::waiting::Waiters;

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

/// The local senders of one receiver. The number of sockets bounds them.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Those that wait, longest waiting first.
    waiting: Waiters<u32, u64>,
    /// Bytes that those whose turn it is may still send, and their sum.
    shares: BTreeMap<u32, usize>,
    granted: usize,
    /// Charge of the last message, bytes.
    last: usize,
    room: Room,
}

impl Receiver {
    pub(super) fn new(room: Room) -> Self {
        Self { waiting: Waiters::default(), shares: BTreeMap::new(), granted: 0, last: 1, room }
    }

    /// Whether it is a sender's turn.
    pub(super) fn has_share(&self, sender: u32) -> bool {
        self.shares.contains_key(&sender)
    }

    /// Puts a sender behind those that wait; false if it waits.
    pub(super) fn join(&mut self, sender: u32) -> bool {
        self.take_share(sender);
        self.waiting.join_last(sender)
    }

    /// Counts a message of a sender; false if the sender has to wait now.
    pub(super) fn sent(&mut self, sender: u32, charge: usize, room: Room) -> bool {
        self.last = charge;
        let left = self.take_share(sender).unwrap_or(0).saturating_sub(charge);
        let goes_on = !room.is_full && left >= charge;
        if goes_on {
            self.shares.insert(sender, left);
            self.granted += left;
        }
        goes_on
    }

    /// Notes the state after a call, `None` if the receiver is closed; true if [`Self::next_turn`] is due.
    pub(super) fn note(&mut self, room: Option<Room>) -> bool {
        let Some(room) = room else {
            self.room = Room { is_full: false, charged: usize::MAX, limit: 0 };
            return true;
        };
        let was_full = core::mem::replace(&mut self.room, room).is_full;
        // The time for which senders wait is over, and the receiver has not read.
        let gives_up = was_full && !room.is_full && !room.is_half_free(0);
        gives_up || self.has_turns()
    }

    /// The senders that have the next turn; `None` if the receiver lets all go.
    pub(super) fn next_turn(&mut self) -> Option<Vec<u32>> {
        (!self.waiting.is_empty() && self.has_turns()).then(|| self.grant())
    }

    /// Ends unused shares. Returns the senders that have the next turn; `None` if the receiver lets all go.
    pub(super) fn end_turn(&mut self) -> Option<Vec<u32>> {
        self.shares.clear();
        self.granted = 0;
        match self.room.is_full {
            // The receiver ends this wait itself.
            true => Some(Vec::new()),
            false => (!self.waiting.is_empty()).then(|| self.grant()),
        }
    }

    /// All that wait, longest waiting first.
    pub(super) fn waiting(&self) -> Vec<u32> {
        self.waiting.iter().collect()
    }

    fn take_share(&mut self, sender: u32) -> Option<usize> {
        let share = self.shares.remove(&sender)?;
        self.granted -= share;
        Some(share)
    }

    /// Whether the next senders can get shares. While the receiver's queue is empty, unused shares do not prevent it,
    /// as long as all shares together fit the queue.
    fn has_turns(&self) -> bool {
        let is_idle = self.room.charged == 0 && self.granted <= self.room.limit;
        let is_used = !self.waiting.is_empty() || self.shares.is_empty();
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
        let share = (room / (self.waiting.len() + self.shares.len()).max(1)).max(self.last);
        let mut woken = Vec::new();
        while woken.len() < messages
            && let Some((_, sender)) = self.waiting.pop()
        {
            self.shares.insert(sender, share);
            self.granted += share;
            woken.push(sender);
        }
        woken
    }
}
