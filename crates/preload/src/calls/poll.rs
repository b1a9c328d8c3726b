//! Waiting for descriptors: the kernel does it. A TIPC socket only has to be told that somebody waits, so that the level of
//! its descriptor is its readiness from then on. Spec: tipc.md §8.11.

use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

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

/// Bits that the descriptors of TIPC sockets have, being of another family, and TIPC sockets never: who asks for everything
/// would be told at once.
const STRAY: c_short = libc::POLLWRNORM | libc::POLLWRBAND;

/// Waits by `wait`, the library's own call, for descriptors some of which may be TIPC sockets.
///
/// # Safety
/// `count` entries at `fds` are readable and writable; `wait` takes any array of so many.
unsafe fn wait_for(fds: *mut pollfd, count: nfds_t, wait: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let entries = usize::try_from(count).unwrap_or(0);
    let (mut some, mut stray) = (false, false);
    if !table::is_empty() {
        for at in 0..entries {
            // SAFETY: by the caller's promise.
            let entry = unsafe { &*fds.add(at) };
            let kept = is_kept(entry.fd);
            some |= kept;
            stray |= kept && entry.events & STRAY != 0;
        }
    }
    let found = if stray {
        // What the program asks for is its own: it reads the same after the call.
        // SAFETY: by the caller's promise.
        let asked = unsafe { std::slice::from_raw_parts_mut(fds, entries) };
        let mut copy = asked.to_vec();
        for entry in copy.iter_mut().filter(|entry| table::get(entry.fd).is_some()) {
            entry.events &= !STRAY;
        }
        let found = wait(copy.as_mut_ptr());
        if found >= 0 {
            asked.iter_mut().zip(&copy).for_each(|(entry, copy)| entry.revents = copy.revents);
        }
        found
    } else {
        wait(fds)
    };
    // SAFETY: as above.
    if some && found > 0 { unsafe { correct(fds, count, found) } } else { found }
}

/// A connection that is over is not writable, and ends in both directions at once.
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
            wait_for(fds, count, |fds| real::poll.get()(fds, count, limit))
        }
    }

    /// Waits for descriptors, with a mask of signals.
    fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            wait_for(fds, count, |fds| real::ppoll.get()(fds, count, limit, mask))
        }
    }

    /// `poll` of a program that was built with checks of its buffers' sizes.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, limit: c_int, size: size_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            let held = count.min((size / size_of::<pollfd>()) as nfds_t);
            wait_for(fds, held, |fds| real::__poll_chk.get()(fds, count, limit, size))
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
            let held = count.min((size / size_of::<pollfd>()) as nfds_t);
            wait_for(fds, held, |fds| real::__ppoll_chk.get()(fds, count, limit, mask, size))
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
            asked.events &= !(libc::EPOLLRDHUP | c_int::from(STRAY)).cast_unsigned();
            real::epoll_ctl.get()(set, what, fd, &raw mut asked)
        }
    }
}
