//! Looking before sleeping: a wait for descriptors first checks, for as long as that is likely to pay, the lanes of the
//! sockets that were received from lately, and meanwhile now and then the descriptors themselves, without waiting.
//!
//! Such sockets are *recent*: their levels are deferred (see `looking.rs` of `utipc-client`), so that a message costs
//! neither an armed lane nor a wake-up. Every wait that may sleep settles them first. While a thread sleeps, no level
//! is deferred: that thread may wait for any socket.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use libc::c_int;
use utipc_client::Socket;
use utipc_os::reentry::is_inside;
use utipc_os::spin::Spin;

use crate::entry::Entry;
use crate::errno::fail;
use crate::handlers::{AGAIN, Inside};
use crate::{node, table};

/// Most recent sockets; the levels of others are not deferred.
const RECENT_MAX: usize = 8;
/// Checks of the lanes between two of the descriptors.
const CHECKS: u32 = 32;
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

/// How long to look, from the first look on. Only one of several threads looks, and none waits for another.
static SPIN: Mutex<Option<Spin>> = Mutex::new(None);

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

/// After a receive: if its level is deferred, the socket is recent from now on.
#[inline]
pub(crate) fn received(entry: &Entry, socket: &Socket) {
    if socket.is_level_deferred() {
        add(entry, socket);
    } else if SEEN.load(Relaxed) {
        socket.defer_level();
    }
}

fn add(entry: &Entry, socket: &Socket) {
    let number = entry.number();
    let is_kept = RECENT.iter().any(|place| place.load(Relaxed) == number)
        || RECENT.iter().any(|place| place.compare_exchange(NONE, number, SeqCst, Relaxed).is_ok());
    // A thread that has begun to sleep since then has seen the number in the list, or is counted.
    if !is_kept || SLEEPERS.load(SeqCst) > 0 || !entry.may_defer() {
        // If the daemon has died, the descriptor hangs up.
        let _ = socket.settle_level();
    }
}

fn recent() -> impl Iterator<Item = Arc<Entry>> {
    RECENT.iter().filter_map(|place| table::get(place.load(SeqCst)))
}

/// Makes the levels of all recent sockets right.
pub(crate) fn settle() {
    for place in &RECENT {
        let number = place.load(SeqCst);
        if number == NONE {
            continue;
        }
        if let Some(entry) = table::get(number) {
            // It ends before `entry` is dropped, which may close the socket.
            let _inside = Inside::enter();
            entry.settle_level();
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
        found |= entry.check_deferred();
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
        // A signal handler has interrupted a call: levels may lag behind until that is over.
        return if asks { wait() } else { fail(AGAIN) };
    }
    if asks {
        check();
        return wait();
    }
    let has_recent = RECENT.iter().any(|place| place.load(Relaxed) != NONE);
    if has_recent && let Ok(mut spin) = SPIN.try_lock() {
        let spin = spin.get_or_insert_with(|| Spin::new(node::spin()));
        let awake = recent().any(|entry| entry.some_sender_is_awake());
        let mut checks = 0;
        let found = spin.spin(awake, || {
            checks += 1;
            let is_due = check() || checks % CHECKS == 0;
            let found = if is_due { probe() } else { 0 };
            (found != 0).then_some(found)
        });
        if let Some(found) = found {
            return found;
        }
    }
    let sleeper = Sleeper::new();
    settle();
    let found = wait();
    drop(sleeper);
    if has_recent
        && found > 0
        && let Ok(mut spin) = SPIN.try_lock()
        && let Some(spin) = spin.as_mut()
    {
        spin.slept();
    }
    found
}
