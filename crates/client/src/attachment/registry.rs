//! The sockets of an attachment, by port, for the delivery of notices.
//!
//! Notices for a socket can arrive before its owner has registered it: with the reply that returns its port, and with
//! replies to other threads after that one. They are kept until the socket is registered.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use utipc_attach::Notice;

use crate::state::SocketState;

/// The registered sockets of an attachment, and notices for sockets that are not registered yet.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    sockets: HashMap<u32, Weak<SocketState>>,
    /// Notices for sockets that are not registered yet, oldest first.
    expected: HashMap<u32, Vec<Notice>>,
}

impl Registry {
    /// Keeps the notices of a socket that the daemon has made until it is registered.
    pub(crate) fn expect(&mut self, port: u32) {
        self.expected.entry(port).or_default();
    }

    /// Registers a socket; returns the notices kept for it, oldest first.
    pub(crate) fn register(&mut self, socket: &Arc<SocketState>) -> Vec<Notice> {
        self.sockets.insert(socket.port, Arc::downgrade(socket));
        self.expected.remove(&socket.port).unwrap_or_default()
    }

    /// Removes a closed socket.
    pub(crate) fn unregister(&mut self, port: u32) {
        self.sockets.remove(&port);
    }

    pub(crate) fn get(&self, port: u32) -> Option<Arc<SocketState>> {
        self.sockets.get(&port).and_then(Weak::upgrade)
    }

    pub(crate) fn all(&self) -> Vec<Arc<SocketState>> {
        self.sockets.values().filter_map(Weak::upgrade).collect()
    }

    /// Keeps a notice for an expected socket; false if no socket with this port is expected.
    pub(crate) fn keep(&mut self, port: u32, notice: Notice) -> bool {
        let kept = self.expected.get_mut(&port).map(|notices| notices.push(notice));
        kept.is_some()
    }

    /// Drops notices about new lanes of expected sockets, because these lanes have ended.
    pub(crate) fn forget_lanes(&mut self) {
        for notices in self.expected.values_mut() {
            notices.retain(|notice| {
                !matches!(notice, Notice::Lane { .. } | Notice::GroupLane { .. } | Notice::NodeLane { .. })
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use utipc_attach::{LaneEnd, LaneId, PairId};
    use utipc_core::socket::SocketKind;
    use utipc_os::spin::Mode;

    use super::*;

    const PORT: u32 = 7;

    fn lane() -> LaneId {
        LaneId { pair: PairId(0), writer: 0, slot: 3 }
    }

    fn begins() -> Notice {
        Notice::Lane { port: PORT, other: 8, lane: lane(), end: LaneEnd::Writer }
    }

    fn ends() -> Notice {
        Notice::LaneOver { port: PORT, lane: lane(), end: LaneEnd::Writer, gone: false }
    }

    fn register(registry: &mut Registry) -> Vec<Notice> {
        registry.register(&Arc::new(SocketState::new(PORT, SocketKind::SeqPacket, true, Mode::Adaptive)))
    }

    #[test]
    fn notices_of_expected_socket_are_kept_in_order() {
        let mut registry = Registry::default();
        registry.expect(PORT);
        assert!(registry.keep(PORT, begins()) && registry.keep(PORT, ends()));
        assert_eq!(register(&mut registry), [begins(), ends()]);
        assert!(!registry.keep(PORT, ends()), "the socket is registered now");
    }

    #[test]
    fn notices_of_unexpected_socket_are_not_kept() {
        let mut registry = Registry::default();
        assert!(!registry.keep(PORT, begins()));
        assert_eq!(register(&mut registry), []);
    }

    #[test]
    fn fork_keeps_lane_ends_for_an_answer() {
        let mut registry = Registry::default();
        registry.expect(PORT);
        assert!(registry.keep(PORT, begins()) && registry.keep(PORT, ends()));
        registry.forget_lanes();
        assert_eq!(register(&mut registry), [ends()]);
    }
}
