//! Generic receive offload: one receive of many equal datagrams (`UDP_GRO`, Linux 5.0).

use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum size of a coalesced datagram, bytes: the largest UDP payload.
pub const MAX_BYTES: usize = 65_535;

/// Turns coalescing on; returns `false` if the kernel does not support it. Then every datagram arrives
/// by itself, which the receiver handles too.
pub fn enable(fd: BorrowedFd<'_>) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: the option value is a live c_int and its exact size is passed; the descriptor is
    // borrowed for the duration of the call.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    code == 0
}
