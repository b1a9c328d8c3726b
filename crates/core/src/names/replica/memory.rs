//! The memory areas of a replica, and how they grow.

use core::fmt::Debug;
use core::sync::atomic::AtomicU64;

use thiserror::Error;

use super::blocks::{branch_len, leaf_len};
use super::layout::{Access, Atomics, GONE, RECORD, SUPERSEDED, VERSION, WriteAccess, store};

/// The memory areas. Each may be larger than the part in use.
pub struct Areas<'a, A: Access = Atomics> {
    /// State, and the leaves of the tree; written only by the node.
    pub leaves: &'a [A::Cell],
    /// The branches of the tree; written only by the node.
    pub branches: &'a [A::Cell],
    /// Bindings; written only by the node.
    pub records: &'a [A::Cell],
    /// One round-robin cursor per range; written by all.
    pub cursors: &'a [A::Cursor],
}

impl<A: Access> Clone for Areas<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Access> Copy for Areas<'_, A> {}

impl<A: Access> Debug for Areas<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Areas").field(&Size::of(self)).finish()
    }
}

impl<A: WriteAccess> Areas<'_, A> {
    /// Notifies readers that the table has moved. Call it when the new memory is ready.
    pub fn supersede(&self) {
        store::<A>(self.leaves, VERSION, SUPERSEDED);
    }

    /// Notifies readers that the node has stopped.
    pub fn close(&self) {
        store::<A>(self.leaves, VERSION, GONE);
    }
}

impl<A: Access> Areas<'_, A> {
    /// All leaves have lower numbers than this.
    pub(super) fn leaf_count(&self) -> u32 {
        count(self.leaves.len() / leaf_len::<A>())
    }

    /// All branches have lower numbers than this.
    pub(super) fn branch_count(&self) -> u32 {
        count(self.branches.len() / branch_len::<A>() + 1)
    }

    /// All records have lower numbers than this.
    pub(super) fn record_count(&self) -> u32 {
        count(self.records.len() / RECORD)
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Number of cells of each area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// See [`Areas::leaves`].
    pub leaves: usize,
    /// See [`Areas::branches`].
    pub branches: usize,
    /// See [`Areas::records`].
    pub records: usize,
    /// See [`Areas::cursors`].
    pub cursors: usize,
}

impl Size {
    /// Size of existing areas.
    #[must_use]
    pub const fn of<A: Access>(areas: &Areas<'_, A>) -> Self {
        Self {
            leaves: areas.leaves.len(),
            branches: areas.branches.len(),
            records: areas.records.len(),
            cursors: areas.cursors.len(),
        }
    }

    /// Doubles each area that is smaller than `needed`, to at least `needed`.
    #[must_use]
    pub fn grown(self, needed: Size) -> Size {
        let grown = |have: usize, need: usize| if have < need { need.max(have * 2) } else { have };
        Size {
            leaves: grown(self.leaves, needed.leaves),
            branches: grown(self.branches, needed.branches),
            records: grown(self.records, needed.records),
            cursors: grown(self.cursors, needed.cursors),
        }
    }

    /// True if no area is smaller than in `needed`.
    #[must_use]
    pub const fn holds(&self, needed: Size) -> bool {
        self.leaves >= needed.leaves
            && self.branches >= needed.branches
            && self.records >= needed.records
            && self.cursors >= needed.cursors
    }
}

/// The system has no memory for a larger table; the text is the system's reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no memory for a larger binding table: {0}")]
pub struct NoMemory(pub String);

/// Memory of a table: the heap, or memory that a daemon shares with its clients.
pub trait Memory: Debug + Send {
    /// The current areas.
    fn areas(&self) -> Areas<'_>;

    /// Moves to larger areas. New cells are 0. `carry` copies the part in use from the old areas to the new
    /// ones. Only after that, and before this call returns, must readers be notified ([`Areas::supersede`]).
    ///
    /// # Errors
    /// [`NoMemory`]; the areas have not changed.
    fn grow(&mut self, size: Size, carry: &mut dyn FnMut(Areas<'_>, Areas<'_>)) -> Result<(), NoMemory>;
}

/// Memory of a table without other readers.
#[derive(Default)]
pub(crate) struct Heap {
    leaves: Lines,
    branches: Lines,
    records: Vec<AtomicU64>,
    cursors: Vec<AtomicU64>,
}

impl Debug for Heap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Heap").field(&Size::of(&self.areas())).finish()
    }
}

impl Memory for Heap {
    fn areas(&self) -> Areas<'_> {
        Areas {
            leaves: self.leaves.cells(),
            branches: self.branches.cells(),
            records: &self.records,
            cursors: &self.cursors,
        }
    }

    fn grow(&mut self, size: Size, carry: &mut dyn FnMut(Areas<'_>, Areas<'_>)) -> Result<(), NoMemory> {
        let new = Self {
            leaves: Lines::new(size.leaves)?,
            branches: Lines::new(size.branches)?,
            records: fresh(size.records)?,
            cursors: fresh(size.cursors)?,
        };
        carry(self.areas(), new.areas());
        *self = new;
        Ok(())
    }
}

fn fresh(len: usize) -> Result<Vec<AtomicU64>, NoMemory> {
    let mut cells: Vec<AtomicU64> = Vec::new();
    cells.try_reserve_exact(len).map_err(|e| NoMemory(e.to_string()))?;
    cells.resize_with(len, AtomicU64::default);
    Ok(cells)
}

/// Cells of two cache lines, which processors tend to fetch together.
const LINES: usize = 16;

/// Cells aligned to cache lines, so that a block touches as few lines as possible.
#[derive(Default)]
struct Lines {
    cells: Vec<AtomicU64>,
    from: usize,
    len: usize,
}

impl Lines {
    fn new(len: usize) -> Result<Self, NoMemory> {
        let cells = fresh(len + LINES)?;
        let from = cells.as_ptr().align_offset(LINES * size_of::<AtomicU64>()).min(LINES);
        Ok(Self { cells, from, len })
    }

    fn cells(&self) -> &[AtomicU64] {
        self.cells.get(self.from..self.from + self.len).unwrap_or_default()
    }
}
