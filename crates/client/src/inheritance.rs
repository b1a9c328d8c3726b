//! The inheritance: the sockets of a parent, until its forked child claims them.

use std::os::fd::OwnedFd;

use utipc_os::hidden::{Hiding, raise};

/// The descriptor by which a forked child claims the sockets of its parent.
#[derive(Debug)]
pub(crate) struct Inheritance {
    /// Number of the inheritance at the daemon.
    pub(crate) number: u32,
    /// Dropped before the descriptor, which it hides.
    pub(crate) hiding: Hiding,
    pub(crate) descriptor: OwnedFd,
}

impl Inheritance {
    pub(crate) fn new(number: u32, descriptor: OwnedFd) -> Self {
        let descriptor = raise(descriptor);
        Self { number, hiding: Hiding::of(&descriptor), descriptor }
    }
}
