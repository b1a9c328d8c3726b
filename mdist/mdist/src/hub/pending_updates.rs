//! Last values of the items, and updates on their way to them.
//!
//! The records of 100,000 items are not in the processor's cache, and fetching one from memory takes longer than to apply
//! an update. So updates wait a little, and then are applied together: first all records are touched, so that they are
//! fetched at the same time. Nobody can tell: whatever else the hub is asked to do, it does what waits first.

use std::hint::black_box;

use super::ids::ItemId;
use super::item::Item;
use super::state::Hub;
use crate::cache::Record;

/// Updates that wait, at most: enough to hide the memory's latency, few enough that what was fetched is still there.
const MOST: usize = 32;
/// A longer message does not wait, bytes.
const LONGEST: usize = 1024;

/// Last values by item. Apart from the items, of which an update needs nothing else.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Option<Record>>);

impl Records {
    /// `None` with the cache off, and before the first refresh.
    #[inline]
    pub(super) fn get(&self, id: ItemId) -> Option<&Record> {
        self.0.get(id.index())?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ItemId) -> Option<&mut Record> {
        self.0.get_mut(id.index())?.as_mut()
    }

    /// Gives an item that exists its record.
    pub(super) fn put(&mut self, id: ItemId, record: Record) {
        let at = id.index();
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(record);
        }
    }

    /// Takes the record away, if there is one.
    pub(super) fn take(&mut self, id: ItemId) -> Option<Record> {
        self.0.get_mut(id.index())?.take()
    }

    /// The cache can give the image of this item.
    pub(super) fn have_image(&self, id: ItemId, item: &Item) -> bool {
        item.imaged && !item.partial && self.get(id).is_some_and(Record::is_complete)
    }
}

/// Updates that wait.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates {
    bytes: Vec<u8>,
    /// Whose they are, and how long.
    list: Vec<(ItemId, usize)>,
}

impl Hub {
    /// Takes an update for the cache.
    #[inline]
    pub(super) fn keep_update(&mut self, id: ItemId, message: &[u8]) {
        if message.len() > LONGEST {
            self.apply_pending_first();
            self.keep(id, message);
            return;
        }
        self.pending_updates.bytes.extend_from_slice(message);
        self.pending_updates.list.push((id, message.len()));
        if self.pending_updates.list.len() >= MOST {
            self.apply_pending();
        }
    }

    /// Applies what waits. To be called before anything but an update is done.
    #[inline]
    pub(super) fn apply_pending_first(&mut self) {
        if !self.pending_updates.list.is_empty() {
            self.apply_pending();
        }
    }

    fn apply_pending(&mut self) {
        let mut kept = std::mem::take(&mut self.pending_updates);
        let records = || kept.list.iter().filter_map(|(id, _)| self.records.get(*id));
        // The first round reads where the second has to read.
        black_box(records().map(Record::touch).sum::<usize>());
        black_box(records().map(Record::touch_values).sum::<usize>());
        let mut rest = kept.bytes.as_slice();
        for (id, len) in kept.list.drain(..) {
            let Some((message, after)) = rest.split_at_checked(len) else { break };
            rest = after;
            self.keep(id, message);
        }
        kept.bytes.clear();
        self.pending_updates = kept;
    }

    #[inline]
    fn keep(&mut self, id: ItemId, message: &[u8]) {
        if let Some(record) = self.records.get_mut(id)
            && self.cache.message(record, message).is_err()
        {
            self.uncache(id);
        }
    }
}
