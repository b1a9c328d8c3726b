//! Changes of upstreams and services, and their effects on items.

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed};
use rssl::rwf::{DataState, OwnedState, State, StreamState, code};

use super::batch::Batch;
use super::encode::suspect_state;
use super::ids::{ItemId, Now, UpstreamId};
use super::item::{Event, Queue};
use super::services::Offer;
use super::state::Hub;

/// The effect of a change of an upstream's directory on items, applied once the sides have the new directory. The
/// number is the place of the service.
enum Effect {
    /// The upstream's service is down.
    Down(usize),
    /// The upstream's service is up again: its items are requested again.
    Up(usize),
    /// The upstream does not offer the service any more.
    Deleted(usize),
    /// All live items of the service get this state.
    Status(usize, OwnedState),
    /// The items of a group get another group, a state, or both.
    Group(usize, GroupStatus),
}

impl Hub {
    /// Adds an upstream that is connected. `publishes`: it is a publisher, which opens the item streams itself and gets
    /// no requests; the hub caches the last values of its items whatever the options say.
    pub fn upstream_up(&mut self, now: Now, up: UpstreamId, publishes: bool, out: &mut Batch) {
        self.upstream_down(now, up, "The connection was replaced", out);
        let at = usize::from(up.0);
        if self.upstreams.len() <= at {
            self.upstreams.resize_with(at + 1, Default::default);
        }
        if let Some(upstream) = self.upstreams.get_mut(at) {
            upstream.up = true;
            upstream.publishes = publishes;
            upstream.keeps_streams = false;
        }
    }

    /// Declares that an upstream is a source distributor: it keeps a stream that it has reported lost, and recovers the
    /// item, until the hub closes the stream. To be called after [`Hub::upstream_up`].
    pub fn upstream_keeps_streams(&mut self, up: UpstreamId) {
        if let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) {
            upstream.keeps_streams = true;
        }
    }

    /// Handles an upstream's directory, or changes of it. `replaces`: services that `changes` lacks are not
    /// offered any more (a refresh with clear-cache).
    pub fn upstream_services(
        &mut self,
        now: Now,
        up: UpstreamId,
        changes: Vec<(Action, Listed)>,
        replaces: bool,
        out: &mut Batch,
    ) {
        self.apply_pending_first();
        let Some(upstream) = self.upstreams.get(usize::from(up.0)).filter(|u| u.up) else { return };
        let publishes = upstream.publishes;
        let mut effects = Vec::new();
        let mut deleted = Vec::new();
        if replaces {
            for (at, service) in self.services.list.iter_mut().enumerate() {
                let listed =
                    |o: &Offer| changes.iter().any(|(a, s)| *a != Action::Delete && s.id == o.listed.id);
                if service.offers.iter().any(|o| o.up == up && !listed(o)) {
                    service.offers.retain(|o| o.up != up);
                    effects.push(Effect::Deleted(at));
                    deleted.push(at);
                }
            }
        }
        for (action, listed) in changes {
            if action == Action::Delete {
                if let Some(at) = self.services.offered(up, listed.id)
                    && let Some(service) = self.services.list.get_mut(at)
                {
                    service.offers.retain(|o| o.up != up);
                    effects.push(Effect::Deleted(at));
                    deleted.push(at);
                }
            } else {
                self.offer(up, publishes, listed, replaces, &mut effects);
            }
        }
        self.publish_directory(&deleted, out);
        for effect in effects {
            self.apply_effect(now, up, effect, out);
        }
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// Applies one service of an upstream's directory; adds the effects on items to `effects`.
    fn offer(
        &mut self,
        up: UpstreamId,
        publishes: bool,
        listed: Listed,
        replaces: bool,
        effects: &mut Vec<Effect>,
    ) {
        // Without a name it can only be a change of a known service.
        let at = match (&listed.info, self.services.offered(up, listed.id)) {
            (_, Some(at)) => at,
            (Some(info), None) => {
                let cached = *self.options.cache_of.get(&info.name).unwrap_or(&self.options.cache);
                match self.services.named(&info.name, listed.id, cached) {
                    Some(at) => at,
                    None => return,
                }
            }
            (None, None) => return,
        };
        let Some(service) = self.services.list.get_mut(at) else { return };
        let status = listed.state.as_ref().and_then(|s| s.status.clone());
        let groups = listed.groups.clone();
        let (was_up, is_up) = match service.offer(up) {
            Some(offer) => {
                let was = offer.is_up();
                let old = &mut offer.listed;
                old.id = listed.id;
                old.info = listed.info.or_else(|| old.info.take().filter(|_| !replaces));
                old.state = listed.state.or_else(|| old.state.take());
                old.load = listed.load.or_else(|| old.load.take());
                if !listed.links.is_empty() {
                    old.links = listed.links;
                }
                (was, offer.is_up())
            }
            None => {
                let listed = Listed { groups: Vec::new(), ..listed };
                let offer = Offer { up, publishes, listed, outstanding: 0, open: 0 };
                service.offers.push(offer);
                (false, service.offer(up).is_some_and(|o| o.is_up()))
            }
        };
        match (was_up, is_up) {
            (true, false) => effects.push(Effect::Down(at)),
            (false, true) => effects.push(Effect::Up(at)),
            _ => {}
        }
        if let Some(status) = status {
            effects.push(Effect::Status(at, status));
        }
        effects.extend(groups.into_iter().map(|g| Effect::Group(at, g)));
    }

    /// Removes an upstream that is lost, with all its services and streams.
    pub fn upstream_down(&mut self, now: Now, up: UpstreamId, reason: &str, out: &mut Batch) {
        self.apply_pending_first();
        let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)).filter(|u| u.up) else { return };
        upstream.up = false;
        let publishes = upstream.publishes;
        self.hold_unanswered_back(up);
        for service in &mut self.services.list {
            service.offers.retain(|o| o.up != up);
        }
        self.publish_directory(&[], out);
        let text = format!("Source lost: {reason}");
        let stream = if publishes { StreamState::Open } else { StreamState::ClosedRecover };
        let state = State { stream, data: DataState::Suspect, code: code::NONE, text: text.as_bytes() };
        for id in self.items.open_where(|i| i.is_at(up)) {
            if publishes {
                self.unlink(now, id, false);
            }
            self.stream_lost(now, id, &state, out);
        }
        self.refuse_posts_of(up, out);
        if let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) {
            upstream.streams = Default::default();
        }
    }

    /// Sends the sides the new directory, if it changed.
    fn publish_directory(&mut self, deleted: &[usize], out: &mut Batch) {
        if self.services.rebuild_directory(deleted) {
            out.services(std::sync::Arc::clone(self.services.directory()));
        }
    }

    fn apply_effect(&mut self, now: Now, up: UpstreamId, effect: Effect, out: &mut Batch) {
        match effect {
            Effect::Down(at) => self.service_down(now, up, at, out),
            Effect::Up(at) => self.service_up(now, up, at, out),
            Effect::Deleted(at) => self.service_deleted(now, up, at, out),
            Effect::Status(at, state) => {
                for id in self.items_of_service(up, at) {
                    self.set_live_state(now, id, &state.borrow(), out);
                }
            }
            Effect::Group(at, group) => self.group_changed(now, up, at, &group, out),
        }
    }

    fn service_down(&mut self, now: Now, up: UpstreamId, at: usize, out: &mut Batch) {
        let state = suspect_state(StreamState::Open, code::NONE, "Service down");
        for id in self.items_of_service(up, at) {
            self.stream_lost(now, id, &state, out);
            if let Some(item) = self.items.get_mut(id) {
                item.apply(Event::RestartDue);
            }
        }
        self.move_to_other_upstream(now, at, out);
    }

    fn service_up(&mut self, now: Now, up: UpstreamId, at: usize, out: &mut Batch) {
        for id in self.items_of_service(up, at) {
            let Some(item) = self.items.get_mut(id) else { continue };
            if item.publication.is_published() {
                // Images cannot be requested from a publisher. But its stream went on, so the cache has the
                // item's present value.
                item.apply(Event::ServiceBack);
                self.refresh_from_cache(id, out);
            } else if item.image.restarts() || item.state.data == DataState::Suspect {
                item.apply(Event::RestartDue);
                self.enqueue(id, Queue::Recovery);
            }
            self.watch_if_stale(now, id);
        }
        self.move_to_other_upstream(now, at, out);
    }

    fn service_deleted(&mut self, now: Now, up: UpstreamId, at: usize, out: &mut Batch) {
        let state =
            suspect_state(StreamState::ClosedRecover, code::NONE, "The source has withdrawn the service");
        for id in self.items_of_service(up, at) {
            if self.items.get(id).is_some_and(|i| i.publication.is_published()) {
                self.dequeue(id);
                self.unlink(now, id, false);
            }
            self.stream_lost(now, id, &state, out);
        }
    }

    fn group_changed(&mut self, now: Now, up: UpstreamId, at: usize, group: &GroupStatus, out: &mut Batch) {
        for id in self.items_of_service(up, at) {
            let Some(item) = self.items.get_mut(id).filter(|i| *i.group == *group.group) else { continue };
            if let Some(merged) = &group.merged_to {
                item.group = merged.as_slice().into();
                if let Some(record) = self.records.get_mut(id) {
                    record.set_group(merged);
                }
            }
            if let Some(state) = &group.status {
                self.set_live_state(now, id, &state.borrow(), out);
            }
        }
    }

    /// Moves items whose upstream has the service down to another upstream that has it up, if there is one.
    fn move_to_other_upstream(&mut self, now: Now, at: usize, out: &mut Batch) {
        let Some(service) = self.services.list.get(at) else { return };
        if !service.takes_requests() {
            return;
        }
        let down = service.offers.iter().filter(|o| !o.publishes && !o.is_up());
        let down: Vec<UpstreamId> = down.map(|o| o.up).collect();
        let state = suspect_state(
            StreamState::ClosedRecover,
            code::FAILOVER_STARTED,
            "Service down, another source takes over",
        );
        for up in down {
            for id in self.items_of_service(up, at) {
                self.dequeue(id);
                self.unlink(now, id, true);
                self.stream_lost(now, id, &state, out);
            }
        }
    }

    /// Applies to an item the state that its source has set for many items at once. No effect on items without
    /// a refresh.
    fn set_live_state(&mut self, now: Now, id: ItemId, state: &State<'_>, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if !item.phase.is_live() {
            return;
        }
        self.stream_lost(now, id, state, out);
        if matches!(state.stream, StreamState::Closed | StreamState::Redirected) {
            self.end_item(now, id, out);
        }
    }

    /// The open items of a service whose stream is at this upstream.
    fn items_of_service(&self, up: UpstreamId, at: usize) -> Vec<ItemId> {
        let Some(service) = self.services.list.get(at) else { return Vec::new() };
        self.items.open_where(|i| i.spec.service == service.id && i.is_at(up))
    }
}
