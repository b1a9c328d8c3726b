//! The state of a socket that its threads and its attachment share: the inbox, the outbox, and who holds it.
//!
//! The thread that reads a reply finds notices for any socket. It only queues events for the sockets concerned; the
//! next thread that locks a half of a socket processes them. So a thread that has locked the connection to the daemon
//! never waits for the lock of a half.

pub(crate) mod events;

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::socket::SocketKind;
use utipc_lanes::Receiver;
use utipc_os::spin::{Mode, Spin};

use crate::receive::inbox::Inbox;
use crate::send::outbox::{Outbox, SendHalf};
use crate::state::events::Event;

/// One of the two halves of a socket, each of which has its own lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Receive = 1,
    Send = 2,
}

/// A fact that any thread may change.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Relaxed);
    }

    /// Sets it; returns the value before.
    pub(crate) fn replace(&self, value: bool) -> bool {
        self.0.swap(value, Relaxed)
    }
}

/// The state of one socket.
#[derive(Debug)]
pub(crate) struct SocketState {
    pub(crate) port: u32,
    pub(crate) kind: SocketKind,
    /// It was accepted: its importance and service are those of the connection request, which the node knows.
    pub(crate) accepted: bool,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// The [`Half`] whose last call had to wait, or 0.
    waited: AtomicU8,
    /// It has no lanes: all of its messages go through the node.
    pub(crate) hosted: Flag,
    /// It is hosted only because other processes hold it too.
    pub(crate) has_other_holders: Flag,
    /// It is in a group.
    pub(crate) in_group: Flag,
    /// Whether a signal ends a call that waits.
    pub(crate) interruptible: Flag,
}

impl SocketState {
    pub(crate) fn new(port: u32, kind: SocketKind, accepted: bool, mode: Mode) -> Self {
        Self {
            port,
            kind,
            accepted,
            inbox: Inbox::new(mode),
            outbox: Outbox::new(kind, mode),
            waited: AtomicU8::new(0),
            hosted: Flag::default(),
            has_other_holders: Flag::default(),
            in_group: Flag::default(),
            interruptible: Flag::default(),
        }
    }

    /// The state of the same socket in a forked child: a copy of the fields that no lock of the parent guards.
    pub(crate) fn inherited(&self) -> Self {
        let child = Self::new(self.port, self.kind, true, self.inbox.spin_mode());
        child.inbox.set_low_water(self.inbox.low_water());
        child.outbox.set_options(self.outbox.options());
        child.interruptible.set(self.interruptible.get());
        child.hosted.set(true);
        child.in_group.set(self.in_group.get());
        child.has_other_holders.set(!self.hosted.get() || self.has_other_holders.get());
        child
    }

    /// Queues the event of a notice for the half concerned.
    pub(crate) fn queue_event(&self, notice: Notice) {
        let of = |end| if end == LaneEnd::Reader { &self.inbox.events } else { &self.outbox.events };
        match notice {
            Notice::Readiness { .. } => {
                self.inbox.events.put(Event::Ready);
                self.outbox.note_readiness();
            }
            Notice::Lane { other, lane, end, .. } => {
                of(end).put(Event::LaneOpened { peer: other, node: None, lane, member: None });
            }
            Notice::GroupLane { other, lane, end, member, .. } => {
                of(end).put(Event::LaneOpened { peer: other, node: None, lane, member: Some(member) });
            }
            Notice::NodeLane { peer, lane, end, .. } => {
                let (peer, node) = (peer.port, Some(peer.node));
                of(end).put(Event::LaneOpened { peer, node, lane, member: None });
            }
            Notice::GroupChanged { .. } => self.outbox.events.put(Event::GroupChanged),
            Notice::LaneOver { lane, end, .. } => of(end).put(Event::LaneOver(lane)),
            _ => {}
        }
    }

    /// Locks both halves: no thread sends or receives.
    pub(crate) fn lock(&self) -> Halves<'_> {
        let receiver = self.inbox.lock();
        Halves { state: self, receiver, sender: self.outbox.lock() }
    }

    /// Sets whether and how calls spin from now on.
    pub(crate) fn set_spin(&self, mode: Mode) {
        for spin in [&self.inbox.spin, &self.outbox.spin] {
            *utipc_os::lock(spin) = Spin::new(mode);
        }
    }

    /// Notes whether the last call on this half had to wait.
    pub(crate) fn set_waits(&self, half: Half, waits: bool) {
        let now = self.waited.load(Relaxed);
        if waits {
            self.waited.store(half as u8, Relaxed);
        } else if now == half as u8 {
            self.waited.store(0, Relaxed);
        }
    }

    pub(crate) fn waits(&self, half: Half) -> bool {
        self.waited.load(Relaxed) == half as u8
    }
}

/// Both halves of a socket, locked.
pub(crate) struct Halves<'a> {
    state: &'a SocketState,
    receiver: MutexGuard<'a, Receiver>,
    sender: MutexGuard<'a, SendHalf>,
}

impl Halves<'_> {
    /// The lane of which a message was partly received, and how much of it.
    pub(crate) fn begun(&self) -> Option<(LaneId, u32)> {
        self.receiver.begun()
    }

    /// Lanes that were refused may be requested again.
    pub(crate) fn forget_refusals(&mut self) {
        self.sender.forget_refusals();
        self.receiver.forget_refusals();
    }

    /// Stops using the lanes of a socket that has become hosted.
    pub(crate) fn leave_lanes(&mut self) {
        self.receiver.remove_all();
        // Lanes that were announced to the reader but not opened yet.
        self.state.inbox.events.forget_lanes();
        self.receiver.node_is_ready();
        self.sender.leave_lanes();
    }

    /// Closes all lanes of a socket that is closed, or whose daemon is gone.
    pub(crate) fn close_lanes(&mut self) {
        self.sender.leave_lanes();
        self.receiver.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply of another thread brings it between a sender's attempt and its sleep.
    #[test]
    fn readiness_notice_is_counted_for_a_sender_that_does_not_sleep_yet() {
        let state = SocketState::new(7, SocketKind::Rdm, false, Mode::Adaptive);
        let before = state.outbox.readiness();
        state.queue_event(Notice::Readiness { port: 7 });
        assert_ne!(state.outbox.readiness(), before);
        state.queue_event(Notice::GroupChanged { port: 7 });
        assert_eq!(state.outbox.readiness(), before.wrapping_add(1), "another notice");
    }
}
