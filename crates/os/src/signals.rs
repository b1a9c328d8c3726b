//! Signals that a thread of ours shall leave to the threads of the program.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `start`, which starts a thread, while no signal can reach the calling one: the new thread inherits that for life.
/// A signal for the process then interrupts a call of the program's, not the sleep of a helper.
pub fn masked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the set that it is given, and does not fail for a valid address; `pthread_sigmask` reads it
    // and writes the old set to `before`. Both live in this frame.
    let masked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    let result = start();
    if masked == 0 {
        // SAFETY: `before` was written by the call above, which did not fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_user_signals() -> bool {
        let mut now = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: with a null set the call only writes the current one to `now`, which is then read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), libc::SIGUSR1) == 1
        }
    }

    #[test]
    fn the_thread_blocks_signals_and_its_starter_does_not() {
        let thread = masked(|| std::thread::spawn(blocks_user_signals));
        assert!(thread.join().unwrap());
        assert!(!blocks_user_signals());
    }
}
