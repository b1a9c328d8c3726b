//! The kernel's TIPC: sockets of family AF_TIPC, if the kernel has the module. Spec: tipc.md §8.

mod address;
mod identity;
mod message;
mod netlink;
mod socket;

pub use address::Address;
pub use identity::{link_name, node_identity};
pub use message::{MemberEvent, Message, Origin, Receive};
pub use netlink::Netlink;
pub use rustix::event::PollFlags;
pub use socket::{KernelOption, KernelSocket, Kind};

/// Whether a socket of family AF_TIPC can be opened.
pub fn is_available() -> bool {
    KernelSocket::open(Kind::Rdm).is_ok()
}
