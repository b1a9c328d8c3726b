//! The work that a node does for its peers in one turn. One packet may carry thousands of bindings, and one read
//! thousands of packets, so the messages are counted by what they cost. What is over waits in turn with what other
//! peers have left, while those who have left nothing are served at once.

use crate::wire::{Message, NAME_ITEM_LEN, User};

/// Work of a binding, in messages to one socket. Ours: more than it costs, so that a turn applies about 64 bindings as
/// they arrive and a flood of them delays the messages of other peers little.
const NAME_ITEM: usize = 256;

/// Bindings of lost nodes that the frames of one turn withdraw, or one call if turns are not limited. Ours: a few
/// milliseconds; a node may have 262,144 of them.
const WITHDRAWN: usize = 2048;
/// Those that the timers of the same turn withdraw, so that nodes which send much do not keep the others' bindings.
const WITHDRAWN_BY_TIMERS: usize = WITHDRAWN / 2;

/// Visits of subscriptions, in one turn, that changes of bindings and ends of connections cause at once. Ours: less
/// than 0.1 ms; the users of the subscriptions do the rest.
const VISITS: usize = 1024;

/// What is left of a turn's work, in messages to one socket.
#[derive(Debug)]
pub(crate) struct Work {
    /// A turn does all there is, unless this is set.
    is_limited: bool,
    /// For messages as they arrive.
    arriving: usize,
    /// For messages that have waited.
    waiting: usize,
    /// A message that has waited is dispatched.
    is_waiting: bool,
    /// Bindings of lost nodes that may still be withdrawn, and those that the timers may withdraw after that.
    withdrawals: usize,
    for_timers: usize,
    /// Subscriptions that may still be visited at once.
    visits: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            is_limited: false,
            arriving: 0,
            waiting: 0,
            is_waiting: false,
            withdrawals: WITHDRAWN,
            for_timers: WITHDRAWN_BY_TIMERS,
            visits: VISITS,
        }
    }
}

impl Work {
    /// A turn begins that does `work`, and half as much for messages that have waited.
    pub(crate) fn begin_turn(&mut self, work: usize) {
        *self = Self { is_limited: true, arriving: work, waiting: work / 2, ..Self::default() };
    }

    /// A call begins that may find nodes lost.
    pub(super) fn begin_call(&mut self) {
        if !self.is_limited {
            self.withdrawals = WITHDRAWN;
        }
    }

    /// The timers begin.
    pub(super) fn begin_timers(&mut self) {
        self.withdrawals = if self.is_limited { core::mem::take(&mut self.for_timers) } else { WITHDRAWN };
    }

    /// How many bindings of lost nodes may be withdrawn now.
    pub(super) fn withdrawals(&self) -> usize {
        self.withdrawals
    }

    /// Charges withdrawn bindings of lost nodes.
    pub(super) fn charge_withdrawals(&mut self, bindings: usize) {
        self.withdrawals = self.withdrawals.saturating_sub(bindings);
    }

    /// How many subscriptions may be visited at once now.
    pub(crate) fn visits(&self) -> usize {
        if self.is_limited { self.visits } else { usize::MAX }
    }

    /// Charges visits of subscriptions.
    pub(crate) fn charge_visits(&mut self, visits: usize) {
        self.visits = self.visits.saturating_sub(visits);
    }

    /// Whether a turn has a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Whether further messages have to wait for the next turn.
    pub(super) fn arriving_is_over(&self) -> bool {
        self.is_limited && self.arriving == 0
    }

    /// Whether those that have waited have to wait for the next turn.
    pub(super) fn waiting_is_over(&self) -> bool {
        self.is_limited && self.waiting == 0
    }

    /// Whether the work is done to which messages are charged now.
    pub(super) fn is_over(&self) -> bool {
        if self.is_waiting { self.waiting_is_over() } else { self.arriving_is_over() }
    }

    /// Charges the messages that are dispatched from now on to those that have waited, or to those that arrive.
    pub(super) fn charge_waiting(&mut self, on: bool) {
        self.is_waiting = on;
    }

    /// Charges a message, before it is dispatched. The copies of a multicast are charged as they are made.
    pub(super) fn charge(&mut self, message: &Message) {
        let items = match message.user() {
            User::NameDistributor => message.data().len() / NAME_ITEM_LEN,
            _ => 0,
        };
        self.charge_bindings(items);
    }

    /// Charges a message with this number of bindings.
    pub(super) fn charge_bindings(&mut self, bindings: usize) {
        self.charge_copies(1 + bindings * NAME_ITEM);
    }

    /// Charges messages to one socket each.
    pub(crate) fn charge_copies(&mut self, copies: usize) {
        let left = if self.is_waiting { &mut self.waiting } else { &mut self.arriving };
        *left = left.saturating_sub(copies);
    }
}
