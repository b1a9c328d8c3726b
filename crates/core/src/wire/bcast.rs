//! BCAST_PROTOCOL: the start of a peer's broadcast sequence, and the NACK of old nodes. Spec: tipc.md §3.2.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A BCAST_PROTOCOL message. In a NACK (non-sequenced), [`Envelope::ack`] is the last packet before the gap and
/// [`Envelope::seqno`] the last one in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BcastControl {
    /// Last broadcast packet sent when the contact was made.
    pub last_bcast: u16,
    /// The broadcast ack is not valid yet.
    pub ack_invalid: bool,
}

impl BcastControl {
    /// Reads a BCAST_PROTOCOL message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        super::expect_user(v, User::BcastProtocol)?;
        super::expect_header(v)?;
        if v.kind() != 0 {
            return Err(WireError::Type { user: User::BcastProtocol.into(), kind: v.kind() });
        }
        Ok(Self { last_bcast: v.last_bcast(), ack_invalid: v.bcast_ack_invalid() })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let mut m = envelope.message(User::BcastProtocol, 0, &[]);
        m.set_last_bcast(self.last_bcast);
        m.set_bcast_ack_invalid(self.ack_invalid);
        m
    }
}
