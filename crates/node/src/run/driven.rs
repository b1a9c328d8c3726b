//! A node driver, and what the threads that use it know of each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use utipc_core::Time;
use utipc_core::socket::Endpoint;
use utipc_os::mmsg::ReceiveRing;
use utipc_os::offload::gro;
use utipc_os::reactor::{Event as Ready, Reactor};
use utipc_os::spin::Spin;
use utipc_os::udp::Express;

use super::slot::{self, Slot};
use super::state::{Drive, DriveEvent, Supervision};
use crate::driver::{NodeConfig, NodeDriver, StartError};

/// Maximum number of reads of one wait on an express path.
const DIRECT_BATCH: usize = 16;

/// Event loop and buffers of the calling thread that waits.
pub(super) struct Waiting {
    pub(super) reactor: Reactor,
    /// Buffers for frames that it reads while it waits on an express path.
    pub(super) ring: ReceiveRing,
    pub(super) ready: Vec<Ready>,
    /// How long it checks memory before it sleeps.
    pub(super) spin: Spin,
}

/// The thread that waits for the wire.
pub(super) enum Sleeper {
    None,
    /// A call on an express path.
    Express(Arc<Express>),
    /// A call in its event loop.
    Caller,
    Supervisor,
}

/// A node driver, and which thread drives it.
pub(super) struct Driven {
    pub(super) node: NodeDriver,
    /// Time that a waiting call spins before it sleeps.
    pub(super) spin: Duration,
    sockets: HashMap<u32, Arc<Slot>>,
    /// The slot of threads that wait for something that is not a socket: a node, a link.
    pub(super) observers: Arc<Slot>,
    pub(super) drive: Drive,
    pub(super) supervision: Supervision,
    /// For the calling thread that waits; absent while one waits.
    pub(super) idle: Option<Waiting>,
    /// The slot of the call that drives.
    pub(super) driving: Option<Arc<Slot>>,
    /// The driving call must be woken: another thread has received what it waits for.
    pub(super) recall: bool,
    /// Slots with waiting threads that do not drive.
    pub(super) waiting: Vec<Arc<Slot>>,
    /// Number of calls, and of calls that drove; they show the supervisor whether calls are made.
    pub(super) calls: u64,
    pub(super) drives: u64,
    /// Sockets whose descriptor an application polls.
    pub(super) polled: u32,
    /// Until then messages may wait for acknowledgements, and the supervisor checks more often.
    pub(super) check_often_until: Time,
    pub(super) stop: bool,
}

impl Driven {
    pub(super) fn new(config: NodeConfig, label: Arc<str>) -> Result<Self, StartError> {
        let (spin, wait) = (config.spin, config.wait);
        Ok(Self {
            node: NodeDriver::new(config, label)?,
            spin,
            sockets: HashMap::new(),
            observers: Arc::default(),
            drive: Drive::Undriven,
            supervision: Supervision::Working,
            idle: Some(Waiting {
                reactor: Reactor::new()?,
                ring: ReceiveRing::new(DIRECT_BATCH, gro::MAX_BYTES),
                ready: Vec::new(),
                spin: Spin::new(wait),
            }),
            driving: None,
            recall: false,
            waiting: Vec::new(),
            calls: 0,
            drives: 0,
            polled: 0,
            check_often_until: Time::ZERO,
            stop: false,
        })
    }

    /// The thread that waits for the wire now. The caller is about to wake it, which costs more on an express path, so
    /// the next waits are in the event loop.
    pub(super) fn take_sleeper(&mut self) -> Sleeper {
        self.node.end_streak();
        let before = self.drive;
        self.change_drive(DriveEvent::CallerReturns);
        match before {
            Drive::Undriven => Sleeper::None,
            Drive::Caller => Sleeper::Caller,
            Drive::Express(path) => self.node.express(path).map_or(Sleeper::Caller, Sleeper::Express),
            Drive::Supervisor => Sleeper::Supervisor,
        }
    }

    /// Moves to the next state of [`Drive`].
    pub(super) fn change_drive(&mut self, event: DriveEvent) {
        self.drive = self.drive.next(event);
    }

    /// The slot of a socket; made at its first use.
    pub(super) fn slot(&mut self, port: u32) -> Arc<Slot> {
        Arc::clone(self.sockets.entry(port).or_default())
    }

    pub(super) fn forget(&mut self, port: u32) {
        if let Some(slot) = self.sockets.remove(&port) {
            self.polled -= u32::from(slot.pollable.get().is_some());
        }
    }

    /// True if the thread that waits must be woken: its socket is ready, or it would sleep beyond the next deadline. It
    /// is reported once.
    pub(super) fn take_must_wake(&mut self) -> bool {
        let late = self.node.is_late() || std::mem::take(&mut self.recall);
        if late {
            self.node.disarm();
        }
        late
    }

    /// Sends the frames of the stack, and wakes the threads that wait for what has happened.
    pub(super) fn send_and_notify(&mut self) {
        self.node.flush();
        if self.node.observe() {
            let observers = Arc::clone(&self.observers);
            self.notify(&observers);
        }
        while let Some(port) = self.node.stack.poll_ready() {
            let Some(slot) = self.sockets.get(&port) else { continue };
            slot::update_pollable(&self.node.stack, port, slot);
            if slot.is_served_by(self.node.stack.endpoint(port).map(Endpoint::readiness)) {
                let slot = Arc::clone(slot);
                self.notify(&slot);
            }
        }
    }

    /// Wakes the threads that wait on a slot.
    fn notify(&mut self, slot: &Arc<Slot>) {
        if slot.has_sleepers() {
            slot.ready.notify_all();
        }
        self.recall |= self.driving.as_ref().is_some_and(|driving| Arc::ptr_eq(driving, slot));
    }
}
