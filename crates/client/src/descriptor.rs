//! The descriptor that an application polls in place of a socket.
//!
//! It is one end of a packet socket pair, the daemon has the other. A byte in it makes it readable, a packet that fills
//! its small send buffer makes it unwritable. The daemon adds what makes it readable and takes away what makes it
//! unwritable, also on behalf of whoever writes or reads one of the socket's lanes; only this side can do the opposite,
//! and then looks once more, so that a change that was on its way is not lost. See docs/spec/attach.md, section 4.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use utipc_os::packets::{self, Near};

#[derive(Debug)]
pub(crate) struct Descriptor {
    near: Near,
    /// Somebody polls it. Before, nobody needs to keep its level.
    polled: AtomicBool,
}

impl Descriptor {
    /// One that is polled and belongs to this library.
    pub(crate) fn new(near: OwnedFd) -> Self {
        Self { near: Near::owned(near), polled: AtomicBool::new(true) }
    }

    /// The program's own, which it does not poll yet.
    pub(crate) fn lent(number: RawFd) -> Self {
        Self { near: Near::lent(number), polled: AtomicBool::new(false) }
    }

    /// The same for a forked child; `None` if the process has no descriptor left.
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

    /// See [`Near::renumber`]; without waiting for a use of the old number in a forked child (not `own`), where the thread
    /// that used it does not live.
    pub(crate) fn renumber(&self, number: Option<RawFd>, own: bool) {
        if own { self.near.renumber(number) } else { self.near.renumber_at_once(number) }
    }

    /// The descriptor, unless it is the program's.
    pub(crate) fn as_owned(&self) -> Option<BorrowedFd<'_>> {
        self.near.as_owned()
    }

    /// Makes it unreadable; whether it was readable.
    pub(crate) fn drain(&self) -> bool {
        self.near.with(|near| packets::drain(near)).unwrap_or(false)
    }

    /// Makes it unreadable; whether the daemon has let go of its end, which is readable for ever.
    pub(crate) fn drain_to_end(&self) -> bool {
        self.near.with(|near| packets::drain_to_end(near)).is_some_and(|(_, end)| end)
    }

    /// Makes it unwritable; whether the daemon has let go of its end.
    pub(crate) fn plug(&self) -> bool {
        self.near.with(|near| packets::fill(near)).unwrap_or(false)
    }
}
