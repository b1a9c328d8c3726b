//! Changes the search tree by copying the blocks that change.

use super::blocks::{Block, Branch, Leaf, Replaced, branch_fanout, branch_len, leaf_fanout, leaf_len};
use super::layout::{Access, Entry, Mark, ROOT, Ref, WriteAccess, load, store};
use super::memory::{Areas, Size};
use super::slots::Slots;

/// A block to be written.
struct Draft {
    level: u32,
    entries: Vec<Entry>,
    /// The position at which to split if the entries do not fit one block: after the entries of a growing run,
    /// otherwise in the middle.
    split_at: Option<usize>,
}

impl Draft {
    const fn new(level: u32, entries: Vec<Entry>) -> Self {
        Self { level, entries, split_at: None }
    }

    fn of<A: Access>(level: u32, block: &Block<'_, A>) -> Self {
        let mut entries = Vec::with_capacity(block.count() + 2);
        entries.extend(block.entries());
        Self::new(level, entries)
    }

    fn fanout<A: Access>(&self) -> usize {
        if self.level == 0 { leaf_fanout::<A>() } else { branch_fanout::<A>() }
    }

    /// The parent's entry for this block, if it is written as `block`.
    fn summary(&self, block: Ref) -> Option<Entry> {
        let first = self.entries.first()?;
        let local = self.entries.iter().filter(|e| e.marks & Mark::Local.bit() != 0);
        let local_end = |e: &Entry| if self.level == 0 { e.end } else { e.second };
        let marks = self.entries.iter().fold(0, |marks, e| marks | e.marks);
        Some(Entry {
            key: first.key,
            rank: first.rank,
            end: self.entries.iter().map(|e| e.end).max()?,
            second: local.map(local_end).max().unwrap_or(0),
            third: block.0,
            marks: marks & (Mark::Local.bit() | Mark::Remote.bit()),
        })
    }
}

/// The areas, and the versions before and after the change.
pub(super) struct Change<'a, A: Access> {
    pub(super) areas: Areas<'a, A>,
    /// The newest version that all readers have left behind; memory freed in it may be reused.
    pub(super) reclaimable: u64,
    /// The version after this change.
    pub(super) next: u64,
}

/// The writer's side of the tree: free blocks, and the path to the leaf being changed.
#[derive(Debug, Default)]
pub(super) struct Tree {
    leaves: Slots,
    branches: Slots,
    /// Blocks from the root to a leaf, and in each the index of the entry that leads to the next.
    path: Vec<(Ref, usize)>,
}

/// Maximum number of leaves written by one change: a leaf that is split.
const LEAVES_PER_CHANGE: u32 = 2;

/// Maximum number of branches written by one change: a split branch on each level, and a new root.
fn branches_per_change<A: Access>(areas: &Areas<'_, A>) -> u32 {
    2 * root(areas).level() + 1
}

fn root<A: Access>(areas: &Areas<'_, A>) -> Ref {
    Ref(load::<A>(areas.leaves, ROOT))
}

impl Tree {
    /// True if enough reusable blocks are free for any change.
    pub(super) fn can_change<A: Access>(&self, areas: &Areas<'_, A>, reclaimable: u64) -> bool {
        self.leaves.can_take(LEAVES_PER_CHANGE, reclaimable, areas.leaf_count())
            && self.branches.can_take(branches_per_change(areas), reclaimable, areas.branch_count())
    }

    /// True if, after adding an entry, enough blocks are left to remove one.
    pub(super) fn has_room<A: Access>(&self, areas: &Areas<'_, A>) -> bool {
        self.missing(areas, 0) == (0, 0)
    }

    /// Enlarges `size` until [`Tree::has_room`] holds, with a reserve: without it memory would be reused every few
    /// changes, which makes readers start again.
    pub(super) fn enlarge<A: Access>(&self, areas: &Areas<'_, A>, size: &mut Size) {
        let (leaves, branches) = self.missing(areas, 16);
        size.leaves = size.leaves.max(leaf_len::<A>()) + leaves as usize * leaf_len::<A>();
        size.branches += branches as usize * branch_len::<A>();
    }

    /// Missing blocks of each kind, if one in `reserve` should be free beyond the necessary ones (0: no reserve).
    fn missing<A: Access>(&self, areas: &Areas<'_, A>, reserve: u32) -> (u32, u32) {
        let lacking = |slots: &Slots, limit: u32, per_change: u32| {
            let wanted = 2 * per_change + limit.checked_div(reserve).unwrap_or(0);
            wanted.saturating_sub(slots.free(limit))
        };
        (
            lacking(&self.leaves, areas.leaf_count().max(1), LEAVES_PER_CHANGE),
            lacking(&self.branches, areas.branch_count(), branches_per_change(areas) + 2),
        )
    }

    /// Number of cells in use.
    pub(super) const fn used<A: Access>(&self) -> (usize, usize) {
        let branches = self.branches.high() as usize - 1;
        (self.leaves.high() as usize * leaf_len::<A>(), branches * branch_len::<A>())
    }

    /// Adds a leaf entry.
    pub(super) fn insert<A: WriteAccess>(&mut self, change: &Change<'_, A>, entry: Entry) {
        let mut draft = self.descend(change, entry.key, entry.rank).unwrap_or(Draft::new(0, Vec::new()));
        let at = draft.entries.partition_point(|e| (e.key, e.rank) < (entry.key, entry.rank));
        draft.split_at = growing(&draft.entries, at, &entry);
        draft.entries.insert(at, entry);
        self.commit(change, draft);
    }

    /// Replaces the leaf entry with this key and rank, or removes it.
    pub(super) fn replace<A: WriteAccess>(
        &mut self,
        change: &Change<'_, A>,
        key: u64,
        rank: u64,
        entry: Option<Entry>,
    ) {
        let Some(mut draft) = self.descend(change, key, rank) else { return };
        let Some(at) = draft.entries.iter().position(|e| (e.key, e.rank) == (key, rank)) else { return };
        draft.entries.splice(at..=at, entry);
        self.commit(change, draft);
    }

    /// Descends to the leaf where `key` and `rank` belong; `None` if the tree is empty.
    fn descend<A: Access>(&mut self, change: &Change<'_, A>, key: u64, rank: u64) -> Option<Draft> {
        self.path.clear();
        let mut at = root(&change.areas);
        loop {
            let block = change.block(at)?;
            let Block::Branch(branch) = &block else {
                self.path.push((at, 0));
                return Some(Draft::of(at.level(), &block));
            };
            // The last entry that does not start behind the key.
            let (mut from, mut to) = (0, branch.count());
            while to - from > 1 {
                let middle = from.midpoint(to);
                if (branch.key(middle), branch.rank(middle)) <= (key, rank) {
                    from = middle;
                } else {
                    to = middle;
                }
            }
            self.path.push((at, from));
            at = branch.child(from);
        }
    }

    /// Replaces the leaf at the end of the path, and updates the branches above it.
    fn commit<A: WriteAccess>(&mut self, change: &Change<'_, A>, leaf: Draft) {
        let mut draft = leaf;
        loop {
            let old = self.path.pop().map(|(block, _)| block);
            let Some((above, index)) = self.path.last().copied() else {
                return self.set_root(change, old, draft);
            };
            let Some(Block::Branch(parent)) = change.block(above) else { return };
            let (from, to) = join(change, &parent, index, &mut draft);
            (from..to).for_each(|place| self.retire(change, parent.child(place)));
            let mut fresh = self.write(change, draft);
            if let Some(first) = fresh.first_mut() {
                (first.key, first.rank) = self.begin(&parent, from, (first.key, first.rank));
            }
            draft = match (fresh.as_slice(), to - from) {
                ([only], 1) => match self.replace_in_place(change, *only) {
                    Some(draft) => draft,
                    None => return,
                },
                _ => {
                    let mut draft = Draft::of(above.level(), &Block::Branch(parent));
                    draft.split_at = (to == draft.entries.len()).then_some(draft.fanout::<A>());
                    draft.entries.splice(from..to, fresh);
                    draft
                }
            };
        }
    }

    /// Lower bound of the block of a parent's entry. It may be too low, so that it seldom has to change.
    fn begin<A: Access>(&self, parent: &Branch<'_, A>, index: usize, first: (u64, u64)) -> (u64, u64) {
        let before = (parent.key(index), parent.rank(index));
        let leftmost = self.path.iter().all(|(_, index)| *index == 0);
        match before <= first {
            true => before,
            false if leftmost => (0, 0),
            false => first,
        }
    }

    /// Writes `new` to the branch at the end of the path and updates the branches above in place. Returns the first
    /// branch that must be copied, if any, and leaves it at the end of the path.
    fn replace_in_place<A: WriteAccess>(&mut self, change: &Change<'_, A>, new: Entry) -> Option<Draft> {
        let mut new = new;
        loop {
            let (at, index) = self.path.last().copied()?;
            let Some(Block::Branch(branch)) = change.block(at) else { return None };
            match branch.replace(index, &new) {
                Replaced::InPlace => return None,
                Replaced::Raised => {}
                Replaced::Refused => {
                    let mut draft = Draft::of(at.level(), &Block::Branch(branch));
                    draft.entries.splice(index..=index, [new]);
                    return Some(draft);
                }
            }
            self.path.pop();
            let (above, index) = self.path.last().copied()?;
            let Some(Block::Branch(branch)) = change.block(above) else { return None };
            let old = branch.entry(index);
            let (end, second) = (old.end.max(new.end), old.second.max(new.second));
            new = Entry { end, second, marks: old.marks | new.marks, ..old };
        }
    }

    fn set_root<A: WriteAccess>(&mut self, change: &Change<'_, A>, old: Option<Ref>, draft: Draft) {
        if let Some(old) = old {
            self.retire(change, old);
        }
        let level = draft.level;
        let root = match (level, draft.entries.as_slice()) {
            (1.., [only]) => Ref(only.third),
            _ => {
                let mut parts = self.write(change, draft);
                if parts.len() > 1 {
                    parts = self.write(change, Draft::new(level + 1, parts));
                }
                parts.first().map_or(Ref::NONE, |e| Ref(e.third))
            }
        };
        store::<A>(change.areas.leaves, ROOT, root.0);
    }

    /// Writes a block, or two if the entries do not fit one; returns the parent's entries for them.
    fn write<A: WriteAccess>(&mut self, change: &Change<'_, A>, mut draft: Draft) -> Vec<Entry> {
        let fanout = draft.fanout::<A>();
        let tail = (draft.entries.len() > fanout).then(|| {
            let split_at = draft.split_at.unwrap_or(draft.entries.len() / 2).min(fanout);
            Draft::new(draft.level, draft.entries.split_off(split_at))
        });
        let mut written = Vec::with_capacity(2);
        written.extend(self.write_one(change, &draft));
        written.extend(tail.and_then(|tail| self.write_one(change, &tail)));
        written
    }

    fn write_one<A: WriteAccess>(&mut self, change: &Change<'_, A>, draft: &Draft) -> Option<Entry> {
        if draft.entries.is_empty() {
            return None;
        }
        let Areas { leaves, branches, .. } = change.areas;
        let number = if draft.level == 0 {
            let number = self.leaves.take(change.reclaimable, change.areas.leaf_count())?;
            Leaf::<A>::write(Leaf::<A>::cells(leaves, number)?, &draft.entries);
            number
        } else {
            let number = self.branches.take(change.reclaimable, change.areas.branch_count())?;
            Branch::<A>::write(Branch::<A>::cells(branches, number)?, &draft.entries);
            number
        };
        draft.summary(Ref::new(draft.level, number))
    }

    fn retire<A: Access>(&mut self, change: &Change<'_, A>, block: Ref) {
        let slots = if block.level() == 0 { &mut self.leaves } else { &mut self.branches };
        slots.give_back(change.reclaimable, change.next, block.number());
    }
}

impl<'a, A: Access> Change<'a, A> {
    fn block(&self, at: Ref) -> Option<Block<'a, A>> {
        Block::at(self.areas.leaves, self.areas.branches, at)
    }
}

/// The position at which to split a leaf to which `entry` is added at `at`, if bindings appear to be made in
/// ascending order there, perhaps by several processes at once, each with its own instances. Splitting there
/// leaves full leaves behind.
fn growing(entries: &[Entry], at: usize, entry: &Entry) -> Option<usize> {
    let Some(next) = entries.get(at) else { return Some(at) };
    let before = at.checked_sub(1).and_then(|before| entries.get(before))?;
    let run = before.end.checked_add(1) == Some(entry.key) && entry.end.checked_add(1) != Some(next.key);
    // Not so close to the start that leaves remain nearly empty.
    (run && at >= entries.len() / 4).then_some(at + 1)
}

/// Merges a sibling's entries into a block that has become small, so that removals do not leave many nearly empty
/// blocks. Returns the parent's entries that the block now stands for.
fn join<A: Access>(
    change: &Change<'_, A>,
    parent: &Branch<'_, A>,
    index: usize,
    draft: &mut Draft,
) -> (usize, usize) {
    let few = draft.fanout::<A>() * 3 / 4;
    let count = draft.entries.len();
    if count == 0 || count >= few {
        return (index, index + 1);
    }
    let sibling = |at: usize| {
        let there = at < parent.count();
        let block = there.then(|| change.block(parent.child(at))).flatten()?;
        (count + block.count() <= few).then(|| Draft::of(draft.level, &block))
    };
    if let Some(mut next) = sibling(index + 1) {
        draft.entries.append(&mut next.entries);
        return (index, index + 2);
    }
    if let Some(mut previous) = index.checked_sub(1).and_then(sibling) {
        previous.entries.append(&mut draft.entries);
        *draft = previous;
        return (index - 1, index + 1);
    }
    (index, index + 1)
}
