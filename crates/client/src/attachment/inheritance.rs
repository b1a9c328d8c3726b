//! The inheritance: the sockets of a parent, until its forked child claims them.

use std::os::fd::OwnedFd;

use utipc_os::hidden::{Hiding, raise};

/// The descriptor by which a forked child claims the sockets of its parent.
#[derive(Debug)]
pub(super) struct Inheritance {
    /// Number of the inheritance at the daemon.
    pub(super) number: u32,
    /// Dropped before the descriptor, which it hides.
    pub(super) hiding: Hiding,
    pub(super) descriptor: OwnedFd,
}

impl Inheritance {
    pub(super) fn new(number: u32, descriptor: OwnedFd) -> Self {
        let descriptor = raise(descriptor);
        Self { number, hiding: Hiding::of(&descriptor), descriptor }
    }
}
