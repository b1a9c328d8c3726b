//! The descriptor that an application polls in place of a socket.
//!
//! It is the near end of a packet socket pair; the daemon has the far end. A byte in it makes it readable, a packet
//! that fills its small send buffer makes it unwritable. The daemon adds the byte and removes the packet, also at the
//! request of a process at the other end of one of the socket's lanes. Only this process can remove the byte and add
//! the packet; it then checks once more, so that a concurrent change is not lost. See docs/spec/attach.md §5.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8};

use utipc_os::packets::{self, Far, Near};

/// Receives on a polled socket before its level is deferred, which takes a descriptor.
const RECEIVES_BEFORE_DEFERRING: u8 = 8;

/// The near end of a socket's descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    near: Near,
    /// Whether its level follows the readiness of the socket.
    polled: AtomicBool,
    /// See `looking.rs`.
    pub(crate) deferral: Deferral,
}

/// How far the level of a descriptor may lag behind.
#[derive(Debug, Default)]
pub(crate) struct Deferral {
    /// All waits of the program for this socket go through the caller of this library, which brings its level up to
    /// date before. Otherwise it lags only during a look.
    allowed: AtomicBool,
    /// Counts receives up to [`RECEIVES_BEFORE_DEFERRING`].
    receives: AtomicU8,
    /// No lane is armed and the daemon has nothing: the level says nothing until it is settled.
    deferred: AtomicBool,
    /// The descriptor may be readable.
    flagged: AtomicBool,
    /// It was not when the lanes were armed.
    clean: AtomicBool,
    /// The own copy of the far end, which makes the descriptor readable; `None` if there is none to be had.
    far: OnceLock<Option<Far>>,
}

impl Deferral {
    /// Allows it from now on.
    pub(crate) fn allow(&self) {
        if !self.allowed.load(Relaxed) {
            self.flagged.store(true, Relaxed);
            self.allowed.store(true, Release);
        }
    }

    /// Ends [`Deferral::allow`].
    pub(crate) fn forbid(&self) {
        self.allowed.store(false, Release);
    }

    /// Notes a receive; returns whether the level is to be deferred after it.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let receives = self.receives.load(Relaxed);
        if receives < RECEIVES_BEFORE_DEFERRING {
            self.receives.store(receives + 1, Relaxed);
            return false;
        }
        self.allowed.load(Relaxed)
    }

    /// Whether the socket is received from often enough for its level to be deferred.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.receives.load(Relaxed) == RECEIVES_BEFORE_DEFERRING
    }

    #[inline]
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred.load(Relaxed)
    }

    pub(crate) fn set_deferred(&self, deferred: bool) {
        self.deferred.store(deferred, Relaxed);
    }

    pub(crate) fn may_be_flagged(&self) -> bool {
        self.flagged.load(Relaxed)
    }

    pub(crate) fn set_flagged(&self, flagged: bool) {
        self.flagged.store(flagged, Relaxed);
        self.clean.store(false, Relaxed);
    }

    /// Whether it is unreadable if no writer has answered the arming of the lanes.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.load(Relaxed)
    }

    /// Notes that it was unreadable when the lanes were armed.
    pub(crate) fn set_clean(&self) {
        self.clean.store(true, Relaxed);
    }

    /// The own copy of the far end; `fetch` gets it at the first call.
    pub(crate) fn far(&self, fetch: impl FnOnce() -> Option<Far>) -> Option<&Far> {
        self.far.get_or_init(fetch).as_ref()
    }
}

impl Descriptor {
    /// A descriptor that this library owns; it is polled from the start.
    pub(crate) fn new(near: OwnedFd) -> Self {
        Self::with(Near::owned(near), true)
    }

    /// A descriptor that the program owns and does not poll yet.
    pub(crate) fn lent(number: RawFd) -> Self {
        Self::with(Near::lent(number), false)
    }

    fn with(near: Near, polled: bool) -> Self {
        Self { near, polled: AtomicBool::new(polled), deferral: Deferral::default() }
    }

    pub(crate) fn near(&self) -> &Near {
        &self.near
    }

    /// The descriptor in a forked child; `None` if it has none left.
    pub(crate) fn inherited(&self) -> Option<Self> {
        let inherited = Self::with(self.near.inherited()?, self.is_polled());
        if self.deferral.allowed.load(Relaxed) {
            inherited.deferral.allow();
        }
        Some(inherited)
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
