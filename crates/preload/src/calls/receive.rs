//! Receiving.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};
use utipc_client::{Socket, Wait};
use utipc_core::socket::{GroupMessageKind, Received, RecvOptions, SocketKind, State};
use utipc_core::wire::EVENT_LEN;
use utipc_os::reentry::Gap;

use super::{replace, without_position};
use crate::address::SockaddrTipc;
use crate::entry::Entry;
use crate::errno::{Code, c_result, code, code_of_wait};
use crate::{address, ancillary, busy_poll, netlink, parts, real, table};

/// Maximum number of bytes that one call with several buffers takes from a stream.
const STREAM_MOST: usize = 1 << 20;

/// The options of a receive. `control` is not a flag of the call: it says whether recvmsg has a control buffer.
fn options(flags: c_int, control: bool) -> RecvOptions {
    RecvOptions {
        peek: flags & libc::MSG_PEEK != 0,
        wait_all: flags & libc::MSG_WAITALL != 0,
        keep_remainder: flags & libc::MSG_EOR != 0,
        control,
    }
}

/// The errno of a receive that can never succeed; only a call that may wait gets it. Spec: tipc.md §8.3.
fn never_errno(socket: &Socket, wait: Wait, why: Code) -> Code {
    if why != libc::ENOTCONN {
        return why;
    }
    if !socket.kind().is_connection_oriented() {
        return if wait == Wait::Never { libc::EAGAIN } else { why };
    }
    match (socket.look().map(|view| view.state), wait) {
        (Ok(State::Listen | State::Disconnecting), Wait::Never) => libc::EAGAIN,
        // A listener is not an ended connection: the call waits for its whole timeout.
        (Ok(State::Listen), Wait::AtMost(limit)) => sleep(limit),
        _ => why,
    }
}

/// Sleeps until the timeout or a signal.
fn sleep(limit: Duration) -> Code {
    let limit = timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let _gap = Gap::open();
    // SAFETY: no descriptors, and a time limit that lives as long as the call.
    let ended = unsafe { real::ppoll.get()(null_mut(), 0, &raw const limit, std::ptr::null()) };
    if ended < 0 { libc::EINTR } else { libc::EAGAIN }
}

/// Receives into one buffer.
#[inline]
fn receive_bytes(
    entry: &Entry,
    socket: &Socket,
    buffer: &mut [u8],
    flags: c_int,
    control: bool,
) -> Result<Received, Code> {
    loop {
        let wait = entry.receive_wait(socket, flags);
        let received = socket.receive(buffer, options(flags, control), wait);
        busy_poll::received(entry, socket);
        let received = received.map_err(|error| never_errno(socket, wait, code_of_wait(&error, wait)))?;
        let received = received.ok_or(libc::EAGAIN)?;
        // Skip empty messages without an error, as Linux does; a peek would find the same message again.
        let empty = received.len == 0
            && received.returned.is_none()
            && received.source.port != 0
            && !is_event(&received);
        if !empty || socket.kind().is_connection_oriented() {
            return Ok(received);
        }
        if flags & libc::MSG_PEEK != 0 {
            socket.receive(buffer, RecvOptions::default(), wait).map_err(|error| code(&error))?;
        }
    }
}

/// Whether it tells that a member of the socket's group has joined or left.
fn is_event(received: &Received) -> bool {
    received.group.is_some_and(|group| group.kind.is_event())
}

/// Stores the address of a message's sender; in a group, a second one is the sender as a member. Spec: tipc.md §8.10.
///
/// # Safety
/// `addr` and `len` are null or writable, `addr` for `*len` bytes.
unsafe fn store_source(received: &Received, addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Code> {
    if received.source.port == 0 {
        // The end of a connection has no sender.
        if !len.is_null() && !addr.is_null() {
            // SAFETY: by the caller's promise.
            unsafe { len.write(0) };
        }
        return Ok(());
    }
    let sender = SockaddrTipc::from(received.source);
    // SAFETY: by the caller's promise.
    unsafe {
        match received.group {
            Some(group) => address::store_all(&[sender, group.member.into()], addr, len),
            None => address::store(sender, addr, len),
        }
    }
}

/// # Safety
/// `len` bytes at `data` are writable, as are the places of `addr` and `addr_len`.
pub(super) unsafe fn receive_one(
    entry: &Entry,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Result<ssize_t, Code> {
    let socket = entry.socket()?;
    // SAFETY: by the caller's promise.
    let buffer = unsafe { parts::buffer(data.cast(), len) }?;
    let received = receive_bytes(entry, &socket, buffer, flags, false)?;
    if !addr.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { store_source(&received, addr, addr_len) }?;
    }
    Ok(received.len.cast_signed())
}

/// Receives into several buffers.
///
/// # Safety
/// The buffers are writable.
unsafe fn receive_parts(
    entry: &Entry,
    parts: &[iovec],
    flags: c_int,
    control: bool,
) -> Result<Received, Code> {
    let socket = entry.socket()?;
    if let [part] = parts {
        // SAFETY: by the caller's promise.
        let buffer = unsafe { parts::buffer(part.iov_base.cast(), part.iov_len) }?;
        return receive_bytes(entry, &socket, buffer, flags, control);
    }
    let most =
        if socket.kind() == SocketKind::Stream { STREAM_MOST } else { utipc_core::limits::MAX_USER_DATA };
    let total = parts::total(parts)?;
    let mut whole = vec![0; total.min(most)];
    let received = receive_bytes(entry, &socket, &mut whole, flags, control)?;
    // The bytes of an event do not count.
    let filled = if is_event(&received) { EVENT_LEN } else { received.len };
    let filled = filled.min(whole.len());
    // SAFETY: by the caller's promise.
    unsafe { parts::scatter(whole.get(..filled).unwrap_or_default(), parts) }?;
    Ok(received)
}

/// # Safety
/// The message is one for `recvmsg`.
unsafe fn receive_message(entry: &Entry, message: *mut msghdr, flags: c_int) -> Result<ssize_t, Code> {
    // SAFETY: by the caller's promise.
    let Some(message) = (unsafe { message.as_mut() }) else { return Err(libc::EFAULT) };
    let control = ancillary::is_requested(message.msg_control, message.msg_controllen);
    // SAFETY: by the caller's promise.
    unsafe {
        let parts = parts::list(message.msg_iov, message.msg_iovlen)?;
        let received = receive_parts(entry, parts, flags, control)?;
        message.msg_flags = 0;
        if message.msg_name.is_null() {
            message.msg_namelen = 0;
        } else {
            store_source(&received, message.msg_name.cast(), &raw mut message.msg_namelen)?;
        }
        if received.truncated {
            message.msg_flags |= libc::MSG_TRUNC;
        }
        if received.end_of_record {
            message.msg_flags |= libc::MSG_EOR;
        }
        message.msg_flags |= match received.group.map(|group| group.kind) {
            Some(GroupMessageKind::Joined) => libc::MSG_OOB,
            Some(GroupMessageKind::Left | GroupMessageKind::Evicted) => libc::MSG_OOB | libc::MSG_EOR,
            _ => 0,
        };
        ancillary::store(message, &received);
        Ok(received.len.cast_signed())
    }
}

/// Receives into several buffers for `readv`, and for `preadv2` with its flags.
///
/// # Safety
/// The buffers are those of a call.
unsafe fn receive_flagged(
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
    unsafe {
        let list = parts::counted(list, count)?;
        if parts::total(list)? == 0 {
            return Ok(0);
        }
        receive_parts(entry, list, flags, false).map(|received| received.len.cast_signed())
    }
}

/// Receives several messages with `one`, like `recvmmsg`.
///
/// # Safety
/// There are `count` messages.
unsafe fn receive_several(
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: Option<&timespec>,
    mut one: impl FnMut(*mut msghdr, c_int) -> Result<ssize_t, Code>,
) -> Result<c_int, Code> {
    let start = Instant::now();
    let limit = match limit {
        Some(limit) if limit.tv_sec < 0 || !(0..1_000_000_000).contains(&limit.tv_nsec) => {
            return Err(libc::EINVAL);
        }
        Some(limit) => {
            let nanos = u32::try_from(limit.tv_nsec).unwrap_or(0);
            Some(Duration::new(limit.tv_sec.unsigned_abs(), nanos))
        }
        None => None,
    };
    let mut received: c_int = 0;
    for at in 0..count as usize {
        let more = if received > 0 && flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: by the caller's promise.
        let message = unsafe { messages.add(at) };
        // SAFETY: as above; only an address is computed.
        let header = unsafe { &raw mut (*message).msg_hdr };
        match one(header, flags & !libc::MSG_WAITFORONE | more) {
            // SAFETY: as above.
            Ok(len) => unsafe { (*message).msg_len = len as c_uint },
            Err(_) if received > 0 => break,
            Err(why) => return Err(why),
        }
        received += 1;
        // Like the kernel, check the time after each message.
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            break;
        }
    }
    Ok(received)
}

replace! {
    /// Receives.
    fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffer.
            return c_result(unsafe { receive_one(&entry, data, len, flags, null_mut(), null_mut()) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer, and room for an address.
            && let Some(done) = unsafe { netlink::received_from(fd, data, len, flags, null_mut(), null_mut()) }
        {
            return c_result(done.map(usize::cast_signed));
        }
        // SAFETY: as the caller's.
        unsafe { real::recv.get()(fd, data, len, flags) }
    }

    /// Receives, with the sender's address.
    fn recvfrom(
        fd: c_int,
        data: *mut c_void,
        len: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        addr_len: *mut socklen_t,
    ) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffer, and room for an address.
            return c_result(unsafe { receive_one(&entry, data, len, flags, addr, addr_len) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer, and room for an address.
            && let Some(done) = unsafe { netlink::received_from(fd, data, len, flags, addr, addr_len) }
        {
            return c_result(done.map(usize::cast_signed));
        }
        // SAFETY: as the caller's.
        unsafe { real::recvfrom.get()(fd, data, len, flags, addr, addr_len) }
    }

    /// Receives into several buffers, with the sender's address and ancillary data.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's; of another socket's message, only data written by the kernel is read.
        unsafe {
            if let Some(entry) = table::get(fd) {
                return c_result(receive_message(&entry, message, flags));
            }
            if netlink::is_used()
                && let Some(message) = message.as_mut()
                && let Some(done) = netlink::received(fd, message, flags)
            {
                return c_result(done.map(usize::cast_signed));
            }
            let len = real::recvmsg.get()(fd, message, flags);
            if len >= 0 && !(*message).msg_control.is_null() && (*message).msg_controllen > 0 {
                ancillary::after_receiving(message);
            }
            len
        }
    }

    /// Receives several messages; waits for the first only, until a time limit, or for all.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec) -> c_int {
        // SAFETY: as the caller's.
        unsafe {
            if let Some(entry) = table::get(fd) {
                let one = |message: *mut msghdr, flags| receive_message(&entry, message, flags);
                return c_result(receive_several(messages, count, flags, limit.as_ref(), one));
            }
            if netlink::is_used() && netlink::is_netlink(fd) {
                let one = |message: *mut msghdr, flags| real::done(recvmsg(fd, message, flags));
                return c_result(receive_several(messages, count, flags, limit.as_ref(), one));
            }
            let received = real::recvmmsg.get()(fd, messages, count, flags, limit);
            for at in 0..usize::try_from(received).unwrap_or(0) {
                ancillary::after_receiving(&raw const (*messages.add(at)).msg_hdr);
            }
            received
        }
    }

    /// Receives.
    fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            if len == 0 {
                return 0;
            }
            // SAFETY: the caller's buffer.
            return c_result(unsafe { receive_one(&entry, data, len, 0, null_mut(), null_mut()) });
        }
        if netlink::is_used()
            // SAFETY: the caller's buffer, and room for an address.
            && let Some(done) = unsafe { netlink::received_from(fd, data, len, 0, null_mut(), null_mut()) }
        {
            return c_result(done.map(usize::cast_signed));
        }
        // SAFETY: as the caller's.
        unsafe { real::read.get()(fd, data, len) }
    }

    /// Receives into several buffers.
    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        if let Some(entry) = table::get(fd) {
            // SAFETY: the caller's buffers.
            return c_result(unsafe { receive_flagged(&entry, list, count, 0) });
        }
        if netlink::is_used() {
            // SAFETY: the caller's buffers; zeros are an empty message.
            let done = unsafe {
                let mut message: msghdr = std::mem::zeroed();
                message.msg_iov = list.cast_mut();
                message.msg_iovlen = usize::try_from(count).unwrap_or(0);
                netlink::received(fd, &mut message, 0)
            };
            if let Some(done) = done {
                return c_result(done.map(usize::cast_signed));
            }
        }
        // SAFETY: as the caller's.
        unsafe { real::readv.get()(fd, list, count) }
    }

    /// `readv` with flags, or at a position, which a socket does not have.
    fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            let own = |entry: &Entry| receive_flagged(entry, list, count, flags);
            without_position(fd, at == -1, own, || real::preadv2.get()(fd, list, count, at, flags))
        }
    }

    /// `preadv2` with large-file support.
    fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            let own = |entry: &Entry| receive_flagged(entry, list, count, flags);
            without_position(fd, at == -1, own, || real::preadv64v2.get()(fd, list, count, at, flags))
        }
    }

    /// `read` of a program compiled with buffer checks (fortify).
    fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, size: size_t) -> ssize_t {
        // SAFETY: as the caller's. The real function reports an overflow.
        unsafe {
            if len <= size && (table::get(fd).is_some() || netlink::is_used()) {
                return read(fd, data, len);
            }
            real::__read_chk.get()(fd, data, len, size)
        }
    }

    /// `recv` of a program compiled with buffer checks.
    fn __recv_chk(fd: c_int, data: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            if len <= size && (table::get(fd).is_some() || netlink::is_used()) {
                return recv(fd, data, len, flags);
            }
            real::__recv_chk.get()(fd, data, len, size, flags)
        }
    }

    /// `recvfrom` of a program compiled with buffer checks.
    fn __recvfrom_chk(
        fd: c_int,
        data: *mut c_void,
        len: size_t,
        size: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        addr_len: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: as the caller's.
        unsafe {
            if len <= size && (table::get(fd).is_some() || netlink::is_used()) {
                return recvfrom(fd, data, len, flags, addr, addr_len);
            }
            real::__recvfrom_chk.get()(fd, data, len, size, flags, addr, addr_len)
        }
    }
}
