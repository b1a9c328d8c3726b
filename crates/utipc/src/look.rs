//! Looking for messages before a program's own event loop sleeps.

use std::time::{Duration, Instant};

use utipc_os::spin::{Mode, Spin, Spinning, Turn};

use crate::Socket;

/// Maximum number of sockets that one look checks; further ones wake the program as if there were no look.
const SOCKETS_MAX: usize = 8;
/// Checks of the sockets between two of the program's other descriptors.
const CHECKS: u32 = 32;
/// Duration of one [`Look::turn`]: about that of one turn of an event loop in an interpreted language.
const TURN: Duration = Duration::from_micros(10);

/// The result of [`Look::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// A receive finds something.
    Found,
    /// Nothing yet: the caller does other work, then looks again.
    Again,
    /// It is time to sleep.
    Over,
}

/// Looks for messages before an event loop sleeps in `poll`, `epoll_wait` or the like for the descriptors of sockets
/// ([`Socket::descriptor`]).
///
/// A message that comes within microseconds then costs no wake-up, as with a blocking call. A look takes at most 50 µs,
/// and only while that has paid lately and not more tasks run than there are cores. It checks sockets whose process
/// receives messages from the same host; those with [`Spin::Parked`](crate::Spin::Parked) are left out. Descriptors are
/// right whenever the program runs, so an event loop may also sleep without a look.
///
/// ```
/// # use rustix::event::{PollFd, PollFlags, Timespec, poll};
/// # let node = utipc::Node::builder().isolated().start()?;
/// # let socket = node.rdm()?;
/// # socket.send_to(b"hello", socket.port())?;
/// socket.set_nonblocking(true);
/// let descriptor = socket.descriptor()?;
/// let mut look = utipc::Look::new();
/// let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
/// // Without waiting: are there events?
/// let now = Timespec { tv_sec: 0, tv_nsec: 0 };
/// let found = look.before_sleep([&socket], || poll(&mut set, Some(&now)).ok().filter(|count| *count > 0));
/// if found.is_none() {
///     poll(&mut set, None).expect("no signal comes");
///     look.slept();
/// }
/// assert_eq!(socket.receive()?.data, b"hello");
/// # Ok::<(), utipc::Error>(())
/// ```
#[derive(Debug)]
pub struct Look {
    spin: Spin,
    /// A look has preceded the sleep.
    has_begun: bool,
    /// A look in turns that is under way.
    spinning: Option<Spinning>,
}

impl Default for Look {
    fn default() -> Self {
        Self::new()
    }
}

impl Look {
    /// The state of one thread, or of one event loop.
    #[must_use]
    pub fn new() -> Self {
        Self { spin: Spin::new(Mode::Adaptive), has_begun: false, spinning: None }
    }

    /// Looks at `sockets`, of which the first 8 count that have been received from often. `probe` asks the kernel for
    /// events without waiting; it is called when a socket has a message, which makes its descriptor readable, and
    /// meanwhile now and then. Returns its first result; `None` if it is time to sleep.
    pub fn before_sleep<'a, T>(
        &mut self,
        sockets: impl IntoIterator<Item = &'a Socket>,
        mut probe: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut looked = [None; SOCKETS_MAX];
        let candidates = sockets.into_iter().filter_map(Socket::attached);
        for (place, socket) in looked.iter_mut().zip(candidates.filter(|socket| socket.may_look())) {
            *place = Some(socket);
        }
        let awake = looked.iter().flatten().any(|socket| socket.some_sender_is_awake());
        looked[0]?;
        self.has_begun = true;
        let mut spinning = self.spin.begin(awake)?;
        let looked = looked.map(|socket| socket.filter(|socket| socket.begin_look()));
        let check = || {
            // Not `any`: a program that waits for several finds all of them.
            let found =
                |found, socket: &&utipc_client::Socket| found | socket.check_deferred().unwrap_or(true);
            looked.iter().flatten().fold(false, found)
        };
        let mut checks = 0;
        let mut attempt = || {
            checks += 1;
            if check() || checks % CHECKS == 0 { probe() } else { None }
        };
        let found = loop {
            match self.spin.turn(&mut spinning, &mut attempt) {
                Turn::Found(found) => break Some(found),
                Turn::Again => {}
                Turn::Over => break None,
            }
        };
        for socket in looked.iter().flatten() {
            // If the daemon has died, the descriptor hangs up.
            let _ = socket.settle_level();
        }
        found
    }

    /// As [`Look::before_sleep`] for descriptors that are no sockets of utipc, as those of a TCP server: `probe` asks
    /// the kernel for events without waiting, again and again. Nothing tells whether their peers are awake, so that
    /// it looks only if the last sleep was short.
    pub fn at_descriptors<T>(&mut self, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
        self.has_begun = true;
        let mut spinning = self.spin.begin(false)?;
        loop {
            match self.spin.turn(&mut spinning, &mut probe) {
                Turn::Found(found) => return Some(found),
                Turn::Again => {}
                Turn::Over => return None,
            }
        }
    }

    /// Looks at one socket for about 10 µs, for event loops that do other work between two turns. If that takes longer
    /// than 30 µs, the look is over.
    pub fn turn(&mut self, socket: &Socket) -> Looked {
        let Some(socket) = socket.attached().filter(|socket| socket.may_look()) else {
            self.spinning = None;
            return Looked::Over;
        };
        if socket.has_input() {
            self.spinning = None;
            return Looked::Found;
        }
        if self.spinning.is_none() {
            self.has_begun = true;
            self.spinning = self.spin.begin(socket.some_sender_is_awake());
        }
        let Some(spinning) = self.spinning.as_mut().filter(|_| socket.begin_look()) else {
            return Looked::Over;
        };
        let began = Instant::now();
        let looked = loop {
            match self.spin.turn(spinning, || socket.has_input().then_some(())) {
                Turn::Found(()) => break Looked::Found,
                Turn::Over => break Looked::Over,
                Turn::Again if began.elapsed() >= TURN => break Looked::Again,
                Turn::Again => {}
            }
        };
        if looked != Looked::Again {
            self.spinning = None;
        }
        // If the daemon has died, the descriptor hangs up.
        let _ = socket.settle_level();
        looked
    }

    /// Notes that the sleep after [`Look::before_sleep`] or [`Look::at_descriptors`] has ended because there was an
    /// event.
    pub fn slept(&mut self) {
        if std::mem::take(&mut self.has_begun) {
            self.spin.slept();
        }
    }
}
