//! BCAST_PROTOCOL: where the broadcast link of a peer starts, and the NACK of old nodes. Spec: tipc.md §3.2.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A BCAST_PROTOCOL message. As a NACK (non-sequenced) it says with [`Envelope::ack`] what the gap comes after and
/// with [`Envelope::seqno`] what its end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BcastControl {
    /// Last broadcast packet sent when the contact was made.
    pub last_bcast: u16,
    /// The broadcast ack is not meaningful yet.
    pub ack_invalid: bool,
}

impl BcastControl {
    /// Reads a BCAST_PROTOCOL message.
    ///
    /// # Errors
    /// [`WireError`] if it is none, or of an unknown type.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        super::expect_user(v, User::BcastProtocol)?;
        super::expect_header(v)?;
        if v.kind() != 0 {
            return Err(WireError::Type { user: User::BcastProtocol.into(), kind: v.kind() });
        }
        Ok(Self { last_bcast: v.last_bcast(), ack_invalid: v.bcast_ack_invalid() })
    }

    /// The message as bytes.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let mut m = envelope.message(User::BcastProtocol, 0, &[]);
        m.set_last_bcast(self.last_bcast);
        m.set_bcast_ack_invalid(self.ack_invalid);
        m
    }
}
