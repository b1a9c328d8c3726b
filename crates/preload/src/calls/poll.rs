//! Polling. The kernel polls; these functions only mark TIPC sockets as polled, so that their descriptors show their
//! readiness from then on. Spec: tipc.md §8.11.

use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use utipc_core::socket::SocketKind;

use super::replace;
use crate::{busy_poll, real, table};

/// Bits in one word of a descriptor set.
const WORD: usize = usize::BITS as usize;

/// Whether the descriptor is a TIPC socket; if so, its descriptor shows its readiness from now on.
fn begin_polling(fd: c_int) -> bool {
    let Some(entry) = table::get(fd) else { return false };
    // A socket that cannot be polled is dead; the next call reports it.
    let _ = entry.begin_polling();
    true
}

/// Events that packet sockets report and TIPC sockets never do: a poll for all events would return at once.
const PACKET_SOCKET_EVENTS: c_short = libc::POLLWRNORM | libc::POLLWRBAND;

/// Polls descriptors, some of which may be TIPC sockets, by calling `wait`, the C library's function. `asks`: it does
/// not wait.
///
/// # Safety
/// `count` entries at `fds` are readable and writable; `wait` accepts any array of that length.
unsafe fn wait_for(
    fds: *mut pollfd,
    count: nfds_t,
    asks: bool,
    wait: impl FnOnce(*mut pollfd) -> c_int,
) -> c_int {
    let entries = usize::try_from(count).unwrap_or(0);
    let (mut any_tipc, mut copy_needed, mut may_poll) = (false, false, false);
    // SAFETY: no pointers but the array, which is one for `poll`.
    let probe = |fds: *mut pollfd| unsafe { real::poll.get()(fds, count, 0) };
    let wait = |fds: *mut pollfd, may_poll: bool| {
        if may_poll { busy_poll::wait(asks, || probe(fds), || wait(fds)) } else { wait(fds) }
    };
    if !table::is_empty() {
        for at in 0..entries {
            // SAFETY: by the caller's promise.
            let entry = unsafe { &*fds.add(at) };
            let is_tipc = begin_polling(entry.fd);
            any_tipc |= is_tipc;
            may_poll |= is_tipc || busy_poll::is_marked(entry.fd);
            copy_needed |= is_tipc && entry.events & PACKET_SOCKET_EVENTS != 0;
        }
    }
    let found = if copy_needed {
        // The program's array keeps the requested events unchanged.
        // SAFETY: by the caller's promise.
        let original = unsafe { std::slice::from_raw_parts_mut(fds, entries) };
        let mut copy = original.to_vec();
        for entry in copy.iter_mut().filter(|entry| table::get(entry.fd).is_some()) {
            entry.events &= !PACKET_SOCKET_EVENTS;
        }
        let found = wait(copy.as_mut_ptr(), may_poll);
        if found >= 0 {
            original.iter_mut().zip(&copy).for_each(|(entry, copy)| entry.revents = copy.revents);
        }
        found
    } else {
        wait(fds, may_poll)
    };
    // SAFETY: as above.
    if any_tipc && found > 0 { unsafe { correct(fds, count, found) } } else { found }
}

/// Whether the descriptor is a TIPC socket of a kind with connections. Others stay writable after a shutdown.
fn is_connection(fd: c_int) -> bool {
    let socket = table::get(fd).and_then(|entry| entry.socket().ok().map(|socket| socket.kind()));
    socket.is_some_and(SocketKind::is_connection_oriented)
}

/// Corrects the events of ended connections, which are not writable and end in both directions at once.
///
/// # Safety
/// As for [`wait_for`].
unsafe fn correct(fds: *mut pollfd, count: nfds_t, found: c_int) -> c_int {
    let mut found = found;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by the caller's promise.
        let entry = unsafe { &mut *fds.add(at) };
        if entry.revents & libc::POLLHUP != 0 && is_connection(entry.fd) {
            entry.revents &= !(libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLRDHUP);
            found -= c_int::from(entry.revents == 0);
        }
    }
    found
}

/// Whether a time limit is over at once.
///
/// # Safety
/// The limit is null or readable.
unsafe fn is_now(limit: *const timespec) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { limit.as_ref() }.is_some_and(|limit| limit.tv_sec == 0 && limit.tv_nsec == 0)
}

/// Begins polling for all TIPC sockets in the sets of `select`; returns whether there are any.
///
/// # Safety
/// The sets are null or readable for `count` bits.
unsafe fn prepare_sets(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let mut may_poll = false;
    if table::is_empty() {
        return may_poll;
    }
    let count = usize::try_from(count).unwrap_or(0);
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        for at in 0..count.div_ceil(WORD) {
            // SAFETY: by the caller's promise; a set is an array of words.
            let mut word = unsafe { set.cast::<usize>().add(at).read() };
            while word != 0 {
                let bit = word.trailing_zeros() as usize;
                word &= word - 1;
                let fd = at * WORD + bit;
                if fd < count {
                    let fd = c_int::try_from(fd).unwrap_or(-1);
                    may_poll |= begin_polling(fd) || busy_poll::is_marked(fd);
                }
            }
        }
    }
    may_poll
}

/// Calls `select` or `pselect`, as `wait`, for sets that may include TIPC sockets.
///
/// # Safety
/// The sets are null or readable and writable for `count` bits.
unsafe fn wait_for_sets(
    count: c_int,
    sets: [*mut fd_set; 3],
    asks: bool,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    let may_poll = unsafe { prepare_sets(count, sets) };
    if !may_poll {
        return wait();
    }
    let words = usize::try_from(count).unwrap_or(0).div_ceil(WORD);
    // SAFETY: as above; a set is an array of words.
    let copy = |set: *mut fd_set| unsafe {
        (0..if set.is_null() { 0 } else { words }).map(|at| set.cast::<usize>().add(at).read()).collect()
    };
    let requested: [Vec<usize>; 3] = sets.map(copy);
    let probe = || {
        let mut found = requested.clone();
        let mut at = found.each_mut().map(|set| set.as_mut_ptr().cast::<fd_set>());
        for (at, set) in at.iter_mut().zip(sets) {
            *at = if set.is_null() { std::ptr::null_mut() } else { *at };
        }
        let mut now = timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: each set is null or a copy of the program's, with the same number of words.
        let number = unsafe { real::select.get()(count, at[0], at[1], at[2], &raw mut now) };
        if number > 0 {
            for (set, found) in sets.into_iter().zip(&found) {
                for (at, word) in found.iter().enumerate() {
                    // SAFETY: by the caller's promise; the set is not null, as its copy has words.
                    unsafe { set.cast::<usize>().add(at).write(*word) };
                }
            }
        }
        number
    };
    busy_poll::wait(asks, probe, wait)
}

/// Calls a function that waits for an epoll set, as `wait`.
///
/// # Safety
/// `events` is writable for `most` events.
unsafe fn wait_for_events(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    asks: bool,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    if table::is_empty() || !busy_poll::is_marked(set) {
        return wait();
    }
    // SAFETY: by the caller's promise.
    busy_poll::wait(asks, || unsafe { real::epoll_wait.get()(set, events, most, 0) }, wait)
}

replace! {
    /// Polls descriptors.
    fn poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for(fds, count, limit == 0, |fds| real::poll.get()(fds, count, limit))
        }
    }

    /// Polls descriptors with a signal mask.
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for(fds, count, is_now(limit), |fds| real::ppoll.get()(fds, count, limit, mask))
        }
    }

    /// `poll` of a program compiled with buffer checks (fortify).
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit: c_int, size: size_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let held = count.min((size / size_of::<pollfd>()) as nfds_t);
            wait_for(fds, held, limit == 0, |fds| real::__poll_chk.get()(fds, count, limit, size))
        }
    }

    /// `ppoll` of a program compiled with buffer checks.
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
        size: size_t,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let held = count.min((size / size_of::<pollfd>()) as nfds_t);
            wait_for(fds, held, is_now(limit), |fds| real::__ppoll_chk.get()(fds, count, limit, mask, size))
        }
    }

    /// Polls sets of descriptors.
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        limit: *mut timeval,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let asks = limit.as_ref().is_some_and(|limit| limit.tv_sec == 0 && limit.tv_usec == 0);
            wait_for_sets(count, [read, write, except], asks, || {
                real::select.get()(count, read, write, except, limit)
            })
        }
    }

    /// Polls sets of descriptors with a signal mask.
    fn pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for_sets(count, [read, write, except], is_now(limit), || {
                real::pselect.get()(count, read, write, except, limit, mask)
            })
        }
    }

    /// Changes an epoll set.
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: as the caller's; the copy lives as long as the call.
        unsafe {
            let is_tipc = what != libc::EPOLL_CTL_DEL && begin_polling(fd);
            if is_tipc || busy_poll::is_marked(fd) {
                busy_poll::mark_set(set);
            }
            if !is_tipc || event.is_null() {
                return real::epoll_ctl.get()(set, what, fd, event);
            }
            // A TIPC connection ends in both directions at once, so half-closes are not reported.
            let mut requested = *event;
            requested.events &= !(libc::EPOLLRDHUP | c_int::from(PACKET_SOCKET_EVENTS)).cast_unsigned();
            real::epoll_ctl.get()(set, what, fd, &raw mut requested)
        }
    }

    /// Waits for an epoll set.
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, limit: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for_events(set, events, most, limit == 0, || real::epoll_wait.get()(set, events, most, limit))
        }
    }

    /// Waits for an epoll set with a signal mask.
    fn epoll_pwait(
        set: c_int,
        events: *mut epoll_event,
        most: c_int,
        limit: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for_events(set, events, most, limit == 0, || {
                real::epoll_pwait.get()(set, events, most, limit, mask)
            })
        }
    }

    /// `epoll_pwait` with a finer time limit.
    fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        most: c_int,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for_events(set, events, most, is_now(limit), || {
                real::epoll_pwait2.get()(set, events, most, limit, mask)
            })
        }
    }
}
