//! Access of a test to the words of a shared table, as a process has it.

use std::sync::atomic::{AtomicU64, Ordering};

use utipc_core::names::replica::{Access, Areas, View};
use utipc_os::replica::Replica;
use utipc_os::shm::ReadWord;

/// Access of a reader.
pub(crate) enum Mapped {}

impl Access for Mapped {
    type Cell = ReadWord;
    type Cursor = AtomicU64;

    fn load(cell: &ReadWord) -> u64 {
        cell.load()
    }

    fn cursor(cursor: &AtomicU64) -> u64 {
        cursor.load(Ordering::Relaxed)
    }

    fn exchange(cursor: &AtomicU64, seen: u64, new: u64) -> bool {
        cursor.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

pub(crate) fn view(replica: &Replica) -> View<'_, Mapped> {
    let [leaves, branches, records] = [0, 1, 2].map(|number| replica.area(number));
    View::new(Areas { leaves, branches, records, cursors: replica.open_area() })
}
