//! Walks through the tree in portions. Between two portions the table may change.

use core::ops::ControlFlow;

use super::blocks::Block;
use super::layout::{Access, Mark, Ref};
use super::view::{Found, Query, Reading, Torn, View, ViewError, below};
use crate::addr::ServiceRange;

/// The bindings that a walk is for; it may visit others of the same range too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holders {
    /// All.
    Any,
    /// Those of sockets of this node.
    Local,
    /// Those of sockets of other nodes.
    Remote,
}

impl Holders {
    pub(super) const fn mark(self) -> Option<Mark> {
        match self {
            Self::Any => None,
            Self::Local => Some(Mark::Local),
            Self::Remote => Some(Mark::Remote),
        }
    }
}

/// A range's place in the order of the tree: its key and its rank.
type Position = (u64, u64);

/// The ranges that overlap a range, from a position on.
#[derive(Clone, Debug)]
pub(crate) struct Portions {
    range: ServiceRange,
    holders: Holders,
    /// The first range that has not been visited is here or later.
    from: Position,
}

impl Portions {
    pub(crate) const fn new(range: ServiceRange, holders: Holders) -> Self {
        Self { range, holders, from: (0, 0) }
    }
}

/// Blocks of a portion beyond its ranges: more than the tree has levels, so that each portion gets on.
const MORE_BLOCKS: usize = 16;

/// A portion in progress.
struct Portion<'v, 'a, A: Access> {
    view: &'v View<'a, A>,
    query: Query,
    from: Position,
    /// Blocks that it may still visit: some have none of the ranges.
    blocks: usize,
    /// What ranges may still cost.
    budget: &'v mut usize,
}

impl<A: Access> View<'_, A> {
    /// Goes on with a walk through ranges, each of which costs 1 of the `budget`. `visit` gets the record of one of its
    /// bindings, and what is left of the budget, which it reduces by what it does. True at the end of the walk.
    ///
    /// # Errors
    /// [`ViewError`]; not for the writer of the table.
    pub(crate) fn next_portion(
        &self,
        portions: &mut Portions,
        budget: &mut usize,
        mut visit: impl FnMut(u32, &mut usize),
    ) -> Result<bool, ViewError> {
        let (walked, from) = self.read_stable(|root| {
            let query = Query::new(portions.range, portions.holders.mark());
            let blocks = budget.saturating_add(MORE_BLOCKS);
            let mut portion =
                Portion { view: self, query, from: portions.from, blocks, budget: &mut *budget };
            let walked = portion.walk(root, &mut visit)?;
            Ok((walked, portion.from))
        })?;
        portions.from = from;
        Ok(walked.is_continue())
    }
}

impl<A: Access> Portion<'_, '_, A> {
    /// Levels fall, so the recursion ends.
    fn walk(&mut self, at: Ref, visit: &mut impl FnMut(u32, &mut usize)) -> Reading<ControlFlow<()>> {
        if at.is_none() {
            return Ok(ControlFlow::Continue(()));
        }
        self.blocks = self.blocks.saturating_sub(1);
        let areas = &self.view.areas;
        match Block::<A>::at(areas.leaves, areas.branches, at).ok_or(Torn::Invalid)? {
            Block::Leaf(leaf) => {
                let mut hits = leaf.reaching(self.query.from, self.query.mark);
                while hits != 0 {
                    let index = hits.trailing_zeros() as usize;
                    hits &= hits - 1;
                    let here = (leaf.key(index), leaf.rank(index));
                    if here.0 > self.query.to {
                        break;
                    }
                    if here < self.from {
                        continue;
                    }
                    let Some(left) = self.budget.checked_sub(1) else {
                        self.from = here;
                        return Ok(ControlFlow::Break(()));
                    };
                    *self.budget = left;
                    visit(Found::of(&leaf, index).meta.first(), self.budget);
                    self.from = behind(here);
                }
            }
            Block::Branch(branch) => {
                let begin = |index| (branch.key(index), branch.rank(index));
                let mut first = branch.first_reaching(self.query.from, self.query.mark == Some(Mark::Local));
                while first + 1 < branch.count() && begin(first + 1) <= self.from {
                    first += 1;
                }
                for index in first..branch.count() {
                    if branch.key(index) > self.query.to {
                        break;
                    }
                    if !branch.reaches(index, self.query.from, self.query.mark) {
                        continue;
                    }
                    if self.blocks == 0 {
                        self.from = self.from.max(begin(index));
                        return Ok(ControlFlow::Break(()));
                    }
                    let child = below(at, branch.child(index))?;
                    if self.walk(child, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The next position.
const fn behind((key, rank): Position) -> Position {
    match rank.checked_add(1) {
        Some(rank) => (key, rank),
        None => (key.saturating_add(1), 0),
    }
}
