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

/// A range that a portion visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visited {
    /// The record of one of its bindings.
    pub(crate) record: u32,
    /// It has others.
    pub(crate) has_others: bool,
}

impl Portions {
    pub(crate) const fn new(range: ServiceRange, holders: Holders) -> Self {
        Self { range, holders, from: (0, 0) }
    }
}

/// A portion in progress.
struct Portion<'v, 'a, A: Access> {
    view: &'v View<'a, A>,
    query: Query,
    from: Position,
    /// What it may still cost: a block costs 1, a range what its visit returns.
    left: usize,
}

impl<A: Access> View<'_, A> {
    /// Goes on with a walk through ranges until it has cost `most` (at least 16, so that it gets on) or a little more.
    /// `visit` gets what is left of that, and returns the cost of its range. True at the end of the walk.
    ///
    /// # Errors
    /// [`ViewError`]; not for the writer of the table.
    pub(crate) fn next_portion(
        &self,
        portions: &mut Portions,
        most: usize,
        mut visit: impl FnMut(Visited, usize) -> usize,
    ) -> Result<bool, ViewError> {
        let (walked, from) = self.read_stable(|root| {
            let query = Query::new(portions.range, portions.holders.mark());
            let mut portion = Portion { view: self, query, from: portions.from, left: most };
            let walked = portion.walk(root, &mut visit)?;
            Ok((walked, portion.from))
        })?;
        portions.from = from;
        Ok(walked.is_continue())
    }
}

impl<A: Access> Portion<'_, '_, A> {
    /// Levels fall, so the recursion ends.
    fn walk(&mut self, at: Ref, visit: &mut impl FnMut(Visited, usize) -> usize) -> Reading<ControlFlow<()>> {
        if at.is_none() {
            return Ok(ControlFlow::Continue(()));
        }
        self.left = self.left.saturating_sub(1);
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
                    if self.left == 0 {
                        self.from = here;
                        return Ok(ControlFlow::Break(()));
                    }
                    let found = Found::of(&leaf, index);
                    let visited = Visited { record: found.meta.first(), has_others: found.many };
                    self.left = self.left.saturating_sub(visit(visited, self.left));
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
                    if self.left == 0 {
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
