//! Messages of AF_TIPC sockets and their ancillary data. Spec: tipc.md §8.10.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::{Address, LEN};

/// Types of ancillary data, level SOL_TIPC.
const ERRINFO: i32 = 1;
const RETDATA: i32 = 2;
const DESTNAME: i32 = 3;

/// Level of TIPC's options and ancillary data.
pub(super) const SOL_TIPC: i32 = 271;

/// Maximum data of a returned message, bytes.
const RETURNED_MAX: usize = 1024;

/// Space for all three items with their headers, in words so that it is aligned for `cmsghdr`.
const CONTROL_WORDS: usize = (RETURNED_MAX + 256) / 8;

/// Flags of one receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Leave the message in the queue (MSG_PEEK).
    pub peek: bool,
    /// STREAM: fill the buffer (MSG_WAITALL).
    pub wait_all: bool,
    /// Keep the rest of a message that does not fit (MSG_EOR).
    pub keep_remainder: bool,
    /// Do not wait (MSG_DONTWAIT).
    pub now: bool,
}

impl Receive {
    fn flags(self) -> i32 {
        let flag = |set: bool, flag: i32| if set { flag } else { 0 };
        flag(self.peek, libc::MSG_PEEK)
            | flag(self.wait_all, libc::MSG_WAITALL)
            | flag(self.keep_remainder, libc::MSG_EOR)
            | flag(self.now, libc::MSG_DONTWAIT)
    }
}

/// A membership event of a group, which the kernel reports as an empty message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// It has joined, or was a member already (MSG_OOB).
    Joined,
    /// It has left (MSG_OOB and MSG_EOR).
    Left,
}

impl MemberEvent {
    fn from_flags(flags: i32) -> Option<Self> {
        let event = if flags & libc::MSG_EOR == 0 { Self::Joined } else { Self::Left };
        (flags & libc::MSG_OOB != 0).then_some(event)
    }
}

/// The sender of a message, and the name by which it addressed the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The socket that sent it.
    pub source: Option<Address>,
    /// The name that the sender used: service type, lower and upper instance.
    pub name: Option<[u32; 3]>,
    /// In a group the sender as a member: the group, and the member's instance.
    pub member: Option<[u32; 2]>,
}

impl Origin {
    /// Decodes the addresses that the kernel wrote: one, or two for a message in a group.
    fn from_bytes(bytes: &[u8]) -> Self {
        let member = bytes.get(LEN..).and_then(Address::from_bytes).and_then(|member| match member {
            Address::Service { service, instance, .. } => Some([service, instance]),
            _ => None,
        });
        Self { source: Address::from_bytes(bytes), name: None, member }
    }
}

/// What a receive returns besides the bytes in the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Bytes in the buffer.
    pub len: usize,
    /// Its sender.
    pub origin: Origin,
    /// If the message was returned, or the connection ended: the error code and the start of the data.
    pub returned: Option<(u32, Vec<u8>)>,
    /// The message did not fit (MSG_TRUNC).
    pub truncated: bool,
    /// The message ends here (MSG_EOR).
    pub end_of_record: bool,
    /// Not a message: the member has joined or left. The buffer holds the kernel's event.
    pub event: Option<MemberEvent>,
}

impl Message {
    /// Stores one item of ancillary data; ignores unknown and malformed ones.
    fn note(&mut self, kind: i32, data: &[u8]) {
        let word = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        match kind {
            ERRINFO => {
                if let Some(code) = word(0) {
                    self.returned = Some((code, Vec::new()));
                }
            }
            RETDATA => {
                if let Some((_, returned)) = &mut self.returned {
                    returned.extend_from_slice(&data[..data.len().min(RETURNED_MAX)]);
                }
            }
            DESTNAME => {
                if let (Some(service), Some(lower), Some(upper)) = (word(0), word(4), word(8)) {
                    self.origin.name = Some([service, lower, upper]);
                }
            }
            _ => {}
        }
    }
}

/// One `sendmsg`; returns the bytes taken.
pub(super) fn send(fd: BorrowedFd<'_>, data: &[u8], to: Option<Address>, now: bool) -> io::Result<usize> {
    let name = to.map(|to| to.to_bytes(0));
    let (name, len) = name.as_ref().map_or((std::ptr::null(), 0), |name| (name.as_ptr(), LEN));
    let flags = libc::MSG_NOSIGNAL | if now { libc::MSG_DONTWAIT } else { 0 };
    // SAFETY: `data` and, if given, `name` are valid for reads of their lengths during the call.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            flags,
            name.cast(),
            len as libc::socklen_t,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// One `recvmsg`.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], how: Receive) -> io::Result<Message> {
    let mut control = [0u64; CONTROL_WORDS];
    // For a member of a group the kernel writes a second address.
    let mut name = [0u8; 2 * LEN];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a `msghdr` without any part.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = name.len() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: each part of the header points to live memory of the given length, exclusively borrowed for the call.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, how.flags()) };
    let len = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let named = (header.msg_namelen as usize).min(name.len());
    let mut message = Message {
        len: len.min(buffer.len()),
        origin: Origin::from_bytes(&name[..named]),
        returned: None,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        end_of_record: header.msg_flags & (libc::MSG_EOR | libc::MSG_OOB) == libc::MSG_EOR,
        event: MemberEvent::from_flags(header.msg_flags),
    };
    // SAFETY: the kernel has set `msg_controllen` to the length it wrote into `control`, which is live.
    let mut item = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !item.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR yield headers that lie within `control`, aligned, written by the
        // kernel.
        let (head, data) = unsafe { (*item, libc::CMSG_DATA(item)) };
        // SAFETY: computes a length only.
        let overhead = unsafe { libc::CMSG_LEN(0) } as usize;
        // A number of 32 bits in musl.
        #[allow(clippy::unnecessary_cast)]
        let len = (head.cmsg_len as usize).saturating_sub(overhead);
        if head.cmsg_level == SOL_TIPC {
            // SAFETY: the kernel wrote `cmsg_len` bytes of this item into `control`.
            message.note(head.cmsg_type, unsafe { std::slice::from_raw_parts(data, len) });
        }
        // SAFETY: `item` came from this header.
        item = unsafe { libc::CMSG_NXTHDR(&raw const header, item) };
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_of_a_group_is_the_second_address() {
        let source = Address::Port { port: 7, node: 9 };
        let member = Address::Service { service: 4300, instance: 5, domain: 0 };
        let both = [source.to_bytes(0), member.to_bytes(0)].concat();
        let known = Origin { source: Some(source), name: None, member: Some([4300, 5]) };
        assert_eq!(Origin::from_bytes(&both), known);
        assert_eq!(Origin::from_bytes(&both[..LEN]), Origin { member: None, ..known });
        assert_eq!(Origin::from_bytes(&[]), Origin::default());
    }

    #[test]
    fn flags_of_an_event_tell_what_the_member_has_done() {
        assert_eq!(MemberEvent::from_flags(libc::MSG_OOB), Some(MemberEvent::Joined));
        assert_eq!(MemberEvent::from_flags(libc::MSG_OOB | libc::MSG_EOR), Some(MemberEvent::Left));
        assert_eq!(MemberEvent::from_flags(libc::MSG_EOR), None);
    }

    #[test]
    fn ancillary_data_is_decoded_and_malformed_ignored() {
        let mut message = Message::default();
        message.note(RETDATA, b"before its error");
        message.note(ERRINFO, &[1, 0]);
        message.note(DESTNAME, &[0; 11]);
        message.note(77, &[0; 16]);
        assert_eq!(message, Message::default());
        message.note(ERRINFO, &[2, 0, 0, 0, 4, 0, 0, 0]);
        message.note(RETDATA, b"back");
        assert_eq!(message.returned, Some((2, b"back".to_vec())));
        let name: Vec<u8> = [18888u32, 1, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        message.note(DESTNAME, &name);
        assert_eq!(message.origin.name, Some([18888, 1, 9]));
    }
}
