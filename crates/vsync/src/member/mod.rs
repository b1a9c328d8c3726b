//! One member of a group.

mod change;
mod flow;
mod peers;
mod poll;
mod round;
mod traffic;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use utipc_core::Time;

use crate::batch::Batches;
use crate::config::{Components, Config, MAX_MESSAGE, MAX_PACKET, Ordering};
use crate::event::{Cause, Event, Outcome, Token, ViewChange};
use crate::log::Log;
use crate::state::{Event as Step, State};
use crate::view::{Ballot, MemberId, View, ViewId};
use crate::wire::{Class, Message, Proposal, Run};

use peers::Peer;
use round::Round;
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

/// A view's part of what the application sees.
#[derive(Debug)]
struct Epoch {
    log: Log,
    /// Events before the view.
    before: VecDeque<Event>,
    /// The view, until the application has taken it.
    change: Option<ViewChange>,
    /// Whether the application has its state.
    ready: bool,
    /// Offset of the next message in the packet whose turn it is.
    offset: usize,
    /// Atomic messages of this member in packets of the view, oldest first.
    tokens: VecDeque<Token>,
}

/// An accepted proposal.
#[derive(Clone, Debug)]
struct Accepted {
    ballot: Ballot,
    proposal: Proposal,
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
    now: Time,
    state: State,
    leaving: bool,
    /// Time at which a leaving member leaves without the others' agreement.
    leave_by: Option<Time>,
    peers: BTreeMap<MemberId, Peer>,
    hello_due: bool,
    /// The highest ballot that this member has answered.
    promised: Ballot,
    /// The highest round seen anywhere.
    round_seen: u64,
    /// A proposal whose messages are incomplete at this member.
    pending: Option<Accepted>,
    accepted: Option<Accepted>,
    /// Messages of the view are missing, because the path to a member was lost.
    broken: bool,
    /// Peers whose path was lost since the last ballot was promised.
    lost: BTreeSet<MemberId>,
    /// They are more than `lost` holds.
    lost_many: bool,
    /// Members of the view that have been seen in it, or are late.
    installed_at: Time,
    round: Option<Round>,
    /// No ballot before this time.
    not_before: Time,
    /// When the coordinator that this member waits for is given up.
    patience: Option<Time>,
    joined_at: Time,
    blocked: bool,
    /// Views whose events the application has not all taken; the last one is current.
    epochs: VecDeque<Epoch>,
    /// Events after all epochs, for a member without a view.
    after: VecDeque<Event>,
    /// Whether the application's state is complete (false also without a view).
    has_state: bool,
    out: VecDeque<Transmit>,
    /// Bytes of `out`.
    out_bytes: usize,
    batches: Batches,
    /// As the sequencer: places not announced yet, and the first of these.
    runs: Vec<Run>,
    announced: u64,
    announced_stable: u64,
    /// As the sequencer: for each rank, the place up to which it has all packets.
    acks: Vec<u64>,
    acked: u64,
    /// When a lazy acknowledgement or announcement of stability is due.
    ack_at: Option<Time>,
    transfer: Transfer,
    next_token: u64,
    /// Atomic messages in batches, oldest first.
    tokens_queued: VecDeque<Token>,
    stats: Stats,
}

impl Member {
    /// A member that is idle.
    #[must_use]
    pub fn new(me: MemberId, config: Config) -> Self {
        Self {
            config,
            me,
            now: Time::ZERO,
            state: State::Idle,
            leaving: false,
            leave_by: None,
            peers: BTreeMap::new(),
            hello_due: false,
            promised: Ballot::default(),
            round_seen: 0,
            pending: None,
            accepted: None,
            broken: false,
            lost: BTreeSet::new(),
            lost_many: false,
            installed_at: Time::ZERO,
            round: None,
            not_before: Time::ZERO,
            patience: None,
            joined_at: Time::ZERO,
            blocked: false,
            epochs: VecDeque::new(),
            after: VecDeque::new(),
            has_state: false,
            out: VecDeque::new(),
            out_bytes: 0,
            batches: Batches::default(),
            runs: Vec::new(),
            announced: 0,
            announced_stable: 0,
            acks: Vec::new(),
            acked: 0,
            ack_at: None,
            transfer: Transfer::default(),
            next_token: 0,
            tokens_queued: VecDeque::new(),
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
        self.now = now;
        self.joined_at = now;
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
        self.now = now;
        self.leaving = true;
        self.leave_by = Some(now + self.config.patience * 4);
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
        let token = Token(self.next_token);
        self.next_token += 1;
        self.tokens_queued.push_back(token);
        Ok(Some(token))
    }

    /// The state of this member.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The last view.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.epochs.back().filter(|epoch| !epoch.log.sealed).map(|epoch| &epoch.log.view)
    }

    /// The view that this member has accepted and not installed.
    #[must_use]
    pub fn accepted(&self) -> Option<&View> {
        self.accepted.as_ref().map(|accepted| &accepted.proposal.view)
    }

    /// Whether the application's state is complete.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// How far this member has come in its view.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.log().map_or_else(Progress::default, |log| Progress {
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

    fn log(&self) -> Option<&Log> {
        self.epochs.back().map(|epoch| &epoch.log).filter(|log| !log.sealed)
    }

    fn log_mut(&mut self) -> Option<&mut Log> {
        self.epochs.back_mut().map(|epoch| &mut epoch.log).filter(|log| !log.sealed)
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
        self.push(Transmit { to, bytes: message.encode().into() });
    }

    fn push(&mut self, transmit: Transmit) {
        self.out_bytes += transmit.bytes.len();
        self.out.push_back(transmit);
    }

    /// Events that the application has not taken, without messages.
    fn untaken(&self) -> usize {
        self.epochs.len() + self.after.len()
    }

    /// Tells the application something at this place of its history.
    fn notify(&mut self, event: Event) {
        match self.epochs.back_mut() {
            Some(epoch) if epoch.change.is_some() => epoch.before.push_back(event),
            _ => self.after.push_back(event),
        }
    }

    /// Ends the membership.
    fn depart(&mut self, event: Event) {
        if !self.step(Step::Depart) {
            return;
        }
        self.leaving = true;
        self.drop_view();
        self.after.push_back(event);
        self.transmit(Target::All, &Message::Bye);
        self.round = None;
        self.patience = None;
        self.hello_due = false;
    }

    /// Gives up: the member can keep neither the group's nor its own promises.
    fn give_up(&mut self, cause: Cause) {
        self.depart(Event::Excluded(cause));
    }

    /// Forgets the current view and its undelivered messages.
    fn drop_view(&mut self) {
        if self.log().is_some()
            && let Some(epoch) = self.epochs.pop_back()
        {
            let events = epoch.before.into_iter().filter(|event| !matches!(event, Event::State { .. }));
            self.after.extend(events);
            let unknown = |token| Event::Outcome(token, Outcome::Unknown);
            self.after.extend(epoch.tokens.into_iter().map(unknown));
        }
        self.has_state = false;
        self.accepted = None;
        self.pending = None;
        while self.batches.pop().is_some() {}
        for token in std::mem::take(&mut self.tokens_queued) {
            self.after.push_back(Event::Outcome(token, Outcome::Aborted));
        }
    }
}
