//! Polling. The kernel polls; these functions only mark TIPC sockets as polled, so that their descriptors show their
//! readiness from then on. Spec: tipc.md §8.11.

use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::replace;
use crate::{real, table};

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

/// Polls descriptors, some of which may be TIPC sockets, by calling `wait`, the C library's function.
///
/// # Safety
/// `count` entries at `fds` are readable and writable; `wait` accepts any array of that length.
unsafe fn wait_for(fds: *mut pollfd, count: nfds_t, wait: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let entries = usize::try_from(count).unwrap_or(0);
    let (mut any_tipc, mut copy_needed) = (false, false);
    if !table::is_empty() {
        for at in 0..entries {
            // SAFETY: by the caller's promise.
            let entry = unsafe { &*fds.add(at) };
            let is_tipc = begin_polling(entry.fd);
            any_tipc |= is_tipc;
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
        let found = wait(copy.as_mut_ptr());
        if found >= 0 {
            original.iter_mut().zip(&copy).for_each(|(entry, copy)| entry.revents = copy.revents);
        }
        found
    } else {
        wait(fds)
    };
    // SAFETY: as above.
    if any_tipc && found > 0 { unsafe { correct(fds, count, found) } } else { found }
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
        if entry.revents & libc::POLLHUP != 0 && table::get(entry.fd).is_some() {
            entry.revents &= !(libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLRDHUP);
            found -= c_int::from(entry.revents == 0);
        }
    }
    found
}

/// Begins polling for all TIPC sockets in the sets of `select`.
///
/// # Safety
/// The sets are null or readable for `count` bits.
unsafe fn prepare_sets(count: c_int, sets: [*mut fd_set; 3]) {
    if table::is_empty() {
        return;
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
                    begin_polling(c_int::try_from(fd).unwrap_or(-1));
                }
            }
        }
    }
}

replace! {
    /// Polls descriptors.
    fn poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for(fds, count, |fds| real::poll.get()(fds, count, limit))
        }
    }

    /// Polls descriptors with a signal mask.
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for(fds, count, |fds| real::ppoll.get()(fds, count, limit, mask))
        }
    }

    /// `poll` of a program compiled with buffer checks (fortify).
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit: c_int, size: size_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let held = count.min((size / size_of::<pollfd>()) as nfds_t);
            wait_for(fds, held, |fds| real::__poll_chk.get()(fds, count, limit, size))
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
            wait_for(fds, held, |fds| real::__ppoll_chk.get()(fds, count, limit, mask, size))
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
            prepare_sets(count, [read, write, except]);
            real::select.get()(count, read, write, except, limit)
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
            prepare_sets(count, [read, write, except]);
            real::pselect.get()(count, read, write, except, limit, mask)
        }
    }

    /// Changes an epoll set.
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: as the caller's; the copy lives as long as the call.
        unsafe {
            if what == libc::EPOLL_CTL_DEL || !begin_polling(fd) || event.is_null() {
                return real::epoll_ctl.get()(set, what, fd, event);
            }
            // A TIPC connection ends in both directions at once, so half-closes are not reported.
            let mut requested = *event;
            requested.events &= !(libc::EPOLLRDHUP | c_int::from(PACKET_SOCKET_EVENTS)).cast_unsigned();
            real::epoll_ctl.get()(set, what, fd, &raw mut requested)
        }
    }
}
