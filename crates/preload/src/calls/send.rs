//! Sending.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t,
};
use utipc_client::{Socket, Wait};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Destination, SocketKind, State};
use utipc_os::Left;

use super::setup::LONG;
use super::{replace, without_position};
use crate::entry::Entry;
use crate::errno::{Code, c_result, code_of_wait, fail};
use crate::{address, ancillary, netlink, parts, real, table};

/// Bytes of a file that `sendfile` and `splice` read at a time: for a stream, and for a socket with messages (one page
/// each, as in Linux).
pub(super) const STREAM_STEP: usize = 64 * 1024;
pub(super) const MESSAGE_STEP: usize = 4096;

fn is_in(socket: &Socket, state: State) -> bool {
    socket.look().is_ok_and(|view| view.state == state)
}

/// Maps EPIPE to ENOTCONN for a listener, which has no connection that could break.
fn broken(socket: &Socket, why: Code) -> Code {
    if why == libc::EPIPE && is_in(socket, State::Listen) { libc::ENOTCONN } else { why }
}

/// Sends data. If it requests a connection and the call may wait, waits for the reply. Like Linux, it ignores and
/// clears the error of a refused request: the next call reports a broken connection. Spec: tipc.md §8.2.
pub(super) fn send_bytes(
    entry: &Entry,
    data: &[u8],
    to: Option<Destination>,
    flags: c_int,
) -> Result<usize, Code> {
    let socket = entry.socket()?;
    let wait = entry.send_wait(&socket, flags);
    let may_request = to.is_some()
        && wait != Wait::Never
        && !data.is_empty()
        && socket.kind().is_connection_oriented()
        && !entry.is_beyond_open.load(Relaxed);
    if !may_request {
        return send_all(&socket, data, to, wait);
    }
    let requests = is_in(&socket, State::Open);
    let end = wait.start();
    let sent = send_all(&socket, data, to, wait)?;
    entry.is_beyond_open.store(true, Relaxed);
    if requests && let Left::Time(left) = end.left() {
        let _ = socket.wait_connected(left.map_or(Wait::AtMost(LONG), Wait::AtMost));
    }
    Ok(sent)
}

/// Sends one message, or all bytes of a stream unless a time limit or a signal intervenes.
fn send_all(socket: &Socket, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<usize, Code> {
    if socket.kind() != SocketKind::Stream {
        let sent = socket.send(data, to, wait).map_err(|error| broken(socket, code_of_wait(&error, wait)))?;
        return sent.ok_or(libc::EAGAIN);
    }
    if to.is_some() && data.len() > MAX_USER_DATA && is_in(socket, State::Open) {
        // The bytes would travel with the connection request, which is a single message.
        return Err(libc::EMSGSIZE);
    }
    let mut sent = 0;
    loop {
        let rest = data.get(sent..).unwrap_or_default();
        let why = match socket.send(rest, to, wait) {
            Ok(Some(bytes)) => {
                sent += bytes;
                if sent >= data.len() {
                    return Ok(sent);
                }
                continue;
            }
            Ok(None) => libc::EAGAIN,
            Err(error) => broken(socket, code_of_wait(&error, wait)),
        };
        return if sent > 0 { Ok(sent) } else { Err(why) };
    }
}

pub(super) fn signed(sent: Result<usize, Code>) -> Result<ssize_t, Code> {
    sent.map(usize::cast_signed)
}

/// # Safety
/// `len` bytes at `data` are readable, as are `addr_len` at `addr`.
unsafe fn send_one(
    entry: &Entry,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Result<ssize_t, Code> {
    // SAFETY: by the caller's promise.
    let (data, to) = unsafe { (parts::bytes(data.cast(), len)?, address::destination(addr, addr_len)?) };
    signed(send_bytes(entry, data, to, flags))
}

/// Handles `len` bytes sent over another socket, if they are for the family TIPCv2.
///
/// # Safety
/// `len` bytes at `data` are readable.
#[cold]
unsafe fn sent_netlink(fd: c_int, data: *const c_void, len: size_t) -> Option<Result<ssize_t, Code>> {
    // SAFETY: by the caller's promise.
    let data = unsafe { parts::bytes(data.cast(), len) }.ok()?;
    netlink::sent(fd, data).map(signed)
}

/// # Safety
/// The buffers are readable.
unsafe fn send_parts(
    entry: &Entry,
    parts: &[iovec],
    to: Option<Destination>,
    flags: c_int,
) -> Result<ssize_t, Code> {
    if let [part] = parts {
        // SAFETY: by the caller's promise.
        let data = unsafe { parts::bytes(part.iov_base.cast(), part.iov_len) }?;
        return signed(send_bytes(entry, data, to, flags));
    }
    // SAFETY: by the caller's promise.
    let data = unsafe { parts::gather(parts) }?;
    signed(send_bytes(entry, &data, to, flags))
}

/// # Safety
/// The message is one for `sendmsg`.
unsafe fn send_message(entry: &Entry, message: *const msghdr, flags: c_int) -> Result<ssize_t, Code> {
    // SAFETY: by the caller's promise.
    let Some(message) = (unsafe { message.as_ref() }) else { return Err(libc::EFAULT) };
    // SAFETY: by the caller's promise.
    unsafe {
        let parts = parts::list(message.msg_iov, message.msg_iovlen)?;
        // A null address equals an empty one.
        let name = if message.msg_namelen == 0 { std::ptr::null() } else { message.msg_name.cast() };
        let to = address::destination(name, message.msg_namelen)?;
        send_parts(entry, parts, to, flags)
    }
}

/// Reads a file and sends its contents.
fn send_file(
    entry: &Entry,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Code>,
    count: usize,
) -> Result<usize, Code> {
    let stream = entry.socket()?.kind() == SocketKind::Stream;
    let mut buffer = vec![0; count.min(if stream { STREAM_STEP } else { MESSAGE_STEP })];
    let mut sent = 0;
    let mut step = || -> Result<ControlFlow<()>, Code> {
        let most = buffer.len().min(count - sent);
        let len = read(buffer.get_mut(..most).unwrap_or_default())?;
        if len == 0 {
            return Ok(ControlFlow::Break(()));
        }
        let done = send_bytes(entry, buffer.get(..len).unwrap_or_default(), None, 0)?;
        sent += done;
        Ok(if done < len || sent == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    loop {
        match step() {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(sent),
            Err(_) if sent > 0 => return Ok(sent),
            Err(why) => return Err(why),
        }
    }
}

/// `sendfile` to a TIPC socket; advances the file position by the bytes sent.
///
/// # Safety
/// `offset` is null or points to a position.
unsafe fn send_from(entry: &Entry, file: c_int, offset: *mut off64_t, count: usize) -> Result<ssize_t, Code> {
    // SAFETY: by the caller's promise.
    let start = unsafe { offset.as_ref().copied() };
    // SAFETY: no pointers.
    let begin = start.unwrap_or_else(|| unsafe { libc::lseek64(file, 0, libc::SEEK_CUR) });
    let mut at = begin;
    let read = |buffer: &mut [u8]| {
        // SAFETY: the buffer is writable for its length.
        let len = unsafe { libc::pread64(file, buffer.as_mut_ptr().cast(), buffer.len(), at) };
        let len = usize::try_from(len)
            .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))?;
        at += len.cast_signed() as off64_t;
        Ok(len)
    };
    let sent = send_file(entry, read, count)?;
    let end = begin + sent.cast_signed() as off64_t;
    // SAFETY: by the caller's promise; `lseek` has no pointers.
    unsafe {
        if start.is_some() {
            offset.write(end);
        } else {
            libc::lseek64(file, end, libc::SEEK_SET);
        }
    }
    Ok(sent.cast_signed())
}

/// Sends from several buffers for `writev`, and for `pwritev2` with its flags.
///
/// # Safety
/// The buffers are those of a call.
unsafe fn send_flagged(
    entry: &Entry,
    list: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<ssize_t, Code> {
    if flags & !libc::RWF_NOWAIT != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let flags = if flags == 0 { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: by the caller's promise.
    unsafe { send_parts(entry, parts::counted(list, count)?, None, flags) }
}

/// Sends several messages with `one`, like `sendmmsg`.
///
/// # Safety
/// There are `count` messages.
unsafe fn send_several(
    messages: *mut mmsghdr,
    count: c_uint,
    mut one: impl FnMut(*const msghdr) -> Result<ssize_t, Code>,
) -> Result<c_int, Code> {
    let mut sent: c_int = 0;
    for at in 0..count as usize {
        // SAFETY: by the caller's promise.
        let message = unsafe { messages.add(at) };
        // SAFETY: as above; only an address is computed.
        match one(unsafe { &raw const (*message).msg_hdr }) {
            // SAFETY: as above.
            Ok(len) => unsafe { (*message).msg_len = len as c_uint },
            Err(_) if sent > 0 => break,
            Err(why) => return Err(why),
        }
        sent += 1;
    }
    Ok(sent)
}

replace! {
    /// Sends on a connection.
    fn send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffer.
            return c_result(unsafe { send_one(&entry, data, len, flags, std::ptr::null(), 0) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer.
            && let Some(done) = unsafe { sent_netlink(fd, data, len) }
        {
            return c_result(done);
        }
        // SAFETY: as the caller's.
        unsafe { real::send.get()(fd, data, len, flags) }
    }

    /// Sends to an address.
    fn sendto(
        fd: c_int,
        data: *const c_void,
        len: size_t,
        flags: c_int,
        addr: *const sockaddr,
        addr_len: socklen_t,
    ) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffer and address.
            return c_result(unsafe { send_one(&entry, data, len, flags, addr, addr_len) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer.
            && let Some(done) = unsafe { sent_netlink(fd, data, len) }
        {
            return c_result(done);
        }
        // SAFETY: as the caller's.
        unsafe { real::sendto.get()(fd, data, len, flags, addr, addr_len) }
    }

    /// Sends from several buffers.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's; the message is only read, as the kernel does.
        unsafe {
            if let Some(entry) = table::get(fd) {
                return c_result(send_message(&entry, message, flags));
            }
            if netlink::is_used()
                && let Some(message) = message.as_ref()
                && let Ok(list) = parts::list(message.msg_iov, message.msg_iovlen)
                && let Ok(data) = parts::gather(list)
                && let Some(done) = netlink::sent(fd, &data)
            {
                return c_result(signed(done));
            }
            if !message.is_null() && !(*message).msg_control.is_null() {
                ancillary::before_passing(message);
            }
            real::sendmsg.get()(fd, message, flags)
        }
    }

    /// Sends several messages.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if let Some(entry) = table::get(fd) {
                return c_result(send_several(messages, count, |message| send_message(&entry, message, flags)));
            }
            if netlink::is_used() && netlink::is_netlink(fd) {
                return c_result(send_several(messages, count, |message| real::done(sendmsg(fd, message, flags))));
            }
            for at in 0..count as usize {
                let message = &raw const (*messages.add(at)).msg_hdr;
                if !(*message).msg_control.is_null() {
                    ancillary::before_passing(message);
                }
            }
            real::sendmmsg.get()(fd, messages, count, flags)
        }
    }

    /// Sends on a connection.
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffer.
            return c_result(unsafe { send_one(&entry, data, len, 0, std::ptr::null(), 0) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer.
            && let Some(done) = unsafe { sent_netlink(fd, data, len) }
        {
            return c_result(done);
        }
        // SAFETY: as the caller's.
        unsafe { real::write.get()(fd, data, len) }
    }

    /// Sends from several buffers.
    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffers.
            return c_result(unsafe { send_flagged(&entry, list, count, 0) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffers.
            && let Ok(data) = unsafe { parts::counted(list, count).and_then(|list| parts::gather(list)) }
            && let Some(done) = netlink::sent(fd, &data)
        {
            return c_result(signed(done));
        }
        // SAFETY: as the caller's.
        unsafe { real::writev.get()(fd, list, count) }
    }

    /// `writev` with flags, or at a position, which a socket does not have.
    fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            let own = |entry: &Entry| send_flagged(entry, list, count, flags);
            without_position(fd, at == -1, own, || real::pwritev2.get()(fd, list, count, at, flags))
        }
    }

    /// `pwritev2` with large-file support.
    fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            let own = |entry: &Entry| send_flagged(entry, list, count, flags);
            without_position(fd, at == -1, own, || real::pwritev64v2.get()(fd, list, count, at, flags))
        }
    }

    /// Sends from a file.
    fn sendfile(fd: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's position; both types have 64 bits on supported systems.
            return c_result(unsafe { send_from(&entry, file, offset.cast(), count) });
        }
        if table::get(file).is_some() {
            return fail(libc::EINVAL);
        }
        // SAFETY: as the caller's.
        unsafe { real::sendfile.get()(fd, file, offset, count) }
    }

    /// `sendfile` with large-file support.
    fn sendfile64(fd: c_int, file: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's position.
            return c_result(unsafe { send_from(&entry, file, offset, count) });
        }
        if table::get(file).is_some() {
            return fail(libc::EINVAL);
        }
        // SAFETY: as the caller's.
        unsafe { real::sendfile64.get()(fd, file, offset, count) }
    }
}
