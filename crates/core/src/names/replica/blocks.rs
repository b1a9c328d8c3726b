//! The two kinds of tree blocks and their layout.
//!
//! With `G` cells in a cache line, a *leaf* has up to `2G - 1` entries: two lines of header and upper ends, the pairs
//! of key and third cell, the second cells, the ranks. A *branch* has up to `G * G - 1` entries; see [`Row`]. The cells
//! that a lookup reads come first; it reads three lines of each block.

use super::layout::{Access, Entry, MAX_LEVELS, Mark, Ref, WriteAccess, follow, load, store};

/// Number of cells of a leaf.
pub(super) const fn leaf_len<A: Access>() -> usize {
    10 * A::GROUP
}

/// Number of cells of a branch.
pub(super) const fn branch_len<A: Access>() -> usize {
    2 * A::GROUP + 7 * row::<A>()
}

/// Maximum number of entries of a leaf.
pub(super) const fn leaf_fanout<A: Access>() -> usize {
    2 * A::GROUP - 1
}

/// Maximum number of entries of a branch.
pub(super) const fn branch_fanout<A: Access>() -> usize {
    row::<A>() - 1
}

const fn row<A: Access>() -> usize {
    A::GROUP * A::GROUP
}

/// Rows of a branch; each has one cell per entry. The last five hold the fields of [`Entry`].
#[derive(Clone, Copy)]
enum Row {
    /// The highest upper end of the entries up to this one; beyond the last entry, the highest number.
    Reach,
    /// As `Reach`, of ranges with a local binding only.
    LocalReach,
    Third,
    Key,
    Rank,
    End,
    Second,
}

/// Number of cells in `cells`, which are full and ascending, with a value below `least`. Compares all of them without
/// branching on the values: cheaper than a mispredicted early exit.
fn below<A: Access>(cells: &[A::Cell], least: u64) -> usize {
    cells.iter().map(|cell| usize::from(A::load(cell) < least)).sum()
}

/// A leaf: a block of ranges.
pub(super) struct Leaf<'a, A: Access> {
    cells: &'a [A::Cell],
    /// Number of entries, and for each mark a mask of the entries with it.
    header: u64,
}

impl<'a, A: Access> Leaf<'a, A> {
    /// The cells of leaf `number`; number 0 is the state block.
    pub(super) fn cells(leaves: &'a [A::Cell], number: u32) -> Option<&'a [A::Cell]> {
        let from = (number as usize).checked_mul(leaf_len::<A>()).filter(|from| *from != 0)?;
        leaves.get(from..from.checked_add(leaf_len::<A>())?)
    }

    pub(super) fn at(leaves: &'a [A::Cell], number: u32) -> Option<Self> {
        let cells = Self::cells(leaves, number)?;
        let header = load::<A>(cells, 0);
        (header as u8 as usize <= leaf_fanout::<A>()).then_some(Self { cells, header })
    }

    pub(super) const fn count(&self) -> usize {
        self.header as u8 as usize
    }

    fn mask(&self, mark: Option<Mark>) -> u32 {
        let present = (1 << self.count()) - 1;
        mark.map_or(present, |mark| (self.header >> (16 + 16 * mark as u32)) as u32 & present)
    }

    pub(super) fn has(&self, index: usize, mark: Mark) -> bool {
        self.mask(Some(mark)) >> index & 1 != 0
    }

    /// Mask of the entries with this mark (`None`: all) whose upper end is at least `query`.
    pub(super) fn reaching(&self, query: u64, mark: Option<Mark>) -> u32 {
        let ends = self.cells.get(1..=leaf_fanout::<A>()).unwrap_or_default().iter().enumerate();
        ends.fold(0, |mask, (index, end)| mask | u32::from(A::load(end) >= query) << index) & self.mask(mark)
    }

    /// Reads a cell of every line with pairs, so that these lines are fetched while the entry is being determined.
    pub(super) fn touch_pairs(&self) {
        for line in 0..4 {
            core::hint::black_box(load::<A>(self.cells, Self::pair(0) + line * A::GROUP));
        }
    }

    // Adjacent, because a lookup reads both cells of an entry.
    const fn pair(index: usize) -> usize {
        2 * A::GROUP + 2 * index
    }

    const fn second_at(index: usize) -> usize {
        6 * A::GROUP + index
    }

    const fn rank_at(index: usize) -> usize {
        8 * A::GROUP + index
    }

    pub(super) fn key(&self, index: usize) -> u64 {
        load::<A>(self.cells, Self::pair(index))
    }

    pub(super) fn third(&self, index: usize) -> u64 {
        load::<A>(self.cells, Self::pair(index) + 1)
    }

    pub(super) fn second(&self, index: usize) -> u64 {
        load::<A>(self.cells, Self::second_at(index))
    }

    pub(super) fn rank(&self, index: usize) -> u64 {
        load::<A>(self.cells, Self::rank_at(index))
    }

    fn entry(&self, index: usize) -> Entry {
        Entry {
            key: self.key(index),
            rank: self.rank(index),
            end: load::<A>(self.cells, 1 + index),
            second: self.second(index),
            third: self.third(index),
            marks: Mark::ALL.iter().filter(|m| self.has(index, **m)).map(|m| m.bit()).sum(),
        }
    }
}

impl<A: WriteAccess> Leaf<'_, A> {
    pub(super) fn write(cells: &[A::Cell], entries: &[Entry]) {
        let mut header = entries.len() as u64;
        for (index, entry) in entries.iter().enumerate() {
            for mark in Mark::ALL {
                header |= u64::from(entry.marks & mark.bit() != 0) << (16 + 16 * mark as usize + index);
            }
            store::<A>(cells, 1 + index, entry.end);
            store::<A>(cells, Self::pair(index), entry.key);
            store::<A>(cells, Self::pair(index) + 1, entry.third);
            store::<A>(cells, Self::second_at(index), entry.second);
            store::<A>(cells, Self::rank_at(index), entry.rank);
        }
        store::<A>(cells, 0, header);
    }
}

/// A branch: a block of references to blocks of the next lower level.
pub(super) struct Branch<'a, A: Access> {
    cells: &'a [A::Cell],
    count: usize,
}

impl<'a, A: Access> Branch<'a, A> {
    pub(super) fn cells(branches: &'a [A::Cell], number: u32) -> Option<&'a [A::Cell]> {
        let from = (number as usize).checked_sub(1)?.checked_mul(branch_len::<A>())?;
        branches.get(from..from.checked_add(branch_len::<A>())?)
    }

    pub(super) fn at(branches: &'a [A::Cell], number: u32) -> Option<Self> {
        let cells = Self::cells(branches, number)?;
        let count = usize::try_from(load::<A>(cells, 0)).ok()?;
        (count <= branch_fanout::<A>()).then_some(Self { cells, count })
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Start of the line that holds the number of entries and the last reach of each group of a row; the second line is
    /// for local bindings.
    const fn line(local: bool) -> usize {
        if local { A::GROUP } else { 0 }
    }

    const fn at_row(row_number: Row, index: usize) -> usize {
        2 * A::GROUP + row_number as usize * row::<A>() + index
    }

    /// Cell of the mask of entries with a mark: the last cells of two rows, which have no entry.
    const fn mask_at(mark: Mark) -> usize {
        Self::at_row(if matches!(mark, Mark::Local) { Row::Third } else { Row::Key }, branch_fanout::<A>())
    }

    fn mask(&self, mark: Mark) -> u64 {
        load::<A>(self.cells, Self::mask_at(mark))
    }

    /// The first entry that reaches `query`; the number of entries or more if there is none.
    pub(super) fn first_reaching(&self, query: u64, local: bool) -> usize {
        if local && query == 0 {
            // Entries without a local binding have reach 0 too.
            return self.mask(Mark::Local).trailing_zeros() as usize;
        }
        let (line, row) = (Self::line(local), if local { Row::LocalReach } else { Row::Reach });
        let group = self.cells.get(line + 1..line + A::GROUP).map_or(0, |last| below::<A>(last, query));
        // The writer updates the line after the row.
        A::fence();
        let from = Self::at_row(row, group * A::GROUP);
        let inside = self.cells.get(from..from + A::GROUP).map_or(0, |group| below::<A>(group, query));
        group * A::GROUP + inside
    }

    /// True if a range below entry `index` reaches `query` and has the mark (`None`: any range). For marks other than
    /// `Local` the two may be different ranges.
    pub(super) fn reaches(&self, index: usize, query: u64, mark: Option<Mark>) -> bool {
        let row = if mark == Some(Mark::Local) { Row::Second } else { Row::End };
        mark.is_none_or(|mark| self.mask(mark) >> index & 1 != 0) && self.load(row, index) >= query
    }

    fn load(&self, row: Row, index: usize) -> u64 {
        load::<A>(self.cells, Self::at_row(row, index))
    }

    pub(super) fn key(&self, index: usize) -> u64 {
        self.load(Row::Key, index)
    }

    pub(super) fn rank(&self, index: usize) -> u64 {
        self.load(Row::Rank, index)
    }

    /// The block that an entry refers to, ready to be read. It is at least as new as the data about it in this branch.
    pub(super) fn child(&self, index: usize) -> Ref {
        A::fence();
        Ref(follow::<A>(self.cells, Self::at_row(Row::Third, index)))
    }

    pub(super) fn entry(&self, index: usize) -> Entry {
        let marks = [Mark::Local, Mark::Remote];
        Entry {
            key: self.key(index),
            rank: self.rank(index),
            end: self.load(Row::End, index),
            second: self.load(Row::Second, index),
            third: self.load(Row::Third, index),
            marks: marks.iter().filter(|m| self.mask(**m) >> index & 1 != 0).map(|m| m.bit()).sum(),
        }
    }
}

impl<'a, A: WriteAccess> Branch<'a, A> {
    fn store(&self, row: Row, index: usize, value: u64) {
        store::<A>(self.cells, Self::at_row(row, index), value);
    }

    pub(super) fn write(cells: &'a [A::Cell], entries: &[Entry]) {
        let block = Self { cells, count: entries.len() };
        for (index, entry) in entries.iter().enumerate() {
            block.store(Row::Third, index, entry.third);
            block.store(Row::Key, index, entry.key);
            block.store(Row::Rank, index, entry.rank);
            block.store(Row::End, index, entry.end);
            block.store(Row::Second, index, entry.second);
        }
        for mark in [Mark::Local, Mark::Remote] {
            let bits = entries.iter().enumerate().map(|(i, e)| u64::from(e.marks & mark.bit() != 0) << i);
            store::<A>(cells, Self::mask_at(mark), bits.sum());
        }
        let local = |e: &Entry| if e.marks & Mark::Local.bit() == 0 { 0 } else { e.second };
        block.write_reach(false, entries.iter().map(|e| e.end));
        block.write_reach(true, entries.iter().map(local));
        store::<A>(cells, 0, entries.len() as u64);
    }

    fn write_reach(&self, local: bool, ends: impl Iterator<Item = u64>) {
        let (line, row) = (Self::line(local), if local { Row::LocalReach } else { Row::Reach });
        let mut reach = 0;
        let highest = ends.map(|end| {
            reach = reach.max(end);
            reach
        });
        let rest = core::iter::repeat(u64::MAX);
        for (index, reach) in highest.chain(rest).take(self::row::<A>()).enumerate() {
            self.store(row, index, reach);
            let group = index / A::GROUP + 1;
            if index % A::GROUP == A::GROUP - 1 && group < A::GROUP {
                store::<A>(self.cells, line + group, reach);
            }
        }
    }

    /// Replaces entry `index` in place if readers tolerate that.
    pub(super) fn replace(&self, index: usize, new: &Entry) -> Replaced {
        let old = self.entry(index);
        if (Entry { third: new.third, ..old }) == *new {
            self.store(Row::Third, index, new.third);
            return Replaced::InPlace;
        }
        let gained = new.end >= old.end && new.second >= old.second && new.marks & old.marks == old.marks;
        let began = (new.key, new.rank) == (old.key, old.rank);
        if !(gained && began && index + 1 == self.count) {
            return Replaced::Refused;
        }
        // Write the reference first: readers must not look below for a range that is not there yet.
        self.store(Row::Third, index, new.third);
        self.store(Row::Second, index, new.second);
        self.store(Row::End, index, new.end);
        for mark in [Mark::Local, Mark::Remote] {
            let set = u64::from(new.marks & mark.bit() != 0) << index;
            store::<A>(self.cells, Self::mask_at(mark), self.mask(mark) | set);
        }
        if new.marks & Mark::Local.bit() != 0 {
            self.raise(true, index, new.second);
        }
        self.raise(false, index, new.end);
        Replaced::Raised
    }

    fn raise(&self, local: bool, index: usize, end: u64) {
        let (line, row) = (Self::line(local), if local { Row::LocalReach } else { Row::Reach });
        let reach = self.load(row, index).max(end);
        self.store(row, index, reach);
        let group = index / A::GROUP + 1;
        if index % A::GROUP == A::GROUP - 1 && group < A::GROUP {
            store::<A>(self.cells, line + group, reach);
        }
    }
}

/// Result of [`Branch::replace`].
pub(super) enum Replaced {
    /// Replaced; the parent's data about this branch is still correct.
    InPlace,
    /// Replaced; the last entry covers more than before, and so does this branch.
    Raised,
    /// Not replaced: the branch must be copied.
    Refused,
}

/// A block of either kind.
pub(super) enum Block<'a, A: Access> {
    Leaf(Leaf<'a, A>),
    Branch(Branch<'a, A>),
}

impl<'a, A: Access> Block<'a, A> {
    /// The block that a reference names; `None` if the reference is invalid.
    pub(super) fn at(leaves: &'a [A::Cell], branches: &'a [A::Cell], reference: Ref) -> Option<Self> {
        match reference.level() {
            0 => Leaf::at(leaves, reference.number()).map(Self::Leaf),
            1..MAX_LEVELS => Branch::at(branches, reference.number()).map(Self::Branch),
            _ => None,
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.count(),
            Self::Branch(branch) => branch.count(),
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.count()).map(move |index| match self {
            Self::Leaf(leaf) => leaf.entry(index),
            Self::Branch(branch) => branch.entry(index),
        })
    }
}
