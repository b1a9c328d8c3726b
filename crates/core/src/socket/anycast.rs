//! Anycasts with several receivers, among which the node chooses. Decision 38.

use super::endpoint::Endpoint;
use super::types::WaitReason;
use crate::addr::{Importance, NodeAddr};

impl Endpoint {
    /// Whether its messages have no connection and no group, so that the node chooses the receivers of its anycasts.
    pub(crate) fn sends_datagrams(&self) -> bool {
        !self.kind.is_connection_oriented() && self.group.is_none()
    }

    /// Importance of its messages.
    pub(crate) fn importance(&self) -> Importance {
        self.settings.importance
    }

    /// Whether the link to a node has taken a message beyond its limit, so that the socket sends it nothing.
    pub(crate) fn waits_for_link(&self, node: NodeAddr) -> bool {
        self.congested.contains(&node)
    }

    /// Before a message is sent: whether its receiver was chosen among several.
    pub(crate) fn set_choice(&mut self, from_several: bool) {
        self.chooses = from_several;
        self.waits_for_any = false;
    }

    /// Whether the last message had several receivers.
    pub(crate) fn chooses(&self) -> bool {
        self.chooses
    }

    /// Whether a message without a connection would be sent now, if it is one like the last.
    pub(super) fn takes_datagrams(&self) -> bool {
        if self.chooses && !self.spreads { !self.waits_for_any } else { self.congested.is_empty() }
    }

    /// All receivers of a message are full: the socket waits until any of them takes messages.
    pub(crate) fn wait_for_any(&mut self, reason: WaitReason) {
        (self.chooses, self.waits_for_any) = (true, true);
        self.note_blocked(reason);
    }
}
