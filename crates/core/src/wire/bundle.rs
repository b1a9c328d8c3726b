//! MSG_BUNDLER: several messages in one packet. Spec: tipc.md §3.3, §5.10.

use super::{Envelope, Message, SHORT_HEADER, User, View};
use crate::error::WireError;

/// A MSG_BUNDLER message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// Number of messages inside; informational.
    pub count: u16,
    /// Importance level of all of them, 0 to 4.
    pub importance: u8,
    /// The messages, each aligned to 4 bytes.
    pub data: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Reads a MSG_BUNDLER message; [`Bundle::messages`] checks the messages inside.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        super::expect_user(v, User::Bundler)?;
        super::expect_header(v)?;
        if v.kind() != 0 {
            return Err(WireError::Type { user: User::Bundler.into(), kind: v.kind() });
        }
        Ok(Self { count: v.message_count(), importance: v.carried_importance(), data: v.payload() })
    }

    /// The messages inside, up to the first malformed one.
    pub fn messages(&self) -> BundleIter<'a> {
        BundleIter { rest: self.data }
    }

    /// Adds a message to the data of a bundle.
    pub fn append(data: &mut Vec<u8>, message: View<'_>) {
        data.resize(data.len().next_multiple_of(4), 0);
        data.extend_from_slice(message.bytes());
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let mut m = envelope.message(User::Bundler, 0, self.data);
        m.set_message_count(self.count);
        m.set_carried_importance(self.importance);
        m
    }
}

/// Iterator over the messages of a bundle. A message that fails the structural checks ends it; one that may not be in a
/// bundle is reported and skipped.
#[derive(Clone, Debug)]
pub struct BundleIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for BundleIter<'a> {
    type Item = Result<View<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < SHORT_HEADER {
            return None;
        }
        let inner = match View::parse(self.rest) {
            Ok(inner) => inner,
            Err(e) => {
                self.rest = &[];
                return Some(Err(e));
            }
        };
        self.rest = self.rest.get(inner.size().next_multiple_of(4)..).unwrap_or_default();
        let nested =
            matches!(inner.user(), User::BcastProtocol | User::Bundler | User::Tunnel | User::Fragmenter);
        Some(if nested { Err(WireError::User(inner.user().into())) } else { Ok(inner) })
    }
}
