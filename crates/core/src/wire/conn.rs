//! CONN_MANAGER: probes and acknowledgements of a connection. Spec: tipc.md §3.4.

use super::{Envelope, ErrorCode, Message, User, View};
use crate::error::WireError;

const PROBE: u8 = 0;
const PROBE_REPLY: u8 = 1;
const ACK: u8 = 2;

/// A CONN_MANAGER message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnControl {
    /// Probe, reply or acknowledgement.
    pub kind: ConnControlKind,
    /// Port of the sender.
    pub origin_port: u32,
    /// Port of the receiver.
    pub dest_port: u32,
    /// The receiver may drop the message instead of returning it.
    pub dest_droppable: bool,
    /// Error code of a returned message.
    pub error: ErrorCode,
    /// Number of times the message was redirected.
    pub reroute_count: u8,
}

/// Contents of a CONN_MANAGER message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnControlKind {
    /// Checks that the peer still exists.
    Probe,
    /// The reply to a probe.
    ProbeReply,
    /// Acknowledges consumed data.
    Ack {
        /// Blocks (or messages) consumed since the last acknowledgement.
        acked: u16,
        /// Window advertised to the sender, blocks; 0 from a peer that counts messages.
        window: u16,
        /// Acknowledges a message that requested it.
        nagle: bool,
    },
}

impl ConnControl {
    /// Reads a CONN_MANAGER message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        super::expect_user(v, User::ConnManager)?;
        super::expect_header(v)?;
        let kind = match v.kind() {
            PROBE => ConnControlKind::Probe,
            PROBE_REPLY => ConnControlKind::ProbeReply,
            ACK => ConnControlKind::Ack {
                acked: v.conn_acked(),
                window: v.advertised_window(),
                nagle: v.nagle_ack(),
            },
            kind => return Err(WireError::Type { user: User::ConnManager.into(), kind }),
        };
        Ok(Self {
            kind,
            origin_port: v.origin_port(),
            dest_port: v.dest_port(),
            dest_droppable: v.dest_droppable(),
            error: v.error_code(),
            reroute_count: v.reroute_count(),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let kind = match self.kind {
            ConnControlKind::Probe => PROBE,
            ConnControlKind::ProbeReply => PROBE_REPLY,
            ConnControlKind::Ack { .. } => ACK,
        };
        let mut m = envelope.message(User::ConnManager, kind, &[]);
        m.set_origin_port(self.origin_port);
        m.set_dest_port(self.dest_port);
        m.set_dest_droppable(self.dest_droppable);
        m.set_error_code(self.error);
        m.set_reroute_count(self.reroute_count);
        if let ConnControlKind::Ack { acked, window, nagle } = self.kind {
            m.set_conn_acked(acked);
            m.set_advertised_window(window);
            m.set_nagle_ack(nagle);
        }
        m
    }
}
