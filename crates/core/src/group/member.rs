//! One member as this socket sees it: windows in both directions, and its messages that wait for earlier ones.

use std::collections::VecDeque;

use super::policy::Backlog;
use super::state::MemberState;
use super::{ACTIVE_WINDOW, IDLE_WINDOW};
use crate::limits::MESSAGE_OVERHEAD;

use crate::wire::{Message, MessageType, blocks, seq};

/// A message of a member.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) message: Message,
    /// Blocks of the member's window that it takes.
    pub(super) cost: u32,
    /// It was too much for the memory of this socket's user: only its number counts.
    pub(super) is_lost: bool,
}

impl Arrived {
    pub(super) fn new(mut message: Message, room: u64) -> Self {
        let cost = blocks(message.size());
        let is_lost = (message.size() + MESSAGE_OVERHEAD) as u64 > room;
        if is_lost {
            message.truncate_data(0);
        }
        Self { message, cost, is_lost }
    }

    pub(super) fn seqno(&self) -> u16 {
        self.message.group_seqno()
    }

    /// Whether it has a number of its own: a unicast has that of the broadcast that follows.
    pub(super) fn is_numbered(&self) -> bool {
        matches!(self.message.message_type(), MessageType::GroupBcast | MessageType::GroupMcast)
    }

    fn bytes(&self) -> usize {
        self.message.size() + MESSAGE_OVERHEAD
    }
}

/// A membership that has begun while the end of the one before is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Again {
    /// The instance of its binding.
    pub(super) published: Option<u32>,
    /// Sequence point and window of its JOIN.
    pub(super) joined: Option<(u16, u16)>,
    /// Word 8 of it.
    pub(super) extension: u32,
}

/// What a policy other than that of Linux knows of a member.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// Messages kept for it.
    pub(super) backlog: Backlog,
    pub(super) dropped: u64,
    pub(super) conflated: u64,
    /// Messages for it were dropped or replaced since the last one that it got.
    pub(super) is_missing: bool,
    /// It has granted a window since it joined: from then on, a lack of window means that it does not read.
    pub(super) has_granted: bool,
    /// It leaves when it gets EVICT.
    pub(super) accepts_evict: bool,
    /// Its LEAVE says that it was evicted.
    pub(super) was_evicted: bool,
}

impl Slow {
    /// Drops what is kept; returns its bytes.
    pub(super) fn forget_kept(&mut self) -> usize {
        let lost = core::mem::take(&mut self.backlog);
        self.dropped += lost.len() as u64;
        lost.bytes()
    }
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) state: MemberState,
    pub(super) instance: u32,
    /// Blocks that may still be sent to it.
    pub(super) window: u16,
    /// Blocks sent beyond the window: what the member grants next counts for them first.
    debt: u16,
    /// Blocks sent to it since it last extended the window, as far as the extension did not cover them.
    pub(super) load: u32,
    /// Blocks that it may still send: those granted to it, less those consumed.
    pub(super) advertised: u32,
    /// Blocks received from it and not consumed.
    pub(super) held: u32,
    /// Number of its broadcast that is delivered next.
    pub(super) next: u16,
    /// It has not acknowledged the last broadcast.
    pub(super) owes_ack: bool,
    /// Its LEAVE takes effect before the broadcast with this number.
    pub(super) leaves_at: Option<u16>,
    pub(super) again: Again,
    pub(super) slow: Slow,
    deferred: VecDeque<Arrived>,
    deferred_bytes: usize,
}

impl Member {
    pub(super) fn new(state: MemberState, instance: u32) -> Self {
        Self {
            state,
            instance,
            window: 0,
            debt: 0,
            load: 0,
            advertised: 0,
            held: 0,
            next: 0,
            owes_ack: false,
            leaves_at: None,
            again: Again::default(),
            slow: Slow::default(),
            deferred: VecDeque::new(),
            deferred_bytes: 0,
        }
    }

    /// The member extends the window of this socket. A correct member never grants more than the active window.
    pub(super) fn extend_window(&mut self, granted: u16) {
        let paid = self.debt.min(granted);
        self.debt -= paid;
        self.window = self.window.saturating_add(granted - paid).min(ACTIVE_WINDOW);
        self.load = self.load.saturating_sub(granted.into());
        self.slow.has_granted |= granted > 0;
    }

    /// Blocks are sent to the member.
    pub(super) fn charge(&mut self, cost: u32) {
        let blocks = u16::try_from(cost).unwrap_or(u16::MAX);
        self.debt = self.debt.saturating_add(blocks.saturating_sub(self.window));
        self.window = self.window.saturating_sub(blocks);
        self.load = self.load.saturating_add(cost);
    }

    /// How many blocks an advertisement grants in the present state.
    pub(super) fn missing_window(&self) -> u16 {
        let full = match self.state {
            MemberState::Active => ACTIVE_WINDOW,
            MemberState::Joined | MemberState::Pending => IDLE_WINDOW,
            _ => return 0,
        };
        full.saturating_sub(u16::try_from(self.advertised).unwrap_or(u16::MAX))
    }

    /// Whether a message fits what the member may send. One idle window more is accepted: a broadcast may overtake the
    /// REMIT that was sent before it.
    pub(super) fn may_send(&self, cost: u32) -> bool {
        self.held.saturating_add(cost) <= self.advertised.saturating_add(IDLE_WINDOW.into())
    }

    /// Puts a message into its place: a numbered one by its number, a unicast after all others.
    pub(super) fn defer(&mut self, arrived: Arrived) {
        self.held = self.held.saturating_add(arrived.cost);
        self.deferred_bytes += arrived.bytes();
        let mut place = self.deferred.len();
        if arrived.is_numbered() {
            let later = |other: &Arrived| seq::lt(arrived.seqno(), other.seqno());
            place = self.deferred.iter().position(later).unwrap_or(place);
        }
        self.deferred.insert(place, arrived);
    }

    /// The first message, if it need not wait for another one.
    pub(super) fn next_in_order(&mut self) -> Option<Arrived> {
        let first = self.deferred.front()?;
        if seq::gt(first.seqno(), self.next) {
            return None;
        }
        let first = self.deferred.pop_front()?;
        self.deferred_bytes -= first.bytes();
        Some(first)
    }

    /// Whether its LEAVE has arrived and everything that it sent before is delivered.
    pub(super) fn has_left(&self) -> bool {
        self.leaves_at.is_some_and(|at| !seq::gt(at, self.next))
    }

    /// Memory of the messages that wait, bytes.
    pub(super) fn deferred_bytes(&self) -> usize {
        self.deferred_bytes
    }

    /// Drops the messages that wait.
    pub(super) fn drop_deferred(&mut self) {
        self.deferred.clear();
        self.deferred_bytes = 0;
    }

    /// Number of messages that wait.
    pub(super) fn deferred_messages(&self) -> usize {
        self.deferred.len()
    }
}
