//! Waiting for many descriptors at once: epoll, with a waker and timeouts in nanoseconds.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::timer::Timer;
use crate::{OsError, Result, clock};

/// The token of the waker; refused for descriptors.
pub const WAKER_TOKEN: u64 = u64::MAX;

/// The token of the timer that stands in for `epoll_pwait2`.
const TIMER_TOKEN: u64 = u64::MAX - 1;

/// Maximum number of events that one wait reports; the next wait reports the rest.
pub const EVENTS_MAX: usize = 32;

/// The events to wait for on a descriptor. Hang-up and error are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, or a connection to accept.
    Read,
    /// Room to write.
    Write,
    /// Both.
    Both,
    /// Only hang-up and error.
    End,
    /// Only hang-up and error, each change reported once, also further changes after a hang-up.
    EndOnce,
    /// A [`Waker`] of another thread or process: each use is reported once, and it need not be drained.
    Waker,
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token given to [`Reactor::add`].
    pub token: u64,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// The peer is gone, or the descriptor has an error.
    pub hangup: bool,
}

/// A set of descriptors to wait for, level-triggered.
///
/// It is itself a descriptor that is readable while one of its members is ready, so that a program with its own event
/// loop can wait for it.
#[derive(Debug)]
pub struct Reactor {
    epoll: OwnedFd,
    waker: Waker,
    precise: Precise,
}

/// The implementation of timeouts below a millisecond.
#[derive(Debug)]
enum Precise {
    /// `epoll_pwait2`, Linux 5.11.
    Wait,
    /// A timer among the members.
    Timer(Timer),
}

/// Whether reading from a descriptor would not block now. An error counts as readable: reading tells it.
pub fn is_readable(fd: impl AsFd) -> bool {
    let mut watched = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())) != Ok(0)
}

/// Ends the wait of its reactor from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    /// Makes a waker without a reactor: a descriptor that is readable from [`wake`](Waker::wake) to
    /// [`drain`](Waker::drain).
    pub fn new() -> Result<Waker> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| OsError::new("create", "an event descriptor", errno))?;
        Ok(Waker { fd: Arc::new(fd) })
    }

    /// Makes a waker of a descriptor from another process, see [`Waker::share`].
    pub fn from_fd(fd: OwnedFd) -> Waker {
        Waker { fd: Arc::new(fd) }
    }

    /// A copy of the descriptor for another process.
    pub fn share(&self) -> Result<OwnedFd> {
        self.fd.try_clone().map_err(|cause| OsError::new("copy", "an event descriptor", cause))
    }

    /// Makes the current or the next wait return at once.
    pub fn wake(&self) {
        // Fails only if the counter is full; then the descriptor is readable already.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Clears all wake-ups so far.
    pub fn drain(&self) {
        // Fails only if there was no wake-up.
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Reactor {
    /// An empty set with its waker.
    pub fn new() -> Result<Reactor> {
        Reactor::with(Precise::Wait)
    }

    fn with(precise: Precise) -> Result<Reactor> {
        let failed = |errno: rustix::io::Errno| OsError::new("create", "an event loop", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let waker = Waker::new()?;
        let data = EventData::new_u64(WAKER_TOKEN);
        epoll::add(&epoll, &waker, data, EventFlags::IN).map_err(failed)?;
        let mut reactor = Reactor { epoll, waker, precise: Precise::Wait };
        if let Precise::Timer(timer) = precise {
            reactor.use_timer(timer)?;
        }
        Ok(reactor)
    }

    /// A handle that ends waits, for any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds `fd` with a `token` of the caller's choice below [`WAKER_TOKEN`] - 1.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        if token >= TIMER_TOKEN {
            let cause = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(OsError::new("watch a descriptor under the reserved token", token, cause));
        }
        epoll::add(&self.epoll, fd.as_fd(), EventData::new_u64(token), flags(interest)).map_err(|errno| {
            OsError::new("watch descriptor", fd.as_fd().as_raw_fd(), errno)
                .with_remedy("each descriptor is watched once per reactor")
        })
    }

    /// Changes the events to wait for on `fd`.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        epoll::modify(&self.epoll, fd.as_fd(), EventData::new_u64(token), flags(interest))
            .map_err(|errno| OsError::new("change the watch of descriptor", fd.as_fd().as_raw_fd(), errno))
    }

    /// Removes `fd`; closing it does the same.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, fd.as_fd())
            .map_err(|errno| OsError::new("stop watching descriptor", fd.as_fd().as_raw_fd(), errno))
    }

    /// Waits until a member is ready, the waker is used or `timeout` has passed (`None`: without
    /// limit; zero: not at all). Replaces `events`; returns whether the waker was used.
    ///
    /// A signal ends the wait early; the result is then `false`.
    pub fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<bool> {
        events.clear();
        let mut woken = false;
        let waker = &self.waker;
        let collect = |event: libc::epoll_event| {
            let token = event.u64;
            if token == WAKER_TOKEN {
                waker.drain();
                woken = true;
            } else if token != TIMER_TOKEN {
                events.push(decode(event));
            }
        };
        let waited = match &self.precise {
            Precise::Wait => wait_precise(self.epoll.as_fd(), timeout, collect),
            Precise::Timer(timer) => wait_with_timer(self.epoll.as_fd(), timer, timeout, collect),
        };
        match waited.map_err(|cause| (cause.raw_os_error(), cause)) {
            Ok(()) | Err((Some(libc::EINTR), _)) => Ok(woken),
            // Old kernels, and sandboxes that refuse unknown calls.
            Err((Some(libc::ENOSYS | libc::EPERM), _)) if matches!(self.precise, Precise::Wait) => {
                self.use_timer(Timer::new()?)?;
                self.wait(timeout, events)
            }
            Err((_, cause)) => Err(OsError::new("wait for", "events", cause)),
        }
    }

    fn use_timer(&mut self, timer: Timer) -> Result<()> {
        epoll::add(&self.epoll, &timer, EventData::new_u64(TIMER_TOKEN), EventFlags::IN)
            .map_err(|errno| OsError::new("watch", "a timer", errno))?;
        self.precise = Precise::Timer(timer);
        Ok(())
    }
}

impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP,
        Interest::Write => EventFlags::OUT,
        Interest::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        Interest::End => EventFlags::empty(),
        Interest::EndOnce => EventFlags::ET,
        Interest::Waker => EventFlags::IN | EventFlags::ET,
    }
}

fn decode(event: libc::epoll_event) -> Event {
    let has = |flag: libc::c_int| event.events & flag as u32 != 0;
    Event {
        token: event.u64,
        readable: has(libc::EPOLLIN),
        writable: has(libc::EPOLLOUT),
        hangup: has(libc::EPOLLHUP) || has(libc::EPOLLRDHUP) || has(libc::EPOLLERR),
    }
}

fn wait_precise(
    epoll: BorrowedFd<'_>,
    timeout: Option<Duration>,
    mut collect: impl FnMut(libc::epoll_event),
) -> io::Result<()> {
    // The kernel's structure for this call has 64-bit fields on every architecture.
    let limit = timeout
        .map(|limit| [i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), i64::from(limit.subsec_nanos())]);
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit.as_ptr());
    let mut events = [const { MaybeUninit::<libc::epoll_event>::uninit() }; EVENTS_MAX];
    // SAFETY: `events` has room for EVENTS_MAX entries; `limit` is null or points to a live pair
    // of 64-bit numbers; no signal mask is given.
    let code = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS_MAX as libc::c_int,
            limit,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    let count = usize::try_from(code).map_err(|_| io::Error::last_os_error())?;
    for event in events.iter().take(count) {
        // SAFETY: the kernel initialised the first `count` entries.
        collect(unsafe { event.assume_init() });
    }
    Ok(())
}

/// The wait on a kernel without `epoll_pwait2`: a timer ends it.
fn wait_with_timer(
    epoll: BorrowedFd<'_>,
    timer: &Timer,
    timeout: Option<Duration>,
    mut collect: impl FnMut(libc::epoll_event),
) -> io::Result<()> {
    let poll_only = timeout == Some(Duration::ZERO);
    if !poll_only {
        let deadline = timeout.and_then(|timeout| clock::monotonic().checked_add(timeout));
        timer.set(deadline).map_err(|error| io::Error::other(error.to_string()))?;
    }
    let mut events = [const { MaybeUninit::<libc::epoll_event>::uninit() }; EVENTS_MAX];
    let limit = if poll_only { 0 } else { -1 };
    // SAFETY: `events` has room for EVENTS_MAX entries.
    let code = unsafe {
        libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr().cast(), EVENTS_MAX as libc::c_int, limit)
    };
    let count = usize::try_from(code).map_err(|_| io::Error::last_os_error())?;
    for event in events.iter().take(count) {
        // SAFETY: the kernel initialised the first `count` entries.
        collect(unsafe { event.assume_init() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_kinds() -> [Reactor; 2] {
        [Reactor::new().unwrap(), Reactor::with(Precise::Timer(Timer::new().unwrap())).unwrap()]
    }

    #[test]
    fn timeouts_have_sub_millisecond_precision() {
        for mut reactor in both_kinds() {
            let mut events = Vec::new();
            let start = clock::monotonic();
            let woken = reactor.wait(Some(Duration::from_micros(300)), &mut events).unwrap();
            assert!(clock::monotonic() - start >= Duration::from_micros(300));
            assert!(!woken && events.is_empty());
            // Must return although nothing is ready.
            assert!(!reactor.wait(Some(Duration::ZERO), &mut events).unwrap());
        }
    }

    #[test]
    fn used_waker_is_readable_until_drained() {
        let waker = Waker::new().unwrap();
        assert!(!is_readable(&waker));
        waker.wake();
        assert!(is_readable(&waker));
        waker.drain();
        assert!(!is_readable(&waker));
    }

    #[test]
    fn waker_ends_a_wait_once() {
        for mut reactor in both_kinds() {
            let waker = reactor.waker();
            let thread = std::thread::spawn(move || waker.wake());
            assert!(reactor.wait(None, &mut Vec::new()).unwrap());
            thread.join().unwrap();
            assert!(!reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap());
        }
    }

    #[test]
    fn each_use_of_another_waker_is_reported_once() {
        for mut reactor in both_kinds() {
            let other = Waker::new().unwrap();
            reactor.add(&other, 7, Interest::Waker).unwrap();
            let copy = Waker::from_fd(other.share().unwrap());
            let mut events = Vec::new();
            for _ in 0..3 {
                copy.wake();
                reactor.wait(None, &mut events).unwrap();
                assert!(events.len() == 1 && events[0].token == 7);
                reactor.wait(Some(Duration::ZERO), &mut events).unwrap();
                assert!(events.is_empty());
            }
        }
    }

    #[test]
    fn close_of_the_other_end_is_reported_although_both_ends_have_hung_up() {
        for mut reactor in both_kinds() {
            let (near, far) = crate::fdpass::Channel::pair().unwrap();
            let copy = near.as_fd().try_clone_to_owned().unwrap();
            reactor.add(&far, 7, Interest::EndOnce).unwrap();
            far.shut();
            let mut events = Vec::new();
            let mut reported = |reactor: &mut Reactor| {
                reactor.wait(Some(Duration::ZERO), &mut events).unwrap();
                events.iter().map(|event| (event.token, event.hangup)).collect::<Vec<_>>()
            };
            assert_eq!(reported(&mut reactor), [(7, true)], "its own shutdown");
            drop(near);
            assert_eq!(reported(&mut reactor), [], "a copy is open");
            drop(copy);
            assert_eq!(reported(&mut reactor), [(7, true)]);
            assert_eq!(reported(&mut reactor), []);
        }
    }

    #[test]
    fn ready_members_are_reported_by_token() {
        for mut reactor in both_kinds() {
            let (read, write) = std::io::pipe().unwrap();
            reactor.add(&read, 7, Interest::Read).unwrap();
            reactor.add(&write, 8, Interest::Write).unwrap();
            let mut events = Vec::new();
            reactor.wait(None, &mut events).unwrap();
            let writable = Event { token: 8, readable: false, writable: true, hangup: false };
            assert_eq!(events, [writable]);
            reactor.remove(&write).unwrap();
            drop(write);
            reactor.wait(None, &mut events).unwrap();
            assert!(events.len() == 1 && events[0].token == 7 && events[0].hangup);
            assert!(reactor.add(&read, 7, Interest::Read).is_err());
            assert!(reactor.add(&read, WAKER_TOKEN, Interest::Read).is_err());
        }
    }
}
