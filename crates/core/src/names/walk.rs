//! Walks over the bindings of a range that may have very many, in portions.

use super::replica::{Holders, Portions, Visited};
use super::table::{ListPosition, NameTable};
use crate::addr::{Binding, ServiceRange};

/// Bindings of one portion. Ours: some 0.1 ms.
pub(crate) const PORTION: usize = 1024;

/// A walk over the bindings that overlap a range. A binding that is there during the whole walk is visited exactly
/// once; one that comes or goes meanwhile once or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    portions: Portions,
    /// The next binding of a range of which some have been visited.
    within: Option<ListPosition>,
}

impl Walk {
    /// A walk that visits at least the bindings of these holders.
    pub(crate) const fn new(range: ServiceRange, holders: Holders) -> Self {
        Self { portions: Portions::new(range, holders), within: None }
    }
}

impl NameTable {
    /// Goes on with a walk by a portion of about `most` bindings; true at its end.
    pub(crate) fn walk(&self, walk: &mut Walk, most: usize, mut visit: impl FnMut(&Binding)) -> bool {
        let Walk { portions, within } = walk;
        let mut left = most;
        if let Some(at) = within.take() {
            (*within, left) = self.walk_range(at, left, &mut visit);
            if within.is_some() {
                return false;
            }
        }
        if left == 0 {
            return false;
        }
        // No other thread writes, so that no read fails.
        let is_over = self.view().next_portion(portions, left.max(16), |visited, left| {
            let Visited { record, has_others } = visited;
            let Some(binding) = self.binding(record) else { return 1 };
            if !has_others {
                visit(binding);
                return 1;
            }
            let (rest, after) = self.walk_range(ListPosition::newest(binding.range), left, &mut visit);
            *within = rest;
            left - after
        });
        is_over.unwrap_or(true) && within.is_none()
    }

    /// Visits `left` bindings of one range at most; returns the next one, and what is left of the number.
    fn walk_range(
        &self,
        at: ListPosition,
        mut left: usize,
        visit: &mut impl FnMut(&Binding),
    ) -> (Option<ListPosition>, usize) {
        for (here, binding) in self.listed_from(at) {
            if left == 0 {
                return (Some(here), 0);
            }
            left -= 1;
            visit(binding);
        }
        (None, left)
    }
}
