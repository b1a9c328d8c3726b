//! The kernel's generic-netlink family TIPCv2, answered by the daemon (decision 12); every other family stays the kernel's.
//!
//! The program's netlink socket is the kernel's own. What it sends to TIPCv2, or asks about it, goes to the daemon. For every
//! packet of the answer a harmless question with a sequence number of ours, a *token*, is put to the kernel through the
//! same socket; what the kernel says to it is replaced, when the program receives it, by the packet. So poll loops, blocking,
//! time limits, copies of the descriptor and its order among other answers are the kernel's.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libc::{c_int, iovec, msghdr, sockaddr_nl, socklen_t};
use utipc_manage::{Family, FamilyRequest, Header, Messages, family, kind, without_error_texts};

use crate::errno::Code;
use crate::node::node;
use crate::real;

/// The number that TIPCv2 has here: beyond all that the kernel gives to families.
const FAMILY: u16 = 0x7c00;
/// A family that every kernel has: the controller itself.
const CONTROLLER: &str = "nlctrl";
/// Most bytes of a packet with several messages: the smallest buffer that programs receive into is a page.
const PACKET: usize = 3584;
/// Answers that wait for their program to read them, at most; older ones are forgotten.
const MAX_WAITING: usize = 256;
/// Sequence numbers of tokens begin here; programs begin with the time or with small numbers.
const FIRST_TOKEN: u32 = 0xf1c0_0000;

const SOL_NETLINK: c_int = 270;
const EXT_ACK: c_int = 11;

/// The process has opened a socket of generic netlink: until then nothing here costs more than this look.
static USED: AtomicBool = AtomicBool::new(false);

/// Packets that wait behind tokens.
#[derive(Default)]
struct Waiting {
    answers: HashMap<u32, VecDeque<Vec<u8>>>,
    order: VecDeque<u32>,
    next: u32,
}

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket is opened.
#[inline]
pub(crate) fn opened(domain: c_int, protocol: c_int) {
    if domain == libc::AF_NETLINK && protocol == libc::NETLINK_GENERIC {
        USED.store(true, Relaxed);
    }
}

/// The program has inherited a descriptor by an exec.
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

/// Whether it is a netlink socket.
pub(crate) fn is_netlink(fd: c_int) -> bool {
    port_of(fd).is_some()
}

/// Whether a call on a descriptor that is no TIPC socket may be about the family.
#[inline]
pub(crate) fn is_used() -> bool {
    USED.load(Relaxed)
}

/// The program sends `data`: what the call returns if it was for TIPC, `None` if it is the kernel's.
pub(crate) fn sent(fd: c_int, data: &[u8]) -> Option<Result<usize, Code>> {
    let header = Messages::new(data).next()?.header;
    let asks_for_family = || {
        let question = FamilyRequest::from_bytes(data);
        question.is_some_and(|question| question.name.as_deref() == Some(family::NAME))
    };
    if header.family != FAMILY && !(header.family == kind::CONTROL && asks_for_family()) {
        return None;
    }
    let port = port_of(fd)?;
    let mut answer = if header.family == FAMILY {
        match ask(data, port) {
            Ok(answer) => answer,
            Err(code) => return Some(Err(code)),
        }
    } else {
        // Without a daemon the kernel says what it has.
        node().ok()?;
        Family(FAMILY).to_bytes(&Header { port, ..header })
    };
    if !wants_words(fd) {
        answer = without_error_texts(&answer);
    }
    Some(keep(fd, packets(&answer)).map(|()| data.len()))
}

/// The daemon's answer to a request of the socket with this number.
fn ask(request: &[u8], port: u32) -> Result<Vec<u8>, Code> {
    let mut request = request.to_vec();
    if let Some(place) = request.get_mut(12..16) {
        place.copy_from_slice(&port.to_ne_bytes());
    }
    let answer = node()?.manage(&request).map_err(|error| crate::errno::code(&error))?;
    Ok(answer)
}

/// Cuts an answer into packets, between its messages.
fn packets(answer: &[u8]) -> VecDeque<Vec<u8>> {
    let mut all: VecDeque<Vec<u8>> = VecDeque::new();
    for message in Messages::new(answer) {
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

/// Keeps packets for the program, and has the kernel announce the first.
fn keep(fd: c_int, packets: VecDeque<Vec<u8>>) -> Result<(), Code> {
    if packets.is_empty() {
        return Ok(());
    }
    let mut waiting = waiting();
    let token = FIRST_TOKEN | waiting.next & 0xffff;
    waiting.next = waiting.next.wrapping_add(1);
    if waiting.order.len() == MAX_WAITING
        && let Some(old) = waiting.order.pop_front()
    {
        waiting.answers.remove(&old);
    }
    waiting.answers.insert(token, packets);
    waiting.order.push_back(token);
    drop(waiting);
    announce(fd, token)
}

/// Has the kernel say something with this sequence number.
fn announce(fd: c_int, token: u32) -> Result<(), Code> {
    let question = FamilyRequest::of(CONTROLLER, token);
    // SAFETY: the buffer is ours; without an address it goes to the kernel.
    let sent = unsafe { real::send.get()(fd, question.as_ptr().cast(), question.len(), libc::MSG_DONTWAIT) };
    // SAFETY: the C library's place for this thread's errno.
    if sent < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(()) }
}

/// A netlink socket's own number, given to it if it had none; `None` if it is no netlink socket.
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

/// Whether the socket is to be told words with an error.
fn wants_words(fd: c_int) -> bool {
    let (mut on, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: room for one number, which the length says.
    let done =
        unsafe { real::getsockopt.get()(fd, SOL_NETLINK, EXT_ACK, (&raw mut on).cast(), &raw mut length) };
    done == 0 && on != 0
}

/// What the socket would receive next, if that is a token of ours.
fn next_token(fd: c_int, flags: c_int) -> Option<u32> {
    if waiting().answers.is_empty() {
        return None;
    }
    let mut head = [0u8; 256];
    let flags = flags & (libc::MSG_DONTWAIT) | libc::MSG_PEEK;
    // SAFETY: the buffer is ours.
    let len = unsafe { real::recv.get()(fd, head.as_mut_ptr().cast(), head.len(), flags) };
    let message = Messages::new(head.get(..usize::try_from(len).ok()?)?).next()?;
    let token = message.header.sequence;
    (message.header.family == kind::CONTROL && waiting().answers.contains_key(&token)).then_some(token)
}

/// Receives a packet of an answer into the buffers of `message`, as `recvmsg` does; `None` if the socket has something else.
///
/// # Safety
/// The message is one for `recvmsg`.
pub(crate) unsafe fn received(fd: c_int, message: &mut msghdr, flags: c_int) -> Option<Result<usize, Code>> {
    let token = next_token(fd, flags)?;
    // What the kernel says goes here; who says it goes to the caller.
    let mut ignored = [0u8; 512];
    let mut part = iovec { iov_base: ignored.as_mut_ptr().cast::<c_void>(), iov_len: ignored.len() };
    let mut real_message = *message;
    real_message.msg_iov = &raw mut part;
    real_message.msg_iovlen = 1;
    // SAFETY: the buffer is ours, the rest the caller's.
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
        && waiting().answers.contains_key(&token)
        && let Err(code) = announce(fd, token)
    {
        return Some(Err(code));
    }
    // SAFETY: by the caller's promise.
    let room = unsafe { crate::parts::list(message.msg_iov, message.msg_iovlen) };
    let put = room.and_then(|parts| {
        let room = crate::parts::total(parts)?;
        let fits = packet.len().min(room);
        // SAFETY: by the caller's promise.
        unsafe { crate::parts::scatter(packet.get(..fits).unwrap_or_default(), parts) }?;
        if fits < packet.len() {
            message.msg_flags |= libc::MSG_TRUNC;
        }
        Ok(if flags & libc::MSG_TRUNC != 0 { packet.len() } else { fits })
    });
    Some(put)
}

/// The first packet behind a token.
fn take(token: u32, peeks: bool) -> Vec<u8> {
    let mut waiting = waiting();
    let Some(packets) = waiting.answers.get_mut(&token) else { return Vec::new() };
    if peeks {
        return packets.front().cloned().unwrap_or_default();
    }
    let packet = packets.pop_front().unwrap_or_default();
    if packets.is_empty() {
        waiting.answers.remove(&token);
        waiting.order.retain(|known| *known != token);
    }
    packet
}

/// The same for a call with one buffer, and room for an address.
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
        // SAFETY: the caller says how much room there is.
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
    use utipc_manage::{Entry, Node, ReplyWriter, flag};

    #[test]
    fn answers_are_cut_between_messages() {
        let request = Header { family: FAMILY, flags: flag::DUMP, sequence: 4, ..Header::default() };
        let mut answer = ReplyWriter::new(request);
        for address in 1..=500 {
            answer.entry(&Entry::Node(Node { address, up: true, identity: None }));
        }
        answer.done();
        let packets = packets(answer.bytes());
        assert!(packets.len() > 3 && packets.iter().all(|packet| packet.len() <= PACKET));
        let whole: usize = packets.iter().map(|packet| Messages::new(packet).count()).sum();
        assert_eq!(whole, 501);
        assert_eq!(packets.iter().flatten().copied().collect::<Vec<u8>>(), answer.bytes());
    }

    #[test]
    fn what_is_for_other_families_is_the_kernels() {
        assert!(sent(-1, b"").is_none());
        assert!(sent(-1, &FamilyRequest::of("ethtool", 1)).is_none());
        // Not a netlink socket.
        assert!(sent(-1, &FamilyRequest::own(1)).is_none());
    }
}
