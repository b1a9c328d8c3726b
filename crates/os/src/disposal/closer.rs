//! The thread that closes local sockets. In their queues there may be sockets that wait for their peers when they are
//! closed. The kernel waits for no peer if a thread closes them by exiting.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::mpsc::channel;

use rustix::event::{PollFd, PollFlags, poll};

use super::THREADS;
use crate::fdpass::{Channel, Got, MAX_FDS};
use crate::hangup::keep_only;
use crate::signals;

/// Kinds of packets to the thread: descriptors, and that their sender has closed its copies. If the thread ended its
/// copies earlier, the sender would close the last ones.
const PASSED: u8 = 0;
const CLOSED: u8 = 1;

/// Passes sockets to the thread, which ends with it.
pub(super) struct Closer(Channel);

impl Closer {
    /// Starts the thread. Its table has only its own descriptors and those passed to it, so that a thread that exits
    /// with a copy of the table closes nothing else. Call it before the process has descriptors of other processes.
    ///
    /// # Errors
    /// The system cannot create a thread or a descriptor, or cannot give a thread its own table (before Linux 5.9).
    pub(super) fn start() -> io::Result<Closer> {
        let (near, far) = Channel::pair().map_err(io::Error::other)?;
        let (report, started) = channel();
        let thread = std::thread::Builder::new().name("utipc closer".to_owned());
        signals::masked(|| {
            thread.spawn(move || {
                let far = far.into_fd();
                let number = far.as_raw_fd();
                let alone = keep_only(&[&far]);
                // The process closes its copy.
                let _ = report.send((alone, far));
                if alone {
                    // SAFETY: the descriptor is in this thread's own table, where nothing else uses it.
                    run(&Channel::from_fd(unsafe { OwnedFd::from_raw_fd(number) }));
                }
            })
        })?;
        match started.recv() {
            Ok((true, _)) => Ok(Closer(near)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Closes sockets for the calling thread, thread `number` of [`super::Disposal`].
    pub(super) fn close(&self, thread: u8, fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            return;
        }
        // Those that cannot be passed are closed here.
        let send = |kind: u8, fds: &[BorrowedFd<'_>]| {
            _ = self.0.send(&[IoSlice::new(&[thread, kind])], fds, true);
        };
        for fds in fds.chunks(MAX_FDS) {
            send(PASSED, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        }
        drop(fds);
        send(CLOSED, &[]);
    }
}

/// Closes what is passed, until the other end is closed.
fn run(far: &Channel) {
    let mut passed: [Vec<OwnedFd>; THREADS] = [const { Vec::new() }; THREADS];
    let (mut packet, mut fds) = ([0; 2], Vec::new());
    loop {
        match far.receive_all(&mut packet, &mut fds) {
            Ok(Got::Packet(_)) => {
                let Some(of_thread) = passed.get_mut(usize::from(packet[0])) else { continue };
                of_thread.append(&mut fds);
                if packet[1] == CLOSED {
                    close_at_exit(std::mem::take(of_thread));
                }
            }
            Ok(Got::Nothing) => {
                let _ = poll(&mut [PollFd::new(far, PollFlags::IN)], None);
            }
            Ok(Got::End) | Err(_) => return,
        }
    }
}

/// Closes descriptors by a thread that exits with the last copies.
fn close_at_exit(fds: Vec<OwnedFd>) {
    let (report, reported) = channel();
    let (closed, is_closed) = channel::<()>();
    let thread = std::thread::Builder::new().name("utipc close".to_owned());
    let started = signals::masked(|| {
        thread.spawn(move || {
            keep_only(&fds);
            let _ = report.send(fds);
            let _ = is_closed.recv();
        })
    });
    let Ok(thread) = started else { return };
    drop(reported.recv());
    drop(closed);
    let _ = thread.join();
}
