//! Starting library threads that handle no signals.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `start`, which starts a thread, with all signals blocked: the new thread inherits the mask. A signal to the
/// process then interrupts a call of the program, not the sleep of a library thread.
pub fn masked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the set that it is given, and does not fail for a valid address; `pthread_sigmask`
    // reads it and writes the old set to `before`. Both live in this frame.
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
    fn only_the_new_thread_blocks_signals() {
        let thread = masked(|| std::thread::spawn(blocks_user_signals));
        assert!(thread.join().unwrap());
        assert!(!blocks_user_signals());
    }
}
