//! The receiving half of a socket, as its attachment knows it too.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use utipc_core::addr::ServiceRange;
use utipc_core::socket::Received;
use utipc_lanes::{ReadyLanes, Receiver};
use utipc_os::lock;
use utipc_os::spin::{Mode, Spin};

use crate::state::events::EventQueue;

/// Maximum number of returned messages that wait to be received.
const RETURNED_MAX: usize = 1024;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Mutex<Receiver>,
    pub(crate) events: EventQueue,
    /// The lanes in which a peer has announced a message.
    pub(crate) ready: Arc<ReadyLanes>,
    /// Threads and tasks that sleep until their writers wake them; increased with the receiver locked.
    sleepers: AtomicU32,
    /// State of spinning. Of several waiting threads only the one that holds the lock spins.
    pub(crate) spin: Mutex<Spin>,
    /// Messages that this process has returned to its own socket, to be received.
    returned: Mutex<Vec<Received>>,
    /// The service address to which this process has connected it.
    service: Mutex<Option<ServiceRange>>,
    /// The socket option `ReceiveLowWater`: the least number of bytes for which a blocking receive of a stream returns.
    low_water: AtomicU32,
}

/// A thread or task that sleeps until a receive finds something.
pub(crate) struct Asleep<'a>(&'a Inbox);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.end_sleep();
    }
}

impl Inbox {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            receiver: Mutex::default(),
            events: EventQueue::default(),
            ready: Arc::default(),
            sleepers: AtomicU32::new(0),
            spin: Mutex::new(Spin::new(mode)),
            returned: Mutex::default(),
            service: Mutex::default(),
            low_water: AtomicU32::new(1),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Receiver> {
        lock(&self.receiver)
    }

    /// The receiver, unless a thread that receives right now has locked it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Receiver>> {
        self.receiver.try_lock().ok()
    }

    /// How calls spin. While a thread spins: adaptive.
    pub(crate) fn spin_mode(&self) -> Mode {
        // In a forked child a thread that exists only in the parent may hold the lock.
        self.spin.try_lock().map_or(Mode::Adaptive, |spin| spin.mode())
    }

    /// Counts a sleeper until [`Inbox::end_sleep`].
    pub(crate) fn begin_sleep(&self, _locked: &mut Receiver) {
        self.sleepers.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Relaxed);
    }

    /// Counts a sleeper for as long as the result lives.
    pub(crate) fn sleep(&self, locked: &mut Receiver) -> Asleep<'_> {
        self.begin_sleep(locked);
        Asleep(self)
    }

    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Relaxed) > 0
    }

    /// Queues a returned message; drops it if [`RETURNED_MAX`] wait.
    pub(crate) fn return_message(&self, message: Received) {
        let mut waiting = lock(&self.returned);
        if waiting.len() < RETURNED_MAX {
            waiting.push(message);
        }
        drop(waiting);
        self.events.announce();
    }

    pub(super) fn take_returned(&self) -> Vec<Received> {
        core::mem::take(&mut *lock(&self.returned))
    }

    pub(super) fn service(&self) -> Option<ServiceRange> {
        *lock(&self.service)
    }

    pub(crate) fn set_service(&self, service: ServiceRange) {
        *lock(&self.service) = Some(service);
    }

    pub(crate) fn low_water(&self) -> u32 {
        self.low_water.load(Relaxed)
    }

    pub(crate) fn set_low_water(&self, bytes: u32) {
        self.low_water.store(bytes.max(1), Relaxed);
    }
}
