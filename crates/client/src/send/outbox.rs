//! The sending half of a socket, as its attachment knows it too.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard};

use utipc_core::addr::{Importance, NodeAddr};
use utipc_core::socket::{Destination, EndpointStats, SocketKind, WaitReason};
use utipc_lanes::{OutboundLane, SendOptions, Sender};
use utipc_os::lock;
use utipc_os::spin::{Mode, Spin};

use crate::attachment::names::{Receivers, SoleBinding};
use crate::send::members::Members;
use crate::state::events::EventQueue;

/// What a sending thread has locked.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    pub(super) lanes: Sender,
    /// The receivers of the last multicast.
    pub(super) receivers: Option<Receivers>,
    /// The receiver of the last anycast, if it was the only binding.
    pub(super) sole: Option<SoleBinding>,
    /// Destination of messages that are sent without one.
    pub(super) default_to: Option<Destination>,
    /// How messages to the socket's group travel.
    pub(super) members: Members,
}

impl SendHalf {
    /// Stops using all lanes.
    pub(crate) fn leave_lanes(&mut self) {
        self.lanes.leave_all();
        self.members.forget();
    }

    pub(crate) fn forget_refusals(&mut self) {
        self.lanes.forget_refusals();
    }

    pub(crate) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut OutboundLane> {
        self.lanes.lanes_mut()
    }

    pub(crate) fn set_default(&mut self, to: Option<Destination>) {
        self.default_to = to;
    }

    /// Adds the counters of messages in lanes.
    pub(crate) fn add_to(&self, stats: &mut EndpointStats) {
        stats.sent_messages += self.lanes.messages;
        stats.sent_bytes += self.lanes.bytes;
        stats.window_waits += self.lanes.window_waits;
        stats.link_waits += self.lanes.link_waits;
        stats.overloads += self.lanes.overloads;
    }

    pub(crate) fn wait_reason(&mut self, node: NodeAddr) -> Option<WaitReason> {
        self.lanes.wait_reason(node)
    }
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Outbox {
    half: Mutex<SendHalf>,
    pub(crate) events: EventQueue,
    /// State of spinning. Of several waiting threads only the one that holds the lock spins.
    pub(crate) spin: Mutex<Spin>,
    /// [`SendOptions`], packed.
    options: AtomicU32,
    /// Number of `Notice::Readiness` for the socket, modulo 2^32: another thread's reply may bring the one that a
    /// sender is about to sleep for.
    readiness: AtomicU32,
}

impl Outbox {
    pub(crate) fn new(kind: SocketKind, mode: Mode) -> Self {
        let outbox = Self {
            half: Mutex::default(),
            events: EventQueue::default(),
            spin: Mutex::new(Spin::new(mode)),
            options: AtomicU32::new(0),
            readiness: AtomicU32::new(0),
        };
        outbox.set_options(SendOptions::new(kind));
        outbox
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, SendHalf> {
        lock(&self.half)
    }

    /// The half, unless a thread that sends right now has locked it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, SendHalf>> {
        self.half.try_lock().ok()
    }

    pub(crate) fn note_readiness(&self) {
        self.readiness.fetch_add(1, Release);
    }

    #[inline]
    pub(crate) fn readiness(&self) -> u32 {
        self.readiness.load(Acquire)
    }

    #[inline]
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
}
