//! What a send that would block waits for: room in a lane, in any of several, or a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use utipc_core::addr::{Importance, NodeAddr, PortId, ServiceAddr};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::WaitReason;

use crate::message::HEADER_MAX;
use crate::sender::WINDOW;
use crate::{OutboundLane, Pair, Sender};

/// Time for which a sender waits until a full link queue is half free. After that it waits in the node's queue of
/// waiting sockets, which serves it however full others keep the link. A queue that one sender has filled is half free
/// within a round trip. Decision 50.
const LINK_PATIENCE: Duration = Duration::from_millis(10);

/// What a call waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaited {
    #[default]
    Nothing,
    /// The lane to this socket; 0 for the node.
    Lane(u32),
    /// The full link queue to a node, for messages of this level.
    Link(NodeAddr, u8),
    /// Any of the receivers of a service address; the last number counts them. Lanes lead to these sockets; the node
    /// knows about the others.
    Any(Vec<u32>, ServiceAddr, u32),
}

impl OutboundLane {
    /// Asks the reader to wake this process: for a full window when at most `most` is outstanding, for a lane to the
    /// node when half of it is free. Returns true if a send of `bytes` may succeed already.
    fn want_outstanding(&mut self, is_connected: bool, bytes: usize, most: u64) -> bool {
        let most = if self.pair.is_to_daemon() {
            // The node reads much at once: this spares wake-ups, and leaves it enough to read.
            u64::from(self.outstanding() / 2)
        } else if is_connected && self.outstanding() > WINDOW {
            most
        } else {
            u64::MAX
        };
        if self.writer.want_outstanding(most).is_err() {
            return true;
        }
        if self.member.is_some() && self.check_window(bytes).is_err() {
            return false;
        }
        let size = bytes.min(MAX_USER_DATA) + HEADER_MAX;
        (!is_connected || self.outstanding() <= WINDOW) && self.writer.has_room(size).unwrap_or(true)
    }
}

impl Sender {
    /// Whether the call waits for the reader of the full lane to `to`. False if it has not read for so long that the
    /// message is handled without a wait.
    pub fn waits_for_reader(&mut self, to: u32, now: Instant) -> bool {
        if !self.begin_wait(to, now) {
            return false;
        }
        self.awaited = Awaited::Lane(to);
        true
    }

    /// Whether the call waits for any of the `receivers` of a service address. False if none of the readers of the
    /// full lanes to `ports` (0: to the node) is worth a wait. `at_node`: others, for which the node says when to send.
    pub fn waits_for_any(
        &mut self,
        ports: &[u32],
        at_node: bool,
        (service, receivers): (ServiceAddr, u32),
        now: Instant,
    ) -> bool {
        let has_sole = self.sole.is_some();
        let worth = |port: &u32| if *port == 0 { has_sole } else { self.begin_wait(*port, now) };
        let ports: Vec<u32> = ports.iter().copied().filter(worth).collect();
        if ports.is_empty() && !at_node {
            return false;
        }
        self.awaited = Awaited::Any(ports, service, receivers);
        true
    }

    /// Begins to wait for the reader of a full lane, or goes on.
    fn begin_wait(&mut self, to: u32, now: Instant) -> bool {
        let Some(lane) = self.lanes.get_mut(&to) else { return false };
        let is_new = !lane.for_reader.is_waiting();
        if !lane.waits_for_reader(now) {
            return false;
        }
        self.new_wait |= is_new;
        self.window_waits += u64::from(is_new);
        true
    }

    /// Whether a wait for the reader of a full lane has begun since the last call.
    pub fn take_new_wait(&mut self) -> bool {
        std::mem::take(&mut self.new_wait)
    }

    /// The shortest and the longest rest of the waits for readers of full lanes; `None` if none is left.
    pub fn waits_left(&self) -> Option<(Duration, Duration)> {
        let now = Instant::now();
        let left = self.lanes.values().filter_map(|lane| lane.wait_left(now)).filter(|left| !left.is_zero());
        left.fold(None, |range, left| match range {
            None => Some((left, left)),
            Some((shortest, longest)) => Some((left.min(shortest), left.max(longest))),
        })
    }

    /// Notes that the call waits for room in the sole lane.
    pub fn wait_for_room(&mut self) {
        self.awaited = self.sole.as_ref().map_or(Awaited::Nothing, |lane| Awaited::Lane(lane.peer));
        self.window_waits += 1;
    }

    /// Whether the call waits until the full link queue to a node is half free for messages of this level. False, until
    /// [`Sender::link_has_room`], if calls have slept for so long that the message goes to the node, which says when it
    /// takes the next one. A program that retries instead of sleeping costs the node nothing.
    pub fn waits_for_link(&mut self, node: NodeAddr, level: u8, now: Instant) -> bool {
        let is_over = |(full, since): (NodeAddr, Instant)| {
            full == node && now.saturating_duration_since(since) >= LINK_PATIENCE
        };
        if self.link_full.is_some_and(is_over) {
            self.awaited = Awaited::Nothing;
            return false;
        }
        self.awaited = if self.sole.is_some() { Awaited::Link(node, level) } else { Awaited::Nothing };
        self.link_waits += 1;
        true
    }

    /// Notes that the link queue to a node is not full, or half free again.
    #[inline]
    pub fn link_has_room(&mut self, node: NodeAddr) {
        if self.link_full.is_some_and(|(full, _)| full == node) {
            self.link_full = None;
        }
    }

    /// Node and level of the full link queue for which the call is about to sleep.
    pub fn sleeps_for_link(&mut self, now: Instant) -> Option<(NodeAddr, u8)> {
        let Awaited::Link(node, level) = self.awaited else { return None };
        if self.link_full.is_none_or(|(full, _)| full != node) {
            self.link_full = Some((node, now));
        }
        Some((node, level))
    }

    /// The lanes that a call waits for.
    fn awaited_lanes(&mut self) -> Vec<&mut OutboundLane> {
        let Self { awaited, sole, lanes, .. } = self;
        match awaited {
            Awaited::Nothing => Vec::new(),
            Awaited::Link(..) => sole.iter_mut().collect(),
            Awaited::Lane(peer) => {
                let sole = sole.as_mut().filter(|lane| lane.peer == *peer);
                sole.or_else(|| lanes.get_mut(peer)).into_iter().collect()
            }
            Awaited::Any(ports, ..) => {
                let all = sole.iter_mut().chain(lanes.values_mut());
                all.filter(|lane| ports.contains(&lane.peer)).collect()
            }
        }
    }

    /// The arenas of the lanes that a call waits for, each once.
    pub fn awaited_pairs(&mut self) -> Vec<Arc<Pair>> {
        let mut pairs: Vec<Arc<Pair>> = Vec::new();
        for lane in self.awaited_lanes() {
            if !pairs.iter().any(|pair| Arc::ptr_eq(pair, &lane.pair)) {
                pairs.push(Arc::clone(&lane.pair));
            }
        }
        pairs
    }

    /// Before sleeping: asks the readers to wake this process. Returns true if a send may succeed already.
    pub fn want_room(&mut self, bytes: usize) -> bool {
        self.want_outstanding(bytes, u64::MAX)
    }

    /// [`Sender::want_room`] for a call that waits by the socket's descriptor: the reader reports room to the daemon
    /// too, once half of a full window is free. This wake-up costs more than writing an eighth of the window.
    pub fn want_room_told(&mut self, bytes: usize) -> bool {
        for lane in self.awaited_lanes() {
            lane.writer.tell_daemon(true);
        }
        self.want_outstanding(bytes, u64::from(WINDOW / 2))
    }

    /// [`Sender::want_room`]; for a full window the reader wakes this process when at most `most` is outstanding.
    fn want_outstanding(&mut self, bytes: usize, most: u64) -> bool {
        let is_connected = self.sole.as_ref().is_some_and(|lane| lane.peer != 0);
        let lanes = self.awaited_lanes();
        let mut may_send = lanes.is_empty();
        for lane in lanes {
            may_send |= lane.want_outstanding(is_connected, bytes, most);
        }
        may_send
    }

    /// Why the last send would block, if it still would. `None` also for what only the node knows.
    pub fn wait_reason(&mut self, node: NodeAddr) -> Option<WaitReason> {
        match self.awaited {
            Awaited::Link(node, level) => {
                let importance = Importance::from_number(u32::from(level & 3)).unwrap_or(Importance::Low);
                return Some(WaitReason::LinkCongested { node, importance });
            }
            Awaited::Any(_, service, receivers) => {
                return Some(WaitReason::ReceiversFull { service, receivers });
            }
            Awaited::Nothing | Awaited::Lane(_) => {}
        }
        let lane = self.awaited_lanes().pop().filter(|lane| !lane.pair.is_to_daemon())?;
        let _ = lane.writer.refresh();
        let peer = PortId { port: lane.peer, node };
        if lane.member.is_some() {
            let window = u16::try_from(lane.window_left()).unwrap_or(u16::MAX);
            return Some(WaitReason::MemberWindow { member: peer, joined: true, window });
        }
        Some(WaitReason::PeerWindow { peer, unacked: lane.outstanding(), window: WINDOW })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeAddr = NodeAddr(0x0100_1001);

    /// A sender that has begun to wait for a link.
    fn waiting(begun: Instant) -> Sender {
        let mut sender = Sender::default();
        sender.awaited = Awaited::Link(NODE, 0);
        assert_eq!(sender.sleeps_for_link(begun), Some((NODE, 0)));
        sender
    }

    /// Others keep the link more than half full for ever.
    #[test]
    fn sender_to_a_link_that_stays_full_takes_its_turn_at_the_node() {
        let begun = Instant::now();
        let mut sender = waiting(begun);
        let mut waits = |after: Duration| sender.waits_for_link(NODE, 0, begun + after);
        assert!(waits(Duration::ZERO) && waits(LINK_PATIENCE / 2));
        assert!(!waits(LINK_PATIENCE));
        // The next messages do not wait again.
        assert!(!waits(LINK_PATIENCE) && !waits(2 * LINK_PATIENCE));
    }

    #[test]
    fn sender_waits_again_after_its_link_had_room() {
        let begun = Instant::now();
        let mut sender = waiting(begun);
        sender.link_has_room(NodeAddr(0x0100_1002));
        assert!(!sender.waits_for_link(NODE, 0, begun + LINK_PATIENCE), "room at another node");
        sender.link_has_room(NODE);
        assert!(sender.waits_for_link(NODE, 0, begun + LINK_PATIENCE));
        assert!(sender.waits_for_link(NodeAddr(0x0100_1002), 0, begun + 2 * LINK_PATIENCE), "another node");
    }

    #[test]
    fn sender_that_tries_again_without_sleeping_never_goes_to_the_node() {
        let (mut sender, begun) = (Sender::default(), Instant::now());
        for after in 0..100 {
            assert!(sender.waits_for_link(NODE, 0, begun + LINK_PATIENCE * after));
        }
    }
}
