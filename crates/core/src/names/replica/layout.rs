//! What the cells mean.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::addr::{Binding, NodeAddr, PortId, Scope};

/// How a reader gets at the cells of a table. [`Atomics`] is one way; memory that is mapped read-only and a model
/// checker have others.
pub trait Access {
    /// Cells in a cache line; gives blocks of the tree their size. 2 to 8.
    const GROUP: usize = 8;
    /// One cell of what the node alone writes.
    type Cell;
    /// One cell of what everybody writes.
    type Turn;
    /// Reads a cell, in no order with others.
    fn load(cell: &Self::Cell) -> u64;
    /// Reads a turn, in no order with other cells.
    fn turn(turn: &Self::Turn) -> u64;
    /// Writes `new` if `seen` is still there; in no order with other cells.
    fn exchange(turn: &Self::Turn, seen: u64, new: u64) -> bool;
    /// Reads after it see at least what was written before any value that was read before it.
    fn fence() {
        fence(Ordering::Acquire);
    }
}

/// How the node writes them.
pub trait WriteAccess: Access {
    /// Writes a cell; whoever sees the value and passes [`Access::fence`] sees all that was written before.
    fn store(cell: &Self::Cell, value: u64);
    /// Writes a turn.
    fn set_turn(turn: &Self::Turn, value: u64);
}

/// Cells that are the standard atomics.
#[derive(Clone, Copy, Debug)]
pub enum Atomics {}

impl Access for Atomics {
    type Cell = AtomicU64;
    type Turn = AtomicU64;

    fn load(cell: &AtomicU64) -> u64 {
        cell.load(Ordering::Relaxed)
    }

    fn turn(turn: &AtomicU64) -> u64 {
        turn.load(Ordering::Relaxed)
    }

    fn exchange(turn: &AtomicU64, seen: u64, new: u64) -> bool {
        turn.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl WriteAccess for Atomics {
    fn store(cell: &AtomicU64, value: u64) {
        cell.store(value, Ordering::Release);
    }

    fn set_turn(turn: &AtomicU64, value: u64) {
        turn.store(value, Ordering::Relaxed);
    }
}

/// Reads cell `at`; one that does not exist is 0.
pub(super) fn load<A: Access>(cells: &[A::Cell], at: usize) -> u64 {
    cells.get(at).map_or(0, A::load)
}

/// Reads a reference; what it refers to may be read next.
pub(super) fn follow<A: Access>(cells: &[A::Cell], at: usize) -> u64 {
    let reference = load::<A>(cells, at);
    A::fence();
    reference
}

/// Writes cell `at`, if it exists.
pub(super) fn store<A: WriteAccess>(cells: &[A::Cell], at: usize, value: u64) {
    if let Some(cell) = cells.get(at) {
        A::store(cell, value);
    }
}

/// Changes after which memory is used again. A reader that is slower begins again.
pub const GRACE: u64 = 256;

/// State block: changes so far, or one of the two below.
pub(super) const VERSION: usize = 0;
/// State block: the root of the tree.
pub(super) const ROOT: usize = 1;
/// State block: own address, and in bit 0 whether it is a legacy one.
pub(super) const OWN: usize = 2;
/// Version: the table continues in another segment.
pub(super) const SUPERSEDED: u64 = u64::MAX;
/// Version: the node has ended.
pub(super) const GONE: u64 = u64::MAX - 1;

/// Levels of a tree, at most; leaves are level 0. The largest table needs five.
pub(super) const MAX_LEVELS: u32 = 8;
/// Cells of a record.
pub(super) const RECORD: usize = 4;

/// A block of the tree, by level and number; number 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ref(pub(super) u64);

impl Ref {
    pub(super) const NONE: Ref = Ref(0);

    pub(super) fn new(level: u32, number: u32) -> Self {
        Self(pack(level, number))
    }

    pub(super) const fn is_none(self) -> bool {
        self.number() == 0
    }

    pub(super) const fn level(self) -> u32 {
        unpack(self.0).0
    }

    pub(super) const fn number(self) -> u32 {
        unpack(self.0).1
    }
}

/// Which entries have some property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A binding of this node.
    Local = 0,
    /// A binding of another node.
    Remote = 1,
    /// Leaf: a ring of records instead of one binding.
    Many = 2,
}

impl Mark {
    pub(super) const ALL: [Mark; 3] = [Mark::Local, Mark::Remote, Mark::Many];

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// An entry of a leaf or a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Type and lower end of the range. Branch: no entry below has a smaller one (with [`Entry::rank`]).
    pub(super) key: u64,
    /// Orders ranges with equal keys: the newest has the smallest.
    pub(super) rank: u64,
    /// Type and upper end. Branch: the highest one below.
    pub(super) end: u64,
    /// Leaf: see [`Meta`]. Branch: the highest end of a range with a local binding.
    pub(super) second: u64,
    /// Leaf with one binding: its port and node, with several: first record of the local ring. Branch: a [`Ref`].
    pub(super) third: u64,
    pub(super) marks: u8,
}

/// Type and instance in one number that orders like the pair.
pub(super) fn point(service: u32, instance: u32) -> u64 {
    pack(service, instance)
}

/// Two numbers in one cell.
pub(super) fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The numbers of one cell.
pub(super) const fn unpack(cell: u64) -> (u32, u32) {
    ((cell >> 32) as u32, cell as u32)
}

/// Port and node of a binding; the own node is 0, for its address comes later than its first bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who(pub(super) u64);

impl Who {
    pub(super) fn of(binding: &Binding, own: NodeAddr) -> Self {
        let PortId { port, node } = binding.port;
        Self(pack(if node == own { 0 } else { node.0 }, port))
    }

    pub(super) const fn is_local(self) -> bool {
        self.0 >> 32 == 0
    }

    pub(super) const fn port(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn node(self, own: NodeAddr) -> NodeAddr {
        if self.is_local() { own } else { NodeAddr(unpack(self.0).0) }
    }
}

/// Second cell of a leaf entry: its first record, its place among the turns, and of its only binding the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u64);

impl Meta {
    pub(super) fn new(first: u32, slot: u32, scope: Scope) -> Self {
        Self(u64::from(first) << 32 | u64::from(slot) << 1 | u64::from(scope == Scope::Node))
    }

    pub(super) const fn first(self) -> u32 {
        unpack(self.0).0
    }

    pub(super) const fn slot(self) -> u32 {
        unpack(self.0).1 >> 1
    }

    pub(super) const fn scope(self) -> Scope {
        if self.0 & 1 == 0 { Scope::Cluster } else { Scope::Node }
    }
}

/// What a record belongs to: range (its slot), scope, and that it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    pub(super) const FREE: Tag = Tag(0);

    pub(super) fn new(slot: u32, scope: Scope) -> Self {
        Self(u64::from(slot) << 2 | u64::from(scope == Scope::Node) << 1 | 1)
    }

    pub(super) fn is_of(self, slot: u32) -> bool {
        self.0 & 1 != 0 && self.0 >> 2 == u64::from(slot)
    }

    pub(super) const fn scope(self) -> Scope {
        if self.0 & 2 == 0 { Scope::Cluster } else { Scope::Node }
    }
}

/// Which of a range's two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// Every binding.
    All,
    /// Those of this node.
    Local,
}

impl Ring {
    /// The half of a cell that belongs to this ring.
    pub(super) const fn half(self, cell: u64) -> u32 {
        let (local, all) = unpack(cell);
        match self {
            Self::All => all,
            Self::Local => local,
        }
    }

    /// The cell with this ring's half replaced.
    pub(super) fn with(self, cell: u64, value: u32) -> u64 {
        let (local, all) = unpack(cell);
        match self {
            Self::All => pack(local, value),
            Self::Local => pack(value, all),
        }
    }
}

/// Cells of one binding.
pub(super) struct Record<'a, A: Access>(&'a [A::Cell]);

impl<'a, A: Access> Record<'a, A> {
    /// Record `number`; number 0 is none.
    pub(super) fn at(records: &'a [A::Cell], number: u32) -> Option<Self> {
        let from = (number as usize).checked_mul(RECORD).filter(|from| *from != 0)?;
        records.get(from..from.checked_add(RECORD)?).map(Self)
    }

    pub(super) fn who(&self) -> Who {
        Who(load::<A>(self.0, 0))
    }

    pub(super) fn tag(&self) -> Tag {
        Tag(load::<A>(self.0, 1))
    }

    /// The next one in both rings; may be read next.
    pub(super) fn next(&self) -> u64 {
        follow::<A>(self.0, 2)
    }

    /// The one before in both rings, for the writer alone.
    pub(super) fn previous(&self) -> u64 {
        load::<A>(self.0, 3)
    }
}

impl<A: WriteAccess> Record<'_, A> {
    pub(super) fn set_who(&self, who: Who) {
        store::<A>(self.0, 0, who.0);
    }

    pub(super) fn set_tag(&self, tag: Tag) {
        store::<A>(self.0, 1, tag.0);
    }

    pub(super) fn set_next(&self, next: u64) {
        store::<A>(self.0, 2, next);
    }

    pub(super) fn set_previous(&self, previous: u64) {
        store::<A>(self.0, 3, previous);
    }
}
