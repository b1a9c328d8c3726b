//! The table of descriptors that are TIPC sockets.
//!
//! A lookup takes no lock, and is cheap enough to precede every call on any descriptor. A fork can interrupt another
//! thread between two steps of a change, and the child has no thread that makes the second step: no call waits for it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use arc_swap::ArcSwapOption;
use once_cell::race::OnceBox;

use crate::entry::Entry;

/// Descriptors in one part of the table.
const PART: usize = 1024;
/// Number of parts: enough for the default limit of open files in Linux.
const PARTS: usize = 1024;

/// The slot of a descriptor number.
struct Slot {
    /// 0 if there is no socket: a single load for all other descriptors. Counts up before `entry` is set, and down
    /// after it was cleared.
    hint: AtomicUsize,
    /// The socket. Only this decides whether there is one.
    entry: ArcSwapOption<Entry>,
}

impl Slot {
    fn get(&self) -> Option<Arc<Entry>> {
        if self.hint.load(Acquire) == 0 { None } else { self.entry.load_full() }
    }

    /// Sets or removes the socket; returns the one before.
    fn swap(&self, entry: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        if entry.is_some() {
            self.hint.fetch_add(1, Relaxed);
        }
        // In one order with the check of the number in `Entry::renumber`: every operation of `arc_swap` is one of all
        // sequentially consistent ones.
        let before = self.entry.swap(entry);
        if before.is_some() {
            self.hint.fetch_sub(1, Release);
        }
        before
    }
}

type Part = [Slot; PART];

/// An empty part, made in place: it is too large for the stack of a small thread.
fn empty_part() -> Option<Box<Part>> {
    let empty = || Slot { hint: AtomicUsize::new(0), entry: ArcSwapOption::const_empty() };
    (0..PART).map(|_| empty()).collect::<Box<[Slot]>>().try_into().ok()
}

/// Parts are allocated when the first of their descriptors becomes a TIPC socket.
static TABLE: [OnceBox<Part>; PARTS] = [const { OnceBox::new() }; PARTS];

/// Number of descriptors that are TIPC sockets.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether no descriptor is a TIPC socket, so that lists of descriptors need no search.
#[inline]
pub(crate) fn is_empty() -> bool {
    COUNT.load(Relaxed) == 0
}

fn position(fd: RawFd) -> Option<(usize, usize)> {
    let fd = usize::try_from(fd).ok()?;
    Some((fd / PART, fd % PART))
}

/// The socket of a descriptor; `None` if it is something else.
#[inline]
pub(crate) fn get(fd: RawFd) -> Option<Arc<Entry>> {
    let (part, at) = position(fd)?;
    TABLE.get(part)?.get()?.get(at)?.get()
}

/// Assigns the socket to `fd`. Returns its previous socket, whose descriptor was closed unnoticed.
pub(crate) fn set(fd: RawFd, entry: Arc<Entry>) -> Option<Arc<Entry>> {
    let (part, at) = position(fd)?;
    let slot = TABLE.get(part)?.get_or_try_init(|| empty_part().ok_or(())).ok()?.get(at)?;
    entry.names.fetch_add(1, AcqRel);
    COUNT.fetch_add(1, Relaxed);
    let before = slot.swap(Some(entry))?;
    COUNT.fetch_sub(1, Relaxed);
    before.names.fetch_sub(1, AcqRel);
    Some(before)
}

/// Removes `fd`; returns its socket, and whether this was the socket's last number in the process.
pub(crate) fn take(fd: RawFd) -> Option<(Arc<Entry>, bool)> {
    let (part, at) = position(fd)?;
    let entry = TABLE.get(part)?.get()?.get(at)?.swap(None)?;
    COUNT.fetch_sub(1, Relaxed);
    let last = entry.names.fetch_sub(1, AcqRel) == 1;
    Some((entry, last))
}

/// Another descriptor number of the same socket.
pub(crate) fn other_number(entry: &Arc<Entry>) -> Option<RawFd> {
    all().find(|(_, other)| Arc::ptr_eq(entry, other)).map(|(fd, _)| fd)
}

/// All descriptors that are TIPC sockets.
pub(crate) fn all() -> impl Iterator<Item = (RawFd, Arc<Entry>)> {
    TABLE.iter().enumerate().filter_map(|(part, slots)| Some((part, slots.get()?))).flat_map(
        |(part, slots)| {
            slots.iter().enumerate().filter_map(move |(at, slot)| {
                let fd = RawFd::try_from(part * PART + at).ok()?;
                Some((fd, slot.get()?))
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_can_have_several_numbers() {
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
