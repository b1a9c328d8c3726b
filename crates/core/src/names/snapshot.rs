//! The bindings that a new subscription reports first, found in parts. Spec: tipc.md §10.2.

use core::ops::ControlFlow;

use super::NameTable;
use super::replica::RangePosition;
use crate::addr::{Binding, ServiceRange};

/// A walk over the bindings that overlap a range, those that exist when it begins. Bindings may come and go between
/// its parts: one that stays is visited, one that goes may be visited or not, and a new one is not.
#[derive(Debug)]
pub struct SnapshotWalk {
    range: ServiceRange,
    each_port: bool,
    /// Age of the next binding when the walk began.
    end: u64,
    /// The last range that the walk has reached.
    after: Option<RangePosition>,
    /// That range, if it has bindings left, and the age of the next one.
    rest: Option<(ServiceRange, u64)>,
}

impl SnapshotWalk {
    /// Whether a binding of this age existed when the walk began.
    #[must_use]
    pub fn includes(&self, age: u64) -> bool {
        age < self.end
    }
}

impl NameTable {
    /// Begins a walk over the bindings that overlap a range: with `each_port` all of them, otherwise the oldest of each
    /// distinct range.
    #[must_use]
    pub fn begin_snapshot(&self, range: ServiceRange, each_port: bool) -> SnapshotWalk {
        SnapshotWalk { range, each_port, end: self.next_age(), after: None, rest: None }
    }

    /// Goes on with a walk until it has visited all bindings (true), or `budget` ranges and bindings. `visit` gets the
    /// age and the binding, in no order of age.
    pub fn continue_snapshot(
        &self,
        walk: &mut SnapshotWalk,
        budget: &mut usize,
        mut visit: impl FnMut(u64, Binding),
    ) -> bool {
        let Some(newest) = walk.end.checked_sub(1) else { return true };
        if let Some((range, age)) = walk.rest.take() {
            walk.rest = self.visit_range(range, age, budget, &mut visit);
        }
        if walk.rest.is_some() {
            return false;
        }
        let (mut is_complete, SnapshotWalk { range, each_port, after, rest, .. }) = (true, walk);
        let visited = self.view().for_each_range(*range, *after, |position, record| {
            let Some(left) = budget.checked_sub(1) else {
                is_complete = false;
                return ControlFlow::Break(());
            };
            (*budget, *after) = (left, Some(position));
            let Some(found) = self.range_of(record) else { return ControlFlow::Continue(()) };
            if *each_port {
                *rest = self.visit_range(found, newest, budget, &mut visit);
            } else if let Some((age, binding)) = self.bindings_of_range(found, newest).next_back() {
                visit(age, binding);
            }
            is_complete = rest.is_none();
            if is_complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // There is no other writer, so reads cannot be torn.
        is_complete || visited.is_err()
    }

    /// Visits bindings of exactly a range from an age on; returns what is left.
    fn visit_range(
        &self,
        range: ServiceRange,
        newest: u64,
        budget: &mut usize,
        visit: &mut impl FnMut(u64, Binding),
    ) -> Option<(ServiceRange, u64)> {
        for (age, binding) in self.bindings_of_range(range, newest) {
            let Some(left) = budget.checked_sub(1) else { return Some((range, age)) };
            *budget = left;
            visit(age, binding);
        }
        None
    }

    /// The bindings of a whole walk, oldest first.
    #[must_use]
    pub fn snapshot(&self, range: ServiceRange, each_port: bool) -> Vec<Binding> {
        let mut found: Vec<(u64, Binding)> = Vec::new();
        let mut walk = self.begin_snapshot(range, each_port);
        self.continue_snapshot(&mut walk, &mut usize::MAX.clone(), |age, binding| found.push((age, binding)));
        found.sort_unstable_by_key(|(age, _)| *age);
        found.into_iter().map(|(_, binding)| binding).collect()
    }
}
