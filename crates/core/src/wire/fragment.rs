//! MSG_FRAGMENTER: a slice of a message. Spec: tipc.md §3.8.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A MSG_FRAGMENTER message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Which slice it is.
    pub kind: FragmentKind,
    /// Its number, from 1; for information.
    pub number: u16,
    /// Number of fragments; 0 in ordinary ones.
    pub count: u16,
    /// Importance level of the whole message, 0 to 4.
    pub importance: u8,
    /// Slice of the whole message.
    pub data: &'a [u8],
}

/// Place of a fragment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// Begins with the header of the whole.
    First,
    /// Between first and last.
    Middle,
    /// After it the whole must be a message.
    Last,
}

impl<'a> Fragment<'a> {
    /// Reads a MSG_FRAGMENTER message.
    ///
    /// # Errors
    /// [`WireError`] if it is none, or of an unknown type.
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

    /// The message as bytes.
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
