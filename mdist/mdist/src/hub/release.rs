//! The end of an item: a hold after its last close, or a final state from upstream.

use super::batch::{Batch, Kind};
use super::encode;
use super::ids::{ItemId, Now, SideId};
use super::item::{Event, Phase};
use super::state::{Hub, PORTION};

impl Hub {
    /// Releases an item that no side and no publisher needs: at once if it has ended, never existed upstream, or may
    /// not be held; otherwise after the hold.
    pub(super) fn release_if_unwanted(&mut self, now: Now, id: ItemId) {
        self.route_updates(id);
        let hold = self.options.hold;
        let Some(item) = self.items.get_mut(id) else { return };
        let has_ended = item.phase == Phase::Ended;
        if has_ended && !item.holders.is_empty() || !has_ended && !item.is_unwanted() {
            return;
        }
        let is_empty = item.link.is_none() && self.values.get(id).is_none();
        if has_ended || is_empty || item.spec.private || hold.is_zero() {
            self.close_and_free(now, id);
        } else if item.closing.is_none() {
            let end = now + hold;
            item.closing = Some(end);
            let age = item.age;
            self.holds.push_back((end, id, age));
        }
    }

    /// Releases the items whose hold is over.
    pub(super) fn end_holds(&mut self, now: Now) {
        for _ in 0..PORTION {
            let Some(&(end, id, age)) = self.holds.front().filter(|hold| hold.0 <= now) else { break };
            self.holds.pop_front();
            // An item that was opened and closed again has a later entry for its present hold.
            let due = self.items.aged(id, age).is_some_and(|i| i.closing == Some(end) && i.is_unwanted());
            if due {
                self.close_and_free(now, id);
            }
        }
    }

    fn close_and_free(&mut self, now: Now, id: ItemId) {
        self.dequeue(id);
        self.unlink(now, id, true);
        self.free(id);
    }

    /// Frees the item's place for another item.
    pub(super) fn free(&mut self, id: ItemId) {
        self.stop_awaiting(id);
        self.items.free(id);
        self.values.remove(id);
    }

    /// Ends an item for good: its upstream closed it, or it cannot be recovered.
    pub(super) fn end_item(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        self.dequeue(id);
        self.unlink(now, id, false);
        self.items.hide(id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.apply(Event::Ended);
        self.values.remove(id);
        for w in item.waiting.take().into_iter().chain(item.receiving.drain(..)).filter(|w| w.snapshot) {
            let bytes = encode::status(&mut self.scratch, item.spec.domain, &item.state.borrow());
            out.push(Kind::Refused, w.side, id, w.token, bytes);
        }
        if !item.holders.is_empty() {
            out.push_bare(Kind::Gone, SideId::ALL, id, 0);
        }
        self.release_if_unwanted(now, id);
    }
}
