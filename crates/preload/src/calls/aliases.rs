//! Functions that the C library exports under a second name, which other libraries use.

use libc::{
    c_char, c_int, c_void, fd_set, mode_t, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use super::{description, files, poll, receive, replace, send, setup};

replace! {
    /// See `read`, as for all functions here.
    fn __read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t {
        // SAFETY: as the caller's, as for all functions here.
        unsafe { receive::read(fd, data, len) }
    }

    /// See `write`.
    fn __write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe { send::write(fd, data, len) }
    }

    /// See `send`.
    fn __send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe { send::send(fd, data, len, flags) }
    }

    /// See `connect`.
    fn __connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { setup::connect(fd, addr, len) }
    }

    /// See `poll`.
    fn __poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { poll::poll(fds, count, limit) }
    }

    /// See `select`.
    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, limit: *mut timeval) -> c_int {
        // SAFETY: as the caller's.
        unsafe { poll::select(count, read, write, except, limit) }
    }

    /// See `close`.
    fn __close(fd: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { description::close(fd) }
    }

    /// See `dup2`.
    fn __dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { description::dup2(old, new) }
    }

    /// See `fcntl`.
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as the caller's.
        unsafe { description::fcntl(fd, command, argument) }
    }

    /// See `open`.
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { files::open(path, flags, mode) }
    }

    /// See `open64`.
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { files::open64(path, flags, mode) }
    }
}
