//! The descriptor that an application polls in place of a socket.
//!
//! It is the near end of a packet socket pair; the daemon has the far end. A byte in it makes it readable, a packet
//! that fills its small send buffer makes it unwritable. The daemon adds the byte and removes the packet, also at the
//! request of a process at the other end of one of the socket's lanes. Only this process can remove the byte and add
//! the packet; it then checks once more, so that a concurrent change is not lost. See docs/spec/attach.md §5.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8};

use utipc_os::hidden::{Hiding, raise};
use utipc_os::packets::{self, Far, Near};

/// Receives on a polled socket before its readiness is lazy, which takes a descriptor.
const RECEIVES_BEFORE_LAZY: u8 = 8;

/// The ends of the pair that this process has, shared with the socket that resumes this one.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(super) near: OnceLock<Descriptor>,
    /// The own copy of the far end: while it is open, the descriptor does not hang up.
    far: OnceLock<KeptFar>,
}

#[derive(Debug)]
struct KeptFar {
    /// Dropped before the descriptor, which it hides.
    _hiding: Hiding,
    fd: OwnedFd,
}

impl Ends {
    /// The ends in a forked child.
    pub(crate) fn inherited(&self) -> Self {
        let inherited = Self::default();
        if let Some(copy) = self.near.get().and_then(Descriptor::inherited) {
            drop(inherited.near.set(copy));
        }
        inherited
    }

    pub(crate) fn near(&self) -> Option<&Descriptor> {
        self.near.get()
    }

    /// Whether the descriptor stays when the daemon dies, so that it must not be hung up.
    pub(crate) fn are_kept(&self) -> bool {
        self.far.get().is_some()
    }

    pub(super) fn keep_far(&self, fd: OwnedFd) {
        let fd = raise(fd);
        let _ = self.far.set(KeptFar { _hiding: Hiding::of(&fd), fd });
    }

    /// The kept far end.
    pub(crate) fn far(&self) -> Option<BorrowedFd<'_>> {
        self.far.get().map(|far| far.fd.as_fd())
    }
}

/// The near end of a socket's descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    near: Near,
    /// Whether it shows the readiness of the socket.
    polled: AtomicBool,
    /// See `lazy.rs`.
    pub(super) lazy: Lazy,
}

/// How far a descriptor may lag behind the readiness of its socket.
#[derive(Debug, Default)]
pub(super) struct Lazy {
    /// All waits of the program for this socket go through the caller of this library, which synchronises the
    /// descriptor before. Otherwise it lags only during a busy poll.
    allowed: AtomicBool,
    /// Counts receives up to [`RECEIVES_BEFORE_LAZY`].
    receives: AtomicU8,
    /// No lane is armed and the daemon has nothing: the descriptor says nothing until it is synchronised.
    stale: AtomicBool,
    /// The descriptor may be readable.
    readable: AtomicBool,
    /// It was not when the lanes were armed.
    clean: AtomicBool,
    /// The own copy of the far end, which makes the descriptor readable; `None` if it cannot be had.
    far: OnceLock<Option<Far>>,
}

impl Lazy {
    /// Allows it from now on.
    pub(super) fn allow(&self) {
        if !self.allowed.load(Relaxed) {
            self.readable.store(true, Relaxed);
            self.allowed.store(true, Release);
        }
    }

    /// Ends [`Lazy::allow`].
    pub(super) fn forbid(&self) {
        self.allowed.store(false, Release);
    }

    /// Notes a receive; returns whether the descriptor may become stale after it.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let receives = self.receives.load(Relaxed);
        if receives < RECEIVES_BEFORE_LAZY {
            self.receives.store(receives + 1, Relaxed);
            return false;
        }
        self.allowed.load(Relaxed)
    }

    /// Whether the socket is received from often enough for lazy readiness.
    pub(super) fn is_worth_it(&self) -> bool {
        self.receives.load(Relaxed) == RECEIVES_BEFORE_LAZY
    }

    #[inline]
    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Relaxed)
    }

    pub(super) fn set_stale(&self, stale: bool) {
        self.stale.store(stale, Relaxed);
    }

    pub(super) fn may_be_readable(&self) -> bool {
        self.readable.load(Relaxed)
    }

    pub(super) fn set_readable(&self, readable: bool) {
        self.readable.store(readable, Relaxed);
        self.clean.store(false, Relaxed);
    }

    /// From now on the descriptor is kept equal to the readiness, so that it may become readable at any time.
    pub(super) fn end(&self) {
        self.set_stale(false);
        self.set_readable(true);
    }

    /// Whether it is unreadable if no writer has answered the arming of the lanes.
    pub(super) fn is_clean(&self) -> bool {
        self.clean.load(Relaxed)
    }

    /// Notes that it was unreadable when the lanes were armed.
    pub(super) fn set_clean(&self) {
        self.clean.store(true, Relaxed);
    }

    /// The own copy of the far end; `fetch` gets it at the first call.
    pub(super) fn far(&self, fetch: impl FnOnce() -> Option<Far>) -> Option<&Far> {
        self.far.get_or_init(fetch).as_ref()
    }
}

impl Descriptor {
    /// A descriptor that this library owns; it is polled from the start.
    pub(super) fn new(near: OwnedFd) -> Self {
        Self::with(Near::owned(near), true)
    }

    /// A descriptor that the program owns and does not poll yet.
    pub(super) fn lent(number: RawFd) -> Self {
        Self::with(Near::lent(number), false)
    }

    fn with(near: Near, polled: bool) -> Self {
        Self { near, polled: AtomicBool::new(polled), lazy: Lazy::default() }
    }

    pub(crate) fn near(&self) -> &Near {
        &self.near
    }

    /// The descriptor in a forked child; `None` if it has none left.
    fn inherited(&self) -> Option<Self> {
        let inherited = Self::with(self.near.inherited()?, self.is_polled());
        if self.lazy.allowed.load(Relaxed) {
            inherited.lazy.allow();
        }
        Some(inherited)
    }

    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Acquire)
    }

    pub(super) fn set_polled(&self) {
        self.polled.store(true, Release);
    }

    /// See [`Near::renumber`]. In a forked child (`own` is false) it does not wait for a use of the old number: the
    /// thread that used it exists only in the parent.
    pub(super) fn renumber(&self, number: Option<RawFd>, own: bool) {
        if own { self.near.renumber(number) } else { self.near.renumber_at_once(number) }
    }

    /// The descriptor, unless the program owns it.
    pub(super) fn as_owned(&self) -> Option<BorrowedFd<'_>> {
        self.near.as_owned()
    }

    /// Makes it unreadable; returns whether it was readable.
    pub(crate) fn drain(&self) -> bool {
        self.near.with(|near| packets::drain(near)).unwrap_or(false)
    }

    /// Makes it unreadable; returns whether the daemon has closed the far end, after which it stays readable.
    pub(super) fn drain_to_end(&self) -> bool {
        self.near.with(|near| packets::drain_to_end(near)).is_some_and(|(_, end)| end)
    }

    /// Makes it unwritable; returns whether the daemon has closed the far end.
    pub(super) fn plug(&self) -> bool {
        self.near.with(|near| packets::fill(near)).unwrap_or(false)
    }
}
