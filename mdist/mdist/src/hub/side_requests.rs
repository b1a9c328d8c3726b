//! What sides ask: items, images, and the end of their interest.

use rssl::rwf::{DataState, Qos, State, StreamState, code};

use super::batch::{Batch, Kind};
use super::encode;
use super::ids::{ItemId, Now, SideId, Token};
use super::item::{Life, Waiter};
use super::request::ItemSpec;
use super::services::{NoSuchQos, Pick};
use super::state::Hub;

/// Why a request has to wait, or cannot be met.
pub(super) const fn suspect_state(stream: StreamState, code: u8, text: &'static str) -> State<'static> {
    State { stream, data: DataState::Suspect, code, text: text.as_bytes() }
}

impl Hub {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn open(
        &mut self,
        now: Now,
        side: SideId,
        token: Token,
        mut spec: ItemSpec,
        worst: Option<Qos>,
        streaming: bool,
        out: &mut Batch,
    ) {
        use StreamState::{Closed, ClosedRecover};
        let domain = spec.domain;
        let Some(service) = self.services.by_id(spec.service).filter(|s| s.is_shown()) else {
            let state = suspect_state(ClosedRecover, code::SOURCE_UNKNOWN, "No such service");
            return self.refuse(side, token, domain, &state, out);
        };
        if !service.carries(domain) {
            let state = suspect_state(Closed, code::USAGE_ERROR, "The service does not offer this domain");
            return self.refuse(side, token, domain, &state, out);
        }
        match service.choose_qos(spec.qos, worst) {
            // Publishers do not say of which of the service's QoS an item is.
            Ok(_) if service.is_published() => spec.qos = None,
            Ok(qos) => spec.qos = qos,
            Err(NoSuchQos) => {
                let state = suspect_state(Closed, code::USAGE_ERROR, "The service does not offer this QoS");
                return self.refuse(side, token, domain, &state, out);
            }
        }
        let (published, is_up, awaited) = (service.is_published(), service.is_up(), service.awaited);
        let snapshot = !streaming;
        let waiter = Waiter { side, token, snapshot };
        let mut found = if spec.private { None } else { self.items.find(&spec) };
        if published && (snapshot || spec.private) {
            // Who asks once is answered once.
            found = found.filter(|id| self.items.get(*id).is_some_and(|i| !i.awaited));
        } else if snapshot && found.is_none() {
            // One that has begun to arrive cannot be joined any more.
            found = self
                .items
                .find_snapshot(&spec)
                .filter(|id| self.items.get(*id).is_some_and(|i| i.receiving.is_empty()));
        }
        let fresh = found.is_none();
        let refusal = match found {
            Some(_) => None,
            None if published && (snapshot || spec.private) && is_up => {
                Some(suspect_state(Closed, code::NOT_FOUND, "The item is not published"))
            }
            None if published && (snapshot || spec.private) => {
                Some(suspect_state(ClosedRecover, code::NONE, "The publisher is not there"))
            }
            None if published && awaited >= self.options.max_awaited => Some(suspect_state(
                ClosedRecover,
                code::TOO_MANY_ITEMS,
                "Too many items wait to be published",
            )),
            None if self.items.len() >= self.options.max_items => {
                Some(suspect_state(ClosedRecover, code::TOO_MANY_ITEMS, "Too many items are open"))
            }
            None => None,
        };
        if let Some(state) = refusal {
            return self.refuse(side, token, domain, &state, out);
        }
        let id = found.unwrap_or_else(|| self.items.add(spec, snapshot));
        if fresh && published {
            self.awaited(id);
        }
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
        if fresh {
            self.wait(id, waiter);
            self.enqueue(id, false);
            self.pump_item(now, id);
            self.notice_if_stuck(id, waiter, out);
        } else {
            self.want_image(now, id, waiter, out);
        }
    }

    pub(super) fn image(&mut self, now: Now, side: SideId, token: Token, id: ItemId, out: &mut Batch) {
        let waiter = Waiter { side, token, snapshot: false };
        match self.items.get(id) {
            Some(item) if item.life == Life::Open && item.holders.iter().any(|(s, _)| *s == side) => {
                self.want_image(now, id, waiter, out);
            }
            // It ended while the side asked; the side will hear, or has heard.
            Some(item) => {
                let (domain, state) = (item.spec.domain, item.state.clone());
                self.refuse(side, token, domain, &state.borrow(), out);
            }
            None => {
                let state = suspect_state(StreamState::ClosedRecover, code::NOT_OPEN, "The item is not open");
                self.refuse(side, token, rssl::rwf::Domain::MARKET_PRICE, &state, out);
            }
        }
    }

    /// An image of an open item: from the cache, with the refresh that is to come, or by asking again.
    pub(super) fn want_image(&mut self, now: Now, id: ItemId, waiter: Waiter, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if self.records.have_image(id, item) {
            return self.give_image(now, id, &[waiter], out);
        }
        let live = item.link.is_some_and(|l| l.live);
        let pending = item.link.is_some_and(|l| l.asked.is_some());
        if waiter.snapshot && item.published && !item.partial {
            let domain = item.spec.domain;
            let state = suspect_state(StreamState::ClosedRecover, code::NONE, "The item's image is not kept");
            return self.refuse(waiter.side, waiter.token, domain, &state, out);
        }
        let partial = item.partial;
        self.wait(id, waiter);
        if live && !pending && !partial {
            self.ask_again(now, id, false);
        }
        self.notice_if_stuck(id, waiter, out);
    }

    fn wait(&mut self, id: ItemId, waiter: Waiter) {
        if let Some(item) = self.items.get_mut(id)
            && !item.waiting.contains(&waiter)
        {
            item.waiting.push(waiter);
        }
    }

    /// Says why a token waits, where it is not just the upstream's turn.
    fn notice_if_stuck(&mut self, id: ItemId, waiter: Waiter, out: &mut Batch) {
        use StreamState::{ClosedRecover, Open};
        let Some(item) = self.items.get(id) else { return };
        let Some(at) = self.services.index(item.spec.service) else { return };
        let Some(service) = self.services.list.get(at) else { return };
        let state = match (item.link, service.pick(item.spec.domain)) {
            (Some(_), _) if item.partial => return,
            (Some(_), _) if item.published => {
                suspect_state(Open, code::NONE, "Waiting for the publisher's next image of the item")
            }
            // The source itself said why.
            (Some(link), _) if !link.live && link.asked.is_none() => {
                if waiter.snapshot {
                    return self.end_snapshots(id, out);
                }
                item.state.borrow()
            }
            (Some(_), _) => return,
            (None, _) if service.is_published() && service.is_up() => {
                suspect_state(Open, code::NONE, "Waiting for the item to be published")
            }
            (None, Pick::Offer(..) | Pick::Busy) if item.tries == 0 => return,
            (None, Pick::Offer(..) | Pick::Busy) => item.state.borrow(),
            (None, Pick::Full) => {
                suspect_state(ClosedRecover, code::TOO_MANY_ITEMS, "The source takes no more items")
            }
            (None, Pick::Nobody) if service.is_up() => {
                suspect_state(ClosedRecover, code::NONE, "The service accepts no requests")
            }
            (None, Pick::Nobody) => {
                suspect_state(ClosedRecover, code::NONE, "Waiting for the service to come up")
            }
        };
        let message = encode::status(&mut self.scratch, item.spec.domain, &state);
        out.push(Kind::Notice, waiter.side, id, waiter.token, message);
    }

    /// Ends the snapshots of an item whose source says that its image may take long: who asks once is answered once.
    pub(super) fn end_snapshots(&mut self, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        let domain = item.spec.domain;
        let state = rssl::rwf::OwnedState { stream: StreamState::ClosedRecover, ..item.state.clone() };
        let ended: Vec<_> = item.waiting.extract_if(.., |w| w.snapshot).collect();
        for w in ended {
            self.refuse(w.side, w.token, domain, &state.borrow(), out);
        }
    }

    /// Nobody has published the item yet.
    fn awaited(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id).filter(|i| !i.awaited) {
            item.awaited = true;
            let service = item.spec.service;
            if let Some(service) = self.services.by_id(service) {
                service.awaited += 1;
            }
        }
    }

    /// Somebody has, or nobody waits for it any more.
    pub(super) fn not_awaited(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id).filter(|i| i.awaited) {
            item.awaited = false;
            let service = item.spec.service;
            if let Some(service) = self.services.by_id(service) {
                service.awaited = service.awaited.saturating_sub(1);
            }
        }
    }

    /// Gives the place of an item back.
    pub(super) fn free(&mut self, id: ItemId) {
        self.not_awaited(id);
        self.items.free(id);
        self.records.take(id);
    }

    /// The end of a request that nothing can be done for.
    pub(super) fn refuse(
        &mut self,
        side: SideId,
        token: Token,
        domain: rssl::rwf::Domain,
        state: &State<'_>,
        out: &mut Batch,
    ) {
        self.stats.refused += 1;
        let message = encode::status(&mut self.scratch, domain, state);
        out.push(Kind::Refused, side, ItemId::NONE, token, message);
    }

    pub(super) fn close(&mut self, now: Now, side: SideId, id: ItemId, holds: u32) {
        let Some(item) = self.items.get_mut(id) else { return };
        item.release(side, holds);
        self.unwanted(now, id);
    }

    /// Lets an item go that nobody wants: at once if it is over or was never there, else when its hold ends.
    pub(super) fn unwanted(&mut self, now: Now, id: ItemId) {
        self.route_updates(id);
        let hold = self.options.hold;
        let Some(item) = self.items.get_mut(id) else { return };
        if !item.holders.is_empty() && item.life == Life::Over
            || item.life == Life::Open && !item.is_unwanted()
        {
            return;
        }
        let nothing = item.link.is_none() && self.records.get(id).is_none();
        if item.life == Life::Over || nothing || item.spec.private || hold.is_zero() {
            self.unlink(now, id, true);
            self.free(id);
        } else if item.closing.is_none() {
            let end = now + hold;
            item.closing = Some(end);
            let age = item.age;
            self.holds.push_back((end, id, age));
        }
    }

    pub(super) fn end_holds(&mut self, now: Now) {
        while let Some(&(end, id, age)) = self.holds.front() {
            if end > now {
                break;
            }
            self.holds.pop_front();
            // Opened again and closed again in the meantime: a later entry ends that hold.
            let due = self.items.aged(id, age).is_some_and(|i| i.closing == Some(end) && i.is_unwanted());
            if due {
                self.unlink(now, id, true);
                self.free(id);
            }
        }
    }
}
