//! Receiving.

use std::ffi::{c_int, c_void};

use utipc::{GroupMessageKind, Received, RecvOptions, Returned};

use crate::address::TipcAddr;
use crate::call::{count, guard};
use crate::{group, message, polling, table};

/// `int tipc_recv(int sd, void *buf, size_t len, bool waitall)`
///
/// # Safety
/// `buf` points to `len` bytes of memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_recv(sd: c_int, buf: *mut c_void, len: usize, waitall: bool) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let buffer = unsafe { message::buffer(buf, len) }?;
        let options = RecvOptions { wait_all: waitall, ..RecvOptions::default() };
        let received = table::get(sd)?.socket.receive_with(buffer, options)?;
        polling::received(sd);
        Ok(count(received.len))
    })
}

/// `int tipc_recvfrom(int sd, void *buf, size_t len, struct tipc_addr *socket, struct tipc_addr *member, int *err)`
///
/// # Safety
/// `buf` points to `len` bytes of memory; the others are null or point to memory of their types.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tipc_recvfrom(
    sd: c_int,
    buf: *mut c_void,
    len: usize,
    socket: *mut TipcAddr,
    member: *mut TipcAddr,
    err: *mut c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let buffer = unsafe { message::buffer(buf, len) }?;
        let entry = table::get(sd)?;
        let options = RecvOptions { control: true, ..RecvOptions::default() };
        let received = entry.socket.receive_with(buffer, options)?;
        polling::received(sd);
        let Received { len, source, destination, returned, .. } = received;
        let own = TipcAddr::from(entry.socket.port());
        let of_member = match received.group {
            Some(sender) => group::member(sender),
            None => destination.map_or(own, TipcAddr::addressed),
        };
        let (from, len, code) = match &returned {
            None => (TipcAddr::from(source), len, received.group.map_or(0, group::event_code)),
            // It counts as sent by this socket, as in the original.
            Some(Returned { code, data }) => {
                let len = data.len().min(buffer.len());
                buffer[..len].copy_from_slice(&data[..len]);
                (own, if err.is_null() { 0 } else { len }, c_int::from(u8::from(*code)))
            }
        };
        // SAFETY: by the contract.
        unsafe {
            from.write(socket);
            of_member.write(member);
            message::put(err, code);
        }
        Ok(count(len))
    })
}

/// `struct utipc_group_info`: how a message of a group was sent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupInfo {
    /// One of `UTIPC_SENT_*`; 0 if no member sent it.
    kind: u32,
    after_loss: u32,
}

/// `int utipc_recvgroup(int sd, void *buf, size_t len, struct tipc_addr *socket, struct tipc_addr *member,
/// struct utipc_group_info *info)`
///
/// # Safety
/// As [`tipc_recvfrom`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn utipc_recvgroup(
    sd: c_int,
    buf: *mut c_void,
    len: usize,
    socket: *mut TipcAddr,
    member: *mut TipcAddr,
    info: *mut GroupInfo,
) -> c_int {
    guard(-1, || {
        // SAFETY: by the contract.
        let buffer = unsafe { message::buffer(buf, len) }?;
        let entry = table::get(sd)?;
        let received = entry.socket.receive_with(buffer, RecvOptions::default())?;
        polling::received(sd);
        let kind = match received.group.map(|group| group.kind) {
            None => 0,
            Some(GroupMessageKind::Unicast) => 1,
            Some(GroupMessageKind::Multicast) => 2,
            Some(GroupMessageKind::Broadcast) => 3,
            Some(GroupMessageKind::Unknown) => 4,
            Some(GroupMessageKind::Joined) => 5,
            Some(GroupMessageKind::Left) => 6,
            Some(GroupMessageKind::Evicted) => 7,
        };
        let own = TipcAddr::from(entry.socket.port());
        // SAFETY: by the contract.
        unsafe {
            TipcAddr::from(received.source).write(socket);
            received.group.map_or(own, group::member).write(member);
            message::put(info, GroupInfo { kind, after_loss: received.after_loss.into() });
        }
        Ok(count(received.len))
    })
}
