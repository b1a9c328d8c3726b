//! Streams of the C library (`FILE`) on TIPC sockets. The C library reads and writes a stream's descriptor directly,
//! past the functions replaced here, so such streams have functions of their own (`fopencookie`).
//!
//! If a TIPC socket is, or becomes, standard input or output of the program, as with inetd, `stdin`, `stdout` and
//! `stderr` become such streams.

use std::ffi::{CStr, c_void};
use std::os::fd::RawFd;
use std::ptr::{self, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr};

use libc::{FILE, c_char, c_int, off64_t, size_t, ssize_t};

use crate::calls::{close, recv, send};

/// Maximum number of streams in the list; `fileno` fails for any more.
const MOST: usize = 64;

/// The functions of a stream, as passed to `fopencookie`.
#[repr(C)]
struct Functions {
    read: extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: the declarations are those of the C library's <stdio.h>.
unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// A stream and its descriptor.
struct Known {
    stream: AtomicPtr<FILE>,
    fd: AtomicI32,
}

static KNOWN: [Known; MOST] =
    [const { Known { stream: AtomicPtr::new(null_mut()), fd: AtomicI32::new(-1) } }; MOST];

/// The program's original standard streams while they are replaced.
static ORIGINAL: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];

fn fd_of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

extern "C" fn read(cookie: *mut c_void, data: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    unsafe { recv(fd_of(cookie), data.cast(), len, 0) }
}

extern "C" fn write(cookie: *mut c_void, data: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer. 0 bytes report an error.
    unsafe { send(fd_of(cookie), data.cast(), len, 0) }.max(0)
}

extern "C" fn close_descriptor(cookie: *mut c_void) -> c_int {
    // SAFETY: no pointers.
    unsafe { close(fd_of(cookie)) }
}

extern "C" fn keep_descriptor(_: *mut c_void) -> c_int {
    0
}

fn stream(fd: RawFd, mode: &CStr, close: extern "C" fn(*mut c_void) -> c_int) -> *mut FILE {
    let functions = Functions { read, write, seek: None, close };
    let cookie = ptr::without_provenance_mut(fd.unsigned_abs() as usize);
    // SAFETY: the functions take the number of a descriptor as their cookie, and are never unloaded; the mode is a C
    // string.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), functions) };
    if !stream.is_null() {
        let free =
            |known: &&Known| known.stream.compare_exchange(null_mut(), stream, AcqRel, Relaxed).is_ok();
        if let Some(known) = KNOWN.iter().find(free) {
            known.fd.store(fd, Release);
        }
    }
    stream
}

/// Opens a stream on a TIPC socket for `fdopen`; the stream owns the descriptor.
pub(crate) fn open(fd: RawFd, mode: &CStr) -> *mut FILE {
    stream(fd, mode, close_descriptor)
}

/// The descriptor of a stream opened here; `None` for any other stream.
pub(crate) fn descriptor(stream: *mut FILE) -> Option<RawFd> {
    let known = KNOWN.iter().find(|known| known.stream.load(Acquire) == stream && !stream.is_null())?;
    Some(known.fd.load(Acquire))
}

/// Removes a stream that is about to be closed; returns whether it was opened here.
pub(crate) fn forget(stream: *mut FILE) -> bool {
    let taken = |known: &Known| known.stream.compare_exchange(stream, null_mut(), AcqRel, Relaxed).is_ok();
    !stream.is_null() && KNOWN.iter().any(taken)
}

/// The C library's variable of a standard stream, and the stream's mode.
fn standard(fd: RawFd) -> Option<(*mut *mut FILE, &'static CStr)> {
    Some(match fd {
        0 => (&raw mut stdin, c"r"),
        1 => (&raw mut stdout, c"w"),
        2 => (&raw mut stderr, c"w"),
        _ => return None,
    })
}

/// Called when the descriptor has become a TIPC socket.
pub(crate) fn became_tipc(fd: RawFd) {
    let Some((place, mode)) = standard(fd) else { return };
    let Some(original) = usize::try_from(fd).ok().and_then(|at| ORIGINAL.get(at)) else { return };
    let own = stream(fd, mode, keep_descriptor);
    if own.is_null() {
        return;
    }
    // SAFETY: the C library lets programs assign these variables. A thread that prints at this moment may use either
    // stream.
    unsafe {
        if original.load(Acquire).is_null() {
            original.store(place.read(), Release);
        }
        if fd == 2 {
            libc::setvbuf(own, null_mut(), libc::_IONBF, 0);
        }
        place.write(own);
    }
}

/// Called when the descriptor is no longer a TIPC socket.
pub(crate) fn ceased_to_be_tipc(fd: RawFd) {
    let Some((place, _)) = standard(fd) else { return };
    let original = usize::try_from(fd).ok().and_then(|at| ORIGINAL.get(at));
    let Some(original) = original.map(|original| original.swap(null_mut(), AcqRel)) else { return };
    if !original.is_null() {
        // SAFETY: as above. The replacement stays valid for code that holds it.
        unsafe {
            forget(place.read());
            place.write(original);
        }
    }
}
