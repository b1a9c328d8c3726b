//! Sleeping on a word of shared memory until somebody changes it and says so.
//!
//! All calls use the shared (not process-private) form: the word lies in memory that several processes map.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::{OsError, Result};

/// Most words that one [`wait_any`] takes: FUTEX_WAITV_MAX of the kernel.
pub const WAIT_ANY_MAX: usize = 128;

/// Longest sleep of [`wait_any`] on a kernel without `futex_waitv` (before 5.16), where only the first word wakes it.
pub const SLICE: Duration = Duration::from_millis(1);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Somebody woke it, or it ended for no reason (a signal): look again.
    Perhaps,
    /// The word no longer held the expected value.
    Changed,
    /// The time was over.
    TimedOut,
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}

fn ended<T>(result: rustix::io::Result<T>) -> Result<Woken> {
    match result {
        Ok(_) | Err(Errno::INTR) => Ok(Woken::Perhaps),
        Err(Errno::AGAIN) => Ok(Woken::Changed),
        Err(Errno::TIMEDOUT) => Ok(Woken::TimedOut),
        Err(errno) => Err(OsError::new("wait for", "a word of shared memory", errno)),
    }
}

/// Sleeps while `word` is `expected`, at most `timeout` (`None`: for ever).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Woken> {
    let limit = timeout.map(timespec);
    ended(futex::wait(word, Flags::empty(), expected, limit.as_ref()))
}

/// Wakes at most `count` sleepers on `word`; how many were woken.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    // Refused only for an address that is not mapped, and `word` is.
    futex::wake(word, Flags::empty(), count.min(i32::MAX as u32)).unwrap_or(0)
}

/// Sleeps while every word holds its expected value, at most `timeout` (`None`: for ever).
///
/// On a kernel before 5.16 it sleeps on the first word alone, at most [`SLICE`], and then reports
/// [`Woken::Perhaps`]: the caller looks at all its words again anyway.
///
/// # Errors
/// More than [`WAIT_ANY_MAX`] words, or none.
pub fn wait_any(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Result<Woken> {
    let Some(&(first, expected)) = words.first() else {
        return Err(OsError::new("wait for", "no word of shared memory", Errno::INVAL));
    };
    if words.len() == 1 {
        return wait(first, expected, timeout);
    }
    if words.len() > WAIT_ANY_MAX {
        return Err(OsError::new(
            "wait for",
            format!("{} words of shared memory", words.len()),
            Errno::INVAL,
        )
        .with_remedy("wait for the descriptor instead"));
    }
    let mut list = [const { Wait::new() }; WAIT_ANY_MAX];
    for (entry, (word, expected)) in list.iter_mut().zip(words) {
        entry.val = u64::from(*expected);
        entry.uaddr = WaitPtr::new(word.as_ptr().cast());
        entry.flags = WaitFlags::SIZE_U32;
    }
    // futex_waitv takes a point in time, not a length of it.
    let limit = timeout.map(|timeout| {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0));
        timespec(now.saturating_add(timeout))
    });
    let some = list.get(..words.len()).unwrap_or_default();
    match futex::waitv(some, WaitvFlags::empty(), limit.as_ref(), futex::ClockId::Monotonic) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let slice = timeout.map_or(SLICE, |timeout| timeout.min(SLICE));
            match wait(first, expected, Some(slice))? {
                Woken::TimedOut if timeout.is_none_or(|timeout| timeout > SLICE) => Ok(Woken::Perhaps),
                woken => Ok(woken),
            }
        }
        result => ended(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None).unwrap(), Woken::Changed);
        let other = AtomicU32::new(0);
        assert_eq!(wait_any(&[(&other, 0), (&word, 0)], None).unwrap(), Woken::Changed);
    }

    #[test]
    fn time_ends_a_wait() {
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
    fn too_many_words_are_refused() {
        let word = AtomicU32::new(0);
        assert!(wait_any(&[(&word, 0); WAIT_ANY_MAX + 1], None).is_err());
        assert!(wait_any(&[], None).is_err());
    }
}
