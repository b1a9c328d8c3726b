//! Whether the kernel has TIPC itself.

use rustix::net::{AddressFamily, SocketType, socket};

/// Whether a socket of family AF_TIPC can be opened.
pub fn is_available() -> bool {
    socket(AddressFamily::TIPC, SocketType::RDM, None).is_ok()
}
