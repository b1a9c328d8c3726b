//! Which descriptors of this process are TIPC sockets.
//!
//! A look takes no lock, so it is safe after a fork and as cheap as every call of every program, on whatever descriptor, has
//! to have it.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::entry::Entry;

/// Descriptors in one part of the table.
const PART: usize = 1024;
/// Parts: as many descriptors as Linux lets a process have unless the system was told otherwise.
const PARTS: usize = 1024;

/// What is behind a number.
struct Place {
    /// There is a socket: one load tells all other descriptors apart.
    some: AtomicBool,
    entry: ArcSwapOption<Entry>,
}

type Part = Box<[Place]>;

/// Made when a descriptor in their part is first a TIPC socket.
static TABLE: [OnceLock<Part>; PARTS] = [const { OnceLock::new() }; PARTS];

/// TIPC sockets of this process, by their numbers.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are none: then no list of descriptors has to be looked through.
#[inline]
pub(crate) fn is_empty() -> bool {
    COUNT.load(Relaxed) == 0
}

fn place(fd: RawFd) -> Option<(usize, usize)> {
    let fd = usize::try_from(fd).ok()?;
    Some((fd / PART, fd % PART))
}

/// The socket behind a descriptor; `None` if it is something else.
#[inline]
pub(crate) fn get(fd: RawFd) -> Option<Arc<Entry>> {
    let (part, at) = place(fd)?;
    let place = TABLE.get(part)?.get()?.get(at)?;
    if place.some.load(Acquire) { place.entry.load_full() } else { None }
}

/// From now on `fd` is this socket. What it was before is returned: a descriptor that was closed behind our back.
pub(crate) fn set(fd: RawFd, entry: Arc<Entry>) -> Option<Arc<Entry>> {
    let (part, at) = place(fd)?;
    let empty = || Place { some: AtomicBool::new(false), entry: ArcSwapOption::const_empty() };
    let new = || (0..PART).map(|_| empty()).collect();
    let place = TABLE.get(part)?.get_or_init(new).get(at)?;
    entry.names.fetch_add(1, AcqRel);
    let before = place.entry.swap(Some(entry));
    place.some.store(true, Release);
    COUNT.fetch_add(1, Relaxed);
    let before = before?;
    COUNT.fetch_sub(1, Relaxed);
    before.names.fetch_sub(1, AcqRel);
    Some(before)
}

/// From now on `fd` is no TIPC socket: the one that it was, and whether that was its last number in this process.
pub(crate) fn take(fd: RawFd) -> Option<(Arc<Entry>, bool)> {
    let (part, at) = place(fd)?;
    let place = TABLE.get(part)?.get()?.get(at)?;
    place.some.store(false, Release);
    let entry = place.entry.swap(None)?;
    COUNT.fetch_sub(1, Relaxed);
    let last = entry.names.fetch_sub(1, AcqRel) == 1;
    Some((entry, last))
}

/// Another number of the same socket.
pub(crate) fn other_number(entry: &Arc<Entry>) -> Option<RawFd> {
    all().find(|(_, other)| Arc::ptr_eq(entry, other)).map(|(fd, _)| fd)
}

/// All descriptors that are TIPC sockets.
pub(crate) fn all() -> impl Iterator<Item = (RawFd, Arc<Entry>)> {
    TABLE.iter().enumerate().filter_map(|(part, slots)| Some((part, slots.get()?))).flat_map(
        |(part, slots)| {
            slots.iter().enumerate().filter_map(move |(at, place)| {
                let fd = RawFd::try_from(part * PART + at).ok()?;
                Some((fd, place.entry.load_full()?))
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_socket_may_have_several_numbers() {
        // Numbers that no descriptor of this process has.
        let entry = Arc::new(Entry::unclaimed(700_001));
        assert!(get(700_001).is_none());
        assert!(set(700_001, Arc::clone(&entry)).is_none());
        assert!(set(700_002, Arc::clone(&entry)).is_none());
        let (_, last) = take(700_001).unwrap();
        assert!(!last && get(700_001).is_none());
        assert_eq!(other_number(&entry), Some(700_002));
        assert!(take(700_002).unwrap().1);
        assert!(take(700_002).is_none() && get(-1).is_none() && get(RawFd::MAX).is_none());
    }
}
