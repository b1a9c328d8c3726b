//! Busy polling before sleeping: a wait for descriptors first checks, for as long as that is likely to pay, the lanes
//! of the sockets that were received from lately, and meanwhile now and then the descriptors themselves, without
//! waiting.
//!
//! Such sockets are *recent*: their readiness is lazy (see `ready/lazy.rs` of `utipc-client`), so that a message costs
//! neither an armed lane nor a wake-up. Every wait that may sleep synchronises them first. While a thread sleeps, no
//! descriptor is stale: that thread may wait for any socket.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use libc::c_int;
use utipc_client::{BusyPoll, Socket};
use utipc_os::reentry::is_inside;

use crate::entry::Entry;
use crate::errno::fail;
use crate::handlers::{AGAIN, Inside};
use crate::{node, table};

/// Maximum number of recent sockets; the descriptors of others are not stale.
const RECENT_MAX: usize = 8;
/// Epoll sets whose content is known have numbers below this.
const SETS: usize = 1 << 16;

/// Not a descriptor: a free place.
const NONE: RawFd = -1;

/// The recent sockets, by number. No lock: a thread of the parent could hold it during a fork.
static RECENT: [AtomicI32; RECENT_MAX] = [const { AtomicI32::new(NONE) }; RECENT_MAX];
/// Threads that may sleep in a wait for TIPC sockets.
static SLEEPERS: AtomicUsize = AtomicUsize::new(0);
/// The program's waits are known to pass here; some programs make system calls directly.
static SEEN: AtomicBool = AtomicBool::new(false);
/// One bit for each epoll set: it may hold TIPC sockets.
static HOLDERS: [AtomicU64; SETS / 64] = [const { AtomicU64::new(0) }; SETS / 64];

/// From the first busy poll on. Only one of several threads polls busily, and none waits for another.
static BUSY: Mutex<Option<BusyPoll>> = Mutex::new(None);

/// Notes that an epoll set holds a TIPC socket.
pub(crate) fn mark_set(set: RawFd) {
    if let Some((word, bit)) = place(set) {
        HOLDERS[word].fetch_or(bit, Relaxed);
    }
}

/// Whether this is an epoll set that may hold TIPC sockets.
pub(crate) fn is_marked(set: RawFd) -> bool {
    match place(set) {
        Some((word, bit)) => HOLDERS[word].load(Relaxed) & bit != 0,
        None => set >= 0,
    }
}

fn place(set: RawFd) -> Option<(usize, u64)> {
    let at = usize::try_from(set).ok().filter(|at| *at < SETS)?;
    Some((at / 64, 1 << (at % 64)))
}

/// After a receive: if its descriptor is stale, the socket is recent from now on.
#[inline]
pub(crate) fn received(entry: &Entry, socket: &Socket) {
    if socket.readiness().is_stale() {
        add(entry, socket);
    } else if SEEN.load(Relaxed) {
        socket.readiness().allow_lazy();
    }
}

fn add(entry: &Entry, socket: &Socket) {
    let number = entry.number();
    let is_kept = RECENT.iter().any(|place| place.load(Relaxed) == number)
        || RECENT.iter().any(|place| place.compare_exchange(NONE, number, SeqCst, Relaxed).is_ok());
    // A thread that has begun to sleep since then has seen the number in the list, or is counted.
    if !is_kept || SLEEPERS.load(SeqCst) > 0 || !entry.may_be_lazy() {
        // If the daemon has died, the descriptor hangs up.
        let _ = socket.readiness().sync_stale();
    }
}

fn recent() -> impl Iterator<Item = Arc<Entry>> {
    RECENT.iter().filter_map(|place| table::get(place.load(SeqCst)))
}

/// Synchronises the descriptors of all recent sockets.
fn sync_all() {
    for place in &RECENT {
        let number = place.load(SeqCst);
        if number == NONE {
            continue;
        }
        if let Some(entry) = table::get(number) {
            // It ends before `entry` is dropped, which may close the socket.
            let _inside = Inside::enter();
            entry.sync_stale();
        }
        let _ = place.compare_exchange(number, NONE, SeqCst, Relaxed);
    }
}

/// Whether a recent socket has something, and is readable now.
fn check() -> bool {
    // Not `any`: a program that waits for several finds all of them.
    let mut found = false;
    for entry in recent() {
        let _inside = Inside::enter();
        found |= entry.check_stale();
    }
    found
}

/// A thread that may sleep.
struct Sleeper;

impl Sleeper {
    fn new() -> Self {
        SLEEPERS.fetch_add(1, SeqCst);
        Self
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        SLEEPERS.fetch_sub(1, SeqCst);
    }
}

/// Waits for descriptors that may include TIPC sockets: `probe` asks the kernel for them without waiting, `wait` waits
/// as long as the program wants to, which is not at all if it only `asks`.
pub(crate) fn wait(asks: bool, mut probe: impl FnMut() -> c_int, wait: impl FnOnce() -> c_int) -> c_int {
    if !SEEN.load(Relaxed) {
        SEEN.store(true, Relaxed);
    }
    if is_inside() {
        // A signal handler has interrupted a call: descriptors may be stale until that is over.
        return if asks { wait() } else { fail(AGAIN) };
    }
    if asks {
        check();
        return wait();
    }
    let has_recent = RECENT.iter().any(|place| place.load(Relaxed) != NONE);
    if has_recent && let Ok(mut busy) = BUSY.try_lock() {
        let busy = busy.get_or_insert_with(|| BusyPoll::with_mode(node::spin()));
        let awake = recent().any(|entry| entry.some_sender_is_awake());
        if let Some(found) = busy.of_stale(awake, check, || Some(probe()).filter(|found| *found != 0)) {
            return found;
        }
    }
    let sleeper = Sleeper::new();
    sync_all();
    let found = wait();
    drop(sleeper);
    if has_recent
        && found > 0
        && let Ok(mut busy) = BUSY.try_lock()
        && let Some(busy) = busy.as_mut()
    {
        busy.slept();
    }
    found
}
