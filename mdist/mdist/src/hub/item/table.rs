//! The table of items.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::lifecycle::{Event, Phase};
use super::{Item, ItemId, ItemSpec, Waiters};

/// All items of a hub.
#[derive(Debug, Default)]
pub(in crate::hub) struct Items {
    list: Vec<Item>,
    free: VecDeque<u32>,
    streams: HashMap<Arc<ItemSpec>, ItemId>,
    snapshots: HashMap<Arc<ItemSpec>, ItemId>,
    /// Number of the last sweep that has begun.
    sweeps: u32,
}

impl Items {
    /// Number of places in use.
    pub(in crate::hub) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// The items in the first `count` places.
    pub(in crate::hub) fn in_places(&self, count: usize) -> impl Iterator<Item = &Item> {
        self.list.iter().take(count).filter(|item| item.phase != Phase::Free)
    }

    pub(in crate::hub) fn get(&self, id: ItemId) -> Option<&Item> {
        self.list.get(id.index()).filter(|i| i.phase != Phase::Free)
    }

    #[inline]
    pub(in crate::hub) fn get_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.list.get_mut(id.index()).filter(|i| i.phase != Phase::Free)
    }

    /// The open item in the place, if it is still the one with this age.
    pub(in crate::hub) fn aged(&mut self, id: ItemId, age: u32) -> Option<&mut Item> {
        self.get_mut(id).filter(|i| i.age == age && i.phase.is_open())
    }

    /// The open item that is shared under this spec.
    pub(in crate::hub) fn find(&self, spec: &ItemSpec) -> Option<ItemId> {
        self.streams.get(spec).copied()
    }

    /// The snapshot under way that is shared under this spec.
    pub(in crate::hub) fn find_snapshot(&self, spec: &ItemSpec) -> Option<ItemId> {
        self.snapshots.get(spec).copied()
    }

    /// Begins a sweep over the present items; returns its number, and the number of places.
    pub(in crate::hub) fn begin_sweep(&mut self) -> (u32, u32) {
        self.sweeps += 1;
        // The number of items fits u32.
        (self.sweeps, self.list.len() as u32)
    }

    /// Adds an item. Private items are not found by their spec.
    pub(in crate::hub) fn add(&mut self, spec: ItemSpec, snapshot: bool) -> ItemId {
        let spec = Arc::new(spec);
        // The caller keeps the number of items below its limit, which fits u32.
        let id = ItemId(self.free.pop_front().unwrap_or(self.list.len() as u32));
        if !spec.private {
            let map = if snapshot { &mut self.snapshots } else { &mut self.streams };
            map.insert(Arc::clone(&spec), id);
        }
        match self.list.get_mut(id.index()) {
            Some(place) => *place = Item::new(spec, place.age.wrapping_add(1), self.sweeps, snapshot),
            None => self.list.push(Item::new(spec, 0, self.sweeps, snapshot)),
        }
        id
    }

    /// Removes the item from the lookup by spec.
    pub(in crate::hub) fn hide(&mut self, id: ItemId) {
        let Some(item) = self.list.get(id.index()) else { return };
        let map = if item.snapshot { &mut self.snapshots } else { &mut self.streams };
        if map.get(&item.spec) == Some(&id) {
            map.remove(&item.spec);
        }
    }

    /// Frees the place of an item for another one.
    pub(in crate::hub) fn free(&mut self, id: ItemId) {
        self.hide(id);
        let Some(item) = self.get_mut(id) else { return };
        item.apply(Event::Freed);
        item.holders = Vec::new();
        item.waiting = Waiters::default();
        item.receiving = Vec::new();
        self.free.push_back(id.0);
    }

    /// Ids of the open items for which `f` holds.
    pub(in crate::hub) fn open_where(&self, f: impl Fn(&Item) -> bool) -> Vec<ItemId> {
        let open = self.list.iter().enumerate().filter(|(_, i)| i.phase.is_open() && f(i));
        open.map(|(n, _)| ItemId(n as u32)).collect()
    }

    /// The open items.
    pub(in crate::hub) fn open(&self) -> impl Iterator<Item = &Item> {
        self.list.iter().filter(|item| item.phase.is_open())
    }
}
