//! Changes of the tree, by copying what changes.

use super::blocks::{Block, Branch, Leaf, Replaced, branch_fanout, branch_len, leaf_fanout, leaf_len};
use super::layout::{Access, Entry, Mark, ROOT, Ref, WriteAccess, load, store};
use super::memory::{Areas, Size};
use super::slots::Slots;

/// A block to be written.
struct Draft {
    level: u32,
    entries: Vec<Entry>,
    /// Where to cut if the entries do not fit into one block: after entries that more will follow. Else in the middle.
    cut: Option<usize>,
}

impl Draft {
    const fn new(level: u32, entries: Vec<Entry>) -> Self {
        Self { level, entries, cut: None }
    }

    fn of<A: Access>(level: u32, block: &Block<'_, A>) -> Self {
        let mut entries = Vec::with_capacity(block.count() + 2);
        entries.extend(block.entries());
        Self::new(level, entries)
    }

    fn fanout<A: Access>(&self) -> usize {
        if self.level == 0 { leaf_fanout::<A>() } else { branch_fanout::<A>() }
    }

    /// What the block above has to know of this one, if it is written as `block`.
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

/// The areas at work, and the versions that the change lies between.
pub(super) struct Change<'a, A: Access> {
    pub(super) areas: Areas<'a, A>,
    /// The newest version whose readers have all noticed that memory was used again.
    pub(super) settled: u64,
    /// The version that this change leads to.
    pub(super) next: u64,
}

/// The writer's side of the tree: which blocks are free, and the way down to the leaf under work.
#[derive(Debug, Default)]
pub(super) struct Tree {
    leaves: Slots,
    branches: Slots,
    /// Blocks from the root to a leaf, and in each the index of the entry that leads on.
    path: Vec<(Ref, usize)>,
}

/// Leaves that one change may write: a split one.
const LEAVES_PER_CHANGE: u32 = 2;

/// Branches that one change may write: a split one on each level, and a new root.
fn branches_per_change<A: Access>(areas: &Areas<'_, A>) -> u32 {
    2 * root(areas).level() + 1
}

fn root<A: Access>(areas: &Areas<'_, A>) -> Ref {
    Ref(load::<A>(areas.leaves, ROOT))
}

impl Tree {
    /// True if memory that is free was free for long enough to write any change.
    pub(super) fn can_change<A: Access>(&self, areas: &Areas<'_, A>, settled: u64) -> bool {
        self.leaves.can_take(LEAVES_PER_CHANGE, settled, areas.leaf_count())
            && self.branches.can_take(branches_per_change(areas), settled, areas.branch_count())
    }

    /// True if a change that adds an entry leaves enough for changes that remove one.
    pub(super) fn has_room<A: Access>(&self, areas: &Areas<'_, A>) -> bool {
        self.missing(areas, 0) == (0, 0)
    }

    /// Makes `size` large enough for [`Tree::has_room`], with a reserve: without one, memory would be used again after
    /// every few changes, at the cost of readers.
    pub(super) fn enlarge<A: Access>(&self, areas: &Areas<'_, A>, size: &mut Size) {
        let (leaves, branches) = self.missing(areas, 16);
        size.leaves = size.leaves.max(leaf_len::<A>()) + leaves as usize * leaf_len::<A>();
        size.branches += branches as usize * branch_len::<A>();
    }

    /// Blocks of each kind that are missing, if one in `reserve` is to be free beyond what is necessary (0: none).
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

    /// Cells in use.
    pub(super) const fn used<A: Access>(&self) -> (usize, usize) {
        let branches = self.branches.high() as usize - 1;
        (self.leaves.high() as usize * leaf_len::<A>(), branches * branch_len::<A>())
    }

    /// Adds a leaf entry.
    pub(super) fn insert<A: WriteAccess>(&mut self, change: &Change<'_, A>, entry: Entry) {
        let mut draft = self.descend(change, entry.key, entry.rank).unwrap_or(Draft::new(0, Vec::new()));
        let at = draft.entries.partition_point(|e| (e.key, e.rank) < (entry.key, entry.rank));
        draft.cut = growing(&draft.entries, at, &entry);
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

    /// Goes down to the leaf where `key` and `rank` belong; `None` if the tree is empty.
    fn descend<A: Access>(&mut self, change: &Change<'_, A>, key: u64, rank: u64) -> Option<Draft> {
        self.path.clear();
        let mut at = root(&change.areas);
        loop {
            let block = change.block(at)?;
            let Block::Branch(branch) = &block else {
                self.path.push((at, 0));
                return Some(Draft::of(at.level(), &block));
            };
            // The last entry that does not begin behind it.
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

    /// Puts a changed leaf in place of the one at the end of the path, and above it what follows from that.
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
                    draft.cut = (to == draft.entries.len()).then_some(draft.fanout::<A>());
                    draft.entries.splice(from..to, fresh);
                    draft
                }
            };
        }
    }

    /// Where the block of a parent's entry is said to begin. It may be too low, and so it seldom has to be changed.
    fn begin<A: Access>(&self, parent: &Branch<'_, A>, index: usize, first: (u64, u64)) -> (u64, u64) {
        let before = (parent.key(index), parent.rank(index));
        let leftmost = self.path.iter().all(|(_, index)| *index == 0);
        match before <= first {
            true => before,
            false if leftmost => (0, 0),
            false => first,
        }
    }

    /// Puts `new` into the branch at the end of the path, and what follows from it into those above, without copying
    /// them. Returns the first that must be copied, if any, and leaves it at the end of the path.
    fn replace_in_place<A: WriteAccess>(&mut self, change: &Change<'_, A>, new: Entry) -> Option<Draft> {
        let mut new = new;
        loop {
            let (at, index) = self.path.last().copied()?;
            let Some(Block::Branch(branch)) = change.block(at) else { return None };
            match branch.replace(index, &new) {
                Replaced::Unnoticed => return None,
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

    /// Writes a block, or two if the entries do not fit into one; returns what the block above has to know of each.
    fn write<A: WriteAccess>(&mut self, change: &Change<'_, A>, mut draft: Draft) -> Vec<Entry> {
        let fanout = draft.fanout::<A>();
        let tail = (draft.entries.len() > fanout).then(|| {
            let cut = draft.cut.unwrap_or(draft.entries.len() / 2).min(fanout);
            Draft::new(draft.level, draft.entries.split_off(cut))
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
            let number = self.leaves.take(change.settled, change.areas.leaf_count())?;
            Leaf::<A>::write(Leaf::<A>::cells(leaves, number)?, &draft.entries);
            number
        } else {
            let number = self.branches.take(change.settled, change.areas.branch_count())?;
            Branch::<A>::write(Branch::<A>::cells(branches, number)?, &draft.entries);
            number
        };
        draft.summary(Ref::new(draft.level, number))
    }

    fn retire<A: Access>(&mut self, change: &Change<'_, A>, block: Ref) {
        let slots = if block.level() == 0 { &mut self.leaves } else { &mut self.branches };
        slots.give_back(change.next, block.number());
    }
}

impl<'a, A: Access> Change<'a, A> {
    fn block(&self, at: Ref) -> Option<Block<'a, A>> {
        Block::at(self.areas.leaves, self.areas.branches, at)
    }
}

/// Where to cut a leaf to which `entry` is added at `at`, if it looks as if bindings were made in ascending order there,
/// perhaps by several processes at the same time, each with instances of its own: such a run leaves full leaves behind.
fn growing(entries: &[Entry], at: usize, entry: &Entry) -> Option<usize> {
    let Some(next) = entries.get(at) else { return Some(at) };
    let before = at.checked_sub(1).and_then(|before| entries.get(before))?;
    let run = before.end.checked_add(1) == Some(entry.key) && entry.end.checked_add(1) != Some(next.key);
    // Not so near to the start that leaves stay nearly empty.
    (run && at >= entries.len() / 4).then_some(at + 1)
}

/// Takes a sibling's entries into a block that has become small, so that removals do not leave many nearly empty ones
/// behind. Returns the parent's entries that the block stands for now.
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
