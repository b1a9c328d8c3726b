//! Many datagrams in one system call: `sendmmsg` and `recvmmsg`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::offload::gso;
use crate::sockaddr::SockAddr;

/// Maximum number of datagrams per system call.
pub const SEND_BATCH: usize = 64;

/// Longest wait for space in a full send buffer, per batch. A frame that still finds no space is
/// dropped and counted; the link retransmits it.
pub const SEND_STALL: Duration = Duration::from_millis(2);

/// Maximum number of errors of earlier datagrams that a batch skips.
const REPORTS_MAX: u32 = 4;

/// Space for one control message that carries an int, in u64 words: `CMSG_SPACE(4)` is 24 bytes.
const CONTROL_WORDS: usize = 4;

/// Maximum number of pieces of memory that one system call gathers.
const VECTORS: usize = 512;

/// Frames that [`Datagram`]s refer to by number. Each consists of two pieces of memory, either of which may be empty.
pub trait Frames {
    /// The pieces of frame `index`; `None` if the frame does not exist.
    fn pieces(&self, index: usize) -> [&[u8]; 2];
}

/// One send: `count` frames from number `first` on, as one datagram each or as one run of equal segments.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Destination; [`SockAddr::NONE`] on a connected socket.
    pub to: SockAddr,
    /// Number of its first frame.
    pub first: usize,
    /// Number of frames, at least one; more than one only with segments.
    pub count: usize,
    /// Bytes of all its frames.
    pub len: usize,
    /// Zero: one datagram. Otherwise segmentation offload divides the bytes into datagrams of this size: the size of
    /// every frame except the last, which may be shorter.
    pub segment: u16,
}

impl Datagram {
    /// Number of datagrams on the wire.
    pub fn frames(&self) -> u64 {
        self.count as u64
    }

    pub(crate) fn singles(&self) -> impl Iterator<Item = Datagram> + '_ {
        let size = if self.segment == 0 { self.len } else { usize::from(self.segment) };
        (0..self.count).map(move |index| Datagram {
            to: self.to,
            first: self.first + index,
            count: 1,
            len: size.min(self.len.saturating_sub(index * size)),
            segment: 0,
        })
    }
}

/// The result of sending a batch.
#[derive(Debug, Default)]
pub struct SendReport {
    /// Datagrams that the kernel took.
    pub frames: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Datagrams that the kernel refused, or that found no space in time.
    pub dropped: u64,
    /// System calls used.
    pub calls: u64,
    /// Number of sends that carried a run of more than one datagram.
    pub runs: u64,
    /// The last refusal.
    pub error: Option<io::Error>,
    /// The kernel refused a run but took its datagrams one by one: stop making runs.
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
/// Waits for a full buffer, at most [`SEND_STALL`] in all; counts and skips a datagram that is
/// refused for another reason. A run that segmentation offload refuses is sent one by one.
pub fn send_all(fd: BorrowedFd<'_>, frames: &impl Frames, datagrams: &[Datagram], report: &mut SendReport) {
    let mut rest = datagrams;
    let mut may_wait = true;
    let mut reports = 0;
    while !rest.is_empty() {
        report.calls += 1;
        let error = match send_some(fd, frames, rest) {
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
            // The error of an earlier datagram on a connected socket; this one was not tried yet.
            Some(libc::ECONNREFUSED) if reports < REPORTS_MAX => reports += 1,
            Some(libc::EAGAIN) if may_wait => may_wait = wait_writable(fd),
            Some(libc::EAGAIN) => {
                report.dropped(rest, error);
                return;
            }
            _ => {
                let Some((first, others)) = rest.split_first() else { return };
                if first.segment != 0 && gso::refused(&error) {
                    send_singly(fd, frames, first, report);
                } else {
                    report.dropped(std::slice::from_ref(first), error);
                }
                rest = others;
            }
        }
    }
}

/// Sends a refused run without the offload. If that works, the offload was the cause of the refusal.
fn send_singly(fd: BorrowedFd<'_>, frames: &impl Frames, run: &Datagram, report: &mut SendReport) {
    let singles: Vec<Datagram> = run.singles().collect();
    let before = report.dropped;
    send_all(fd, frames, &singles, report);
    report.offload_refused |= report.dropped == before;
}

fn wait_writable(fd: BorrowedFd<'_>) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(SEND_STALL.subsec_nanos()) };
    matches!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&limit)), Ok(1))
}

/// One `sendmmsg`; returns how many of the leading datagrams the kernel took, at least one.
fn send_some(fd: BorrowedFd<'_>, frames: &impl Frames, datagrams: &[Datagram]) -> io::Result<usize> {
    let mut count = 0;
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SEND_BATCH];
    let mut controls = [const { MaybeUninit::<[u64; CONTROL_WORDS]>::uninit() }; SEND_BATCH];
    let mut vectors = Vectors::new();
    let mut starts = [0; SEND_BATCH];
    for (index, datagram) in datagrams.iter().take(SEND_BATCH).enumerate() {
        let Some((first, pieces)) = vectors.gather(frames, datagram) else { break };
        // SAFETY: msghdr is plain integers and pointers; all zero is a valid value of it.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = datagram.to.as_ptr().cast_mut().cast();
        header.msg_namelen = datagram.to.len();
        header.msg_iovlen = pieces as _;
        starts[index] = first;
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
    for (header, start) in headers.iter_mut().zip(starts).take(count) {
        // SAFETY: the first `count` headers were written above.
        let header = unsafe { header.assume_init_mut() };
        header.msg_hdr.msg_iov = vectors.all[start..].as_mut_ptr().cast();
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if count == 1 {
        // SAFETY: as below, for the first header; the kernel writes nothing.
        let code = unsafe { libc::sendmsg(fd.as_raw_fd(), headers.as_ptr().cast(), flags) };
        return if code < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
    }
    let (fd, first) = (fd.as_raw_fd(), headers.as_mut_ptr().cast());
    // SAFETY: `count` headers were written above; all that they point to belongs to this function or is borrowed for
    // longer than the call. The kernel writes only their msg_len.
    let code = unsafe { libc::sendmmsg(fd, first, count as u32, flags as _) };
    usize::try_from(code).map_err(|_| io::Error::last_os_error())
}

/// Pieces of memory of several datagrams; adjacent pieces are merged.
struct Vectors {
    all: [MaybeUninit<libc::iovec>; VECTORS],
    used: usize,
}

impl Vectors {
    fn new() -> Vectors {
        Vectors { all: [const { MaybeUninit::uninit() }; VECTORS], used: 0 }
    }

    /// Adds the pieces of `datagram`; returns the index of the first and their number. `None` if there is no space, or
    /// if a frame is empty or does not exist.
    fn gather(&mut self, frames: &impl Frames, datagram: &Datagram) -> Option<(usize, usize)> {
        let first = self.used;
        // Address and size of the last piece.
        let mut last: Option<(usize, usize)> = None;
        for index in datagram.first..datagram.first + datagram.count {
            let pieces = frames.pieces(index);
            if pieces.iter().all(|piece| piece.is_empty()) {
                self.used = first;
                return None;
            }
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                let (start, mut len) = (piece.as_ptr() as usize, piece.len());
                let mut base = piece.as_ptr();
                if let Some((before, size)) = last.filter(|(before, size)| before + size == start) {
                    self.used -= 1;
                    len += size;
                    base = base.wrapping_sub(start - before);
                } else if self.used == VECTORS {
                    self.used = first;
                    return None;
                }
                // The kernel only reads through this pointer.
                let vector = libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len };
                self.all[self.used].write(vector);
                self.used += 1;
                last = Some((base as usize, len));
            }
        }
        Some((first, self.used - first))
    }
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
/// The memory is reserved at once and touched only as traffic needs it.
#[derive(Debug)]
pub struct ReceiveRing {
    bytes: Vec<u8>,
    size: usize,
    from: Vec<SockAddr>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    /// The frames of the last read, by buffer.
    got: Vec<Got>,
}

/// One read with data.
#[derive(Clone, Copy, Debug)]
struct Got {
    len: usize,
    /// Size of each frame in it; if there is only one, the size of the read.
    frame: usize,
    truncated: bool,
}

/// Maximum number of buffers of a ring.
const RING_MAX: usize = 64;

/// The result of one receive call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Reads with data; one read may hold many frames.
    pub reads: usize,
    /// Reads that did not fit their buffer and were dropped.
    pub truncated: usize,
    /// Every buffer was filled, so there may be more to read.
    pub more: bool,
}

impl ReceiveRing {
    /// Makes `count` (1 to 64) buffers of `size` (at least 1) bytes each.
    pub fn new(count: usize, size: usize) -> ReceiveRing {
        let (count, size) = (count.clamp(1, RING_MAX), size.max(1));
        ReceiveRing {
            bytes: vec![0; count * size],
            size,
            from: vec![SockAddr::EMPTY; count],
            controls: vec![[0; CONTROL_WORDS]; count],
            got: Vec::with_capacity(count),
        }
    }

    /// One `recvmmsg` without waiting; each frame goes to `sink`, coalesced ones separately.
    ///
    /// If there is nothing to read, the result is empty.
    pub fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        sink: &mut dyn FnMut(&SockAddr, &[u8]),
    ) -> io::Result<Received> {
        let most = self.from.len();
        self.read(fd, most, false)?;
        Ok(Received { more: self.got.len() == most, ..self.deliver(sink) })
    }

    /// Passes each frame of the last read to `sink`, coalesced ones separately.
    pub fn deliver(&self, sink: &mut dyn FnMut(&SockAddr, &[u8])) -> Received {
        let mut result = Received::default();
        for ((buffer, got), from) in self.bytes.chunks_exact(self.size).zip(&self.got).zip(&self.from) {
            if got.truncated {
                result.truncated += 1;
                continue;
            }
            result.reads += 1;
            let bytes = buffer.get(..got.len).unwrap_or_default();
            if bytes.is_empty() {
                sink(from, bytes);
            }
            bytes.chunks(got.frame).for_each(|frame| sink(from, frame));
        }
        result
    }

    /// Number of reads with data in the last [`ReceiveRing::read`].
    pub fn filled(&self) -> usize {
        self.got.len()
    }

    /// One `recvmmsg` of at most `most` datagrams; with `wait`, and on a blocking socket, it waits for the first.
    ///
    /// If there is nothing to read, or the socket's timeout passes, the result is empty.
    pub fn read(&mut self, fd: BorrowedFd<'_>, most: usize, wait: bool) -> io::Result<()> {
        self.got.clear();
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; RING_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RING_MAX];
        let count = most.clamp(1, self.from.len());
        let room = self.bytes.chunks_exact_mut(self.size);
        let room = room.zip(&mut self.from).zip(&mut self.controls).take(count);
        for (index, ((buffer, from), control)) in room.enumerate() {
            from.set_len(SockAddr::EMPTY.len());
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
        // SAFETY: the loop above wrote the first `count` headers: it ran once for each buffer
        // (of `size` > 0 bytes), of which there are as many as addresses, at most RING_MAX.
        let headers =
            unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<libc::mmsghdr>(), count) };
        let filled = receive_some(fd, headers, wait)?;
        for (header, from) in headers.iter().take(filled).zip(&mut self.from) {
            from.set_len(header.msg_hdr.msg_namelen);
            let len = (header.msg_len as usize).min(self.size);
            let frame = coalesced_size(&header.msg_hdr).unwrap_or(len).max(1);
            self.got.push(Got { len, frame, truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 });
        }
        Ok(())
    }
}

/// Reads into prepared headers; returns how many were filled.
fn receive_some(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], wait: bool) -> io::Result<usize> {
    loop {
        let taken = match &mut *headers {
            [only] => receive_one(fd, only, wait),
            many => receive_many(fd, many, wait),
        };
        let Err(error) = taken else { return taken };
        match error.raw_os_error() {
            Some(libc::EINTR) if !wait => {}
            Some(libc::EAGAIN | libc::EINTR) => return Ok(0),
            _ => return Err(error),
        }
    }
}

/// One `recvmsg`, which is cheaper for one datagram.
fn receive_one(fd: BorrowedFd<'_>, header: &mut libc::mmsghdr, wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the header points to buffers of the caller's ring, exclusively borrowed for longer than
    // this call, with their true sizes.
    let code = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header.msg_hdr, flags) };
    header.msg_len = u32::try_from(code).map_err(|_| io::Error::last_os_error())?;
    Ok(1)
}

/// One `recvmmsg`.
fn receive_many(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], wait: bool) -> io::Result<usize> {
    let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
    // SAFETY: every header points to buffers of the caller's ring, exclusively borrowed for
    // longer than this call, with their true sizes.
    let code = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as libc::c_uint,
            flags as _,
            std::ptr::null_mut(),
        )
    };
    usize::try_from(code).map_err(|_| io::Error::last_os_error())
}

/// The size of the datagrams that the kernel coalesced into this read; `None` if it coalesced none.
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
