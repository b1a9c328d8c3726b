//! The backlog: packets waiting for room in the window, counted per importance level, and the ports waiting for the
//! backlog to shrink. Spec: tipc.md §5.7, §5.10.

use std::collections::VecDeque;

use super::config::Wakeup;
use super::packet::Outgoing;
use super::turns::Turns;
use crate::addr::{Importance, NodeAddr};
use crate::collections::shrink;
use crate::planted::{self, Fault};
use crate::wire::{ErrorCode, INTERNAL_HEADER, Message, User, View};

/// Maximum number of packets in one backlog, all levels together; bounds memory if a port ignores congestion.
pub(crate) const MAX_BACKLOG: usize = 65_535;

/// An importance level of a link: one per importance of payload, and one for system messages. Spec: tipc.md §2.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(u8);

impl Level {
    /// Everything except undamaged payload: system messages, returned messages.
    pub(crate) const SYSTEM: Level = Level(4);
    /// Packets taken over from a failed link; they were admitted there and are not counted again.
    const TUNNEL: Level = Level(5);
    /// Number of levels.
    const COUNT: usize = 6;

    /// The level of a message or packet.
    pub(crate) fn of(message: View<'_>) -> Self {
        match message.user() {
            User::Fragmenter | User::Bundler => Self(message.carried_importance().min(Self::SYSTEM.0)),
            User::Tunnel => Self::TUNNEL,
            user if user.is_data() && message.error_code() == ErrorCode::Ok => Self(u8::from(user)),
            _ => Self::SYSTEM,
        }
    }

    /// The level as on the wire, 0 to 4.
    pub(crate) fn number(self) -> u8 {
        self.0.min(Self::SYSTEM.0)
    }

    /// The importance of payload at this level; `None` for system.
    pub(crate) fn importance(self) -> Option<Importance> {
        Importance::from_number(u32::from(self.0))
    }
}

/// Outcome of adding a packet to the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// Queued as a packet of its own.
    Alone,
    /// Bundled with the previous packet, which was not a bundle before.
    NewBundle,
    /// Added to an existing bundle.
    Bundled,
}

#[derive(Clone, Copy, Debug, Default)]
struct LevelState {
    len: usize,
    limit: usize,
}

/// The backlog of one sequence of packets.
#[derive(Debug)]
pub(crate) struct Backlog {
    queue: VecDeque<Outgoing>,
    /// Level of the last packet if it may be bundled with the next one. Only the last packet qualifies: otherwise a
    /// message (such as the end of a connection, which is a system message) would overtake data that the same socket
    /// sent before.
    open: Option<Level>,
    levels: [LevelState; Level::COUNT],
    /// Waiting ports, by importance.
    turns: [Turns; 4],
}

impl Backlog {
    /// An empty backlog; the limits follow from the smallest window and the MTU.
    pub(crate) fn new(min_window: u16, mtu: usize) -> Self {
        let mut backlog = Self {
            queue: VecDeque::new(),
            open: None,
            levels: [LevelState::default(); Level::COUNT],
            turns: Default::default(),
        };
        backlog.set_limits(min_window, mtu);
        backlog
    }

    /// Recomputes the limits. Spec: tipc.md §5.7.
    pub(crate) fn set_limits(&mut self, min_window: u16, mtu: usize) {
        let window = usize::from(min_window);
        let system = 65_535 / (mtu / 20).max(1);
        let limits = [2 * window, 4 * window, 6 * window, 8 * window, system, MAX_BACKLOG];
        for (level, limit) in self.levels.iter_mut().zip(limits) {
            level.limit = limit;
        }
    }

    /// Number of waiting packets.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if no packet is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of waiting packets at a level, and the limit.
    pub(crate) fn usage(&self, level: Level) -> (usize, usize) {
        self.levels.get(usize::from(level.0)).map_or((0, 0), |l| (l.len, l.limit))
    }

    /// True if the level has reached its limit: senders must wait.
    pub(crate) fn is_congested(&self, level: Level) -> bool {
        let (len, limit) = self.usage(level);
        len >= limit
    }

    /// The congested levels of payload, one bit each. A level is congested from when it is full until half of it is
    /// free, so that the state does not change with every packet. `before` is the previous result.
    pub(crate) fn congestion(&self, before: u8) -> u8 {
        if before == 0 && self.is_empty() {
            return 0;
        }
        (0..Level::SYSTEM.0).fold(0, |bits, number| {
            let (len, limit) = self.usage(Level(number));
            let is_long = len >= limit || before >> number & 1 != 0 && len > limit / 2;
            bits | u8::from(is_long) << number
        })
    }

    /// True if a message of the node itself does not fit; the link cannot continue without it. Name messages may use
    /// the whole backlog, because the tables never agree again if one is missing, and a bulk is large.
    pub(crate) fn overflows(&self, message: View<'_>) -> bool {
        let level = Level::of(message);
        let is_full = match message.user() {
            User::NameDistributor => self.queue.len() >= MAX_BACKLOG,
            _ => self.is_congested(level),
        };
        is_full && level.importance().is_none()
    }

    /// Registers a port that waits for room at a level.
    pub(crate) fn register(&mut self, wakeup: Wakeup) {
        if let Some(turns) = self.turns.get_mut(wakeup.importance as usize) {
            turns.register(wakeup.port);
        }
    }

    /// Counts a message of a port, for the order in which ports are woken.
    pub(crate) fn count(&mut self, importance: Importance, port: u32, size: usize) {
        if let Some(turns) = self.turns.get_mut(importance as usize) {
            turns.count(port, size);
        }
    }

    /// Number of waiting ports.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.iter().map(Turns::waiting).sum()
    }

    /// Wakes ports whose level has room, at most one per free place.
    pub(crate) fn wake(&mut self, out: &mut Vec<Wakeup>) {
        if planted::active(Fault::LostWakeup) {
            return;
        }
        let room = self.levels.map(|l| l.limit.saturating_sub(l.len));
        self.wake_some(room, out);
        if self.is_empty() {
            self.turns.iter_mut().for_each(Turns::emptied);
        }
    }

    /// Wakes every port.
    pub(crate) fn wake_all(&mut self, out: &mut Vec<Wakeup>) {
        self.wake_some([usize::MAX; Level::COUNT], out);
    }

    /// Wakes up to `room[level]` ports of each level.
    fn wake_some(&mut self, room: [usize; Level::COUNT], out: &mut Vec<Wakeup>) {
        for ((level, turns), room) in (0..).zip(&mut self.turns).zip(room) {
            let Some(importance) = Importance::from_number(level) else { continue };
            turns.wake(room, |port| out.push(Wakeup { port, importance }));
        }
    }

    /// Appends a packet; bundles it with the last one if possible. A bundle from `own` to `dest` has at most `mss`
    /// bytes.
    pub(crate) fn push(
        &mut self,
        packet: impl Into<Outgoing>,
        mss: usize,
        own: NodeAddr,
        dest: NodeAddr,
    ) -> Queued {
        let packet = packet.into();
        let level = Level::of(packet.view());
        let bundles = can_bundle(packet.view(), mss);
        let queued = if bundles { self.join(level, packet.view(), mss, own, dest) } else { None };
        if let Some(queued) = queued {
            return queued;
        }
        if let Some(state) = self.levels.get_mut(usize::from(level.0)) {
            state.len += 1;
        }
        self.open = bundles.then_some(level);
        self.queue.push_back(packet);
        Queued::Alone
    }

    /// The oldest packet.
    pub(crate) fn first(&self) -> Option<&Outgoing> {
        self.queue.front()
    }

    /// Removes and returns the oldest packet.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let packet = self.queue.pop_front()?;
        shrink(&mut self.queue);
        if let Some(state) = self.levels.get_mut(usize::from(Level::of(packet.view()).0)) {
            state.len = state.len.saturating_sub(1);
        }
        Some(packet)
    }

    /// Drops all packets; ports keep waiting.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    fn join(
        &mut self,
        level: Level,
        packet: View<'_>,
        mss: usize,
        own: NodeAddr,
        dest: NodeAddr,
    ) -> Option<Queued> {
        let last = self.queue.back_mut().filter(|_| self.open == Some(level))?;
        let Outgoing::Whole(target) = last else { return None };
        let is_bundle = target.user() == User::Bundler;
        let header = if is_bundle { 0 } else { INTERNAL_HEADER };
        let offset = (target.size() + header).next_multiple_of(4);
        if offset + packet.size() > mss {
            return None;
        }
        if !is_bundle {
            *target = new_bundle(target.view(), level, mss, own, dest);
        }
        target.pad_to(offset);
        target.append(packet.bytes());
        target.set_message_count(target.message_count().wrapping_add(1));
        Some(if is_bundle { Queued::Bundled } else { Queued::NewBundle })
    }
}

/// True if a packet may be part of a bundle. Spec: tipc.md §5.10.
fn can_bundle(packet: View<'_>, mss: usize) -> bool {
    let kept_apart = matches!(
        packet.user(),
        User::Fragmenter | User::Tunnel | User::BcastProtocol | User::Bundler | User::Crypto
    );
    !kept_apart && packet.size() + INTERNAL_HEADER < mss
}

fn new_bundle(first: View<'_>, level: Level, mss: usize, own: NodeAddr, dest: NodeAddr) -> Message {
    let mut bundle = Message::build(User::Bundler, 0, INTERNAL_HEADER, &[]);
    bundle.reserve(mss.saturating_sub(INTERNAL_HEADER));
    bundle.append(first.bytes());
    bundle.set_prev_node(own);
    bundle.set_origin_node(own);
    bundle.set_dest_node(dest);
    bundle.set_message_count(1);
    bundle.set_carried_importance(level.number());
    bundle
}
