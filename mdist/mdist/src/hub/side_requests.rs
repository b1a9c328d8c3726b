//! Requests of sides: open an item, get its image, close it.

use rssl::rwf::{Domain, State, StreamState, code};

use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state};
use super::ids::{ItemId, Now, SideId, Token};
use super::item::{Event, Waiter};
use super::request::OpenRequest;
use super::services::NoSuchQos;
use super::state::Hub;

/// The state of a request's service that its admission depends on.
struct ServiceStatus {
    /// Whether only publishers offer it.
    published: bool,
    up: bool,
    /// Number of its items that wait to be published.
    awaited: usize,
}

impl Hub {
    /// Opens an item for a side, or refuses it.
    pub(super) fn open(&mut self, now: Now, mut request: OpenRequest, out: &mut Batch) {
        let (side, token, domain) = (request.side, request.token, request.spec.domain);
        let service = match self.check_service(&mut request) {
            Ok(service) => service,
            Err(state) => return self.refuse(side, token, domain, &state, out),
        };
        for found in [self.items.find(&request.spec), self.items.find_snapshot(&request.spec)] {
            found.into_iter().for_each(|id| self.settle(now, id, out));
        }
        if let Some(id) = self.find_shared(&request, service.published) {
            return self.join_item(now, id, &request, out);
        }
        if let Some(state) = self.refuse_new_item(&request, &service) {
            return self.refuse(side, token, domain, &state, out);
        }
        self.open_new_item(now, request, service.published, out);
    }

    /// Checks service, domain and quality of service; sets the quality in the request's spec to the chosen one.
    fn check_service(&mut self, request: &mut OpenRequest) -> Result<ServiceStatus, State<'static>> {
        use StreamState::{Closed, ClosedRecover};
        let spec = &mut request.spec;
        let Some(service) = self.services.by_id(spec.service).filter(|s| s.is_shown()) else {
            return Err(suspect_state(ClosedRecover, code::SOURCE_UNKNOWN, "No such service"));
        };
        if !service.carries(spec.domain) {
            return Err(suspect_state(Closed, code::USAGE_ERROR, "The service does not offer this domain"));
        }
        match service.choose_qos(spec.qos, request.worst_qos) {
            // Publishers do not say which of the service's QoS an item has.
            Ok(_) if service.is_published() => spec.qos = None,
            Ok(qos) => spec.qos = qos,
            Err(NoSuchQos) => {
                return Err(suspect_state(Closed, code::USAGE_ERROR, "The service does not offer this QoS"));
            }
        }
        Ok(ServiceStatus { published: service.is_published(), up: service.is_up(), awaited: service.awaited })
    }

    /// The item that the request can share.
    fn find_shared(&self, request: &OpenRequest, published: bool) -> Option<ItemId> {
        let spec = &request.spec;
        let found = if spec.private { None } else { self.items.find(spec) };
        if published && request.cannot_wait() {
            // An awaited item has no image yet.
            found.filter(|id| self.items.get(*id).is_some_and(|i| !i.publication.is_awaited()))
        } else if !request.streaming && found.is_none() {
            // A snapshot whose image has begun to arrive cannot be joined any more.
            let snapshot = self.items.find_snapshot(spec);
            snapshot.filter(|id| self.items.get(*id).is_some_and(|i| i.receiving.is_empty()))
        } else {
            found
        }
    }

    /// Reason why no item may be added for the request, if so.
    fn refuse_new_item(&self, request: &OpenRequest, service: &ServiceStatus) -> Option<State<'static>> {
        use StreamState::{Closed, ClosedRecover};
        if service.published && request.cannot_wait() {
            return Some(if service.up {
                suspect_state(Closed, code::NOT_FOUND, "The item is not published")
            } else {
                suspect_state(ClosedRecover, code::NONE, "The publisher is not there")
            });
        }
        if service.published && service.awaited >= self.options.max_awaited {
            let text = "Too many items wait to be published";
            return Some(suspect_state(ClosedRecover, code::TOO_MANY_ITEMS, text));
        }
        (self.items.len() >= self.options.max_items)
            .then(|| suspect_state(ClosedRecover, code::TOO_MANY_ITEMS, "Too many items are open"))
    }

    /// One more request for an open item.
    fn join_item(&mut self, now: Now, id: ItemId, request: &OpenRequest, out: &mut Batch) {
        let waiter = self.register(id, request, out);
        self.provide_image(now, id, waiter, out);
    }

    /// The first request for an item: adds it and asks for it upstream.
    fn open_new_item(&mut self, now: Now, request: OpenRequest, published: bool, out: &mut Batch) {
        let id = self.items.add(request.spec.clone(), !request.streaming);
        if published {
            self.start_awaiting(id);
        }
        let waiter = self.register(id, &request, out);
        self.add_waiter(id, waiter);
        self.enqueue(id, super::item::Queue::Consumers);
        self.pump_item(now, id);
        self.send_notice_if_stuck(id, waiter, out);
    }

    /// Adds the request's hold to the item, and reports it.
    fn register(&mut self, id: ItemId, request: &OpenRequest, out: &mut Batch) -> Waiter {
        let OpenRequest { side, token, streaming, .. } = *request;
        if let Some(item) = self.items.get_mut(id) {
            if streaming {
                item.hold(side);
            }
            item.closing = None;
        }
        if streaming {
            out.push_bare(Kind::Opened, side, id, token);
        }
        self.route_updates(id);
        Waiter { side, token, snapshot: !streaming }
    }

    /// Sends a token the image of an item that its side holds.
    pub(super) fn image(&mut self, now: Now, side: SideId, token: Token, id: ItemId, out: &mut Batch) {
        let waiter = Waiter { side, token, snapshot: false };
        match self.items.get(id) {
            Some(item) if item.phase.is_open() && item.holders.iter().any(|(s, _)| *s == side) => {
                self.provide_image(now, id, waiter, out);
            }
            // The item ended while the request was under way; the side gets `Kind::Gone` for that.
            Some(item) => {
                let (domain, state) = (item.spec.domain, item.state.clone());
                self.refuse(side, token, domain, &state.borrow(), out);
            }
            None => {
                let state = suspect_state(StreamState::ClosedRecover, code::NOT_OPEN, "The item is not open");
                self.refuse(side, token, Domain::MARKET_PRICE, &state, out);
            }
        }
    }

    /// Takes back holds of a side.
    pub(super) fn close(&mut self, now: Now, side: SideId, id: ItemId, holds: u32) {
        let Some(item) = self.items.get_mut(id) else { return };
        item.release(side, holds);
        self.release_if_unwanted(now, id);
    }

    /// Ends a request that cannot be met, with a status that has the reason.
    pub(super) fn refuse(
        &mut self,
        side: SideId,
        token: Token,
        domain: Domain,
        state: &State<'_>,
        out: &mut Batch,
    ) {
        self.stats.refused += 1;
        let message = encode::status(&mut self.scratch, domain, state);
        out.push(Kind::Refused, side, ItemId::NONE, token, message);
    }

    /// Counts the item among those of its service that wait to be published.
    fn start_awaiting(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id) {
            item.apply(Event::Awaited);
            let service = item.spec.service;
            if let Some(service) = self.services.by_id(service) {
                service.awaited += 1;
            }
        }
    }

    /// Takes the item out of the count of those that wait to be published; its next event is `ImageComplete` or
    /// `Freed`.
    pub(super) fn stop_awaiting(&mut self, id: ItemId) {
        if let Some(item) = self.items.get(id).filter(|i| i.publication.is_awaited()) {
            let service = item.spec.service;
            if let Some(service) = self.services.by_id(service) {
                service.awaited = service.awaited.saturating_sub(1);
            }
        }
    }
}
