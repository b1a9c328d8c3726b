//! The state of a socket that its threads share: its two halves, and events about its lanes.
//!
//! The thread that reads a reply finds notices for any socket. It only queues events for the sockets concerned; the
//! next thread that locks a half of a socket processes them. So a thread that has locked the connection to the daemon
//! never waits for the lock of a half.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex};

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::addr::{Importance, NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::socket::{Destination, Received, SocketKind};
use utipc_lanes::{ReadyLanes, Receiver, SendOptions, Sender};
use utipc_os::lock;
use utipc_os::spin::{Mode, Spin};

use crate::members::Members;
use crate::names::{Group, SoleBinding};

/// Maximum number of returned messages that wait to be received.
const RETURNED_MAX: usize = 1024;

/// An event of one half of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The node has something for the socket to receive.
    Ready,
    /// There is a lane to or from the socket `peer`, which is on another node, or a member of a group, if that is
    /// given.
    LaneOpened { peer: u32, node: Option<NodeAddr>, lane: LaneId, member: Option<ServiceAddr> },
    /// The other end of the lane is gone.
    LaneOver(LaneId),
    /// A member of the socket's group has come or gone.
    GroupChanged,
}

/// Events of one half of a socket, oldest first. The queue is bounded: the daemon bounds the number of lanes, and
/// `Ready` and `GroupChanged` are queued once.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: Mutex<Vec<Event>>,
    some: AtomicBool,
}

impl EventQueue {
    pub(crate) fn put(&self, event: Event) {
        let mut events = lock(&self.events);
        let again = match event {
            Event::Ready => events.iter().any(|e| matches!(e, Event::Ready)),
            Event::GroupChanged => events.iter().any(|e| matches!(e, Event::GroupChanged)),
            _ => false,
        };
        if !again {
            events.push(event);
        }
        self.some.store(true, Release);
    }

    /// Drops events about new lanes, because these lanes have ended.
    pub(crate) fn forget_lanes(&self) {
        lock(&self.events).retain(|event| !matches!(event, Event::LaneOpened { .. }));
    }

    /// Makes [`EventQueue::has_some`] true without an event: a returned message waits.
    fn announce(&self) {
        self.some.store(true, Release);
    }

    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Acquire)
    }

    /// Puts events back that could not be processed yet.
    pub(crate) fn put_back(&self, mut events: Vec<Event>) {
        let mut later = lock(&self.events);
        events.append(&mut later);
        *later = events;
        self.some.store(true, Release);
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        let mut events = lock(&self.events);
        self.some.store(false, Release);
        core::mem::take(&mut *events)
    }
}

/// One of the two halves of a socket, each of which has its own lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Receive = 1,
    Send = 2,
}

/// The sending half of a socket.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    pub(crate) lanes: Sender,
    /// The receivers of the last multicast.
    pub(crate) group: Option<Group>,
    /// The receiver of the last anycast, if it was the only binding.
    pub(crate) sole: Option<SoleBinding>,
    /// Destination of messages that are sent without one.
    pub(crate) default_to: Option<Destination>,
    /// How messages to the socket's group travel.
    pub(crate) members: Members,
}

/// The state of one socket.
#[derive(Debug)]
pub(crate) struct SocketState {
    pub(crate) port: u32,
    pub(crate) kind: SocketKind,
    pub(crate) receiver: Mutex<Receiver>,
    pub(crate) sender: Mutex<SendHalf>,
    pub(crate) receiver_events: EventQueue,
    pub(crate) sender_events: EventQueue,
    pub(crate) ready: Arc<ReadyLanes>,
    /// Threads and tasks that sleep until their writers wake them; increased with the receiver locked.
    pub(crate) asleep: AtomicU32,
    /// State of spinning. Of several waiting threads only the one that holds the lock spins.
    pub(crate) receive_spin: Mutex<Spin>,
    pub(crate) send_spin: Mutex<Spin>,
    /// [`SendOptions`], packed.
    options: AtomicU32,
    /// The [`Half`] whose last call had to wait, or 0.
    waited: AtomicU8,
    /// Messages that this process has returned to its own socket, to be received.
    returned: Mutex<Vec<Received>>,
    /// The service address to which this process has connected it.
    pub(crate) service: Mutex<Option<ServiceRange>>,
    /// It has no lanes: all of its messages go through the node.
    pub(crate) hosted: AtomicBool,
    /// It is hosted only because other processes hold it too.
    pub(crate) has_other_holders: AtomicBool,
    /// It is in a group.
    pub(crate) in_group: AtomicBool,
    /// Number of [`Notice::Readiness`] for it, modulo 2^32: another thread's reply may bring the one that a sender is
    /// about to sleep for.
    pub(crate) readiness: AtomicU32,
    /// Whether a signal ends a call that waits.
    pub(crate) interruptible: AtomicBool,
    /// It was accepted: its importance and service are those of the connection request, which the node knows.
    pub(crate) accepted: bool,
}

impl SocketState {
    pub(crate) fn new(port: u32, kind: SocketKind, accepted: bool, mode: Mode) -> Self {
        let state = Self {
            port,
            kind,
            receiver: Mutex::default(),
            sender: Mutex::default(),
            receiver_events: EventQueue::default(),
            sender_events: EventQueue::default(),
            ready: Arc::default(),
            asleep: AtomicU32::new(0),
            receive_spin: Mutex::new(Spin::new(mode)),
            send_spin: Mutex::new(Spin::new(mode)),
            options: AtomicU32::new(0),
            waited: AtomicU8::new(0),
            returned: Mutex::default(),
            service: Mutex::default(),
            hosted: AtomicBool::new(false),
            has_other_holders: AtomicBool::new(false),
            in_group: AtomicBool::new(false),
            readiness: AtomicU32::new(0),
            interruptible: AtomicBool::new(false),
            accepted,
        };
        state.set_options(SendOptions::new(kind));
        state
    }

    /// The state of the same socket in a forked child: a copy of the fields that no lock of the parent guards.
    pub(crate) fn inherited(&self) -> Self {
        // A thread that exists only in the parent may hold the lock.
        let mode = self.receive_spin.try_lock().map_or(Mode::Adaptive, |spin| spin.mode());
        let child = Self::new(self.port, self.kind, true, mode);
        child.set_options(self.options());
        child.interruptible.store(self.interruptible.load(Relaxed), Relaxed);
        child.hosted.store(true, Relaxed);
        child.in_group.store(self.in_group.load(Relaxed), Relaxed);
        let has_other_holders = !self.hosted.load(Relaxed) || self.has_other_holders.load(Relaxed);
        child.has_other_holders.store(has_other_holders, Relaxed);
        child
    }

    /// Queues the event of a notice for the half concerned.
    pub(crate) fn queue_event(&self, notice: Notice) {
        let of = |end| if end == LaneEnd::Reader { &self.receiver_events } else { &self.sender_events };
        match notice {
            Notice::Readiness { .. } => {
                self.receiver_events.put(Event::Ready);
                self.readiness.fetch_add(1, Release);
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
            Notice::GroupChanged { .. } => self.sender_events.put(Event::GroupChanged),
            Notice::LaneOver { lane, end, .. } => of(end).put(Event::LaneOver(lane)),
            _ => {}
        }
    }

    /// Queues a returned message; drops it if [`RETURNED_MAX`] wait.
    pub(crate) fn return_message(&self, message: Received) {
        let mut waiting = lock(&self.returned);
        if waiting.len() < RETURNED_MAX {
            waiting.push(message);
        }
        drop(waiting);
        self.receiver_events.announce();
    }

    pub(crate) fn take_returned(&self) -> Vec<Received> {
        core::mem::take(&mut *lock(&self.returned))
    }

    pub(crate) fn options(&self) -> SendOptions {
        let bits = self.options.load(Relaxed);
        SendOptions {
            importance: Importance::from_number(bits & 3).unwrap_or(Importance::Low),
            source_droppable: bits & 4 != 0,
            dest_droppable: bits & 8 != 0,
        }
    }

    pub(crate) fn set_options(&self, options: SendOptions) {
        let bits = options.importance as u32
            | u32::from(options.source_droppable) << 2
            | u32::from(options.dest_droppable) << 3;
        self.options.store(bits, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply of another thread brings it between a sender's attempt and its sleep.
    #[test]
    fn readiness_notice_is_counted_for_a_sender_that_does_not_sleep_yet() {
        let state = SocketState::new(7, SocketKind::Rdm, false, Mode::Adaptive);
        let before = state.readiness.load(Acquire);
        state.queue_event(Notice::Readiness { port: 7 });
        assert_ne!(state.readiness.load(Acquire), before);
        state.queue_event(Notice::GroupChanged { port: 7 });
        assert_eq!(state.readiness.load(Acquire), before.wrapping_add(1), "another notice");
    }
}
