//! Files by which programs detect TIPC in the system: the list of loaded modules and that of network protocols. If a
//! daemon answers, programs get a copy of the kernel's file with a line for TIPC.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use libc::c_char;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::node::node;
use crate::real;

/// The files with the line added to each, as in Linux 6.1.
const FILES: [(&[u8], &str); 2] = [
    (b"/proc/modules", "tipc 0 0 - Live 0x0000000000000000\n"),
    (
        b"/proc/net/protocols",
        "TIPC      1080      0      -1   NI       0   yes  tipc        n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n\n",
    ),
];

/// A copy of the file at `path` with the line for TIPC; `None` for any other file, or without a daemon.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub(crate) unsafe fn with_tipc(path: *const c_char) -> Option<OwnedFd> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let (_, line) = FILES.iter().find(|(name, _)| *name == path.to_bytes())?;
    copy(path, line)
}

#[cold]
fn copy(path: &CStr, line: &str) -> Option<OwnedFd> {
    node().ok()?;
    // SAFETY: the path is a C string; the descriptor belongs to this function.
    let fd = unsafe { real::open.get()(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    let mut text = String::new();
    if fd >= 0 {
        // SAFETY: just opened.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.read_to_string(&mut text).ok()?;
    }
    if text.lines().any(|other| other.split(' ').next() == line.split(' ').next()) {
        // The kernel has TIPC itself: use its file.
        return None;
    }
    let mut copy = File::from(memfd_create("utipc-proc", MemfdFlags::CLOEXEC).ok()?);
    copy.write_all(text.as_bytes()).and_then(|()| copy.write_all(line.as_bytes())).ok()?;
    copy.rewind().ok()?;
    Some(copy.into())
}
