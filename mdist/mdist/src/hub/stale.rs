//! The watchdog of stale items: requests an item again that stays suspect while its upstream is up.
//!
//! A source that has reported an item stale has to send a new image by itself. An item whose image was lost on the way
//! would stay suspect for ever, so the hub requests it again: rarely, because most stale items are stale at the source.

use rssl::rwf::DataState;

use super::ids::{ItemId, Now};
use super::item::{Item, Queue};
use super::state::{Hub, PORTION};

/// Time after which an item that is suspect is requested again. A normal recovery is over before.
const FIRST: Now = Now::from_secs(3);
/// A look that is this late comes after a time in which the process did not run: messages that have waited may make the
/// items good, so the look is repeated after the same time.
const LATE: Now = Now::from_secs(1);
/// Maximum number of doublings of this time, after requests that have not helped: to 96 s.
const DOUBLINGS: u8 = 5;

impl Hub {
    /// Watches an item whose state has changed, if it is suspect although its upstream is up.
    pub(super) fn watch_if_stale(&mut self, now: Now, id: ItemId) {
        let is_stale = self.items.get(id).is_some_and(|item| self.is_stale(item));
        let Some(item) = self.items.get_mut(id) else { return };
        if !is_stale {
            item.stale_since = None;
            if item.state.data != DataState::Suspect {
                item.stale_requests = 0;
            }
            return;
        }
        item.stale_since.get_or_insert(now);
        self.watch(id);
    }

    /// Puts a stale item into the list of those to request again, unless it is there.
    fn watch(&mut self, id: ItemId) {
        let Some(item) = self.items.get_mut(id).filter(|item| !item.is_watched) else { return };
        if let Some(due) = due(item) {
            item.is_watched = true;
            self.watched.insert((due, id, item.age));
        }
    }

    /// Queues requests for watched items that have been suspect long enough, a portion of them at most.
    pub(super) fn request_stale_items(&mut self, now: Now) {
        for _ in 0..PORTION {
            let Some(&(at, id, age)) = self.watched.first().filter(|(at, ..)| *at <= now) else { return };
            self.watched.pop_first();
            if now > at + LATE {
                self.watched.insert((now + LATE, id, age));
                continue;
            }
            let Some(item) = self.items.aged(id, age) else { continue };
            item.is_watched = false;
            if item.queue.is_some() || due(item).is_none() {
                // It is good, or the end of a request leads back here if that does not make it good.
                continue;
            }
            if due(item) > Some(now) {
                // It was good in the meantime.
                self.watch(id);
                continue;
            }
            if self.items.get(id).is_none_or(|item| !self.is_stale(item)) {
                continue;
            }
            self.stats.stale_requests += 1;
            if let Some(item) = self.items.get_mut(id) {
                item.stale_requests = item.stale_requests.saturating_add(1);
            }
            self.enqueue(id, Queue::Recovery);
        }
    }

    /// Whether an item is suspect although its stream has had an image, and its upstream is up and answers requests.
    fn is_stale(&self, item: &Item) -> bool {
        let is_suspect = item.phase.is_live() && item.state.data == DataState::Suspect;
        let Some(link) = item.link.filter(|_| is_suspect) else { return false };
        let service = self.services.index(item.spec.service).and_then(|at| self.services.list.get(at));
        let offer = service.and_then(|service| service.offers.iter().find(|offer| offer.up == link.up));
        !item.snapshot && offer.is_some_and(|offer| !offer.publishes && offer.is_up())
    }
}

/// Time at which a stale item is to be requested again.
fn due(item: &Item) -> Option<Now> {
    item.stale_since.map(|since| since + FIRST * (1 << item.stale_requests.min(DOUBLINGS)))
}
