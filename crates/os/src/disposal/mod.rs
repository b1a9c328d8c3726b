//! Closing what other processes have passed. The last close of a descriptor may block for as long as its sender wants:
//! of a TCP socket with `SO_LINGER` and a peer that does not read, or of a FUSE file. It also happens when a socket is
//! closed in whose queue such a descriptor lies, and when a receive has no room for one. A thread that serves several
//! processes therefore receives all descriptors of a packet ([`Channel::receive_all`]), and leaves closing them to
//! threads that do nothing else. Lingering sockets do not delay these either: the option is reset; where it cannot be
//! (in the queue of a local socket), a thread closes by exiting, because then the kernel does not wait for the peer.

mod closer;
mod memory;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::net::AddressFamily;
use rustix::net::sockopt::{set_socket_linger, socket_domain};

use crate::fdpass::Channel;
use crate::{lock, signals};
use closer::Closer;

pub use memory::{Large, Reclaim};

/// Maximum number of threads, each of which starts when it is needed. A user always has the same thread and shares it
/// only by chance, so that a blocking close delays mostly the user's own descriptors.
const THREADS: usize = 64;

/// Maximum number of descriptors that a thread closes together.
const TOGETHER: usize = 1024;

/// Descriptors of one user that may wait before [`Disposal::is_full`]. A descriptor whose close does not block waits
/// for microseconds.
pub const WAITING_PER_USER: usize = 1024;

/// The same while [`CROWDED`] descriptors of all users wait.
const WAITING_WHEN_CROWDED: usize = 64;

/// Descriptors of all users: four users that have as many as they may.
const CROWDED: usize = 4 * WAITING_PER_USER;

/// Closes descriptors of other processes on separate threads. Copies share the threads, which end with the last copy.
#[derive(Clone, Default)]
pub struct Disposal(Arc<Shared>);

struct Shared {
    hasher: RandomState,
    close: Arc<Close>,
    threads: Mutex<[Option<Thread>; THREADS]>,
    waiting: Arc<Waiting>,
}

/// Closes descriptors, with the number of the calling thread; it may block.
type Close = dyn Fn(u8, Vec<OwnedFd>) + Send + Sync;

/// A thread takes a descriptor and its user.
type Thread = Sender<(u32, OwnedFd)>;

/// The number of descriptors that wait for a thread or are being closed: of each user with some, and in all.
#[derive(Debug, Default)]
struct Waiting {
    of_users: Mutex<HashMap<u32, usize>>,
    all: AtomicUsize,
}

impl Waiting {
    fn add(&self, user: u32) {
        *lock(&self.of_users).entry(user).or_default() += 1;
        self.all.fetch_add(1, Relaxed);
    }

    fn remove(&self, user: u32) {
        self.all.fetch_sub(1, Relaxed);
        let mut of_users = lock(&self.of_users);
        if let Some(count) = of_users.get_mut(&user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                of_users.remove(&user);
            }
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        let closer = Closer::start().ok();
        Self::with(Arc::new(move |thread, fds| close(thread, fds, closer.as_ref())))
    }
}

impl Shared {
    fn with(close: Arc<Close>) -> Self {
        Self {
            hasher: RandomState::new(),
            close,
            threads: Mutex::new([const { None }; THREADS]),
            waiting: Arc::default(),
        }
    }
}

impl fmt::Debug for Disposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disposal").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Disposal {
    /// Closes descriptors that a process of this user has passed, without waiting.
    pub fn close(&self, user: u32, fds: impl IntoIterator<Item = OwnedFd>) {
        for fd in fds {
            self.close_one(user, fd);
        }
    }

    /// Whether processes of this user must pass no more descriptors: blocked closes of this user's descriptors could
    /// use up this process's limit of open files.
    #[must_use]
    pub fn is_full(&self, user: u32) -> bool {
        let Waiting { of_users, all } = &*self.0.waiting;
        let all = all.load(Relaxed);
        let most = if all < CROWDED { WAITING_PER_USER } else { WAITING_WHEN_CROWDED };
        // Nearly always few of all users wait: no lock then.
        all >= most && lock(of_users).get(&user).is_some_and(|count| *count >= most)
    }

    /// The number of descriptors that are not closed yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.all.load(Relaxed)
    }

    /// Ends a connection to a process of this user, and closes it, without waiting.
    pub fn end(&self, user: u32, channel: Channel) {
        channel.shut();
        // Usually nothing is unread, and the close does not block.
        if channel.has_unread_after_shut() {
            self.close_one(user, channel.into_fd());
        }
    }

    fn close_one(&self, user: u32, fd: OwnedFd) {
        let at = (self.0.hasher.hash_one(user) % THREADS as u64) as u8;
        let mut threads = lock(&self.0.threads);
        let Some(place) = threads.get_mut(usize::from(at)) else { return };
        let waiting = &self.0.waiting;
        if place.is_none() {
            *place = start(at, Arc::clone(waiting), Arc::clone(&self.0.close)).ok();
        }
        // Without a thread the descriptor is closed here: the system has no memory.
        let Some(thread) = place else { return };
        waiting.add(user);
        if thread.send((user, fd)).is_err() {
            waiting.remove(user);
            *place = None;
        }
    }
}

/// Starts a thread.
fn start(number: u8, waiting: Arc<Waiting>, close: Arc<Close>) -> io::Result<Thread> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("utipc close".to_owned());
    signals::masked(|| thread.spawn(move || run(&receiver, &waiting, &|fds| close(number, fds))))?;
    Ok(sender)
}

fn run(descriptors: &Receiver<(u32, OwnedFd)>, waiting: &Waiting, close: &dyn Fn(Vec<OwnedFd>)) {
    while let Ok(first) = descriptors.recv() {
        let together = std::iter::once(first).chain(descriptors.try_iter().take(TOGETHER - 1));
        let (users, fds): (Vec<u32>, Vec<OwnedFd>) = together.unzip();
        close(fds);
        users.into_iter().for_each(|user| waiting.remove(user));
    }
}

/// Closes descriptors, local sockets with the help of the closer. `thread` is the number of the calling thread.
fn close(thread: u8, fds: Vec<OwnedFd>, closer: Option<&Closer>) {
    // A socket need not wait for its peer. Fails if it is none.
    fds.iter().for_each(|fd| _ = set_socket_linger(fd, None));
    let is_local = |fd: &OwnedFd| socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX);
    let (local, others): (Vec<_>, Vec<_>) = fds.into_iter().partition(is_local);
    match closer {
        Some(closer) => closer.close(thread, local),
        None => drop(local),
    }
    drop(others);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdpass::{Got, MAX_FDS};
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// Waits until the other end of this pipe is closed.
    fn is_closed_soon(read: &io::PipeReader) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut set = [PollFd::new(read, PollFlags::empty())];
        assert_eq!(poll(&mut set, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap(), 1);
    }

    #[test]
    fn descriptors_are_closed_by_another_thread() {
        let disposal = Disposal::default();
        for user in 0..100 {
            let (read, write) = io::pipe().unwrap();
            disposal.close(user, [OwnedFd::from(write)]);
            is_closed_soon(&read);
        }
    }

    #[test]
    fn ended_connection_is_closed_with_the_descriptors_in_it() {
        let disposal = Disposal::default();
        // Empty packets look like the end of the connection.
        for packets in [&[][..], &[&b"x"[..]], &[&b""[..]], &[&b""[..], b"x"]] {
            let (near, far) = Channel::pair().unwrap();
            let (read, write) = io::pipe().unwrap();
            for packet in packets {
                near.send(&[IoSlice::new(packet)], &[write.as_fd()], false).unwrap();
            }
            drop(write);
            disposal.end(7, far);
            is_closed_soon(&read);
            assert_eq!(near.receive(&mut [0], &mut Vec::new(), MAX_FDS, true).unwrap(), Got::End);
        }
    }

    #[test]
    fn unread_packets_are_found_after_the_end() {
        for (packet, is_unread) in [(None, false), (Some(&b""[..]), true), (Some(b"x"), true)] {
            let (near, far) = Channel::pair().unwrap();
            if let Some(packet) = packet {
                near.send(&[IoSlice::new(packet)], &[], false).unwrap();
            }
            far.shut();
            assert_eq!(far.has_unread_after_shut(), is_unread, "{packet:?}");
        }
    }

    /// A TCP socket whose close waits until the peer, which does not read, is closed.
    fn lingering() -> (OwnedFd, std::net::TcpStream) {
        use std::io::Write;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut end = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        end.set_nonblocking(true).unwrap();
        while end.write(&[0; 65_536]).is_ok() {}
        set_socket_linger(&end, Some(Duration::from_secs(3600))).unwrap();
        (end.into(), peer)
    }

    /// A socket whose close blocks is in the queue of a socket that is itself queued behind another one.
    #[test]
    fn sockets_that_linger_in_queues_delay_no_close() {
        let disposal = Disposal::default();
        let mut peers = Vec::new();
        for _ in 0..4 {
            let (near, far) = Channel::pair().unwrap();
            let (inner, outer) = Channel::pair().unwrap();
            for to in [&near, &inner] {
                let (end, peer) = lingering();
                to.send(&[IoSlice::new(b"x")], &[end.as_fd()], false).unwrap();
                peers.push(peer);
            }
            near.send(&[IoSlice::new(b"x")], &[outer.as_fd()], false).unwrap();
            drop(outer);
            disposal.close(7, [far.into_fd()]);
        }
        let begun = Instant::now();
        while disposal.waiting() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} are not closed", disposal.waiting());
            std::thread::yield_now();
        }
    }

    #[test]
    fn users_with_many_descriptors_whose_close_blocks_are_full_until_it_returns() {
        static MAY_CLOSE: AtomicBool = AtomicBool::new(false);
        let disposal = Disposal(Arc::new(Shared::with(Arc::new(|_, fds| {
            while !MAY_CLOSE.load(Relaxed) {
                std::thread::yield_now();
            }
            drop(fds);
        }))));
        let (_read, write) = io::pipe().unwrap();
        let copies = |count: usize| (0..count).map(|_| write.try_clone().unwrap().into());
        disposal.close(7, copies(WAITING_PER_USER + 1));
        assert!(disposal.is_full(7) && !disposal.is_full(8));
        assert_eq!(disposal.waiting(), WAITING_PER_USER + 1);
        MAY_CLOSE.store(true, Relaxed);
        let begun = Instant::now();
        while disposal.waiting() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} are not closed", disposal.waiting());
            std::thread::yield_now();
        }
        assert!(!disposal.is_full(7));
    }

    /// A TCP socket that waits at its close until all of its data has arrived.
    #[test]
    fn close_that_blocks_delays_no_caller_and_is_not_waited_for() {
        let ((end, _peer), disposal, begun) = (lingering(), Disposal::default(), Instant::now());
        let (read, write) = io::pipe().unwrap();
        disposal.close(7, [end, OwnedFd::from(write)]);
        is_closed_soon(&read);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
