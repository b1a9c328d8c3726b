//! Processes that a test runs from system call to system call.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Set by `cargo xtask soak steps`: all points instead of a sample.
const ALL: &str = "UTIPC_TEST_ALL_STEPS";

/// Distance of the points of a sample; a prime, so that entries and returns alternate.
const STRIDE: usize = 29;

/// The points at which a process is interrupted: all, or a sample that begins at `first`.
pub(crate) fn points(first: usize) -> impl Iterator<Item = usize> {
    let stride = if std::env::var_os(ALL).is_some() { 1 } else { STRIDE };
    (if stride == 1 { 0 } else { first % STRIDE }..).step_by(stride)
}

/// How a process was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Stopped at the point.
    Point,
    /// The thread has ended before; with the status of the process if it was its main thread.
    End(Option<i32>),
}

/// The thread that a process names in its output.
pub(crate) fn named_thread(child: &mut Child) -> Pid {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let tid = lines.into_iter().find_map(|line| line.strip_prefix("tid ")?.parse().ok());
    Pid::from_raw(tid.expect("it names its thread"))
}

/// Stops a thread at once, to be run by [`run_to`].
pub(crate) fn trace(tid: Pid) -> nix::Result<()> {
    ptrace::attach(tid)?;
    waitpid(tid, Some(WaitPidFlag::__WALL))?;
    ptrace::setoptions(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD)
}

/// Runs a thread until its `point`-th entry to a system call or return from one.
pub(crate) fn run_to(tid: Pid, point: usize) -> Reached {
    run_from((tid, tid), point).1
}

/// [`run_to`], also through an exec, by which the thread becomes the `main` thread. Returns the thread's id.
pub(crate) fn run_from((mut tid, main): (Pid, Pid), point: usize) -> (Pid, Reached) {
    let (mut stops, mut signal) = (0, None);
    loop {
        if ptrace::syscall(tid, signal.take()).is_err() {
            return (tid, Reached::End(None));
        }
        match wait(&mut tid, main) {
            Ok(WaitStatus::PtraceSyscall(_)) if stops == point => return (tid, Reached::Point),
            Ok(WaitStatus::PtraceSyscall(_)) => stops += 1,
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP | Signal::SIGTRAP)) => {}
            // Signals are passed on: a sanitizer's helper, for example, ends with one.
            Ok(WaitStatus::Stopped(_, other)) => signal = Some(other),
            Ok(WaitStatus::Exited(ended, status)) => {
                return (tid, Reached::End(Some(status).filter(|_| ended == main)));
            }
            Ok(WaitStatus::Signaled(..)) | Err(_) => return (tid, Reached::End(None)),
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// Waits for a thread, which becomes the main thread by an exec.
fn wait(tid: &mut Pid, main: Pid) -> nix::Result<WaitStatus> {
    if *tid == main {
        return waitpid(main, Some(WaitPidFlag::__WALL));
    }
    loop {
        // A wait that sleeps does not notice that the number is gone.
        match waitpid(*tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(20)),
            Err(Errno::ECHILD) => {
                *tid = main;
                return waitpid(main, Some(WaitPidFlag::__WALL));
            }
            other => return other,
        }
    }
}

/// Kills the process of a thread that [`run_to`] has stopped.
pub(crate) fn kill(child: &mut Child, tid: Pid) {
    let _ = child.kill();
    // The tracer has to let go of a dead thread before its process can be waited for.
    while let Ok(WaitStatus::PtraceSyscall(_) | WaitStatus::Stopped(..)) =
        waitpid(tid, Some(WaitPidFlag::__WALL))
    {}
    // The wait above may have been that for the process.
    let _ = child.wait();
}
