//! Waiting for the peer of a connection to close it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::mpsc;
use std::thread;

use libc::c_uint;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::hidden::{Hiding, raise};
use crate::signals;

/// Sleeps until the other end of a connected socket is closed or shut down, even if there is something to read.
pub fn wait(connection: impl AsFd) {
    loop {
        // HUP and ERR are always reported.
        let mut set = [PollFd::new(&connection, PollFlags::RDHUP)];
        match poll(&mut set, None) {
            Err(Errno::INTR) => {}
            // Returns at once for a descriptor that cannot be polled.
            Err(_) => return,
            Ok(_) if set.iter().any(|fd| !fd.revents().is_empty()) => return,
            Ok(_) => {}
        }
    }
}

/// Which descriptors a watching thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Its own table, if the kernel supports that: sharing the table would cost a single-threaded program some 30 ns
    /// per system call.
    Own,
    /// Those of the process.
    Shared,
}

/// Starts a thread with this name that sleeps until the other end of a connected socket is gone, and then calls
/// `ended`.
///
/// The thread takes no signals.
///
/// # Errors
/// The system cannot create a thread or a descriptor.
pub fn watch(
    name: &str,
    connection: BorrowedFd<'_>,
    table: Table,
    ended: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let number = connection.as_raw_fd();
    let (report, started) = mpsc::channel();
    let run = move || {
        // SAFETY: the starting thread has it borrowed until the report. After that it is either in this thread's own
        // table, where no other thread can close it, or no longer used.
        let shared = unsafe { BorrowedFd::borrow_raw(number) };
        if table == Table::Own && keep_only(&[shared]) {
            let _ = report.send(Ok(()));
            wait(shared);
        } else {
            match shared.try_clone_to_owned() {
                Ok(copy) => {
                    let copy = raise(copy);
                    let hiding = Hiding::of(&copy);
                    let _ = report.send(Ok(()));
                    wait(&copy);
                    // Remove the list's entry before closing the descriptor.
                    drop(hiding);
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                    return;
                }
            }
        }
        ended();
    };
    let thread = thread::Builder::new().name(name.to_owned());
    signals::masked(|| thread.spawn(run))?;
    // The thread always reports before it ends.
    started.recv().unwrap_or(Ok(()))
}

/// Gives the calling thread its own descriptor table with only these descriptors; returns false, with the table
/// still shared, if the kernel cannot (before 5.9) or if there are none. It takes time for each descriptor of the
/// process.
pub(crate) fn keep_only<Fd: AsFd>(fds: &[Fd]) -> bool {
    let mut numbers: Vec<c_uint> = fds.iter().map(|fd| fd.as_fd().as_raw_fd().cast_unsigned()).collect();
    numbers.sort_unstable();
    // With `syscall`, because a shim may have replaced the C library's function.
    let close_range = |first: c_uint, last: c_uint, flags: c_uint| {
        // SAFETY: the call has no pointers. The first one makes a copy of the table, so none of the process's
        // descriptors are closed; this thread uses none but `fds`, which stay open.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
    };
    let Some(above) = numbers.last().map(|last| last.saturating_add(1)) else { return false };
    if !close_range(above, RawFd::MAX.cast_unsigned(), libc::CLOSE_RANGE_UNSHARE) {
        return false;
    }
    let mut first = 0;
    for number in numbers {
        // A descriptor in the copy that cannot be closed stays open until the thread ends.
        let _ = number <= first || close_range(first, number - 1, 0);
        first = number + 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::fdpass::Channel;
    use std::io::IoSlice;

    #[test]
    fn data_does_not_end_the_wait() {
        let (near, far) = Channel::pair().unwrap();
        far.send(&[IoSlice::new(b"data")], &[], true).unwrap();
        let watch = std::thread::spawn(move || super::wait(&near));
        assert!(!watch.is_finished());
        drop(far);
        watch.join().unwrap();
    }

    #[test]
    fn thread_keeps_only_the_descriptor_it_waits_for() {
        let (near, far) = Channel::pair().unwrap();
        let (other, closed) = Channel::pair().unwrap();
        std::thread::scope(|scope| {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let near = &near;
            let waits = scope.spawn(move || {
                let alone = super::keep_only(&[near]);
                ready.send(alone).unwrap();
                super::wait(near);
            });
            assert!(is_ready.recv().unwrap());
            // The other descriptors are still open in this thread's table, and only this thread closes them.
            assert_eq!(crate::packets::drain_to_end(&other), (false, false));
            drop(closed);
            assert_eq!(crate::packets::drain_to_end(&other), (false, true));
            drop(far);
            waits.join().unwrap();
        });
    }
}
