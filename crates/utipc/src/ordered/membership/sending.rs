//! What the application sends: messages, the state for joiners, and the reasons why its calls wait.

use utipc_vsync::{
    self as vsync, Class, MAX_CHUNK, MAX_IN_FLIGHT, MAX_MESSAGE, Outcome, SendError, State, Token,
};

use super::{Giving, Membership, since};
use crate::ordered::error::{OrderedError, Waiting};
use crate::ordered::incoming::{StateRequest, port_of};
use crate::ordered::link::Link;

impl Membership {
    /// Sends a message; `None` if it has to wait.
    pub(in crate::ordered) fn send(
        &mut self,
        class: Class,
        data: &[u8],
    ) -> Option<Result<Option<Token>, OrderedError>> {
        match self.machine.send_as(class, data) {
            Ok(token) => Some(Ok(token)),
            Err(SendError::NotMember) if self.is_over() || self.discards => {
                Some(Err(OrderedError::Ended(self.why_ended())))
            }
            Err(SendError::NotMember | SendError::WouldBlock) => None,
            Err(SendError::TooLong(len)) => Some(Err(OrderedError::TooLong { len, most: MAX_MESSAGE })),
            Err(SendError::NeedsPrimary) => Some(Err(OrderedError::NeedsPrimary)),
        }
    }

    /// The class of messages that name none.
    pub(in crate::ordered) fn class(&self) -> Class {
        match self.config.ordering {
            vsync::Ordering::Agreed => Class::Agreed,
            vsync::Ordering::Safe => Class::Safe,
        }
    }

    /// Whether a message is better sent at once than with others: little of this member is in flight.
    pub(in crate::ordered) fn is_idle(&self) -> bool {
        let members = self.machine.view().map_or(1, |view| view.seats.len().max(1)) as u64;
        self.machine.unstable() <= MAX_IN_FLIGHT / members / 4
    }

    /// A call waits for the outcome of a message.
    pub(in crate::ordered) fn await_outcome(&mut self, token: Token) {
        self.awaited.insert(token, None);
    }

    /// The outcome of a message that a call waits for. An ended membership has one for each.
    pub(in crate::ordered) fn outcome(&mut self, token: Token) -> Option<Outcome> {
        let outcome = self.awaited.get(&token).copied().flatten();
        let outcome = outcome.or(self.is_over().then_some(Outcome::Unknown));
        if outcome.is_some() {
            self.awaited.remove(&token);
        }
        outcome
    }

    /// No call waits for the outcome any more: it is received as an event.
    pub(in crate::ordered) fn forget_outcome(&mut self, token: Token) {
        self.awaited.remove(&token);
    }

    /// Begins to leave; what is received meanwhile is discarded.
    pub(in crate::ordered) fn leave(&mut self) {
        self.discards = true;
        self.ahead.clear();
        self.ahead_bytes = 0;
        // An ended member has left already.
        let _ = self.machine.leave(since(self.began));
    }

    /// Takes the state that a request asks for, to send it as the joiners take it.
    pub(in crate::ordered) fn set_state(
        &mut self,
        request: StateRequest,
        state: Vec<u8>,
    ) -> Result<(), OrderedError> {
        if self.is_over() {
            return Err(OrderedError::Ended(self.why_ended()));
        }
        let most = self.limits.max_state;
        if state.len() > most {
            return Err(OrderedError::StateTooLong { len: state.len(), most });
        }
        self.giving = Some(Giving { view: request.view, state, sent: 0 });
        Ok(())
    }

    /// Sends pieces of the state. A transfer whose view has ended takes and drops them.
    pub(super) fn give(&mut self) {
        while let Some(giving) = &mut self.giving {
            let rest = giving.state.get(giving.sent..).unwrap_or_default();
            let (piece, last) = match rest.split_at_checked(MAX_CHUNK) {
                Some((piece, more)) => (piece, more.is_empty()),
                None => (rest, true),
            };
            if self.machine.provide_state(giving.view, piece, last).is_err() {
                return;
            }
            giving.sent += piece.len();
            if last {
                self.giving = None;
            }
        }
    }

    /// The reason why a call that sends waits.
    pub(in crate::ordered) fn why_sends_wait(&self) -> Waiting {
        match self.machine.state() {
            State::Idle | State::Joining => Waiting::Joining,
            State::Transferring => Waiting::State,
            State::Blocked => Waiting::NoMajority,
            State::Flushing | State::Prepared if !self.machine.has_state() => Waiting::Joining,
            State::Flushing | State::Prepared => Waiting::ViewChange,
            State::Operational if self.machine.is_withholding() => Waiting::Unread,
            State::Operational => match self.link.as_ref().and_then(Link::stalled) {
                Some(member) => Waiting::Stalled { member },
                None => Waiting::Window { slowest: self.machine.slowest().map(port_of) },
            },
        }
    }

    /// The reason why a call that receives waits.
    pub(in crate::ordered) fn why_receives_wait(&self) -> Waiting {
        match self.machine.state() {
            State::Operational | State::Idle => Waiting::Nothing,
            _ => self.why_sends_wait(),
        }
    }
}
