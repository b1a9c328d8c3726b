//! Waits for descriptors that poll busily for messages before they sleep.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, Mutex, OnceLock};

use libc::{epoll_event, nfds_t, pollfd};
use utipc::BusyPoll;

use crate::call::{guard, set_errno};
use crate::table::{self, Entry};

/// Maximum number of sockets that a busy poll checks.
const RECENT_MAX: usize = 8;
/// Not a descriptor: an empty slot.
const NONE: c_int = -1;

/// The sockets that were received from since the last sleep.
static RECENT: [AtomicI32; RECENT_MAX] = [const { AtomicI32::new(NONE) }; RECENT_MAX];
/// The program waits by the functions of this module.
static USED: AtomicBool = AtomicBool::new(false);

/// Only one of several threads polls busily.
fn busy_poll() -> &'static Mutex<BusyPoll> {
    static BUSY: OnceLock<Mutex<BusyPoll>> = OnceLock::new();
    BUSY.get_or_init(Mutex::default)
}

/// Notes a receive.
#[inline]
pub(crate) fn received(sd: c_int) {
    if !USED.load(Relaxed) || RECENT.iter().any(|place| place.load(Relaxed) == sd) {
        return;
    }
    // If all places are taken, this socket wakes the program as without a busy poll.
    let _ = RECENT.iter().any(|place| place.compare_exchange(NONE, sd, Relaxed, Relaxed).is_ok());
}

/// The recent sockets.
fn recent() -> Vec<Arc<Entry>> {
    let numbers = RECENT.iter().map(|place| place.load(Relaxed)).filter(|sd| *sd != NONE);
    numbers.filter_map(|sd| table::get(sd).ok()).collect()
}

/// Polls busily, then sleeps: `probe` asks the kernel for events without waiting, `wait` as long as the program wants.
fn poll_and_wait(limit: c_int, mut probe: impl FnMut() -> c_int, wait: impl FnOnce() -> c_int) -> c_int {
    USED.store(true, Relaxed);
    if limit == 0 || RECENT.iter().all(|place| place.load(Relaxed) == NONE) {
        return wait();
    }
    // An error too is a result.
    let probe = || match probe() {
        0 => None,
        events => Some((events, io::Error::last_os_error().raw_os_error())),
    };
    let found = guard(None, || {
        let sockets = recent();
        let Ok(mut busy) = busy_poll().try_lock() else { return Ok(None) };
        Ok(busy.before_sleep(sockets.iter().map(|entry| &entry.socket), probe))
    });
    if let Some((events, errno)) = found {
        set_errno(errno.unwrap_or_default());
        return events;
    }
    for place in &RECENT {
        place.store(NONE, Relaxed);
    }
    let events = wait();
    if events > 0
        && let Ok(mut busy) = busy_poll().try_lock()
    {
        busy.slept();
    }
    events
}

/// `int utipc_poll(struct pollfd *fds, nfds_t nfds, int timeout)`
///
/// # Safety
/// As for `poll`: `fds` points to `nfds` entries.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_poll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: by the contract.
    let poll = |limit| unsafe { libc::poll(fds, nfds, limit) };
    poll_and_wait(timeout, || poll(0), || poll(timeout))
}

/// `int utipc_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)`
///
/// # Safety
/// As for `epoll_wait`: `events` points to memory of `maxevents` events.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: by the contract.
    let wait = |limit| unsafe { libc::epoll_wait(epfd, events, maxevents, limit) };
    poll_and_wait(timeout, || wait(0), || wait(timeout))
}
