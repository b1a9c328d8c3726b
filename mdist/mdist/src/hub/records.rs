//! The items' last values, and updates that wait to be applied to them.

use super::ids::ItemId;
use super::item::{Item, Phase};
use crate::cache::Record;

/// Last values by item. They are kept apart from the items, of which an update needs nothing else.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Option<Record>>);

impl Records {
    /// The item's record; `None` with the cache off, and before the first refresh.
    #[inline]
    pub(super) fn get(&self, id: ItemId) -> Option<&Record> {
        self.0.get(id.index())?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ItemId) -> Option<&mut Record> {
        self.0.get_mut(id.index())?.as_mut()
    }

    /// Adds the record of an item.
    pub(super) fn put(&mut self, id: ItemId, record: Record) {
        let at = id.index();
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(place) = self.0.get_mut(at) {
            *place = Some(record);
        }
    }

    /// Takes the record away, if the item has one.
    pub(super) fn take(&mut self, id: ItemId) -> Option<Record> {
        self.0.get_mut(id.index())?.take()
    }

    /// Whether the cache has a complete image of this item.
    pub(super) fn have_image(&self, id: ItemId, item: &Item) -> bool {
        item.image.is_known()
            && item.phase != Phase::Receiving
            && self.get(id).is_some_and(Record::is_complete)
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
