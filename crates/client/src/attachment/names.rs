//! The daemon's binding table as this process maps it (docs/decisions/0011-how-many-bindings.md).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, OnceLock};

use utipc_core::addr::{NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::names::replica::{Access, Areas, Choice, View};
use utipc_os::lock;
use utipc_os::replica::Replica;
use utipc_os::shm::ReadWord;

/// Access to the words of a mapped table.
#[derive(Debug)]
pub(crate) enum Mapped {}

impl Access for Mapped {
    type Cell = ReadWord;
    type Cursor = AtomicU64;

    #[inline]
    fn load(cell: &ReadWord) -> u64 {
        cell.load()
    }

    #[inline]
    fn cursor(cursor: &AtomicU64) -> u64 {
        cursor.load(Relaxed)
    }

    #[inline]
    fn exchange(cursor: &AtomicU64, seen: u64, new: u64) -> bool {
        cursor.compare_exchange(seen, new, Relaxed, Relaxed).is_ok()
    }
}

/// One segment of the table, and the segment that has replaced it. Old segments stay mapped: each is much larger than
/// its predecessor, so all old ones together are smaller than the current one.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) replica: Replica,
    pub(crate) next: OnceLock<Box<Table>>,
}

impl Table {
    #[inline]
    pub(crate) fn view(&self) -> View<'_, Mapped> {
        let [leaves, branches, records] = [0, 1, 2].map(|number| self.replica.area(number));
        View::new(Areas { leaves, branches, records, cursors: self.replica.open_area() })
    }
}

/// The table as far as this process has mapped it. A lookup takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Names {
    first: OnceLock<Box<Table>>,
    /// The daemon does not share it, or this process cannot map it: every lookup is a request.
    pub(crate) refused: AtomicBool,
    /// Locked while a thread fetches it.
    fetching: Mutex<()>,
}

impl Names {
    /// The newest segment that this process has.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Table> {
        let mut table = self.first.get()?;
        while let Some(next) = table.next.get() {
            table = next;
        }
        Some(table)
    }

    /// Locks the fetching of the table: one thread fetches it, the others wait.
    pub(crate) fn lock_fetching(&self) -> MutexGuard<'_, ()> {
        lock(&self.fetching)
    }

    /// The place of the newest segment; empty before the first one is mapped.
    #[inline]
    pub(crate) fn place(&self) -> &OnceLock<Box<Table>> {
        let mut place = &self.first;
        while let Some(table) = place.get()
            && table.next.get().is_some()
        {
            place = &table.next;
        }
        place
    }
}

/// The only binding of a service address, valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoleBinding {
    pub(crate) to: ServiceAddr,
    pub(crate) domain: NodeAddr,
    /// The table's version before the lookup.
    pub(crate) version: u64,
    /// Address of the table's node at the lookup.
    pub(crate) own: NodeAddr,
    pub(crate) choice: Choice,
}

/// The receivers of a multicast.
#[derive(Debug)]
pub(crate) struct Receivers {
    pub(crate) range: ServiceRange,
    /// The table's version before the lookup.
    pub(crate) version: u64,
    /// Local sockets, each once.
    pub(crate) ports: Vec<u32>,
    /// Whether there are receivers on other nodes.
    pub(crate) remote: bool,
}

impl Receivers {
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty() && !self.remote
    }
}
