//! Requests to upstreams: queues, windows, pace, and what happens to those that are not answered.

use rssl::rwf::{Close, DataType, Priority, Request, RequestFlags, StreamState, code};
use rssl::wire::to_vec;

use super::batch::{Batch, Kind};
use super::encode;
use super::ids::{ItemId, Now, UpstreamId};
use super::item::{Asked, Link, Queue};
use super::pacing::back_off;
use super::services::{Pick, Service};
use super::side_requests::suspect_state;
use super::state::Hub;

/// How long a request waits whose domain none of the service's upstreams offers at present.
const ASIDE: Now = Now::from_secs(5);

impl Hub {
    /// Puts an item into its service's queue of requests.
    pub(super) fn enqueue(&mut self, id: ItemId, recover: bool) {
        let Some(item) = self.items.get_mut(id) else { return };
        if item.queue != Queue::None {
            return;
        }
        let Some(service) = self.services.by_id(item.spec.service) else { return };
        let (queue, kind) = match recover {
            true => (&mut service.recover, Queue::Recover),
            false => (&mut service.fresh, Queue::Fresh),
        };
        item.queue = kind;
        queue.push_back((id, item.age));
        if queue.len() <= 1024 || queue.len() <= 2 * self.items.len() {
            return;
        }
        // Of items that were closed while they waited.
        let items = &mut self.items;
        queue.retain(|&(id, age)| items.aged(id, age).is_some_and(|i| i.queue == kind));
    }

    pub(super) fn pump_item(&mut self, now: Now, id: ItemId) {
        let service = self.items.get(id).map(|i| i.spec.service);
        if let Some(at) = service.and_then(|s| self.services.index(s)) {
            self.pump(now, at);
        }
    }

    /// Whether the window of recovery has room, and somebody to ask.
    pub(super) fn can_recover(&self, service: &Service) -> bool {
        let window = self.options.recovery_window;
        service.recovering < window && service.offers.iter().any(|o| !o.publishes && o.is_usable())
    }

    /// Sends what may be sent of a service's queues.
    pub(super) fn pump(&mut self, now: Now, at: usize) {
        while let Some(&(id, age)) = self.services.list.get(at).and_then(|s| s.fresh.front()) {
            let Some(item) = self.items.aged(id, age).filter(|i| i.queue == Queue::Fresh) else {
                self.drop_front(at, false);
                continue;
            };
            if item.link.is_some() {
                // Published in the meantime.
                self.leave(at, id, false);
                continue;
            }
            let domain = item.spec.domain;
            let Some(service) = self.services.list.get(at) else { return };
            match service.pick(domain) {
                Pick::Offer(up, theirs) => {
                    self.leave(at, id, false);
                    self.request(now, id, up, theirs, false);
                }
                Pick::Nobody if service.offers.iter().any(|o| !o.publishes && o.is_usable()) => {
                    self.leave(at, id, false);
                    self.delayed.insert((now + ASIDE, id, age));
                }
                Pick::Nobody | Pick::Busy | Pick::Full => break,
            }
        }
        while let Some(&(id, age)) = self.services.list.get(at).and_then(|s| s.recover.front()) {
            let Some(item) = self.items.aged(id, age).filter(|i| i.queue == Queue::Recover) else {
                self.drop_front(at, true);
                continue;
            };
            let (domain, link) = (item.spec.domain, item.link);
            if link.is_some_and(|l| l.asked.is_some())
                || link.is_some() && item.waiting.is_empty() && !item.recovering
            {
                self.leave(at, id, true);
                continue;
            }
            let Some(service) = self.services.list.get(at) else { return };
            if !self.can_recover(service) {
                break;
            }
            let pick = match link {
                Some(link) => match service.offers.iter().find(|o| o.up == link.up && o.is_usable()) {
                    Some(offer) => Pick::Offer(offer.up, offer.listed.id),
                    None => Pick::Nobody,
                },
                None => service.pick(domain),
            };
            match pick {
                Pick::Offer(up, theirs) => {
                    if !self.bucket.take(now) {
                        break;
                    }
                    self.leave(at, id, true);
                    match link {
                        Some(_) => self.ask_again(now, id, true),
                        None => self.request(now, id, up, theirs, true),
                    }
                }
                Pick::Nobody => {
                    self.leave(at, id, true);
                    self.delayed.insert((now + ASIDE, id, age));
                }
                Pick::Busy | Pick::Full => break,
            }
        }
    }

    fn drop_front(&mut self, at: usize, recover: bool) {
        if let Some(service) = self.services.list.get_mut(at) {
            let queue = if recover { &mut service.recover } else { &mut service.fresh };
            queue.pop_front();
        }
    }

    /// Takes an item out of the front of its queue.
    fn leave(&mut self, at: usize, id: ItemId, recover: bool) {
        self.drop_front(at, recover);
        if let Some(item) = self.items.get_mut(id) {
            item.queue = Queue::None;
        }
    }

    /// Opens a stream upstream for an item that has none.
    fn request(&mut self, now: Now, id: ItemId, up: UpstreamId, theirs: u16, paced: bool) {
        let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) else { return };
        let Some(item) = self.items.get(id) else { return };
        let stream = upstream.streams.open(now, id, item.spec.domain);
        if let Some(service) = self.services.by_id(item.spec.service) {
            service.active = Some(up);
        }
        self.link(id, up, stream);
        self.send_request(now, id, theirs, paced);
    }

    /// Asks for an image on the stream that is open.
    pub(super) fn ask_again(&mut self, now: Now, id: ItemId, paced: bool) {
        let Some(item) = self.items.get(id) else { return };
        let Some(link) = item.link else { return };
        let Some(at) = self.services.index(item.spec.service) else { return };
        let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(link.up)) else { return };
        if !offer.publishes {
            let theirs = offer.listed.id;
            self.send_request(now, id, theirs, paced);
        }
    }

    fn send_request(&mut self, now: Now, id: ItemId, theirs: u16, paced: bool) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(link) = item.link.as_mut() else { return };
        let mut flags = RequestFlags::NONE;
        if !item.snapshot {
            flags.insert(RequestFlags::STREAMING);
        }
        if item.spec.private {
            flags.insert(RequestFlags::PRIVATE);
        }
        let request = Request {
            domain: item.spec.domain,
            stream: link.stream,
            flags,
            container: DataType::NO_DATA,
            priority: Some(Priority { class: 1, count: 1 }),
            qos: item.spec.qos,
            key: item.spec.key(theirs),
            ..Request::default()
        };
        // The key was encoded before, when the item was named.
        let Ok(message) = to_vec(|w| request.encode(w)) else { return };
        self.next_request = self.next_request.wrapping_add(1);
        let number = self.next_request;
        let up = link.up;
        if link.asked.replace(Asked { number, at: now, paced }).is_none()
            && let Some(service) = self.services.by_id(item.spec.service)
        {
            service.recovering += u32::from(paced);
            if let Some(offer) = service.offer(up) {
                offer.outstanding += 1;
            }
        }
        self.timeouts.push_back((now + self.options.request_timeout, id, number));
        self.stats.requests += 1;
        self.outgoing.push_back((up, message));
    }

    /// Ties an item to a stream.
    pub(super) fn link(&mut self, id: ItemId, up: UpstreamId, stream: i32) {
        let Some(item) = self.items.get_mut(id) else { return };
        item.link = Some(Link { up, stream, live: false, asked: None });
        item.partial = false;
        if let Some(offer) = self.services.by_id(item.spec.service).and_then(|s| s.offer(up)) {
            offer.open += 1;
        }
        if stream < 0
            && let Some(upstream) = self.upstreams.get_mut(usize::from(up.0))
        {
            upstream.streams.accept(stream, id, item.spec.domain);
        }
    }

    /// Ends an item's stream at this end, and with `close` at the upstream's too.
    pub(super) fn unlink(&mut self, now: Now, id: ItemId, close: bool) {
        let Some(link) = self.items.get(id).and_then(|i| i.link) else { return };
        self.complete_request(link.up, id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.link = None;
        item.partial = false;
        if let Some(offer) = self.services.by_id(item.spec.service).and_then(|s| s.offer(link.up)) {
            offer.open = offer.open.saturating_sub(1);
        }
        let Some(upstream) = self.upstreams.get_mut(usize::from(link.up.0)) else { return };
        upstream.streams.close(now, link.stream);
        // A second request that was on its way when the source ended the stream has opened it again over there.
        let crossed = link.live && link.asked.is_some();
        if (close || crossed) && upstream.up {
            let close = Close { domain: item.spec.domain, stream: link.stream, ..Close::default() };
            if let Ok(message) = to_vec(|w| close.encode(w)) {
                self.outgoing.push_back((link.up, message));
            }
        }
        // There is room for another.
        self.pump_item(now, id);
    }

    /// The item's request is answered, or will never be.
    pub(super) fn complete_request(&mut self, up: UpstreamId, id: ItemId) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(asked) = item.link.as_mut().and_then(|l| l.asked.take()) else { return };
        let Some(service) = self.services.by_id(item.spec.service) else { return };
        if asked.paced {
            service.recovering = service.recovering.saturating_sub(1);
        }
        if let Some(offer) = service.offer(up) {
            offer.outstanding = offer.outstanding.saturating_sub(1);
        }
    }

    /// Tells the item's stream what to do with updates.
    pub(super) fn route_updates(&mut self, id: ItemId) {
        let Some(item) = self.items.get(id) else { return };
        let Some(link) = item.link else { return };
        let Some(upstream) = self.upstreams.get_mut(usize::from(link.up.0)) else { return };
        if let Some(slot) = upstream.streams.get_mut(link.stream) {
            slot.pass = link.live && !item.holders.is_empty();
            slot.keep = link.live && self.records.get(id).is_some();
        }
    }

    /// The item's stream is over, the item is not: it is asked for again, later each time that fails.
    pub(super) fn retry(&mut self, now: Now, id: ItemId) {
        self.unlink(now, id, false);
        let Some(item) = self.items.get_mut(id) else { return };
        item.recovering = true;
        let mut begun = std::mem::take(&mut item.receiving);
        item.waiting.append(&mut begun);
        if item.is_unwanted() {
            return self.free(id);
        }
        let (tries, age) = (item.tries, item.age);
        item.tries = tries.saturating_add(1);
        if tries == 0 {
            self.enqueue(id, true);
            self.pump_item(now, id);
        } else {
            self.delayed.insert((now + back_off(tries), id, age));
        }
    }

    /// Requests whose time is over.
    pub(super) fn end_waits(&mut self, now: Now, out: &mut Batch) {
        while let Some(&(end, id, number)) = self.timeouts.front() {
            if end > now {
                break;
            }
            self.timeouts.pop_front();
            let Some(link) = self.items.get(id).and_then(|i| i.link) else { continue };
            let Some(asked) = link.asked.filter(|a| a.number == number) else { continue };
            if asked.at + self.options.request_timeout > now {
                // Parts are coming.
                self.timeouts.push_back((now + self.options.request_timeout, id, number));
                continue;
            }
            self.unanswered(now, id, link, out);
        }
    }

    fn unanswered(&mut self, now: Now, id: ItemId, link: Link, out: &mut Batch) {
        self.stats.timeouts += 1;
        let state =
            suspect_state(StreamState::ClosedRecover, code::TIMEOUT, "No answer from the source in time");
        let Some(item) = self.items.get_mut(id) else { return };
        let domain = item.spec.domain;
        let mut begun = std::mem::take(&mut item.receiving);
        item.waiting.append(&mut begun);
        if !item.imaged {
            item.set_state(&state);
        }
        let snapshots: Vec<_> = item.waiting.extract_if(.., |w| w.snapshot).collect();
        for w in &item.waiting {
            let bytes = encode::status(&mut self.scratch, domain, &state);
            out.push(Kind::Notice, w.side, id, w.token, bytes);
        }
        for w in snapshots {
            self.refuse(w.side, w.token, domain, &state, out);
        }
        if link.live {
            // The stream works, only its image does not come.
            self.complete_request(link.up, id);
            let Some(item) = self.items.get_mut(id) else { return };
            item.partial = false;
            let (tries, age) = (item.tries, item.age);
            item.tries = tries.saturating_add(1);
            self.delayed.insert((now + back_off(tries), id, age));
            self.unwanted(now, id);
        } else {
            self.unlink(now, id, true);
            self.retry(now, id);
        }
    }
}
