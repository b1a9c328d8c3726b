//! Closing what other processes have passed. The last close of a descriptor may block for as long as its sender wants:
//! that of a TCP socket with `SO_LINGER` and a peer that does not read, or that of a file of FUSE. It also happens when
//! a socket is closed in whose queue such a descriptor lies, and when a receive has no room for one. A thread that
//! serves several processes therefore receives all descriptors of a packet ([`Channel::receive_all`]), and leaves their
//! close to threads that do nothing else.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

use rustix::net::sockopt::set_socket_linger;

use crate::fdpass::Channel;
use crate::{lock, signals};

/// Most threads, each of which starts when it is needed. A user always has the same one, which it shares with others
/// only by chance, so that descriptors whose close blocks delay those of their own user.
const THREADS: usize = 64;

/// Most descriptors that wait for one thread. Further ones stay open: waiting for the thread could last for ever.
const WAITING_MAX: usize = 4096;

/// Closes descriptors of other processes on threads of its own. Copies share the threads, which end with the last copy.
#[derive(Clone, Debug, Default)]
pub struct Disposal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    hasher: RandomState,
    threads: Mutex<[Option<SyncSender<OwnedFd>>; THREADS]>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { hasher: RandomState::new(), threads: Mutex::new([const { None }; THREADS]) }
    }
}

impl Disposal {
    /// Closes descriptors that a process of this user has passed, without waiting.
    pub fn close(&self, user: u32, fds: impl IntoIterator<Item = OwnedFd>) {
        for fd in fds {
            self.close_one(user, fd);
        }
    }

    /// Ends a connection to a process of this user, and closes it, without waiting.
    pub fn end(&self, user: u32, channel: Channel) {
        channel.shut();
        // Most have nothing unread: their close does not block.
        if channel.has_unread_after_shut() {
            self.close_one(user, channel.into_fd());
        }
    }

    fn close_one(&self, user: u32, fd: OwnedFd) {
        let at = (self.0.hasher.hash_one(user) % THREADS as u64) as usize;
        let mut threads = lock(&self.0.threads);
        let Some(place) = threads.get_mut(at) else { return };
        if place.is_none() {
            *place = start().ok();
        }
        // Without a thread the descriptor is closed here: the system has no memory.
        let Some(thread) = place else { return };
        match thread.try_send(fd) {
            Ok(()) => {}
            Err(TrySendError::Full(fd)) => std::mem::forget(fd),
            Err(TrySendError::Disconnected(_)) => *place = None,
        }
    }
}

/// Starts a thread.
fn start() -> io::Result<SyncSender<OwnedFd>> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("utipc close".to_owned());
    signals::masked(|| thread.spawn(move || run(&receiver)))?;
    Ok(sender)
}

fn run(descriptors: &Receiver<OwnedFd>) {
    for fd in descriptors {
        // A socket need not wait for its peer. Fails if it is none.
        let _ = set_socket_linger(&fd, None);
        drop(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdpass::{Got, MAX_FDS};
    use std::io::IoSlice;
    use std::os::fd::AsFd;
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

    /// A TCP socket that waits at its close until all of its data has arrived.
    #[test]
    fn close_that_blocks_delays_no_caller_and_is_not_waited_for() {
        use std::io::Write;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut end = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _peer = listener.accept().unwrap();
        end.set_nonblocking(true).unwrap();
        while end.write(&[0; 65_536]).is_ok() {}
        set_socket_linger(&end, Some(Duration::from_secs(3600))).unwrap();
        let (disposal, begun) = (Disposal::default(), Instant::now());
        let (read, write) = io::pipe().unwrap();
        disposal.close(7, [OwnedFd::from(end), OwnedFd::from(write)]);
        is_closed_soon(&read);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
