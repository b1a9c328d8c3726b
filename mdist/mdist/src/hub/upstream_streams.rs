//! Streams at upstreams: requests that open them, and their end.

use rssl::rwf::{Close, Priority, Request, RequestFlags};

use super::ids::{ItemId, Now, UpstreamId};
use super::item::{Event, Link, PendingRequest};
use super::state::Hub;

impl Hub {
    /// Opens a stream upstream for an item that has none. `service_id` is the upstream's id of the service.
    pub(super) fn request(&mut self, now: Now, id: ItemId, up: UpstreamId, service_id: u16, paced: bool) {
        let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) else { return };
        let Some(item) = self.items.get(id) else { return };
        let stream = upstream.streams.open(now, id, item.spec.domain);
        if let Some(service) = self.services.by_id(item.spec.service) {
            service.active = Some(up);
        }
        self.link(id, up, stream);
        self.send_request(now, id, service_id, paced);
    }

    /// Requests an image on the stream that is open. There is no such request to publishers.
    pub(super) fn request_again(&mut self, now: Now, id: ItemId, paced: bool) {
        let Some(item) = self.items.get(id) else { return };
        let Some(link) = item.link else { return };
        let Some(at) = self.services.index(item.spec.service) else { return };
        let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(link.up)) else { return };
        if !offer.publishes {
            let service_id = offer.listed.id;
            self.send_request(now, id, service_id, paced);
        }
    }

    fn send_request(&mut self, now: Now, id: ItemId, service_id: u16, paced: bool) {
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
            priority: Some(Priority { class: 1, count: 1 }),
            qos: item.spec.qos,
            ..Request::new(item.spec.domain, link.stream, flags, item.spec.key(service_id))
        };
        // The key has an encoding: the item's spec was made of it.
        let Ok(message) = request.to_vec() else { return };
        self.next_request = self.next_request.wrapping_add(1);
        let number = self.next_request;
        let up = link.up;
        item.stale_since = None;
        link.unanswered = link.unanswered.saturating_add(1);
        let before = link.pending.replace(PendingRequest { number, at: now, paced });
        let link = *link;
        if before.is_none()
            && let Some(service) = self.services.by_id(item.spec.service)
        {
            service.recovering += u32::from(paced);
            if let Some(offer) = service.offer_of(link) {
                offer.outstanding += 1;
            }
        }
        self.timeouts.push_back((now + self.options.request_timeout, id, number));
        self.stats.requests += 1;
        self.outgoing.push_back((up, message));
    }

    /// Removes the item's pending request, which is answered or dropped, from the windows.
    pub(super) fn complete_request(&mut self, id: ItemId) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(link) = item.link.as_mut() else { return };
        let Some(request) = link.pending.take() else { return };
        let link = *link;
        let Some(service) = self.services.by_id(item.spec.service) else { return };
        if request.paced {
            service.recovering = service.recovering.saturating_sub(1);
        }
        if let Some(offer) = service.offer_of(link) {
            offer.outstanding = offer.outstanding.saturating_sub(1);
        }
    }

    /// Assigns a stream to an item without one.
    pub(super) fn link(&mut self, id: ItemId, up: UpstreamId, stream: i32) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(offer) = self.services.by_id(item.spec.service).and_then(|s| s.offer(up)) else { return };
        offer.open += 1;
        item.link = Some(Link { up, stream, offer: offer.number, pending: None, unanswered: 0 });
        item.apply(Event::StreamOpened);
        if stream < 0
            && let Some(upstream) = self.upstreams.get_mut(usize::from(up.0))
        {
            upstream.streams.accept(stream, id, item.spec.domain);
        }
    }

    /// Ends the item's stream, if it has one: at the hub, and with `close` at the upstream too. An item that is in a
    /// queue may get a new stream at once.
    pub(super) fn unlink(&mut self, now: Now, id: ItemId, close: bool) {
        let Some(item) = self.items.get(id) else { return };
        let Some(link) = item.link else { return };
        // If a further request was under way when the source closed the stream, that request has opened it
        // again at the source.
        let crossed = item.phase.is_live() && link.pending.is_some();
        self.complete_request(id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.link = None;
        item.apply(Event::StreamClosed);
        if let Some(offer) = self.services.by_id(item.spec.service).and_then(|s| s.offer_of(link)) {
            offer.open = offer.open.saturating_sub(1);
        }
        let Some(upstream) = self.upstreams.get_mut(usize::from(link.up.0)) else { return };
        // Of a stream of an earlier connection nothing is left there.
        let is_there = upstream.up && link.offer > upstream.since;
        if is_there {
            upstream.streams.close(now, link.stream);
        }
        if (close || crossed)
            && is_there
            && let Ok(message) = Close::new(item.spec.domain, link.stream).to_vec()
        {
            self.outgoing.push_back((link.up, message));
        }
        // The service's windows have space for another request.
        self.pump_item(now, id);
    }

    /// Sets whether updates on the item's stream go to the sides, and into the cache. To be called when a side holds or
    /// releases the item, and when its record comes or goes.
    pub(super) fn route_updates(&mut self, id: ItemId) {
        let Some(item) = self.items.get(id) else { return };
        self.values.set_held(id, !item.holders.is_empty());
        let Some(link) = item.link else { return };
        let Some(upstream) = self.upstreams.get_mut(usize::from(link.up.0)) else { return };
        let is_there = link.offer > upstream.since;
        if let Some(slot) = upstream.streams.get_mut(link.stream).filter(|_| is_there) {
            let is_live = item.phase.is_live();
            slot.to_sides = is_live && !item.holders.is_empty();
            slot.to_cache = is_live && self.values.get(id).is_some();
        }
    }
}
