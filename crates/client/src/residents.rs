//! The sockets of an attachment, which notices go to.
//!
//! A socket gets notices from the moment the daemon has made it: the reply that announces it carries the first, and
//! another thread's reply may carry the next before the caller has entered the socket. Until then they are kept.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use utipc_attach::Notice;

use crate::state::SocketState;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    sockets: HashMap<u32, Weak<SocketState>>,
    /// Notices for sockets that have not entered yet, oldest first.
    expected: HashMap<u32, Vec<Notice>>,
}

impl Residents {
    /// Expects a socket that the daemon has made.
    pub(crate) fn expect(&mut self, port: u32) {
        self.expected.entry(port).or_default();
    }

    /// Enters a socket; returns the notices kept for it, oldest first.
    pub(crate) fn enter(&mut self, socket: &Arc<SocketState>) -> Vec<Notice> {
        self.sockets.insert(socket.port, Arc::downgrade(socket));
        self.expected.remove(&socket.port).unwrap_or_default()
    }

    /// Removes a closed socket.
    pub(crate) fn leave(&mut self, port: u32) {
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
            notices.retain(|notice| !matches!(notice, Notice::Lane { .. } | Notice::NodeLane { .. }));
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

    fn enter(residents: &mut Residents) -> Vec<Notice> {
        residents.enter(&Arc::new(SocketState::new(PORT, SocketKind::SeqPacket, true, Mode::Adaptive)))
    }

    #[test]
    fn what_comes_before_a_socket_waits_for_it_in_order() {
        let mut residents = Residents::default();
        residents.expect(PORT);
        assert!(residents.keep(PORT, begins()) && residents.keep(PORT, ends()));
        assert_eq!(enter(&mut residents), [begins(), ends()]);
        assert!(!residents.keep(PORT, ends()), "it is there now");
    }

    #[test]
    fn nothing_is_kept_for_an_unexpected_socket() {
        let mut residents = Residents::default();
        assert!(!residents.keep(PORT, begins()));
        assert_eq!(enter(&mut residents), []);
    }

    #[test]
    fn fork_keeps_ends_of_lanes_to_be_answered() {
        let mut residents = Residents::default();
        residents.expect(PORT);
        assert!(residents.keep(PORT, begins()) && residents.keep(PORT, ends()));
        residents.forget_lanes();
        assert_eq!(enter(&mut residents), [ends()]);
    }
}
