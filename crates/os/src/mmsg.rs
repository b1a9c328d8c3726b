//! Many datagrams in one system call: `sendmmsg` and `recvmmsg`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::offload::gso;
use crate::sockaddr::SockAddr;

/// Most datagrams that one system call sends.
pub const SEND_BATCH: usize = 64;

/// Longest wait for room in a full send buffer, per batch. A frame that still finds none is
/// dropped and counted: the link layer above sends it again.
pub const SEND_STALL: Duration = Duration::from_millis(2);

/// Room for one control message that carries an int, in u64 words: `CMSG_SPACE(4)` is 24 bytes.
const CONTROL_WORDS: usize = 4;

/// One send: `len` bytes at `offset` of an arena, as one datagram or as equal segments.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Where to.
    pub to: SockAddr,
    /// Where its bytes start in the arena.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
    /// Zero: one datagram. Else segmentation offload cuts the bytes into datagrams of this size,
    /// the last of which may be shorter.
    pub segment: u16,
}

impl Datagram {
    /// How many datagrams go on the wire.
    pub fn frames(&self) -> u64 {
        if self.segment == 0 { 1 } else { self.len.div_ceil(usize::from(self.segment)) as u64 }
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = Datagram> + '_ {
        let size = if self.segment == 0 { self.len.max(1) } else { usize::from(self.segment) };
        (0..self.len).step_by(size).map(move |start| Datagram {
            to: self.to,
            offset: self.offset + start,
            len: size.min(self.len - start),
            segment: 0,
        })
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct SendReport {
    /// Datagrams that the kernel took.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams that it refused, or that found no room in time.
    pub dropped: u64,
    /// System calls used.
    pub calls: u64,
    /// Runs of more than one datagram that went as one send.
    pub runs: u64,
    /// The last refusal.
    pub error: Option<io::Error>,
    /// A run was refused, but its datagrams went out one by one: stop making runs.
    pub offload_refused: bool,
}

impl SendReport {
    fn sent(&mut self, datagrams: &[Datagram]) {
        for datagram in datagrams {
            self.frames += datagram.frames();
            self.bytes += datagram.len as u64;
            self.runs += u64::from(datagram.segment != 0);
        }
    }

    fn dropped(&mut self, datagrams: &[Datagram], error: io::Error) {
        self.dropped += datagrams.iter().map(Datagram::frames).sum::<u64>();
        self.error = Some(error);
    }
}

/// Sends all `datagrams` in their order, as far as the kernel takes them.
///
/// A full buffer is waited for, at most [`SEND_STALL`] in all; a datagram refused for another
/// reason is counted and skipped. A run that segmentation offload refuses is sent one by one.
pub fn send_all(fd: BorrowedFd<'_>, arena: &[u8], datagrams: &[Datagram], report: &mut SendReport) {
    let mut rest = datagrams;
    let mut may_wait = true;
    while !rest.is_empty() {
        report.calls += 1;
        let error = match send_some(fd, arena, rest) {
            Ok(count) => {
                let (sent, unsent) = rest.split_at(count.min(rest.len()));
                report.sent(sent);
                rest = unsent;
                continue;
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) if may_wait => may_wait = wait_writable(fd),
            Some(libc::EAGAIN) => {
                report.dropped(rest, error);
                return;
            }
            _ => {
                let Some((first, others)) = rest.split_first() else { return };
                if first.segment != 0 && gso::refused(&error) {
                    send_singly(fd, arena, first, report);
                } else {
                    report.dropped(std::slice::from_ref(first), error);
                }
                rest = others;
            }
        }
    }
}

/// Sends a refused run without the offload; only if that works was the offload at fault.
fn send_singly(fd: BorrowedFd<'_>, arena: &[u8], run: &Datagram, report: &mut SendReport) {
    let singles: Vec<Datagram> = run.segments().collect();
    let before = report.dropped;
    send_all(fd, arena, &singles, report);
    report.offload_refused |= report.dropped == before;
}

fn wait_writable(fd: BorrowedFd<'_>) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(SEND_STALL.subsec_nanos()) };
    matches!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&limit)), Ok(1))
}

/// One `sendmmsg`: how many of the leading datagrams the kernel took, at least one.
fn send_some(fd: BorrowedFd<'_>, arena: &[u8], datagrams: &[Datagram]) -> io::Result<usize> {
    let mut count = 0;
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SEND_BATCH];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; SEND_BATCH];
    let mut controls = [const { MaybeUninit::<[u64; CONTROL_WORDS]>::uninit() }; SEND_BATCH];
    for (index, datagram) in datagrams.iter().take(SEND_BATCH).enumerate() {
        let end = datagram.offset.saturating_add(datagram.len);
        let Some(bytes) = arena.get(datagram.offset..end) else { break };
        let vector = vectors[index].write(libc::iovec {
            // The kernel only reads through this pointer.
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        // SAFETY: msghdr is plain integers and pointers; all zero is a valid value of it.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = datagram.to.as_ptr().cast_mut().cast();
        header.msg_namelen = datagram.to.len();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        if datagram.segment != 0 {
            let control = controls[index].write([0; CONTROL_WORDS]);
            put_segment(&mut header, control, datagram.segment);
        }
        headers[index].write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        count = index + 1;
    }
    if count == 0 {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    // SAFETY: the first `count` headers were written above. Each points to a vector and, where it
    // has one, a control buffer of this frame, and to arena bytes and an address that the borrowed
    // parameters keep alive until the call returns; the kernel writes only msg_len of the headers.
    let code = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(code).map_err(|_| io::Error::last_os_error())
}

/// Attaches a `UDP_SEGMENT` control message of `size` bytes a segment.
fn put_segment(header: &mut libc::msghdr, control: &mut [u64; CONTROL_WORDS], size: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN are arithmetic on their argument.
    let (space, len) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    header.msg_controllen = space as _;
    // SAFETY: msg_control points to CONTROL_WORDS * 8 bytes, more than `space`, aligned for a
    // cmsghdr, so the first header lies inside and its data has room for two bytes.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = len as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(size);
    }
}

/// Buffers for receiving: `count` datagrams of at most `size` bytes a call.
///
/// The memory is asked for at once and touched only as traffic needs it.
#[derive(Debug)]
pub struct ReceiveRing {
    bytes: Vec<u8>,
    size: usize,
    from: Vec<SockAddr>,
    controls: Vec<[u64; CONTROL_WORDS]>,
}

/// Most buffers of a ring.
const RING_MAX: usize = 64;

/// What one receive call brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Reads of the socket that carried something; one read may hold many frames.
    pub reads: usize,
    /// Reads that did not fit their buffer, and were not delivered.
    pub truncated: usize,
    /// Every buffer was filled: there may be more to read.
    pub more: bool,
}

impl ReceiveRing {
    /// `count` buffers, 1 to 64, of `size` bytes, at least one.
    pub fn new(count: usize, size: usize) -> ReceiveRing {
        let (count, size) = (count.clamp(1, RING_MAX), size.max(1));
        ReceiveRing {
            bytes: vec![0; count * size],
            size,
            from: vec![SockAddr::EMPTY; count],
            controls: vec![[0; CONTROL_WORDS]; count],
        }
    }

    /// One `recvmmsg` without waiting; each frame goes to `sink`, coalesced ones cut apart.
    ///
    /// Nothing to read is an empty result, not an error.
    pub fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        sink: &mut dyn FnMut(&SockAddr, &[u8]),
    ) -> io::Result<Received> {
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; RING_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RING_MAX];
        let room = self.bytes.chunks_exact_mut(self.size);
        for (index, ((buffer, from), control)) in room.zip(&mut self.from).zip(&mut self.controls).enumerate()
        {
            *from = SockAddr::EMPTY;
            // SAFETY: mmsghdr is plain integers and pointers; all zero is a valid value of it.
            let header = headers[index].write(unsafe { std::mem::zeroed() });
            let header = &mut header.msg_hdr;
            header.msg_name = from.as_mut_ptr().cast();
            header.msg_namelen = from.len();
            header.msg_iov = vectors[index]
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(control) as _;
        }
        // SAFETY: the loop above wrote the first `from.len()` headers: it ran once for each buffer
        // (of `size` > 0 bytes), of which there are as many as addresses, at most RING_MAX.
        let headers = unsafe {
            std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<libc::mmsghdr>(), self.from.len())
        };
        let filled = receive_some(fd, headers)?;
        let mut result = Received { more: filled == self.from.len(), ..Received::default() };
        for (index, header) in headers.iter().take(filled).enumerate() {
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                result.truncated += 1;
                continue;
            }
            let len = (header.msg_len as usize).min(self.size);
            let Some(bytes) = self.bytes.get(index * self.size..index * self.size + len) else { continue };
            self.from[index].set_len(header.msg_hdr.msg_namelen);
            result.reads += 1;
            match coalesced_size(&header.msg_hdr) {
                Some(segment) if segment < len => {
                    bytes.chunks(segment).for_each(|frame| sink(&self.from[index], frame));
                }
                _ => sink(&self.from[index], bytes),
            }
        }
        Ok(result)
    }
}

/// One `recvmmsg` into prepared headers.
fn receive_some(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    loop {
        // SAFETY: every header points to buffers of the caller's ring, exclusively borrowed for
        // longer than this call, with their true sizes.
        let code = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if let Ok(count) = usize::try_from(code) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return Ok(0),
            _ => return Err(error),
        }
    }
}

/// The size of the datagrams that the kernel coalesced into this read, if it did.
fn coalesced_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled msg_control and set msg_controllen to what it wrote; the CMSG
    // functions walk inside these bounds. A UDP_GRO message carries an int.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_UDP && (*message).cmsg_type == libc::UDP_GRO {
                let size = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
                return usize::try_from(size).ok().filter(|size| *size > 0);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}
