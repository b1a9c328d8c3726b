//! TUNNEL: packets of one link carried by another. Spec: tipc.md §3.6.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

const SYNCH: u8 = 0;
const FAILOVER: u8 = 1;

/// A TUNNEL message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel<'a> {
    /// SYNCH or FAILOVER.
    pub kind: TunnelKind,
    /// The receiver's bearer of the old or failed link.
    pub bearer: u8,
    /// SYNCH without data: last packet of the old link before the change. Otherwise the number of tunnelled packets.
    pub count: u16,
    /// Number of this part if the packet did not fit one message; otherwise 0.
    pub part: u16,
    /// Number of parts; otherwise 0.
    pub parts: u16,
    /// A whole packet of the other link, a part of one, or nothing.
    pub data: &'a [u8],
}

/// Reason for tunnelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// A second link takes over its share of the traffic.
    Synch,
    /// A link failed; the other takes over its traffic.
    Failover,
}

impl<'a> Tunnel<'a> {
    /// Reads a TUNNEL message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, an unknown type, or a part number beyond the number of parts. Spec:
    /// tipc.md §14.2.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        super::expect_user(v, User::Tunnel)?;
        super::expect_header(v)?;
        let kind = match v.kind() {
            SYNCH => TunnelKind::Synch,
            FAILOVER => TunnelKind::Failover,
            kind => return Err(WireError::Type { user: User::Tunnel.into(), kind }),
        };
        let (part, parts) = (v.fragment_number(), v.fragment_count());
        if part > parts || (part == 0 && parts != 0) {
            return Err(WireError::Malformed("tunnel: part beyond the number of parts"));
        }
        Ok(Self { kind, bearer: v.bearer_id(), count: v.message_count(), part, parts, data: v.payload() })
    }

    /// The tunnelled packet, if the message holds all of it.
    ///
    /// # Errors
    /// [`WireError`] if it fails the structural checks or is itself a FAILOVER. Spec: tipc.md §14.2.
    pub fn inner(&self) -> Result<Option<View<'a>>, WireError> {
        if self.part != 0 || self.data.is_empty() {
            return Ok(None);
        }
        let inner = View::parse(self.data)?;
        if inner.user() == User::Tunnel && inner.kind() == FAILOVER {
            return Err(WireError::Malformed("tunnel: a FAILOVER inside a FAILOVER"));
        }
        Ok(Some(inner))
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let kind = match self.kind {
            TunnelKind::Synch => SYNCH,
            TunnelKind::Failover => FAILOVER,
        };
        let mut m = envelope.message(User::Tunnel, kind, self.data);
        m.set_bearer_id(self.bearer);
        m.set_message_count(self.count);
        m.set_fragment_number(self.part);
        m.set_fragment_count(self.parts);
        m
    }
}
