//! Sleeping on a word of shared memory until another thread changes it and wakes the sleepers.
//!
//! All calls use the shared (not process-private) form: the word lies in memory that several processes map.

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{OsError, Result};

/// Maximum number of words for one [`wait_any`]: FUTEX_WAITV_MAX of the kernel.
pub const WAIT_ANY_MAX: usize = 128;

/// Longest sleep of [`wait_any`] on a kernel without `futex_waitv` (before 5.16), where only the first word wakes it.
pub const SLICE: Duration = Duration::from_millis(1);

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The thread was woken, or the wait ended spuriously: check again.
    Perhaps,
    /// A signal was handled whose handler was installed without SA_RESTART.
    Signal,
    /// The word no longer held the expected value.
    Changed,
    /// The timeout has passed.
    TimedOut,
}

// libc announces a wider `time_t` for 32-bit musl; both are right here.
#[cfg_attr(target_env = "musl", expect(deprecated))]
fn timespec(duration: Duration) -> libc::timespec {
    let tv_sec = libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: libc::c_long::from(duration.subsec_nanos().cast_signed()) }
}

fn ended(code: libc::c_long) -> Result<Woken> {
    if code >= 0 {
        return Ok(Woken::Perhaps);
    }
    let cause = io::Error::last_os_error();
    match cause.raw_os_error() {
        Some(libc::EINTR) => Ok(Woken::Signal),
        Some(libc::EAGAIN) => Ok(Woken::Changed),
        Some(libc::ETIMEDOUT) => Ok(Woken::TimedOut),
        _ => Err(OsError::new("wait for", "a word of shared memory", cause)),
    }
}

fn invalid(what: impl std::fmt::Display) -> OsError {
    OsError::new("wait for", what, io::Error::from_raw_os_error(libc::EINVAL))
}

/// Sleeps while `word` is `expected`, at most `timeout` (`None`: without limit).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Woken> {
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel reads the word, which `word` keeps in place, and the timespec, if there is one, which lives in
    // this frame.
    ended(unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, limit) })
}

/// Wakes at most `count` sleepers on `word`; returns how many were woken.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    let count = count.min(i32::MAX.cast_unsigned());
    // SAFETY: only the address of the word is used.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    // The call fails only for an address that is not mapped, and `word` is.
    usize::try_from(woken).unwrap_or(0)
}

/// One word of `futex_waitv`, as the kernel defines it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Waiter {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Flags of a [`Waiter`]: a word of 32 bits in memory that processes share.
const FUTEX2_SIZE_U32: u32 = 2;

/// Sleeps while every word holds its expected value, at most `timeout` (`None`: without limit).
///
/// On a kernel before 5.16 it sleeps on the first word alone, at most [`SLICE`], and then reports
/// [`Woken::Perhaps`]: the caller checks all its words again anyway.
///
/// # Errors
/// More than [`WAIT_ANY_MAX`] words, or none.
pub fn wait_any(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Result<Woken> {
    let Some(&(first, expected)) = words.first() else {
        return Err(invalid("an empty list of words of shared memory"));
    };
    // With a timeout this call ends after any signal, even with SA_RESTART, like the kernel's socket calls.
    if words.len() == 1 {
        return wait(first, expected, timeout);
    }
    if words.len() > WAIT_ANY_MAX {
        let error = invalid(format_args!("{} words of shared memory", words.len()));
        return Err(error.with_remedy("wait for the descriptor instead"));
    }
    let mut list = [Waiter { expected: 0, address: 0, flags: FUTEX2_SIZE_U32, reserved: 0 }; WAIT_ANY_MAX];
    for (entry, (word, expected)) in list.iter_mut().zip(words) {
        entry.expected = u64::from(*expected);
        entry.address = word.as_ptr().expose_provenance() as u64;
    }
    // futex_waitv takes a deadline, not a duration.
    let limit = timeout.map(|timeout| {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0));
        timespec(now.saturating_add(timeout))
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel reads the first `words.len()` entries of the list, at most all of it, the words that they
    // name, which `words` keeps in place, and the timespec, if there is one; all of them outlive the call.
    let code = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            list.as_ptr(),
            words.len() as libc::c_uint,
            0,
            limit,
            libc::CLOCK_MONOTONIC,
        )
    };
    // A sandbox may refuse unknown calls.
    let errno = io::Error::last_os_error().raw_os_error();
    if code < 0 && matches!(errno, Some(libc::ENOSYS | libc::EPERM)) {
        return wait_sliced(first, expected, timeout);
    }
    ended(code)
}

/// [`wait_any`] without `futex_waitv`: returns after a slice to check again.
fn wait_sliced(first: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Woken> {
    let slice = timeout.map_or(SLICE, |timeout| timeout.min(SLICE));
    match wait(first, expected, Some(slice))? {
        Woken::TimedOut if timeout.is_none_or(|timeout| timeout > SLICE) => Ok(Woken::Perhaps),
        woken => Ok(woken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None).unwrap(), Woken::Changed);
        let other = AtomicU32::new(0);
        assert_eq!(wait_any(&[(&other, 0), (&word, 0)], None).unwrap(), Woken::Changed);
    }

    #[test]
    fn timeout_ends_a_wait() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait(&words[0], 0, short).unwrap(), Woken::TimedOut);
        assert_eq!(wait_any(&[(&words[0], 0), (&words[1], 0)], short).unwrap(), Woken::TimedOut);
    }

    #[test]
    fn any_of_several_words_wakes() {
        let words: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let list: Vec<_> = words.iter().map(|word| (word, 0)).collect();
                while words[2].load(SeqCst) == 0 {
                    wait_any(&list, None).unwrap();
                }
            });
            words[2].store(1, SeqCst);
            wake(&words[2], 1);
            sleeper.join().unwrap();
        });
    }

    #[test]
    fn wait_without_futex_waitv_is_sliced() {
        let word = AtomicU32::new(0);
        assert_eq!(wait_sliced(&word, 0, None).unwrap(), Woken::Perhaps);
        assert_eq!(wait_sliced(&word, 0, Some(SLICE / 2)).unwrap(), Woken::TimedOut);
        assert_eq!(wait_sliced(&word, 1, None).unwrap(), Woken::Changed);
    }

    #[test]
    fn too_many_words_are_refused() {
        let word = AtomicU32::new(0);
        assert!(wait_any(&[(&word, 0); WAIT_ANY_MAX + 1], None).is_err());
        assert!(wait_any(&[], None).is_err());
    }
}
