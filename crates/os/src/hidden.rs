//! Hidden descriptors: the library's, which the program does not know. They have high numbers, so that the
//! program's descriptors get the numbers that it expects, and are in a list, so that a shim can protect them when the
//! program closes all descriptors.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// The lowest number of a hidden descriptor, if the limit of descriptors allows it.
const LOWEST: u64 = 900;

/// Size of the list. Further descriptors are not protected.
const MAX_HIDDEN: usize = 256;

/// A free place of the list.
const NONE: RawFd = -1;

static HIDDEN: [AtomicI32; MAX_HIDDEN] = [const { AtomicI32::new(NONE) }; MAX_HIDDEN];

/// The lowest number that was ever in the list: for a lower number one load is enough.
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

/// Keeps the number of a descriptor in the list. Declare it before the descriptor, so that it is dropped first.
#[derive(Debug)]
pub struct Hiding {
    number: RawFd,
}

impl Hiding {
    /// Adds a descriptor to the list.
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

/// Whether this descriptor is hidden.
#[inline]
pub fn is_hidden(number: RawFd) -> bool {
    number >= BELOW_ALL.load(Relaxed) && HIDDEN.iter().any(|place| place.load(Relaxed) == number)
}

/// All hidden descriptors, lowest first.
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
    fn hidden_descriptor_is_high_and_listed_until_dropped() {
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
