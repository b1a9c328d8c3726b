//! Opening files, two of which are modified (see `crate::files`).

use std::ffi::CStr;
use std::os::fd::{IntoRawFd, OwnedFd};

use libc::{FILE, c_char, c_int, mode_t};

use super::replace;
use crate::files::with_tipc;
use crate::{descriptors, real, stdio, table};

/// The descriptor's number, with close-on-exec as requested.
fn with_flags(fd: OwnedFd, flags: c_int) -> c_int {
    let fd = fd.into_raw_fd();
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: no pointers; the descriptor is open.
        unsafe { real::fcntl.get()(fd, libc::F_SETFD, 0) };
    }
    fd
}

/// A stream that reads such a file; null on failure.
fn stream(fd: OwnedFd) -> *mut FILE {
    // SAFETY: the mode is a C string, and the stream owns the descriptor afterwards.
    unsafe { real::fdopen.get()(fd.into_raw_fd(), c"r".as_ptr()) }
}

replace! {
    /// Opens a file.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::open.get()(path, flags, mode), |fd| with_flags(fd, flags)) }
    }

    /// `open` with large-file support.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::open64.get()(path, flags, mode), |fd| with_flags(fd, flags)) }
    }

    /// Opens a file relative to a directory.
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's. The modified files are absolute paths.
        unsafe { with_tipc(path).map_or_else(|| real::openat.get()(at, path, flags, mode), |fd| with_flags(fd, flags)) }
    }

    /// `openat` with large-file support.
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::openat64.get()(at, path, flags, mode), |fd| with_flags(fd, flags)) }
    }

    /// `open` of a program compiled with argument checks (fortify).
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__open_2.get()(path, flags), |fd| with_flags(fd, flags)) }
    }

    /// `open64` of a program compiled with argument checks.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__open64_2.get()(path, flags), |fd| with_flags(fd, flags)) }
    }

    /// `openat` of a program compiled with argument checks.
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__openat_2.get()(at, path, flags), |fd| with_flags(fd, flags)) }
    }

    /// `openat64` of a program compiled with argument checks.
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__openat64_2.get()(at, path, flags), |fd| with_flags(fd, flags)) }
    }

    /// Opens a stream.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::fopen.get()(path, mode), stream) }
    }

    /// `fopen` with large-file support.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::fopen64.get()(path, mode), stream) }
    }

    /// Opens a stream on a descriptor.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller's.
        unsafe {
            if table::get(fd).is_some() && !mode.is_null() {
                return stdio::open(fd, CStr::from_ptr(mode));
            }
            real::fdopen.get()(fd, mode)
        }
    }

    /// The descriptor of a stream.
    fn fileno(file: *mut FILE) -> c_int {
        // SAFETY: as the caller's.
        stdio::descriptor(file).unwrap_or_else(|| unsafe { real::fileno.get()(file) })
    }

    /// `fileno` without the stream's lock.
    fn fileno_unlocked(file: *mut FILE) -> c_int {
        // SAFETY: as the caller's.
        stdio::descriptor(file).unwrap_or_else(|| unsafe { real::fileno_unlocked.get()(file) })
    }

    /// Closes a stream and its descriptor, which the C library does without calling `close`.
    fn fclose(file: *mut FILE) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if stdio::forget(file) {
                // It flushes, then closes the descriptor with the replaced `close`.
                return real::fclose.get()(file);
            }
            let left = if file.is_null() { None } else { descriptors::leave(real::fileno.get()(file)) };
            let done = real::fclose.get()(file);
            drop(left);
            done
        }
    }
}
