//! The first events of a subscription: the bindings that existed when it began, oldest first. They are found in parts,
//! between which bindings come and go; the events are those of a subscription that finds all of them at once.

use core::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::interests::Entry;
use crate::addr::{Binding, ServiceRange};
use crate::names::{Change, NameTable, Walk};
use crate::wire::{EVENT_LEN, EventKind, Filter};

/// The first events of a subscription in preparation.
#[derive(Debug)]
pub(super) struct Initial {
    entry: Entry,
    walk: Walk,
    has_found_all: bool,
    /// Bindings by age. A binding that is found and then withdrawn is in it twice.
    found: BinaryHeap<Reverse<(u64, Binding)>>,
    /// Ranges whose oldest binding has been withdrawn, if only that one is reported: the next one must not be.
    replaced: BTreeSet<ServiceRange>,
    /// Age of the last binding that has been reported.
    reported: Option<u64>,
    /// Events that come behind the first ones.
    behind: VecDeque<[u8; EVENT_LEN]>,
}

impl Initial {
    pub(super) fn new(entry: Entry, table: &NameTable) -> Self {
        Self {
            entry,
            walk: Walk::snapshot(table, entry.range, entry.filter.has(Filter::PORTS)),
            has_found_all: false,
            found: BinaryHeap::new(),
            replaced: BTreeSet::new(),
            reported: None,
            behind: VecDeque::new(),
        }
    }

    /// The service type of the subscription.
    pub(super) fn service(&self) -> u32 {
        self.entry.range.service
    }

    /// What has to be freed in portions.
    pub(super) fn into_ranges(self) -> BTreeSet<ServiceRange> {
        self.replaced
    }

    /// Items that wait, each of which takes about as much memory as an event.
    pub(super) fn waiting(&self) -> usize {
        self.found.len() + self.replaced.len() + self.behind.len()
    }

    /// Whether only events are left.
    pub(super) fn has_found_all(&self) -> bool {
        self.has_found_all
    }

    /// Finds more bindings; true if there are no more.
    pub(super) fn find(&mut self, table: &NameTable, budget: &mut usize) -> bool {
        let Self { entry, walk, found, replaced, .. } = self;
        self.has_found_all = table.walk(walk, budget, |age, binding| {
            if !replaced.contains(&binding.range) && entry.wants(binding, true) {
                found.push(Reverse((age, *binding)));
            }
        });
        self.has_found_all
    }

    /// Keeps a binding that is withdrawn and may not have been found yet.
    pub(super) fn keep_withdrawn(&mut self, change: &Change) {
        let binding = change.binding;
        let is_missing = !self.has_found_all && self.walk.includes(change.age);
        if !is_missing || !self.entry.range.overlaps(&binding.range) {
            return;
        }
        let is_first =
            self.entry.filter.has(Filter::PORTS) || change.is_oldest && self.replaced.insert(binding.range);
        if is_first && self.entry.wants(&binding, true) {
            self.found.push(Reverse((change.age, binding)));
        }
    }

    /// Adds an event behind the first ones.
    pub(super) fn add_behind(&mut self, event: [u8; EVENT_LEN]) {
        self.behind.push_back(event);
    }

    /// The next event, once all bindings have been found.
    pub(super) fn next_event(&mut self) -> Option<[u8; EVENT_LEN]> {
        while let Some(Reverse((age, binding))) = self.found.pop() {
            if self.reported.replace(age) != Some(age) {
                return Some(self.entry.event(EventKind::Published, binding.range, binding.port));
            }
        }
        self.behind.pop_front()
    }
}
