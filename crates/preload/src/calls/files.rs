//! Opening files: two of them are not the kernel's alone, see `crate::files`.

use std::ffi::CStr;
use std::os::fd::{IntoRawFd, OwnedFd};

use libc::{FILE, c_char, c_int, mode_t};

use super::replace;
use crate::files::with_tipc;
use crate::{entry, real, stdio, table};

/// The descriptor with the flag that the program asked for.
fn given(fd: OwnedFd, flags: c_int) -> c_int {
    let fd = fd.into_raw_fd();
    if flags & libc::O_CLOEXEC == 0 {
        // SAFETY: no pointers; the descriptor is open.
        unsafe { real::fcntl.get()(fd, libc::F_SETFD, 0) };
    }
    fd
}

/// A stream of such a file, to be read; null if there is none.
fn stream(fd: OwnedFd) -> *mut FILE {
    // SAFETY: the mode is a C string, and the stream owns the descriptor from now on.
    unsafe { real::fdopen.get()(fd.into_raw_fd(), c"r".as_ptr()) }
}

replace! {
    /// Opens a file.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::open.get()(path, flags, mode), |fd| given(fd, flags)) }
    }

    /// The same, as programs with large files call it.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::open64.get()(path, flags, mode), |fd| given(fd, flags)) }
    }

    /// Opens a file below a directory.
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's. The paths in question are absolute.
        unsafe { with_tipc(path).map_or_else(|| real::openat.get()(at, path, flags, mode), |fd| given(fd, flags)) }
    }

    /// The same, as programs with large files call it.
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::openat64.get()(at, path, flags, mode), |fd| given(fd, flags)) }
    }

    /// `open` of a program that was built with checks of its arguments.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__open_2.get()(path, flags), |fd| given(fd, flags)) }
    }

    /// `open64` of such a program.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__open64_2.get()(path, flags), |fd| given(fd, flags)) }
    }

    /// `openat` of such a program.
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__openat_2.get()(at, path, flags), |fd| given(fd, flags)) }
    }

    /// `openat64` of such a program.
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::__openat64_2.get()(at, path, flags), |fd| given(fd, flags)) }
    }

    /// Opens a stream.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::fopen.get()(path, mode), stream) }
    }

    /// The same, as programs with large files call it.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller's.
        unsafe { with_tipc(path).map_or_else(|| real::fopen64.get()(path, mode), stream) }
    }

    /// Makes a stream of a descriptor.
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

    /// The same without the stream's lock.
    fn fileno_unlocked(file: *mut FILE) -> c_int {
        // SAFETY: as the caller's.
        stdio::descriptor(file).unwrap_or_else(|| unsafe { real::fileno_unlocked.get()(file) })
    }

    /// Closes a stream, and its descriptor behind the back of `close`.
    fn fclose(file: *mut FILE) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if stdio::forget(file) {
                // It writes what is left, and then closes by `close`.
                return real::fclose.get()(file);
            }
            let left = if file.is_null() { None } else { entry::leave(real::fileno.get()(file)) };
            let done = real::fclose.get()(file);
            drop(left);
            done
        }
    }
}
