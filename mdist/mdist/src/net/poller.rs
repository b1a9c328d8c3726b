//! Waits for many descriptors at once, with epoll.
//!
//! For the reason to use neither `polling`, `mio` nor the reactor of `utipc-os`, see
//! docs/decisions/0018-poller-and-metrics-server-of-mdist.md.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use utipc::Look;

/// Maximum number of events that one wait reports; the next wait reports the rest.
const EVENTS_MAX: usize = 256;
/// Least time limit of a wait that looks for events before it sleeps: a look may take half of it.
const LOOK_MIN: Duration = Duration::from_micros(100);
/// The token of the waker.
const WAKER: u64 = u64::MAX;

/// The events to wait for on a descriptor; end and errors are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, or a connection to accept.
    Read,
    /// Data, and space to write.
    Both,
    /// Space to write only; arriving data waits in the kernel.
    Write,
    /// Only the end and errors.
    End,
}

impl Interest {
    /// Whether space to write is reported.
    pub(super) fn has_write(self) -> bool {
        matches!(self, Self::Both | Self::Write)
    }

    /// The same, and space to write.
    pub(super) fn with_write(self) -> Self {
        match self {
            Self::Read | Self::Both => Self::Both,
            Self::Write | Self::End => Self::Write,
        }
    }

    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN | EventFlags::RDHUP,
            Self::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
            Self::Write => EventFlags::OUT,
            Self::End => EventFlags::empty(),
        }
    }
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token that it was added with.
    pub token: u64,
    /// A read will not block: data, the end, or an error.
    pub readable: bool,
    /// A write will not block.
    pub writable: bool,
}

/// A set of descriptors, level-triggered.
pub struct Poller {
    members: Registry,
    waker: Waker,
    /// Whether waits poll without sleeping.
    busy: bool,
    /// Locked by the thread that waits.
    look: Mutex<Look>,
}

/// The members of a poller. Any thread may change them, also during a wait.
#[derive(Clone, Debug)]
pub struct Registry(Arc<OwnedFd>);

/// A handle that ends waits of its poller, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current wait, or else the next one.
    pub fn wake(&self) {
        // Fails only if the counter is full, and then the poller is awake.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Registry {
    /// Adds a descriptor; its events carry `token`, which may be anything but `u64::MAX`.
    ///
    /// # Errors
    /// It is a member already, or the system's limit of watches is reached.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&*self.0, fd, EventData::new_u64(token), interest.flags())?)
    }

    /// Changes token and interest of a descriptor.
    ///
    /// # Errors
    /// It is not a member.
    pub fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&*self.0, fd, EventData::new_u64(token), interest.flags())?)
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("members", &self.members).finish_non_exhaustive()
    }
}

impl AsFd for Poller {
    /// Readable while a member is ready: a poller may be a member of another one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.members.0.as_fd()
    }
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        epoll::add(&*epoll, &*waker.0, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self { members: Registry(epoll), waker, busy: false, look: Mutex::new(Look::new()) })
    }

    /// Polls without sleeping if `busy`: a whole core for the least latency.
    #[must_use]
    pub fn busy(self, busy: bool) -> Self {
        Self { busy, ..self }
    }

    /// A handle that ends waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// A handle on the members.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.members
    }

    /// As [`Registry::add`].
    ///
    /// # Errors
    /// As [`Registry::add`].
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.members.add(fd, token, interest)
    }

    /// As [`Registry::change`].
    ///
    /// # Errors
    /// As [`Registry::change`].
    pub fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.members.change(fd, token, interest)
    }

    /// Waits until a member is ready, the waker is used, a signal arrives or `timeout` has passed (`None`: no limit),
    /// and appends the events.
    ///
    /// # Errors
    /// The wait fails in the system.
    pub fn wait(&self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if !self.busy {
            return self.look_and_wait(timeout, events);
        }
        let end = timeout.map(|timeout| Instant::now() + timeout);
        while !self.wait_once(Some(Duration::ZERO), events)? && end.is_none_or(|end| Instant::now() < end) {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Looks for events for a moment, if events that come soon have become likely, and then sleeps.
    fn look_and_wait(&self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let look = self.look.try_lock().ok().filter(|_| timeout.is_none_or(|timeout| timeout >= LOOK_MIN));
        let Some(mut look) = look else { return self.wait_once(timeout, events).map(drop) };
        let mut probe = || match self.wait_once(Some(Duration::ZERO), events) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(why) => Some(Err(why)),
        };
        if let Some(found) = look.at_descriptors(&mut probe) {
            return found;
        }
        if self.wait_once(timeout, events)? {
            look.slept();
        }
        Ok(())
    }

    /// Waits once in the system; returns whether a member or the waker was ready.
    fn wait_once(&self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<bool> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        // On the stack: a buffer of epoll events is not `Send`, and would make the poller so.
        let mut buffer = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let (ready, _) = match epoll::wait(&*self.members.0, &mut buffer, timeout.as_ref()) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(why) => return Err(why.into()),
        };
        let any = !ready.is_empty();
        for event in ready {
            let (flags, token) = (event.flags, event.data.u64());
            if token == WAKER {
                let _ = rustix::io::read(&*self.waker.0, &mut [0u8; 8]);
                continue;
            }
            let over = flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP);
            events.push(Event {
                token,
                readable: over || flags.contains(EventFlags::IN),
                writable: over || flags.contains(EventFlags::OUT),
            });
        }
        Ok(any)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::{Interest, Poller};

    #[test]
    fn only_ready_members_are_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&far, 7, Interest::Read).unwrap();
        let mut events = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut events).unwrap();
        assert!(events.is_empty());

        near.write_all(b"x").unwrap();
        poller.wait(None, &mut events).unwrap();
        assert!(events[0].token == 7 && events[0].readable && !events[0].writable);

        poller.change(&far, 8, Interest::Both).unwrap();
        events.clear();
        poller.wait(None, &mut events).unwrap();
        assert!(events[0].token == 8 && events[0].writable);
    }

    #[test]
    fn busy_wait_ends_by_timeout_and_waker() {
        let poller = Poller::new().unwrap().busy(true);
        let mut events = Vec::new();
        poller.wait(Some(Duration::from_millis(5)), &mut events).unwrap();
        let waker = poller.waker();
        let thread = std::thread::spawn(move || waker.wake());
        poller.wait(None, &mut events).unwrap();
        thread.join().unwrap();
        assert!(events.is_empty());
    }

    #[test]
    fn events_that_come_at_once_each_time_are_all_reported() {
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&far, 7, Interest::Read).unwrap();
        let (asked, asks) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || asks.iter().for_each(|()| near.write_all(b"x").unwrap()));
        for _ in 0..1000 {
            asked.send(()).unwrap();
            let mut events = Vec::new();
            poller.wait(None, &mut events).unwrap();
            assert!(events.len() == 1 && events[0].token == 7, "{events:?}");
            (&far).read_exact(&mut [0]).unwrap();
        }
        drop(asked);
        writer.join().unwrap();
    }

    #[test]
    fn wake_before_the_wait_ends_it() {
        let poller = Poller::new().unwrap();
        poller.waker().wake();
        let mut events = Vec::new();
        poller.wait(None, &mut events).unwrap();
        assert!(events.is_empty());
    }
}
