//! The queues of a service's requests, and the decision whether the next one may be sent.

use rssl::rwf::DataState;

use super::ids::{ItemId, Now};
use super::item::Queue;
use super::services::{Pick, Service};
use super::state::{Hub, PORTION};

/// Delay of a request whose domain none of the service's upstreams offers at present.
const NO_OFFER_DELAY: Now = Now::from_secs(5);

/// Queues up to this length are not searched for entries of closed items.
const COMPACT_ABOVE: usize = 1024;

/// The result of trying the first entry of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pumped {
    /// The entry has left the queue, and the next one may be tried.
    Next,
    /// The entry has to wait, and so do those after it.
    Blocked,
}

impl Hub {
    /// Puts an item into a queue of its service, unless it is in one.
    pub(super) fn enqueue(&mut self, id: ItemId, queue: Queue) {
        let Some(item) = self.items.get_mut(id) else { return };
        if item.queue.is_some() {
            return;
        }
        let Some(service) = self.services.by_id(item.spec.service) else { return };
        item.queue = Some(queue);
        let entries = service.queue_mut(queue);
        entries.push_back((id, item.age));
        if entries.len() <= COMPACT_ABOVE || entries.len() <= 2 * self.items.len() {
            return;
        }
        // Items that were closed while they waited still have their entries.
        let items = &mut self.items;
        entries.retain(|&(id, age)| items.aged(id, age).is_some_and(|i| i.queue == Some(queue)));
    }

    /// Takes an item out of its queue; its entry is dropped when it is the first.
    pub(super) fn dequeue(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id) {
            item.queue = None;
        }
    }

    /// Sends what may be sent of the queues of the item's service.
    pub(super) fn pump_item(&mut self, now: Now, id: ItemId) {
        let service = self.items.get(id).map(|i| i.spec.service);
        if let Some(at) = service.and_then(|s| self.services.index(s)) {
            self.pump(now, at);
        }
    }

    /// Whether the recovery window is open and an upstream accepts requests.
    pub(super) fn can_recover(&self, service: &Service) -> bool {
        service.recovering < self.options.recovery_window && service.takes_requests()
    }

    /// Whether the next request of a recovery waits only for the pace, and not for space at the upstream.
    pub(super) fn waits_for_pace(&self, service: &Service) -> bool {
        let Some(&(id, _)) = service.recovery_queue.front().filter(|_| self.can_recover(service)) else {
            return false;
        };
        let without_stream = self.items.get(id).filter(|item| item.link.is_none());
        without_stream.is_none_or(|item| !matches!(service.pick(item.spec.domain), Pick::Busy | Pick::Full))
    }

    /// Sends what may be sent of a service's queues, at most a portion; the rest waits for the next tick. Consumers'
    /// requests go before recovery.
    pub(super) fn pump(&mut self, now: Now, at: usize) {
        for queue in [Queue::Consumers, Queue::Recovery] {
            let mut left = PORTION;
            while !self.has_more
                && let Some(&(id, age)) = self.services.list.get(at).and_then(|s| s.queue(queue).front())
            {
                left -= 1;
                self.has_more = left == 0;
                if self.items.aged(id, age).is_none_or(|i| i.queue != Some(queue)) {
                    // The item was closed, or left the queue.
                    self.drop_front(at, queue);
                    continue;
                }
                if self.items.get(id).is_none_or(|item| !self.sweeps.have_reached(item)) {
                    break;
                }
                let pumped = match queue {
                    Queue::Consumers => self.pump_consumer_request(now, at, id, age),
                    Queue::Recovery => self.pump_recovery_request(now, at, id, age),
                };
                if pumped == Pumped::Blocked {
                    break;
                }
            }
        }
    }

    /// Sends the first consumer's request, if the chosen upstream can take it.
    fn pump_consumer_request(&mut self, now: Now, at: usize, id: ItemId, age: u32) -> Pumped {
        let Some(item) = self.items.get(id) else { return Pumped::Blocked };
        let Some(service) = self.services.list.get(at) else { return Pumped::Blocked };
        if item.link.is_some() {
            // A publisher has published it in the meantime.
            self.leave_queue(at, id, Queue::Consumers);
            return Pumped::Next;
        }
        match service.pick(item.spec.domain) {
            Pick::Offer(up, service_id) => {
                self.leave_queue(at, id, Queue::Consumers);
                self.request(now, id, up, service_id, false);
                Pumped::Next
            }
            Pick::Unavailable if service.takes_requests() => {
                self.put_off(now, at, id, age, Queue::Consumers);
                Pumped::Next
            }
            Pick::Unavailable | Pick::Busy | Pick::Full => Pumped::Blocked,
        }
    }

    /// Sends the first request of the recovery, if rate, window and upstream allow it.
    fn pump_recovery_request(&mut self, now: Now, at: usize, id: ItemId, age: u32) -> Pumped {
        let Some(item) = self.items.get(id) else { return Pumped::Blocked };
        let Some(service) = self.services.list.get(at) else { return Pumped::Blocked };
        let is_current = !item.image.restarts() && item.state.data != DataState::Suspect;
        let has_recovered = item.link.is_some() && item.waiting.is_empty() && is_current;
        if item.is_requested() || has_recovered {
            self.leave_queue(at, id, Queue::Recovery);
            return Pumped::Next;
        }
        if !self.can_recover(service) {
            return Pumped::Blocked;
        }
        let link = item.link;
        let pick = match link {
            Some(link) => match service.offers.iter().find(|o| o.up == link.up && o.is_usable()) {
                Some(offer) => Pick::Offer(offer.up, offer.listed.id),
                None => Pick::Unavailable,
            },
            None => service.pick(item.spec.domain),
        };
        match pick {
            Pick::Offer(up, service_id) => {
                if !self.bucket.take(now) {
                    return Pumped::Blocked;
                }
                self.leave_queue(at, id, Queue::Recovery);
                match link {
                    Some(_) => self.request_again(now, id, true),
                    None => self.request(now, id, up, service_id, true),
                }
                Pumped::Next
            }
            Pick::Unavailable => {
                self.put_off(now, at, id, age, Queue::Recovery);
                Pumped::Next
            }
            Pick::Busy | Pick::Full => Pumped::Blocked,
        }
    }

    /// Queues delayed requests whose delay is over.
    pub(super) fn resume_delayed(&mut self, now: Now) {
        for _ in 0..PORTION {
            let Some(&(_, id, age)) = self.delayed.first().filter(|due| due.0 <= now) else { break };
            self.delayed.pop_first();
            if self.items.aged(id, age).is_some() {
                self.enqueue(id, Queue::Recovery);
            }
        }
    }

    fn put_off(&mut self, now: Now, at: usize, id: ItemId, age: u32, queue: Queue) {
        self.leave_queue(at, id, queue);
        self.delayed.insert((now + NO_OFFER_DELAY, id, age));
    }

    fn drop_front(&mut self, at: usize, queue: Queue) {
        if let Some(service) = self.services.list.get_mut(at) {
            service.queue_mut(queue).pop_front();
        }
    }

    /// Takes an item out of the front of its queue.
    fn leave_queue(&mut self, at: usize, id: ItemId, queue: Queue) {
        self.drop_front(at, queue);
        self.dequeue(id);
    }
}
