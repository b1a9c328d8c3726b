//! A writer whose stores are recorded, and tables of modelled atomics that replay them, in their order or in a wrong
//! one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64 as StdU64, Ordering as StdOrdering};

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use utipc_core::names::replica::{Access, Areas, WriteAccess};

pub(crate) use utipc_core::names::replica::View;

/// The rule that is broken, to show that a model detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// No rule.
    No,
    /// Stores have no release order.
    Stores,
    /// The reader has no fences.
    Fence,
    /// The new root is linked before it is written.
    RootFirst,
    /// A branch reaches further before its leaf does.
    ParentFirst,
    /// A withdrawn binding's record is marked free while the ring still links to it.
    TagEarly,
    /// Memory is reused before the version has moved far enough for its readers to notice.
    NoVersionStep,
    /// Memory is reused at once.
    EarlyReuse,
    /// Readers are sent to the new place before it is complete.
    SupersededEarly,
    /// The reader does not see that the start of its ring was withdrawn.
    RingCheck,
}

/// Areas, in the order of [`Areas`].
pub(crate) const LEAVES: usize = 0;
pub(crate) const BRANCHES: usize = 1;
pub(crate) const RECORDS: usize = 2;
pub(crate) const TURNS: usize = 3;

/// First cells of the leaves: version, root.
pub(crate) const VERSION: usize = 0;
pub(crate) const ROOT: usize = 1;
/// Cells of a record; the second is its tag.
pub(crate) const RECORD: usize = 4;
/// Cells in a line: blocks have three entries.
pub(crate) const GROUP: usize = 2;
/// Cells of a branch; those before the third row hold how far its entries reach.
const BRANCH: usize = 2 * GROUP + 7 * GROUP * GROUP;
const REACHES: usize = 2 * GROUP + 2 * GROUP * GROUP;

/// One store of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) area: usize,
    pub(crate) at: usize,
    pub(crate) value: u64,
}

impl Store {
    pub(crate) fn is(&self, area: usize, at: usize) -> bool {
        (self.area, self.at) == (area, at)
    }

    pub(crate) fn frees_a_record(&self) -> bool {
        self.area == RECORDS && self.at % RECORD == 1 && self.value == 0
    }

    pub(crate) fn raises(&self) -> bool {
        self.area == BRANCHES && self.at % BRANCH < REACHES
    }
}

type Log = Rc<RefCell<Vec<Store>>>;

/// A cell of the writer's own table.
pub(crate) struct Recorded {
    value: StdU64,
    area: usize,
    at: usize,
    log: Log,
}

impl Recorded {
    fn store(&self, value: u64) {
        self.value.store(value, StdOrdering::Relaxed);
        self.log.borrow_mut().push(Store { area: self.area, at: self.at, value });
    }
}

/// Access of the writer to its cells.
#[derive(Debug)]
pub(crate) enum Recording {}

impl Access for Recording {
    const GROUP: usize = GROUP;
    type Cell = Recorded;
    type Cursor = Recorded;

    fn load(cell: &Recorded) -> u64 {
        cell.value.load(StdOrdering::Relaxed)
    }

    fn cursor(cursor: &Recorded) -> u64 {
        Self::load(cursor)
    }

    fn exchange(cursor: &Recorded, seen: u64, new: u64) -> bool {
        let same = Self::load(cursor) == seen;
        if same {
            cursor.store(new);
        }
        same
    }
}

impl WriteAccess for Recording {
    fn store(cell: &Recorded, value: u64) {
        cell.store(value);
    }

    fn set_cursor(cursor: &Recorded, value: u64) {
        cursor.store(value);
    }
}

/// The writer's table.
pub(crate) struct Own {
    cells: [Vec<Recorded>; 4],
    log: Log,
}

impl Own {
    pub(crate) fn new(sizes: [usize; 4]) -> Self {
        let log = Log::default();
        let cells = [LEAVES, BRANCHES, RECORDS, TURNS].map(|area| {
            let cell = |at| Recorded { value: StdU64::new(0), area, at, log: Rc::clone(&log) };
            (0..sizes[area]).map(cell).collect()
        });
        Self { cells, log }
    }

    pub(crate) fn areas(&self) -> Areas<'_, Recording> {
        let [leaves, branches, records, cursors] = &self.cells;
        Areas { leaves, branches, records, cursors }
    }

    pub(crate) fn snapshot(&self) -> [Vec<u64>; 4] {
        [LEAVES, BRANCHES, RECORDS, TURNS].map(|area| self.cells[area].iter().map(Recording::load).collect())
    }

    /// The stores since the last call.
    pub(crate) fn take_stores(&self) -> Vec<Store> {
        std::mem::take(&mut *self.log.borrow_mut())
    }
}

/// A change of a table by its writer.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) before: [Vec<u64>; 4],
    pub(crate) stores: Vec<Store>,
}

/// A cell of a modelled table; a constant one costs no interleavings.
pub(crate) enum Cell {
    Still(u64),
    Moving(AtomicU64),
}

impl Cell {
    fn load(&self) -> u64 {
        match self {
            Self::Still(value) => *value,
            Self::Moving(word) => word.load(Ordering::Relaxed),
        }
    }
}

/// Access of the reader to its cells, with fences or without.
#[derive(Debug)]
pub(crate) enum Modelled<const FENCES: bool> {}

impl<const FENCES: bool> Access for Modelled<FENCES> {
    const GROUP: usize = GROUP;
    type Cell = Cell;
    type Cursor = Cell;

    fn load(cell: &Cell) -> u64 {
        cell.load()
    }

    fn cursor(cursor: &Cell) -> u64 {
        cursor.load()
    }

    fn exchange(cursor: &Cell, seen: u64, new: u64) -> bool {
        match cursor {
            // It is not read again.
            Cell::Still(_) => true,
            Cell::Moving(word) => {
                word.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            }
        }
    }

    fn fence() {
        if FENCES {
            fence(Ordering::Acquire);
        }
    }
}

/// A table in one execution of a model.
pub(crate) struct Table {
    cells: [Vec<Cell>; 4],
    order: Ordering,
}

impl Table {
    pub(crate) fn new(change: &Change, broken: Broken) -> Self {
        let cells = [LEAVES, BRANCHES, RECORDS, TURNS].map(|area| {
            let moves = |at| change.stores.iter().any(|store| store.is(area, at));
            let cell = |(at, value): (usize, &u64)| {
                if moves(at) { Cell::Moving(AtomicU64::new(*value)) } else { Cell::Still(*value) }
            };
            change.before[area].iter().enumerate().map(cell).collect()
        });
        let order = if broken == Broken::Stores { Ordering::Relaxed } else { Ordering::Release };
        Self { cells, order }
    }

    /// Replays the writer's stores.
    pub(crate) fn replay(&self, stores: &[Store]) {
        for store in stores {
            if let Some(Cell::Moving(word)) = self.cells[store.area].get(store.at) {
                let order = if store.area == TURNS { Ordering::Relaxed } else { self.order };
                word.store(store.value, order);
            }
        }
    }

    pub(crate) fn areas<const FENCES: bool>(&self) -> Areas<'_, Modelled<FENCES>> {
        let [leaves, branches, records, cursors] = &self.cells;
        Areas { leaves, branches, records, cursors }
    }
}
