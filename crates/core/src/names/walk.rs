//! Walks over the bindings that overlap a range, in portions: the receivers of a multicast, and the bindings that a new
//! subscription reports first (Spec: tipc.md §10.2).

use super::replica::{Holders, Portions};
use super::table::NameTable;
use crate::addr::{Binding, ServiceRange};

/// Ranges and bindings of one portion. Ours: some 0.1 ms.
pub(crate) const PORTION: usize = 1024;

/// A walk over the bindings that overlap a range. Bindings may come and go between its portions: one that stays is
/// visited once; one that goes is visited or not, and so is one that comes, unless the walk is a snapshot.
#[derive(Debug)]
pub(crate) struct Walk {
    portions: Portions,
    /// Whether all bindings are visited, not only the oldest of each distinct range.
    each: bool,
    /// Bindings of this age and newer ones are not visited.
    end: u64,
    /// The range whose bindings are being visited, and the age of the next one.
    rest: Option<(ServiceRange, u64)>,
}

impl Walk {
    /// A walk that visits at least the bindings of these holders.
    pub(crate) const fn new(range: ServiceRange, holders: Holders) -> Self {
        Self { portions: Portions::new(range, holders), each: true, end: u64::MAX, rest: None }
    }

    /// A walk over the bindings of a table as they are now: with `each` all of them, otherwise the oldest of each
    /// distinct range. Bindings that come meanwhile are not visited.
    pub(crate) fn snapshot(table: &NameTable, range: ServiceRange, each: bool) -> Self {
        Self { each, end: table.next_age(), ..Self::new(range, Holders::Any) }
    }

    /// Whether the walk visits a binding of this age, if it stays.
    pub(crate) const fn includes(&self, age: u64) -> bool {
        age < self.end
    }
}

impl NameTable {
    /// Goes on with a walk until its end (true), or until it has visited `budget` ranges and bindings, which is reduced
    /// by those. `visit` gets the age and the binding, in no order of age.
    pub(crate) fn walk(
        &self,
        walk: &mut Walk,
        budget: &mut usize,
        mut visit: impl FnMut(u64, &Binding),
    ) -> bool {
        let Walk { portions, each, end, rest } = walk;
        let Some(newest) = end.checked_sub(1) else { return true };
        if let Some((range, age)) = rest.take() {
            *rest = self.visit_range(range, age, budget, &mut visit);
        }
        if rest.is_some() {
            return false;
        }
        let is_over = self.view().next_portion(portions, budget, |record, budget| {
            let Some(range) = self.range_of(record) else { return };
            if *each {
                *rest = self.visit_range(range, newest, budget, &mut visit);
            } else if let Some((age, binding)) = self.bindings_of_range(range, newest).next_back() {
                visit(age, binding);
            }
        });
        // There is no other writer, so reads cannot be torn.
        is_over.unwrap_or(true) && rest.is_none()
    }

    /// Visits bindings of exactly a range from an age on; returns what is left.
    fn visit_range(
        &self,
        range: ServiceRange,
        newest: u64,
        budget: &mut usize,
        visit: &mut impl FnMut(u64, &Binding),
    ) -> Option<(ServiceRange, u64)> {
        for (age, binding) in self.bindings_of_range(range, newest) {
            let Some(left) = budget.checked_sub(1) else { return Some((range, age)) };
            *budget = left;
            visit(age, binding);
        }
        None
    }

    /// The bindings of a whole snapshot, oldest first.
    pub fn snapshot(&self, range: ServiceRange, each: bool) -> Vec<Binding> {
        let (mut walk, mut found) = (Walk::snapshot(self, range, each), Vec::new());
        self.walk(&mut walk, &mut usize::MAX.clone(), |age, binding| found.push((age, *binding)));
        found.sort_unstable_by_key(|(age, _)| *age);
        found.into_iter().map(|(_, binding)| binding).collect()
    }
}
