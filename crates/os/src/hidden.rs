//! Descriptors that a library has without its program knowing: with high numbers, so that the program's own get those that it
//! expects, and in a list, so that a shim can keep a program from closing them with "all that it has".

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// The lowest number that a hidden descriptor has, where the system's limit leaves room above it.
const LOWEST: u64 = 900;

/// Hidden descriptors of one process that are known; more are as visible as any other.
const MOST: usize = 256;

/// No descriptor has this number.
const NONE: RawFd = -1;

static HIDDEN: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];

/// No number below it has ever been in the list: one load answers for most descriptors.
static BELOW_ALL: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Gives a descriptor a high number, if one is free.
pub fn raise(fd: OwnedFd) -> OwnedFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let lowest = LOWEST.min(limit / 2);
    match RawFd::try_from(lowest).map(|lowest| fcntl_dupfd_cloexec(&fd, lowest)) {
        Ok(Ok(raised)) => raised,
        _ => fd,
    }
}

/// While it lives, the number is in the list. Declared before the descriptor, it goes before that.
#[derive(Debug)]
pub struct Hiding {
    number: RawFd,
}

impl Hiding {
    /// Puts a descriptor into the list.
    pub fn of(fd: impl AsFd) -> Self {
        let number = fd.as_fd().as_raw_fd();
        let free = |place: &&AtomicI32| place.compare_exchange(NONE, number, Relaxed, Relaxed).is_ok();
        BELOW_ALL.fetch_min(number, Relaxed);
        let _ = HIDDEN.iter().find(free);
        Self { number }
    }
}

impl Drop for Hiding {
    fn drop(&mut self) {
        for place in &HIDDEN {
            if place.compare_exchange(self.number, NONE, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }
}

/// Whether this is one of them.
#[inline]
pub fn is_hidden(number: RawFd) -> bool {
    number >= BELOW_ALL.load(Relaxed) && HIDDEN.iter().any(|place| place.load(Relaxed) == number)
}

/// All of them, lowest first.
pub fn all() -> Vec<RawFd> {
    let mut numbers: Vec<RawFd> =
        HIDDEN.iter().map(|place| place.load(Relaxed)).filter(|number| *number != NONE).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_high_and_known_until_it_goes() {
        let (_one, two) = crate::fdpass::Channel::pair().unwrap();
        let fd = raise(two.into_fd());
        let number = fd.as_raw_fd();
        assert!(number >= 100 && !is_hidden(number));
        let hiding = Hiding::of(&fd);
        assert!(is_hidden(number) && all().contains(&number));
        drop(hiding);
        assert!(!is_hidden(number));
    }
}
