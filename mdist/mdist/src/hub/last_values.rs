//! The items' last values: their records, the memory that these take, and updates that wait to be applied to them.

use rssl::rwf::{Refresh, Status};

use super::ids::ItemId;
use super::item::{Item, Phase};
use super::recency::Recency;
use crate::cache::{self, Cache, FieldTypes, Image, Limits, Record, is_plain_update};

/// Last values by item. They are kept apart from the items, of which an update needs nothing else.
#[derive(Debug)]
pub(super) struct LastValues {
    cache: Cache,
    records: Vec<Option<Record>>,
    /// Sum of all records' footprints.
    bytes: usize,
    /// The bytes above which records of items that no side holds are dropped; `None`: no limit.
    budget: Option<usize>,
    /// Items with a record that no side holds, by their last use.
    unheld: Recency,
    pub(super) pending: PendingUpdates,
}

impl LastValues {
    /// A cache with these limits of a record, and `budget` bytes for all records together (`None`: no limit).
    pub(super) fn new(types: FieldTypes, limits: Limits, budget: Option<usize>) -> Self {
        Self {
            cache: Cache::new(types, limits),
            records: Vec::new(),
            bytes: 0,
            budget,
            unheld: Recency::default(),
            pending: PendingUpdates::default(),
        }
    }

    pub(super) fn set_types(&mut self, types: FieldTypes) {
        self.cache.set_types(types);
    }

    /// The item's record; `None` with the cache off, and before the first refresh.
    #[inline]
    pub(super) fn get(&self, id: ItemId) -> Option<&Record> {
        self.records.get(id.index())?.as_ref()
    }

    /// Whether the cache has a complete image of this item.
    pub(super) fn have_image(&self, id: ItemId, item: &Item) -> bool {
        item.image.is_known()
            && item.phase != Phase::Receiving
            && self.get(id).is_some_and(Record::is_complete)
    }

    /// Applies a refresh, or a part of one; an item without a record gets one.
    ///
    /// # Errors
    /// As [`Cache::refresh`].
    pub(super) fn refresh(&mut self, id: ItemId, refresh: &Refresh<'_>) -> cache::Result<()> {
        let at = id.index();
        if self.records.len() <= at {
            self.records.resize_with(at + 1, || None);
        }
        let Some(place) = self.records.get_mut(at) else { return Ok(()) };
        let before = place.as_ref().map_or(0, Record::footprint);
        let record = place.get_or_insert_default();
        let result = self.cache.refresh(record, refresh);
        self.bytes = self.bytes + record.footprint() - before;
        result
    }

    /// Applies an update, or a message of a post, if the item has a record. This is the hot path.
    ///
    /// # Errors
    /// As [`Cache::message`].
    #[inline]
    pub(super) fn message(&mut self, id: ItemId, message: &[u8]) -> cache::Result<()> {
        let Some(record) = self.records.get_mut(id.index()).and_then(Option::as_mut) else { return Ok(()) };
        let is_plain = is_plain_update(message);
        let bytes = |record: &Record| if is_plain { record.value_bytes() } else { record.footprint() };
        let before = bytes(record);
        let result = self.cache.message(record, message);
        self.bytes = self.bytes + bytes(record) - before;
        result
    }

    /// Applies a status, if the item has a record.
    ///
    /// # Errors
    /// As [`Cache::status`].
    pub(super) fn status(&mut self, id: ItemId, status: &Status<'_>) -> cache::Result<()> {
        self.change(id, |cache, record| cache.status(record, status)).unwrap_or(Ok(()))
    }

    /// Moves the item to another group, if it has a record.
    pub(super) fn set_group(&mut self, id: ItemId, group: &[u8]) {
        self.change(id, |_, record| record.set_group(group));
    }

    fn change<T>(&mut self, id: ItemId, change: impl FnOnce(&mut Cache, &mut Record) -> T) -> Option<T> {
        let record = self.records.get_mut(id.index())?.as_mut()?;
        let before = record.footprint();
        let result = change(&mut self.cache, record);
        self.bytes = self.bytes + record.footprint() - before;
        Some(result)
    }

    /// Calls `f` with each part of the item's image, of at most `max_part` bytes.
    ///
    /// # Errors
    /// As [`Cache::image`]. An item without a record has no part.
    pub(super) fn image(
        &mut self,
        id: ItemId,
        image: &Image<'_>,
        max_part: usize,
        f: impl FnMut(&[u8]),
    ) -> cache::Result<()> {
        let Some(record) = self.records.get(id.index()).and_then(Option::as_ref) else { return Ok(()) };
        self.cache.image(record, image, max_part, f)
    }

    /// Drops the item's record, if it has one.
    pub(super) fn remove(&mut self, id: ItemId) {
        if let Some(record) = self.records.get_mut(id.index()).and_then(Option::take) {
            self.bytes -= record.footprint();
            self.unheld.remove(id);
        }
    }

    /// Notes whether a side holds the item. One that is released is used now.
    pub(super) fn set_held(&mut self, id: ItemId, is_held: bool) {
        if is_held || self.get(id).is_none() {
            self.unheld.remove(id);
        } else if !self.unheld.contains(id) {
            self.unheld.push(id);
        }
    }

    /// Notes that the item's values were sent to a consumer.
    pub(super) fn used(&mut self, id: ItemId) {
        if self.unheld.contains(id) {
            self.unheld.push(id);
        }
    }

    /// The item whose record is to be dropped because the records exceed the budget: the least recently used one that
    /// no side holds. `None`: they are within the budget, or sides hold all.
    #[inline]
    pub(super) fn to_evict(&self) -> Option<ItemId> {
        self.budget.filter(|budget| self.bytes > *budget).and_then(|_| self.unheld.oldest())
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Updates that wait to be applied to their records, in order.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates {
    /// The messages, one after the other.
    pub(super) bytes: Vec<u8>,
    /// Item and length of each.
    pub(super) list: Vec<(ItemId, usize)>,
}
