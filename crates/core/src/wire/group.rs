//! GROUP_PROTOCOL: membership and windows of a communication group. Spec: tipc.md §3.5.

use super::{Envelope, Message, User, View};
use crate::error::WireError;

/// A GROUP_PROTOCOL message between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupControl {
    /// Operation.
    pub kind: GroupControlKind,
    /// Word 8, which Linux leaves 0; what utipc adds to JOIN, LEAVE and EVICT. Spec: tipc.md §9.8.
    pub extension: u32,
    /// Port of the sending member.
    pub origin_port: u32,
    /// Port of the receiving member.
    pub dest_port: u32,
    /// The receiver may drop the message instead of returning it.
    pub dest_droppable: bool,
}

/// Contents of a GROUP_PROTOCOL message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupControlKind {
    /// The sender joins the group.
    Join {
        /// Number of the sender's next broadcast.
        sync_point: u16,
        /// Blocks added to the receiver's window.
        window: u16,
    },
    /// The sender leaves the group.
    Leave {
        /// Number of the sender's next broadcast.
        sync_point: u16,
    },
    /// Extends the receiver's window.
    Advertise {
        /// Blocks added to the receiver's window.
        window: u16,
    },
    /// Acknowledges broadcasts.
    Ack {
        /// Number of the next broadcast that the sender expects.
        acked: u16,
    },
    /// Asks for unused window back.
    Reclaim,
    /// Returns unused window.
    Remit {
        /// Blocks not used.
        window: u16,
    },
    /// The receiver holds the sender up: it leaves the group. Only to members that accept it; not known to Linux.
    Evict,
}

impl GroupControlKind {
    /// Whether it ends a membership.
    pub(crate) fn is_leave(self) -> bool {
        matches!(self, Self::Leave { .. })
    }
}

impl GroupControl {
    /// Reads a GROUP_PROTOCOL message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, or an unknown type.
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
            5 => K::Remit { window: high },
            6 => K::Evict,
            kind => return Err(WireError::Type { user: User::GroupProtocol.into(), kind }),
        };
        Ok(Self {
            kind,
            extension: v.name_type(),
            origin_port: v.origin_port(),
            dest_port: v.dest_port(),
            dest_droppable: v.dest_droppable(),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        use GroupControlKind as K;
        let (kind, high, low) = match self.kind {
            K::Join { sync_point, window } => (0, sync_point, window),
            K::Leave { sync_point } => (1, sync_point, 0),
            K::Advertise { window } => (2, 0, window),
            K::Ack { acked } => (3, acked, 0),
            K::Reclaim => (4, 0, 0),
            K::Remit { window } => (5, window, 0),
            K::Evict => (6, 0, 0),
        };
        let mut m = envelope.message(User::GroupProtocol, kind, &[]);
        m.set_name_type(self.extension);
        m.set_origin_port(self.origin_port);
        m.set_dest_port(self.dest_port);
        m.set_dest_droppable(self.dest_droppable);
        m.set_conn_acked(high);
        m.set_advertised_window(low);
        m
    }
}
