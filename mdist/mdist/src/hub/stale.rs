//! The watchdog of stale items: requests an item again that stays suspect while its upstream is up.
//!
//! A source that has reported an item stale has to send a new image by itself. An item whose image was lost on the way
//! would stay suspect for ever, so the hub requests it again: rarely, because most stale items are stale at the source.

use rssl::rwf::DataState;

use super::ids::{ItemId, Now};
use super::item::{Item, Queue};
use super::state::Hub;

/// Time after which an item that is suspect is requested again. A normal recovery is over before.
const FIRST: Now = Now::from_secs(3);
/// Most doublings of this time, after requests that have not helped: to 96 s.
const DOUBLINGS: u8 = 5;

impl Hub {
    /// Watches an item whose state has changed, if it is suspect although its upstream is up.
    pub(super) fn watch_if_stale(&mut self, now: Now, id: ItemId) {
        let is_stale = self.items.get(id).is_some_and(|item| self.is_stale(item));
        let Some(item) = self.items.get_mut(id) else { return };
        if !is_stale {
            if item.state.data != DataState::Suspect {
                item.stale_requests = 0;
            }
            return;
        }
        if !std::mem::replace(&mut item.is_watched, true) {
            let delay = FIRST * (1 << item.stale_requests.min(DOUBLINGS));
            self.watched.insert((now + delay, id, item.age));
        }
    }

    /// Queues requests for the watched items that are due and still suspect.
    pub(super) fn request_stale_items(&mut self, now: Now) {
        while let Some(&(due, id, age)) = self.watched.first() {
            if due > now {
                break;
            }
            self.watched.pop_first();
            let Some(item) = self.items.aged(id, age) else { continue };
            item.is_watched = false;
            if item.is_requested() || item.queue.is_some() {
                // The end of that request leads back here, if it does not make the item good.
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
