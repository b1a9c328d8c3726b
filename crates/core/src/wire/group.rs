//! GROUP_PROTOCOL: membership and windows of a communication group. Spec: tipc.md §3.5.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A GROUP_PROTOCOL message between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupControl {
    /// What it says.
    pub kind: GroupControlKind,
    /// Group id.
    pub group: u32,
    /// Port of the member that sent it.
    pub origin_port: u32,
    /// Port of the member that it goes to.
    pub dest_port: u32,
    /// The receiver may drop it instead of returning it.
    pub dest_droppable: bool,
}

/// What a GROUP_PROTOCOL message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupControlKind {
    /// Here I am.
    Join {
        /// Number of the sender's next broadcast.
        sync_point: u16,
        /// Blocks added to the receiver's window.
        window: u16,
    },
    /// Goodbye.
    Leave {
        /// Number of the sender's next broadcast.
        sync_point: u16,
    },
    /// More window.
    Advertise {
        /// Blocks added to the receiver's window.
        window: u16,
    },
    /// Broadcasts received.
    Ack {
        /// Number of the broadcast that the sender expects next.
        acked: u16,
    },
    /// Give unused window back.
    Reclaim,
    /// The window given back.
    Remit {
        /// Blocks not used.
        window: u16,
    },
}

impl GroupControl {
    /// Reads a GROUP_PROTOCOL message.
    ///
    /// # Errors
    /// [`WireError`] if it is none, or of an unknown type.
    pub fn parse(v: View<'_>) -> Result<Self, WireError> {
        use GroupControlKind as K;
        super::expect_user(v, User::GroupProtocol)?;
        super::expect_header(v)?;
        let (high, low) = (v.conn_acked(), v.advertised_window());
        let kind = match v.kind() {
            0 => K::Join { sync_point: high, window: low },
            1 => K::Leave { sync_point: high },
            2 => K::Advertise { window: low },
            3 => K::Ack { acked: high },
            4 => K::Reclaim,
            5 => K::Remit { window: low },
            kind => return Err(WireError::Type { user: User::GroupProtocol.into(), kind }),
        };
        Ok(Self {
            kind,
            group: v.name_type(),
            origin_port: v.origin_port(),
            dest_port: v.dest_port(),
            dest_droppable: v.dest_droppable(),
        })
    }

    /// The message as bytes.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        use GroupControlKind as K;
        let (kind, high, low) = match self.kind {
            K::Join { sync_point, window } => (0, sync_point, window),
            K::Leave { sync_point } => (1, sync_point, 0),
            K::Advertise { window } => (2, 0, window),
            K::Ack { acked } => (3, acked, 0),
            K::Reclaim => (4, 0, 0),
            K::Remit { window } => (5, 0, window),
        };
        let mut m = envelope.message(User::GroupProtocol, kind, &[]);
        m.set_name_type(self.group);
        m.set_origin_port(self.origin_port);
        m.set_dest_port(self.dest_port);
        m.set_dest_droppable(self.dest_droppable);
        m.set_conn_acked(high);
        m.set_advertised_window(low);
        m
    }
}
