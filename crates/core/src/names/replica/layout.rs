//! The cells of a replica: the meaning of each, and access to them.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::addr::{Binding, NodeAddr, PortId, Scope};

/// Access to the cells of a table. [`Atomics`] is the default; memory mapped read-only and a model checker have their
/// own.
pub trait Access {
    /// Cells in a cache line, 2 to 8; determines the size of tree blocks.
    const GROUP: usize = 8;
    /// A cell that only the node writes.
    type Cell;
    /// A round-robin cursor, which all readers write.
    type Cursor;
    /// Reads a cell, unordered.
    fn load(cell: &Self::Cell) -> u64;
    /// Reads a cursor, unordered.
    fn cursor(cursor: &Self::Cursor) -> u64;
    /// Writes `new` to a cursor if it still holds `seen`; unordered. True if it did.
    fn exchange(cursor: &Self::Cursor, seen: u64, new: u64) -> bool;
    /// Orders reads: those after the fence see everything written before any value that was read before the fence.
    fn fence() {
        fence(Ordering::Acquire);
    }
}

/// Write access of the node.
pub trait WriteAccess: Access {
    /// Writes a cell; a reader that sees the value and passes [`Access::fence`] sees everything written before it.
    fn store(cell: &Self::Cell, value: u64);
    /// Writes a cursor.
    fn set_cursor(cursor: &Self::Cursor, value: u64);
}

/// Cells that are standard atomics.
#[derive(Clone, Copy, Debug)]
pub enum Atomics {}

impl Access for Atomics {
    type Cell = AtomicU64;
    type Cursor = AtomicU64;

    fn load(cell: &AtomicU64) -> u64 {
        cell.load(Ordering::Relaxed)
    }

    fn cursor(cursor: &AtomicU64) -> u64 {
        cursor.load(Ordering::Relaxed)
    }

    fn exchange(cursor: &AtomicU64, seen: u64, new: u64) -> bool {
        cursor.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl WriteAccess for Atomics {
    fn store(cell: &AtomicU64, value: u64) {
        cell.store(value, Ordering::Release);
    }

    fn set_cursor(cursor: &AtomicU64, value: u64) {
        cursor.store(value, Ordering::Relaxed);
    }
}

/// Reads cell `at`; 0 if it does not exist.
pub(super) fn load<A: Access>(cells: &[A::Cell], at: usize) -> u64 {
    cells.get(at).map_or(0, A::load)
}

/// Reads a reference; the block it refers to may be read next.
pub(super) fn follow<A: Access>(cells: &[A::Cell], at: usize) -> u64 {
    let reference = load::<A>(cells, at);
    A::fence();
    reference
}

/// Writes cell `at` if it exists.
pub(super) fn store<A: WriteAccess>(cells: &[A::Cell], at: usize, value: u64) {
    if let Some(cell) = cells.get(at) {
        A::store(cell, value);
    }
}

/// Changes after which memory is reused. A reader that takes longer starts again.
pub const GRACE: u64 = 256;

/// State block: number of changes so far, or one of the two values below.
pub(super) const VERSION: usize = 0;
/// State block: the root of the tree.
pub(super) const ROOT: usize = 1;
/// State block: the node's address, and in bit 0 whether it is a legacy one.
pub(super) const OWN: usize = 2;
/// Version: the table continues in another segment.
pub(super) const SUPERSEDED: u64 = u64::MAX;
/// Version: the node has stopped.
pub(super) const GONE: u64 = u64::MAX - 1;

/// Maximum number of levels of a tree; leaves are level 0. The largest table needs five.
pub(super) const MAX_LEVELS: u32 = 8;
/// Number of cells of a record.
pub(super) const RECORD: usize = 4;

/// Reference to a block of the tree: level and number; number 0 is none.
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

/// Properties of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Has a binding of this node.
    Local = 0,
    /// Has a binding of another node.
    Remote = 1,
    /// Leaf: has a ring of records, not a single binding.
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
    /// Type and lower end of the range. Branch: lower bound of the keys below (together with [`Entry::rank`]).
    pub(super) key: u64,
    /// Orders ranges with equal keys: the newest has the lowest rank.
    pub(super) rank: u64,
    /// Type and upper end. Branch: the highest end below.
    pub(super) end: u64,
    /// Leaf: see [`Meta`]. Branch: the highest end below of a range with a local binding.
    pub(super) second: u64,
    /// Leaf: port and node of the only binding, or the first record of the local ring. Branch: a [`Ref`].
    pub(super) third: u64,
    pub(super) marks: u8,
}

/// Type and instance as one number with the same order.
pub(super) fn point(service: u32, instance: u32) -> u64 {
    pack(service, instance)
}

/// Packs two numbers into a cell.
pub(super) fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Unpacks the two numbers of a cell.
pub(super) const fn unpack(cell: u64) -> (u32, u32) {
    ((cell >> 32) as u32, cell as u32)
}

/// Port and node of a binding in one cell; the own node is 0, because its address may come after its first bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedPort(pub(super) u64);

impl PackedPort {
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

/// Second cell of a leaf entry: its first record, the index of its cursor, and the scope of its only binding.
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

/// Tag of a record in use: its range (slot) and scope.
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

/// The two rings of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// All bindings.
    All,
    /// Bindings of this node.
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

/// The cells of one binding.
pub(super) struct Record<'a, A: Access>(&'a [A::Cell]);

impl<'a, A: Access> Record<'a, A> {
    /// Record `number`; number 0 is none.
    pub(super) fn at(records: &'a [A::Cell], number: u32) -> Option<Self> {
        let from = (number as usize).checked_mul(RECORD).filter(|from| *from != 0)?;
        records.get(from..from.checked_add(RECORD)?).map(Self)
    }

    pub(super) fn socket(&self) -> PackedPort {
        PackedPort(load::<A>(self.0, 0))
    }

    pub(super) fn tag(&self) -> Tag {
        Tag(load::<A>(self.0, 1))
    }

    /// The next record in each ring; may be read next.
    pub(super) fn next(&self) -> u64 {
        follow::<A>(self.0, 2)
    }

    /// The previous record in each ring; for the writer only.
    pub(super) fn previous(&self) -> u64 {
        load::<A>(self.0, 3)
    }
}

impl<A: WriteAccess> Record<'_, A> {
    pub(super) fn set_socket(&self, socket: PackedPort) {
        store::<A>(self.0, 0, socket.0);
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
