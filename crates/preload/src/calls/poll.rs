//! Waiting for descriptors: the kernel does it. A TIPC socket only has to be told that somebody waits, so that the level of
//! its descriptor is its readiness from then on. Spec: tipc.md §8.11.

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::replace;
use crate::{real, table};

/// Bits of one word of a set of descriptors.
const WORD: usize = usize::BITS as usize;

/// Whether the descriptor is a TIPC socket; then its level is kept from now on.
fn is_kept(fd: c_int) -> bool {
    let Some(entry) = table::get(fd) else { return false };
    // One that cannot be polled is dead, and says so in the next call.
    let _ = entry.begin_polling();
    true
}

/// Whether there are TIPC sockets among the descriptors.
///
/// # Safety
/// `count` entries at `fds` are readable.
unsafe fn prepare(fds: *const pollfd, count: nfds_t) -> bool {
    let mut some = false;
    if table::is_empty() {
        return some;
    }
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by the caller's promise.
        some |= is_kept(unsafe { (*fds.add(at)).fd });
    }
    some
}

/// A connection that is over is not writable, and ends in both directions at once.
///
/// # Safety
/// As for [`prepare`]; the entries are writable.
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

/// The same for the sets of `select`.
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
                    is_kept(c_int::try_from(fd).unwrap_or(-1));
                }
            }
        }
    }
}

replace! {
    /// Waits for descriptors.
    fn poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let some = prepare(fds, count);
            let found = real::poll.get()(fds, count, limit);
            if some && found > 0 { correct(fds, count, found) } else { found }
        }
    }

    /// Waits for descriptors, with a mask of signals.
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let some = prepare(fds, count);
            let found = real::ppoll.get()(fds, count, limit, mask);
            if some && found > 0 { correct(fds, count, found) } else { found }
        }
    }

    /// `poll` of a program that was built with checks of its buffers' sizes.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit: c_int, size: size_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let some = prepare(fds, count.min((size / size_of::<pollfd>()) as nfds_t));
            let found = real::__poll_chk.get()(fds, count, limit, size);
            if some && found > 0 { correct(fds, count, found) } else { found }
        }
    }

    /// `ppoll` of such a program.
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
        size: size_t,
    ) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let some = prepare(fds, count.min((size / size_of::<pollfd>()) as nfds_t));
            let found = real::__ppoll_chk.get()(fds, count, limit, mask, size);
            if some && found > 0 { correct(fds, count, found) } else { found }
        }
    }

    /// Waits for sets of descriptors.
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

    /// Waits for sets of descriptors, with a mask of signals.
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

    /// Adds a descriptor to a set that the kernel keeps.
    fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: as the caller's; the copy lives as long as the call.
        unsafe {
            if what == libc::EPOLL_CTL_DEL || !is_kept(fd) || event.is_null() {
                return real::epoll_ctl.get()(set, what, fd, event);
            }
            // A connection of TIPC ends in both directions at once: nobody is told of half an end.
            let mut asked = *event;
            asked.events &= !libc::EPOLLRDHUP.cast_unsigned();
            real::epoll_ctl.get()(set, what, fd, &raw mut asked)
        }
    }
}
