//! The descriptor that an application polls in place of a socket.
//!
//! It is the near end of a packet socket pair; the daemon has the far end. A byte in it makes it readable, a packet
//! that fills its small send buffer makes it unwritable. The daemon adds the byte and removes the packet, also at the
//! request of a process at the other end of one of the socket's lanes. Only this process can remove the byte and add
//! the packet; it then checks once more, so that a concurrent change is not lost. See docs/spec/attach.md §5.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use utipc_os::packets::{self, Near};

/// The near end of a socket's descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    near: Near,
    /// Whether its level follows the readiness of the socket.
    polled: AtomicBool,
}

impl Descriptor {
    /// A descriptor that this library owns; it is polled from the start.
    pub(crate) fn new(near: OwnedFd) -> Self {
        Self { near: Near::owned(near), polled: AtomicBool::new(true) }
    }

    /// A descriptor that the program owns and does not poll yet.
    pub(crate) fn lent(number: RawFd) -> Self {
        Self { near: Near::lent(number), polled: AtomicBool::new(false) }
    }

    /// The descriptor in a forked child; `None` if it has none left.
    pub(crate) fn inherited(&self) -> Option<Self> {
        let polled = AtomicBool::new(self.is_polled());
        self.near.inherited().map(|near| Self { near, polled })
    }

    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Acquire)
    }

    pub(crate) fn set_polled(&self) {
        self.polled.store(true, Release);
    }

    /// See [`Near::renumber`]. In a forked child (`own` is false) it does not wait for a use of the old number: the
    /// thread that used it exists only in the parent.
    pub(crate) fn renumber(&self, number: Option<RawFd>, own: bool) {
        if own { self.near.renumber(number) } else { self.near.renumber_at_once(number) }
    }

    /// The descriptor, unless the program owns it.
    pub(crate) fn as_owned(&self) -> Option<BorrowedFd<'_>> {
        self.near.as_owned()
    }

    /// Makes it unreadable; returns whether it was readable.
    pub(crate) fn drain(&self) -> bool {
        self.near.with(|near| packets::drain(near)).unwrap_or(false)
    }

    /// Makes it unreadable; returns whether the daemon has closed the far end, after which it stays readable.
    pub(crate) fn drain_to_end(&self) -> bool {
        self.near.with(|near| packets::drain_to_end(near)).is_some_and(|(_, end)| end)
    }

    /// Makes it unwritable; returns whether the daemon has closed the far end.
    pub(crate) fn plug(&self) -> bool {
        self.near.with(|near| packets::fill(near)).unwrap_or(false)
    }
}
