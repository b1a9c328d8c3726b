//! The tokens of atomic messages that are in no packet yet.

use std::collections::VecDeque;

use crate::event::Token;

/// Tokens, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    next: u64,
    queued: VecDeque<Token>,
}

impl Tokens {
    /// The token of the next atomic message.
    pub(super) fn issue(&mut self) -> Token {
        let token = Token(self.next);
        self.next += 1;
        self.queued.push_back(token);
        token
    }

    /// The tokens of the next messages.
    pub(super) fn take(&mut self, count: u64) -> impl Iterator<Item = Token> {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.queued.len());
        self.queued.drain(..count)
    }

    /// The tokens of all messages.
    pub(super) fn take_all(&mut self) -> VecDeque<Token> {
        std::mem::take(&mut self.queued)
    }
}
