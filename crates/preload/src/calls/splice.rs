//! `splice` between a pipe and a TIPC socket: by read and send, or by receive and write.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use libc::{c_int, c_short, c_uint, off64_t, pollfd, size_t, ssize_t};
use utipc_core::socket::SocketKind;

use super::receive::receive_one;
use super::replace;
use super::send::{MESSAGE_STEP, STREAM_STEP, send_bytes, signed};
use crate::entry::Entry;
use crate::errno::{Code, c_result};
use crate::{real, table};

/// The result of a system call as a length.
fn length(result: ssize_t) -> Result<usize, Code> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// A pipe for copies of what another pipe holds: the end to read, and the end to write.
fn copies() -> Result<[OwnedFd; 2], Code> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    length(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } as ssize_t)?;
    // SAFETY: the call has opened both.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

fn read(fd: c_int, buffer: &mut [u8]) -> Result<usize, Code> {
    // SAFETY: the buffer is writable for its length.
    length(unsafe { real::read.get()(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// Sends what a pipe holds. A byte leaves the pipe only when it is sent: the bytes are copied before.
fn to_socket(entry: &Entry, pipe: c_int, len: usize, flags: c_uint) -> Result<usize, Code> {
    let stream = entry.socket()?.kind() == SocketKind::Stream;
    let [copy, copier] = copies()?;
    let mut buffer = vec![0; len.min(if stream { STREAM_STEP } else { MESSAGE_STEP })];
    let mut sent = 0;
    while sent < len {
        let most = buffer.len().min(len - sent);
        // What was there is sent; the call does not wait for more.
        let how = if sent > 0 { libc::SPLICE_F_NONBLOCK } else { flags & libc::SPLICE_F_NONBLOCK };
        // SAFETY: no pointers.
        let done = length(unsafe { libc::tee(pipe, copier.as_raw_fd(), most, how) }).and_then(|found| {
            let data = buffer.get_mut(..found).unwrap_or_default();
            // An empty pipe without writers is at its end.
            let found = if data.is_empty() { 0 } else { read(copy.as_raw_fd(), data)? };
            let data = data.get_mut(..found).unwrap_or_default();
            let done = if data.is_empty() { 0 } else { send_bytes(entry, data, None, 0)? };
            consume(pipe, data.get_mut(..done).unwrap_or_default())?;
            Ok((done, done == found))
        });
        match done {
            Ok((done, all)) => {
                sent += done;
                if done == 0 || !all {
                    break;
                }
            }
            Err(_) if sent > 0 => break,
            Err(why) => return Err(why),
        }
    }
    Ok(sent)
}

/// Removes as many bytes from a pipe as `buffer` holds.
fn consume(pipe: c_int, mut buffer: &mut [u8]) -> Result<(), Code> {
    while !buffer.is_empty() {
        let taken = read(pipe, buffer)?;
        // Another reader has taken the rest.
        let Some(rest) = buffer.get_mut(taken..).filter(|_| taken > 0) else { break };
        buffer = rest;
    }
    Ok(())
}

/// Receives into a pipe: at most what it takes without waiting.
fn from_socket(entry: &Entry, pipe: c_int, len: usize, flags: c_uint) -> Result<usize, Code> {
    // SAFETY: a value of zeros is valid, and the call fills it.
    let is_pipe = unsafe {
        let mut stat: libc::stat64 = std::mem::zeroed();
        libc::fstat64(pipe, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
    };
    if !is_pipe {
        return Err(libc::EINVAL);
    }
    let mut room = pollfd { fd: pipe, events: libc::POLLOUT as c_short, revents: 0 };
    let limit = if flags & libc::SPLICE_F_NONBLOCK == 0 { -1 } else { 0 };
    // SAFETY: one entry.
    if length(unsafe { real::poll.get()(&raw mut room, 1, limit) } as ssize_t)? == 0 {
        return Err(libc::EAGAIN);
    }
    let mut buffer = vec![0_u8; len.min(libc::PIPE_BUF)];
    // SAFETY: the buffer is writable for its length; there is no address.
    let received =
        unsafe { receive_one(entry, buffer.as_mut_ptr().cast(), buffer.len(), 0, null_mut(), null_mut()) };
    let received = length(received?)?;
    let data = buffer.get(..received).unwrap_or_default();
    // A pipe that can be written has room for PIPE_BUF bytes, and takes up to that number at once or not at all.
    // SAFETY: the data is readable for its length.
    length(unsafe { real::write.get()(pipe, data.as_ptr().cast(), data.len()) })
}

/// Moves up to `len` bytes; one of the two descriptors is a pipe, as for `splice`.
fn splice_bytes(
    [from, to]: [c_int; 2],
    has_position: bool,
    len: usize,
    flags: c_uint,
) -> Option<Result<ssize_t, Code>> {
    let moved = match (table::get(from), table::get(to)) {
        (None, None) => return None,
        _ if len == 0 => Ok(0),
        _ if has_position => Err(libc::EINVAL),
        (None, Some(entry)) => to_socket(&entry, from, len, flags),
        (Some(entry), None) => from_socket(&entry, to, len, flags),
        (Some(_), Some(_)) => Err(libc::EINVAL),
    };
    Some(signed(moved))
}

replace! {
    /// Moves bytes between a pipe and another file; for a TIPC socket, whose descriptor holds no data, by copying them.
    fn splice(
        from: c_int,
        from_at: *mut off64_t,
        to: c_int,
        to_at: *mut off64_t,
        len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let has_position = !from_at.is_null() || !to_at.is_null();
        if let Some(moved) = splice_bytes([from, to], has_position, len, flags) {
            return c_result(moved);
        }
        // SAFETY: as the caller's.
        unsafe { real::splice.get()(from, from_at, to, to_at, len, flags) }
    }
}
