//! Sending.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr};
use utipc::{Destination, Socket, SocketKind};

use crate::address::TipcAddr;
use crate::call::{Fault, count, guard};
use crate::{message, sockaddr, table};

/// Sends; on a stream all of it, or as much as fits if the socket does not block.
fn send(socket: &Socket, data: &[u8], to: Option<Destination>) -> Result<c_int, Fault> {
    let first = |data| match to {
        Some(to) => socket.send_to(data, to),
        None => socket.send(data),
    };
    if socket.kind() != SocketKind::Stream {
        return Ok(count(first(data)?));
    }
    // Limited to what the return value can express.
    let data = data.get(..c_int::MAX as usize).unwrap_or(data);
    let mut sent = first(data)?;
    while sent < data.len() {
        match socket.send(&data[sent..]) {
            Ok(more) => sent += more,
            Err(_) => break,
        }
    }
    Ok(count(sent))
}

/// `int tipc_send(int sd, const void *msg, size_t len)`
///
/// # Safety
/// `msg` points to `len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_send(sd: c_int, msg: *const c_void, len: usize) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let data = unsafe { message::data(msg, len) }?;
        send(&table::get(sd)?.socket, data, None)
    })
}

/// `int tipc_sendto(int sd, const void *msg, size_t len, const struct tipc_addr *dst)`
///
/// # Safety
/// `msg` points to `len` bytes; `dst` is null or points to an address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_sendto(
    sd: c_int,
    msg: *const c_void,
    len: usize,
    dst: *const TipcAddr,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let (data, to) = unsafe { (message::data(msg, len)?, TipcAddr::read(dst)) };
        send(&table::get(sd)?.socket, data, to.map(TipcAddr::destination))
    })
}

/// `int tipc_mcast(int sd, const void *msg, size_t len, const struct tipc_addr *dst)`
///
/// # Safety
/// As [`tipc_sendto`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_mcast(
    sd: c_int,
    msg: *const c_void,
    len: usize,
    dst: *const TipcAddr,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let (data, to) = unsafe { (message::data(msg, len)?, TipcAddr::read(dst)) };
        let to = to.ok_or_else(|| Fault::null("the address of the multicast"))?;
        let entry = table::get(sd)?;
        send(&entry.socket, data, Some(to.multicast(entry.socket.node().address()).into()))
    })
}

/// `int tipc_sendmsg(int sd, const struct msghdr *msg)`: the address is a `struct sockaddr_tipc`; control data is
/// ignored.
///
/// # Safety `msg` is null or points to a header whose name and vectors are valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_sendmsg(sd: c_int, msg: *const msghdr) -> c_int {
    guard(-1, || {
        if msg.is_null() {
            return Err(Fault::null("the message header"));
        }
        // SAFETY: by the contract.
        let header = unsafe { &*msg };
        // SAFETY: by the contract the name has that many bytes.
        let name = unsafe { message::data(header.msg_name, header.msg_namelen as usize) }?;
        let to = if name.is_empty() { None } else { Some(sockaddr::destination(name)?) };
        if header.msg_iov.is_null() && header.msg_iovlen > 0 {
            return Err(Fault::null("the list of vectors"));
        }
        let mut data = Vec::new();
        for at in 0..header.msg_iovlen {
            // SAFETY: the caller guarantees that `msg_iov` has `msg_iovlen` elements.
            let iovec { iov_base, iov_len } = unsafe { *header.msg_iov.add(at) };
            // SAFETY: by the contract the vector has that many bytes.
            data.extend_from_slice(unsafe { message::data(iov_base, iov_len) }?);
        }
        send(&table::get(sd)?.socket, &data, to)
    })
}
