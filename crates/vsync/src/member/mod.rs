//! One member of a group.

mod ballots;
mod change;
mod flow;
mod history;
mod losses;
mod order;
mod outbox;
mod peers;
mod poll;
mod round;
mod times;
mod tokens;
mod traffic;
mod transfer;

use std::collections::BTreeMap;
use std::sync::Arc;

use utipc_core::Time;

use crate::batch::Batches;
use crate::config::{Components, Config, MAX_MESSAGE, MAX_PACKET, Ordering};
use crate::event::{Cause, Event, Outcome, Token};
use crate::state::{Event as Step, State};
use crate::view::{MemberId, View, ViewId};
use crate::wire::{Class, Message};

use ballots::Ballots;
use history::History;
use losses::Losses;
use order::Order;
use outbox::Outbox;
use peers::Peer;
use round::Round;
use times::Times;
use tokens::Tokens;
use transfer::Transfer;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All members that the transport reaches.
    All,
    /// One member.
    One(MemberId),
}

/// A message for the transport.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Its receivers.
    pub to: Target,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

/// Why a message is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The member has no view with its state yet, or has left.
    #[error("not a member of a view")]
    NotMember,
    /// The window is full: some member has not received earlier messages yet.
    #[error("the window is full")]
    WouldBlock,
    /// More than [`MAX_MESSAGE`] bytes.
    #[error("the message has {0} bytes, more than 59996")]
    TooLong(usize),
    /// Atomic messages need a primary component.
    #[error("atomic messages need a group that continues in its primary component only")]
    NeedsPrimary,
}

/// The call that is impossible in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impossible in state {0:?}")]
pub struct StateError(pub State);

/// Counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Views installed.
    pub views: u64,
    /// Ballots started.
    pub ballots: u64,
    /// Messages sent to the transport.
    pub sent: u64,
    /// Application messages delivered.
    pub delivered: u64,
    /// Messages of peers that were malformed, impossible or of another view.
    pub refused: u64,
}

/// How far a member has come in its view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Its last view.
    pub view: ViewId,
    /// All packets up to this place have been received.
    pub received: u64,
    /// The packets up to this place are known to be received by all.
    pub stable: u64,
}

/// A member of one group: a state machine without input, output and clock.
///
/// The caller passes in what the transport reports ([`peer_up`](Member::peer_up), [`peer_down`](Member::peer_down),
/// [`receive`](Member::receive)), the time ([`handle_timeout`](Member::handle_timeout) when
/// [`deadline`](Member::deadline) has passed) and calls of the application; then it sends what
/// [`poll_transmit`](Member::poll_transmit) returns and hands on what [`poll_event`](Member::poll_event) returns.
///
/// The transport must deliver messages from one member to another reliably and in order, unicast and broadcast alike,
/// between one `peer_up` and the next `peer_down`; both ends must see `peer_down` before either sees `peer_up` again.
#[derive(Debug)]
pub struct Member {
    config: Config,
    me: MemberId,
    times: Times,
    state: State,
    leaving: bool,
    peers: BTreeMap<MemberId, Peer>,
    hello_due: bool,
    losses: Losses,
    ballots: Ballots,
    round: Option<Round>,
    /// There is no majority for a view.
    blocked: bool,
    history: History,
    /// Whether the application's state is complete (false also without a view).
    has_state: bool,
    outbox: Outbox,
    batches: Batches,
    /// Of the atomic messages in batches.
    tokens: Tokens,
    order: Order,
    transfer: Transfer,
    stats: Stats,
}

impl Member {
    /// A member that is idle.
    #[must_use]
    pub fn new(me: MemberId, config: Config) -> Self {
        Self {
            config,
            me,
            times: Times::default(),
            state: State::Idle,
            leaving: false,
            peers: BTreeMap::new(),
            hello_due: false,
            losses: Losses::default(),
            ballots: Ballots::default(),
            round: None,
            blocked: false,
            history: History::default(),
            has_state: false,
            outbox: Outbox::default(),
            batches: Batches::default(),
            tokens: Tokens::default(),
            order: Order::default(),
            transfer: Transfer::default(),
            stats: Stats::default(),
        }
    }

    /// Joins the group.
    ///
    /// # Errors
    /// [`StateError`] unless the member is idle and new.
    pub fn join(&mut self, now: Time) -> Result<(), StateError> {
        if self.leaving || !self.step(Step::Join) {
            return Err(StateError(self.state));
        }
        self.times.now = now;
        self.times.joined = now;
        self.hello_due = true;
        self.reconsider();
        Ok(())
    }

    /// Leaves the group; [`Event::Left`] follows when the others have agreed, at once without a view or a majority, and
    /// at the latest after four times the patience. The member cannot join again; a new one with another [`MemberId`]
    /// can.
    ///
    /// # Errors
    /// [`StateError`] if the member is idle.
    pub fn leave(&mut self, now: Time) -> Result<(), StateError> {
        if self.state == State::Idle {
            return Err(StateError(self.state));
        }
        self.times.now = now;
        self.leaving = true;
        self.times.leave_by = Some(now + self.config.patience * 4);
        self.hello_due = true;
        if self.view().is_none() || self.state == State::Blocked {
            self.depart(Event::Left);
        }
        self.reconsider();
        Ok(())
    }

    /// Sends a message with the group's order.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let class = if self.config.ordering == Ordering::Safe { Class::Safe } else { Class::Agreed };
        self.send_as(class, message).map(|_| ())
    }

    /// Sends a message of a class; the token names an atomic one.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_as(&mut self, class: Class, message: &[u8]) -> Result<Option<Token>, SendError> {
        if message.len() > MAX_MESSAGE {
            return Err(SendError::TooLong(message.len()));
        }
        if class == Class::Atomic && self.config.components == Components::All {
            return Err(SendError::NeedsPrimary);
        }
        if !self.has_state || self.leaving || self.state == State::Idle {
            return Err(SendError::NotMember);
        }
        if self.batches.bytes() > self.share().max(MAX_PACKET) {
            return Err(SendError::WouldBlock);
        }
        self.batches.push(class, message);
        if class != Class::Atomic {
            return Ok(None);
        }
        Ok(Some(self.tokens.issue()))
    }

    /// The state of this member.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The last view.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.history.view()
    }

    /// The view that this member has accepted and not installed.
    #[must_use]
    pub fn accepted(&self) -> Option<&View> {
        self.ballots.accepted_view()
    }

    /// Whether the application's state is complete.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// How far this member has come in its view.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.history.log().map_or_else(Progress::default, |log| Progress {
            view: log.view.id,
            received: log.contiguous(),
            stable: log.stable,
        })
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn view_id(&self) -> ViewId {
        self.view().map_or(ViewId::default(), |view| view.id)
    }

    fn rank(&self) -> usize {
        self.view().and_then(|view| view.rank(self.me)).unwrap_or(0)
    }

    /// Bytes in flight that each member of the view may have.
    fn share(&self) -> usize {
        self.config.window as usize / self.view().map_or(1, |view| view.seats.len().max(1))
    }

    /// Applies an event to the state; false if the table refuses it.
    fn step(&mut self, event: Step) -> bool {
        match self.state.next(event) {
            Ok(next) => {
                self.state = next;
                true
            }
            Err(_) => false,
        }
    }

    fn transmit(&mut self, to: Target, message: &Message<'_>) {
        self.outbox.push(Transmit { to, bytes: message.encode().into() });
    }

    /// Ends the membership.
    fn depart(&mut self, event: Event) {
        if !self.step(Step::Depart) {
            return;
        }
        self.leaving = true;
        self.drop_view();
        self.history.push(event);
        self.transmit(Target::All, &Message::Bye);
        self.round = None;
        self.times.patience = None;
        self.hello_due = false;
    }

    /// Gives up: the member can keep neither the group's nor its own promises.
    fn give_up(&mut self, cause: Cause) {
        self.depart(Event::Excluded(cause));
    }

    /// Forgets the current view and its undelivered messages.
    fn drop_view(&mut self) {
        self.history.drop_view();
        self.has_state = false;
        self.ballots.clear();
        while self.batches.pop().is_some() {}
        for token in self.tokens.take_all() {
            self.history.push(Event::Outcome(token, Outcome::Aborted));
        }
    }
}
