//! MSG_FRAGMENTER: a slice of a message. Spec: tipc.md §3.8.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A MSG_FRAGMENTER message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// First, middle or last.
    pub kind: FragmentKind,
    /// Its number, from 1; informational.
    pub number: u16,
    /// Number of fragments; 0 in ordinary ones.
    pub count: u16,
    /// Importance level of the whole message, 0 to 4.
    pub importance: u8,
    /// Slice of the whole message.
    pub data: &'a [u8],
}

/// Position of a fragment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// Starts with the header of the whole message.
    First,
    /// Neither first nor last.
    Middle,
    /// Completes the message.
    Last,
}

impl<'a> Fragment<'a> {
    /// Reads a MSG_FRAGMENTER message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        super::expect_user(v, User::Fragmenter)?;
        super::expect_header(v)?;
        let kind = match v.kind() {
            0 => FragmentKind::First,
            1 => FragmentKind::Middle,
            2 => FragmentKind::Last,
            kind => return Err(WireError::Type { user: User::Fragmenter.into(), kind }),
        };
        Ok(Self {
            kind,
            number: v.fragment_number(),
            count: v.fragment_count(),
            importance: v.carried_importance(),
            data: v.payload(),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let kind = match self.kind {
            FragmentKind::First => 0,
            FragmentKind::Middle => 1,
            FragmentKind::Last => 2,
        };
        let mut m = envelope.message(User::Fragmenter, kind, self.data);
        m.set_fragment_number(self.number);
        m.set_fragment_count(self.count);
        m.set_carried_importance(self.importance);
        m
    }
}
