//! The descriptor that an application polls in place of a socket.
//!
//! It is one end of a packet socket pair, the daemon has the other. A byte in it makes it readable, a packet that fills
//! its small send buffer makes it unwritable. The daemon adds what makes it readable and takes away what makes it
//! unwritable, also on behalf of whoever writes or reads one of the socket's lanes; only this side can do the opposite,
//! and then looks once more, so that a change that was on its way is not lost. See docs/spec/attach.md, section 4.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use utipc_os::packets;

#[derive(Debug)]
pub(crate) struct Descriptor {
    near: OwnedFd,
}

impl Descriptor {
    pub(crate) fn new(near: OwnedFd) -> Self {
        Self { near }
    }

    /// The same for a forked child; `None` if the process has no descriptor left.
    pub(crate) fn copy(&self) -> Option<Self> {
        self.near.try_clone().ok().map(Self::new)
    }

    /// Makes it unreadable; whether it was readable.
    pub(crate) fn drain(&self) -> bool {
        packets::drain(&self.near)
    }

    /// Makes it unreadable; whether the daemon has let go of its end, which is readable for ever.
    pub(crate) fn drain_to_end(&self) -> bool {
        packets::drain_to_end(&self.near).1
    }

    /// Makes it unwritable; whether the daemon has let go of its end.
    pub(crate) fn plug(&self) -> bool {
        packets::fill(&self.near)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
