//! Items in the order of their last use.

use super::ids::ItemId;

/// A doubly linked list in a table by item, so that an item is moved without a search. The list is a ring through an
/// anchor, which has the first place; an item that is not listed is a ring of its own.
#[derive(Debug)]
pub(super) struct Recency(Vec<Links>);

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

const ANCHOR: u32 = 0;

/// The place of an item.
fn place(id: ItemId) -> u32 {
    id.0.saturating_add(1)
}

impl Default for Recency {
    fn default() -> Self {
        Self(vec![Links { before: ANCHOR, after: ANCHOR }])
    }
}

impl Recency {
    fn links(&self, place: u32) -> Links {
        self.0.get(place as usize).copied().unwrap_or(Links { before: place, after: place })
    }

    fn join(&mut self, before: u32, after: u32) {
        if let Some(links) = self.0.get_mut(before as usize) {
            links.after = after;
        }
        if let Some(links) = self.0.get_mut(after as usize) {
            links.before = before;
        }
    }

    /// Whether the item is listed.
    pub(super) fn contains(&self, id: ItemId) -> bool {
        self.links(place(id)).after != place(id)
    }

    /// Lists the item as the last one used.
    pub(super) fn push(&mut self, id: ItemId) {
        let place = place(id);
        while self.0.len() <= place as usize {
            // The number of items fits u32.
            let alone = self.0.len() as u32;
            self.0.push(Links { before: alone, after: alone });
        }
        self.remove(id);
        self.join(self.links(ANCHOR).before, place);
        self.join(place, ANCHOR);
    }

    /// Takes the item out of the list, if it is listed.
    pub(super) fn remove(&mut self, id: ItemId) {
        let place = place(id);
        let Links { before, after } = self.links(place);
        self.join(before, after);
        self.join(place, place);
    }

    /// The item that was not used for the longest time.
    pub(super) fn oldest(&self) -> Option<ItemId> {
        self.links(ANCHOR).after.checked_sub(1).map(ItemId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(mut list: Recency) -> Vec<u32> {
        std::iter::from_fn(|| {
            let oldest = list.oldest()?;
            list.remove(oldest);
            Some(oldest.0)
        })
        .collect()
    }

    #[test]
    fn least_recently_used_item_is_the_oldest() {
        let mut list = Recency::default();
        assert_eq!((list.oldest(), list.contains(ItemId(0))), (None, false));
        for id in [3, 0, 7, 5] {
            list.push(ItemId(id));
        }
        assert!(list.contains(ItemId(0)) && !list.contains(ItemId(1)) && !list.contains(ItemId(99)));
        list.push(ItemId(3));
        list.remove(ItemId(7));
        list.remove(ItemId(7));
        list.remove(ItemId(99));
        list.push(ItemId(9));
        assert_eq!(list.oldest(), Some(ItemId(0)));
        assert_eq!(drained(list), [0, 5, 3, 9]);
    }
}
