//! The generic netlink families TIPCv2, which the daemon answers (docs/decisions/0012), and TIPC, its predecessor,
//! which is translated to TIPCv2; all other families stay with the kernel.
//!
//! The program's netlink socket is the kernel's own. Messages for TIPCv2, and requests to resolve it, go to the daemon.
//! For each packet of the reply the library sends the kernel a harmless request with a sequence number of its own, a
//! *token*, over the same socket. When the program receives the kernel's reply to the token, the library replaces it by
//! the packet. So the kernel itself provides poll loops, blocking, timeouts, copies of the descriptor, and the order
//! among replies.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libc::{c_int, iovec, msghdr, sockaddr_nl, socklen_t};
use utipc_manage::{
    Entry, Errno, Family, FamilyRequest, Header, Messages, Refusal, Request, entries, family, kind, legacy,
    without_error_texts,
};

use crate::errno::Code;
use crate::node::node;
use crate::real;

/// The number of TIPCv2 here, above all numbers that the kernel assigns.
const FAMILY: u16 = 0x7c00;
/// The number of the older family TIPC here.
const LEGACY: u16 = 0x7c01;
/// A family that every kernel has: the controller of generic netlink.
const CONTROLLER: &str = "nlctrl";
/// Largest packet with several messages, in bytes: programs receive into buffers of at least a page.
const PACKET: usize = 3584;
/// Maximum number of replies that wait to be read; beyond that the oldest is dropped.
const MAX_PENDING: usize = 256;
/// First sequence number of tokens; programs start with the time or with small numbers.
const FIRST_TOKEN: u32 = 0xf1c0_0000;

const SOL_NETLINK: c_int = 270;
const EXT_ACK: c_int = 11;

/// Whether the process has opened a generic netlink socket; until then, this check is the only cost.
static USED: AtomicBool = AtomicBool::new(false);

/// Packets of replies, by the token that announces them.
#[derive(Default)]
struct Pending {
    replies: HashMap<u32, VecDeque<Vec<u8>>>,
    order: VecDeque<u32>,
    next: u32,
}

static PENDING: LazyLock<Mutex<Pending>> = LazyLock::new(Mutex::default);

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called when the program opens a socket.
#[inline]
pub(crate) fn opened(domain: c_int, protocol: c_int) {
    if domain == libc::AF_NETLINK && protocol == libc::NETLINK_GENERIC {
        USED.store(true, Relaxed);
    }
}

/// Called for each descriptor inherited by exec.
pub(crate) fn inherited(fd: c_int) {
    let (mut protocol, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: room for one number, which the length says.
    let done = unsafe {
        let at = (&raw mut protocol).cast();
        real::getsockopt.get()(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, at, &raw mut length)
    };
    if done == 0 && protocol == libc::NETLINK_GENERIC && is_netlink(fd) {
        USED.store(true, Relaxed);
    }
}

/// Whether the descriptor is a netlink socket.
pub(crate) fn is_netlink(fd: c_int) -> bool {
    port_of(fd).is_some()
}

/// Whether a call on a descriptor other than a TIPC socket may concern the family.
#[inline]
pub(crate) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// Handles `data` that the program sends. Returns the result of the call if it was for TIPC, `None` if it is for the
/// kernel.
pub(crate) fn sent(fd: c_int, data: &[u8]) -> Option<Result<usize, Code>> {
    let header = Messages::new(data).next()?.header;
    let mut reply = match header.family {
        FAMILY => match forward(data, port_of(fd)?) {
            Ok(reply) => reply,
            Err(code) => return Some(Err(code)),
        },
        LEGACY => port_of(fd).and_then(|port| legacy::reply(data, &mut |request| ask(request, port)))?,
        kind::CONTROL => {
            let name = FamilyRequest::from_bytes(data)?.name?;
            if name != family::NAME && name != legacy::NAME {
                return None;
            }
            let request = Header { port: port_of(fd)?, ..header };
            // Without a daemon, the kernel replies.
            node().ok()?;
            if name == family::NAME {
                Family(FAMILY).to_bytes(&request)
            } else {
                Family(LEGACY).legacy_to_bytes(&request)
            }
        }
        _ => return None,
    };
    if !wants_error_texts(fd) {
        reply = without_error_texts(&reply);
    }
    Some(queue(fd, packets(&reply)).map(|()| data.len()))
}

/// The daemon's reply to a request from the netlink port `port`.
fn forward(request: &[u8], port: u32) -> Result<Vec<u8>, Code> {
    let mut request = request.to_vec();
    if let Some(place) = request.get_mut(12..16) {
        place.copy_from_slice(&port.to_ne_bytes());
    }
    node()?.manage(&request).map_err(|error| crate::errno::code(&error))
}

/// The entries of the daemon's reply to one request.
fn ask(request: &Request, port: u32) -> Result<Vec<Entry>, Refusal> {
    let header = Header { family: FAMILY, port, ..Header::default() };
    let reply = forward(&request.to_bytes(&header), port).map_err(|code| Refusal::from(Errno(code)))?;
    entries(&reply)
}

/// Splits a reply into packets, between messages.
fn packets(reply: &[u8]) -> VecDeque<Vec<u8>> {
    let mut all: VecDeque<Vec<u8>> = VecDeque::new();
    for message in Messages::new(reply) {
        let len = message.bytes.len().div_ceil(4) * 4;
        match all.back_mut().filter(|packet| packet.len() + len <= PACKET) {
            Some(packet) => packet.extend_from_slice(message.bytes),
            None => all.push_back(message.bytes.to_vec()),
        }
        if let Some(packet) = all.back_mut() {
            packet.resize(packet.len().div_ceil(4) * 4, 0);
        }
    }
    all
}

/// Queues packets for the program, and lets the kernel announce the first.
fn queue(fd: c_int, packets: VecDeque<Vec<u8>>) -> Result<(), Code> {
    if packets.is_empty() {
        return Ok(());
    }
    let mut pending = pending();
    let token = FIRST_TOKEN | pending.next & 0xffff;
    pending.next = pending.next.wrapping_add(1);
    if pending.order.len() == MAX_PENDING
        && let Some(old) = pending.order.pop_front()
    {
        pending.replies.remove(&old);
    }
    pending.replies.insert(token, packets);
    pending.order.push_back(token);
    drop(pending);
    announce(fd, token)
}

/// Makes the kernel send a reply with this sequence number.
fn announce(fd: c_int, token: u32) -> Result<(), Code> {
    let request = FamilyRequest::of(CONTROLLER, token);
    // SAFETY: the buffer is local; without an address the message goes to the kernel.
    let sent = unsafe { real::send.get()(fd, request.as_ptr().cast(), request.len(), libc::MSG_DONTWAIT) };
    // SAFETY: the C library's place for this thread's errno.
    if sent < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
}

/// The port number of a netlink socket, assigned if it had none; `None` if it is not a netlink socket.
fn port_of(fd: c_int) -> Option<u32> {
    let mut address = MaybeUninit::<sockaddr_nl>::zeroed();
    let mut length = size_of::<sockaddr_nl>() as socklen_t;
    // SAFETY: room for the address of a netlink socket, which its length says; zeros are one.
    let address = unsafe {
        if real::getsockname.get()(fd, address.as_mut_ptr().cast(), &raw mut length) != 0 {
            return None;
        }
        address.assume_init()
    };
    (c_int::from(address.nl_family) == libc::AF_NETLINK).then_some(address.nl_pid)
}

/// Whether the socket has requested error texts.
fn wants_error_texts(fd: c_int) -> bool {
    let (mut on, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: room for one number, which the length says.
    let done =
        unsafe { real::getsockopt.get()(fd, SOL_NETLINK, EXT_ACK, (&raw mut on).cast(), &raw mut length) };
    done == 0 && on != 0
}

/// The token that the socket would receive next, if its next message is one.
fn next_token(fd: c_int, flags: c_int) -> Option<u32> {
    if pending().replies.is_empty() {
        return None;
    }
    let mut head = [0u8; 256];
    let flags = flags & (libc::MSG_DONTWAIT) | libc::MSG_PEEK;
    // SAFETY: the buffer is local.
    let len = unsafe { real::recv.get()(fd, head.as_mut_ptr().cast(), head.len(), flags) };
    let message = Messages::new(head.get(..usize::try_from(len).ok()?)?).next()?;
    let token = message.header.sequence;
    (message.header.family == kind::CONTROL && pending().replies.contains_key(&token)).then_some(token)
}

/// Receives a packet of a reply into the buffers of `message`, like `recvmsg`; `None` if the next message is not a
/// token.
///
/// # Safety
/// The message is one for `recvmsg`.
pub(crate) unsafe fn received(fd: c_int, message: &mut msghdr, flags: c_int) -> Option<Result<usize, Code>> {
    let token = next_token(fd, flags)?;
    // The kernel's message is discarded; its sender address goes to the caller.
    let mut ignored = [0u8; 512];
    let mut part = iovec { iov_base: ignored.as_mut_ptr().cast::<c_void>(), iov_len: ignored.len() };
    let mut real_message = *message;
    real_message.msg_iov = &raw mut part;
    real_message.msg_iovlen = 1;
    // SAFETY: the buffer is local, the rest is the caller's.
    let len = unsafe { real::recvmsg.get()(fd, &raw mut real_message, flags) };
    if len < 0 {
        // SAFETY: the C library's place for this thread's errno.
        return Some(Err(unsafe { *libc::__errno_location() }));
    }
    message.msg_namelen = real_message.msg_namelen;
    message.msg_controllen = real_message.msg_controllen;
    message.msg_flags = real_message.msg_flags & !libc::MSG_TRUNC;
    let peeks = flags & libc::MSG_PEEK != 0;
    let packet = take(token, peeks);
    if !peeks
        && pending().replies.contains_key(&token)
        && let Err(code) = announce(fd, token)
    {
        return Some(Err(code));
    }
    // SAFETY: by the caller's promise.
    let parts = unsafe { crate::parts::list(message.msg_iov, message.msg_iovlen) };
    let done = parts.and_then(|parts| {
        let capacity = crate::parts::total(parts)?;
        let fits = packet.len().min(capacity);
        // SAFETY: by the caller's promise.
        unsafe { crate::parts::scatter(packet.get(..fits).unwrap_or_default(), parts) }?;
        if fits < packet.len() {
            message.msg_flags |= libc::MSG_TRUNC;
        }
        Ok(if flags & libc::MSG_TRUNC != 0 { packet.len() } else { fits })
    });
    Some(done)
}

/// Takes, or peeks at, the first packet of a token.
fn take(token: u32, peeks: bool) -> Vec<u8> {
    let mut pending = pending();
    let Some(packets) = pending.replies.get_mut(&token) else { return Vec::new() };
    if peeks {
        return packets.front().cloned().unwrap_or_default();
    }
    let packet = packets.pop_front().unwrap_or_default();
    if packets.is_empty() {
        pending.replies.remove(&token);
        pending.order.retain(|known| *known != token);
    }
    packet
}

/// As [`received`], for a call with one buffer and an address.
///
/// # Safety
/// As for `recvfrom`.
pub(crate) unsafe fn received_from(
    fd: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut libc::sockaddr,
    addr_len: *mut socklen_t,
) -> Option<Result<usize, Code>> {
    let mut part = iovec { iov_base: data, iov_len: len };
    // SAFETY: zeros are an empty message.
    let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !addr.is_null() && !addr_len.is_null() {
        message.msg_name = addr.cast();
        // SAFETY: the caller's length is readable.
        message.msg_namelen = unsafe { *addr_len };
    }
    // SAFETY: by the caller's promise.
    let done = unsafe { received(fd, &mut message, flags) }?;
    if !message.msg_name.is_null() {
        // SAFETY: as above.
        unsafe { addr_len.write(message.msg_namelen) };
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_manage::{Node, ReplyWriter, flag};

    #[test]
    fn replies_are_split_between_messages() {
        let request = Header { family: FAMILY, flags: flag::DUMP, sequence: 4, ..Header::default() };
        let mut reply = ReplyWriter::new(request);
        for address in 1..=500 {
            reply.entry(&Entry::Node(Node { address, up: true, identity: None, contact: None }));
        }
        reply.done();
        let packets = packets(reply.bytes());
        assert!(packets.len() > 3 && packets.iter().all(|packet| packet.len() <= PACKET));
        let whole: usize = packets.iter().map(|packet| Messages::new(packet).count()).sum();
        assert_eq!(whole, 501);
        assert_eq!(packets.iter().flatten().copied().collect::<Vec<u8>>(), reply.bytes());
    }

    #[test]
    fn other_families_stay_with_the_kernel() {
        assert!(sent(-1, b"").is_none());
        assert!(sent(-1, &FamilyRequest::of("ethtool", 1)).is_none());
        // Not a netlink socket.
        assert!(sent(-1, &FamilyRequest::own(1)).is_none());
    }
}
