//! Generic segmentation offload: one send of many equal datagrams (`UDP_SEGMENT`, Linux 4.18).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of segments of one send that every kernel with the feature supports (`UDP_MAX_SEGMENTS`
/// was 64 before Linux 6.9, 128 since).
pub const MAX_SEGMENTS: usize = 64;

/// Maximum size of one send, bytes: 65,535 minus an IPv6 and a UDP header, which also fits IPv4.
pub const MAX_BYTES: usize = 65_535 - 40 - 8;

/// Whether the kernel supports `UDP_SEGMENT` on this socket.
///
/// Check before use: a kernel without it ignores the control message and sends the whole run as one
/// datagram.
pub fn probe(fd: BorrowedFd<'_>) -> bool {
    let none: libc::c_int = 0;
    // SAFETY: the option value is a live c_int and its exact size is passed; the descriptor is
    // borrowed for the duration of the call.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const none).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    code == 0
}

/// Whether `error` may mean that the route cannot segment, rather than that the datagrams are invalid: no checksum
/// offload (EIO), segment above the path MTU or checksums off (EINVAL), not supported by the lower protocol.
pub fn refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::EMSGSIZE)
    )
}
