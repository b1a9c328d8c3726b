//! Changes of upstreams and services, and their effects on items.

use std::collections::HashMap;

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed};
use rssl::rwf::{DataState, DataType, OwnedState, State, Status, StreamState, code};

use super::announce::{Change, Reach};
use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state};
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::item::{Event, Queue};
use super::services::Offer;
use super::state::Hub;

/// The state of the items of a service that is down, unless the upstream has sent one.
fn down_state(sent: Option<&OwnedState>) -> OwnedState {
    let usual = || suspect_state(StreamState::Open, code::NONE, "Service down").to_owned();
    sent.cloned().unwrap_or_else(usual)
}

/// The effect of a change of an upstream's directory on items, applied once the sides have the new directory. The
/// number is the place of the service.
enum Effect {
    /// The upstream's service is down; the state of its items, if the upstream has sent one.
    Down(usize, Option<OwnedState>),
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
            upstream.recovers = false;
        }
    }

    /// Declares that an upstream is a source distributor: it keeps streams open and recovers their items itself, and
    /// announces the states of its services in order with the messages of their items. To be called after
    /// [`Hub::upstream_up`].
    pub fn upstream_recovers(&mut self, up: UpstreamId) {
        if let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) {
            upstream.recovers = true;
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
        let (publishes, recovers) = (upstream.publishes, upstream.recovers);
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
                self.offer(up, (publishes, recovers), listed, replaces, &mut effects);
            }
        }
        // Announcements go with the change of the directory, so that it takes one message.
        let announced: Vec<Token> =
            effects.iter().map(|effect| self.announce_effect(up, effect, out)).collect();
        self.publish_directory(&deleted, out);
        for (effect, number) in effects.into_iter().zip(announced) {
            self.apply_effect(now, up, effect, number, out);
            out.end_announcement(number);
        }
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// Applies one service of an upstream's directory; adds the effects on items to `effects`.
    fn offer(
        &mut self,
        up: UpstreamId,
        (publishes, recovers): (bool, bool),
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
                old.state = listed.state.filter(|_| !recovers).or_else(|| old.state.take());
                old.load = listed.load.or_else(|| old.load.take());
                if !listed.links.is_empty() {
                    old.links = listed.links;
                }
                (was, offer.is_up())
            }
            None => {
                let listed = Listed { groups: Vec::new(), ..listed };
                let offer = Offer { up, publishes, listed, outstanding: 0, open: 0, announcement: 0 };
                service.offers.push(offer);
                (false, service.offer(up).is_some_and(|o| o.is_up()))
            }
        };
        match (was_up, is_up) {
            (true, false) => effects.push(Effect::Down(at, status)),
            (false, true) => {
                effects.push(Effect::Up(at));
                effects.extend(status.map(|status| Effect::Status(at, status)));
            }
            _ => effects.extend(status.map(|status| Effect::Status(at, status))),
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
        let text = format!("Source lost: {reason}");
        let stream = if publishes { StreamState::Open } else { StreamState::ClosedRecover };
        let state = State { stream, data: DataState::Suspect, code: code::NONE, text: text.as_bytes() };
        let offered: Vec<usize> = (0..self.services.list.len()).filter(|at| self.offers(up, *at)).collect();
        let announced: HashMap<u16, Token> = offered
            .into_iter()
            .filter_map(|at| {
                let number = self.announce(up, at, &Change::Service(state.to_owned()), Reach::All, out);
                Some((self.services.list.get(at)?.id, number))
            })
            .collect();
        for service in &mut self.services.list {
            if let Some(offer) = service.offer(up) {
                out.end_announcement(offer.announcement);
            }
            service.offers.retain(|o| o.up != up);
        }
        self.publish_directory(&[], out);
        for id in self.items.open_where(|i| i.is_at(up)) {
            let service = self.items.get(id).map_or(0, |item| item.spec.service);
            if publishes {
                self.unlink(now, id, false);
            }
            self.stream_lost(now, id, &state, announced.get(&service).copied().unwrap_or(0), out);
        }
        for number in announced.into_values() {
            out.end_announcement(number);
        }
        self.refuse_posts_of(up, out);
        if let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) {
            upstream.streams = Default::default();
        }
    }

    /// Sends the sides the new directory, if it changed.
    pub(super) fn publish_directory(&mut self, deleted: &[usize], out: &mut Batch) {
        if self.services.rebuild_directory(deleted) {
            out.services(std::sync::Arc::clone(self.services.directory()));
        }
    }

    /// Announces the effect, if it sets one state for many items; returns the number of the announcement, or 0.
    fn announce_effect(&mut self, up: UpstreamId, effect: &Effect, out: &mut Batch) -> Token {
        let (at, change, reach) = match effect {
            // The items get the state of their move instead.
            Effect::Down(at, _) if self.is_replaced(*at) => return 0,
            Effect::Down(at, state) => (*at, Change::Service(down_state(state.as_ref())), Reach::All),
            Effect::Status(at, state) => (*at, Change::Service(state.clone()), Reach::Live),
            Effect::Group(at, group) => (*at, Change::Group(group.clone()), Reach::Live),
            Effect::Up(_) | Effect::Deleted(_) => return 0,
        };
        self.announce(up, at, &change, reach, out)
    }

    fn apply_effect(&mut self, now: Now, up: UpstreamId, effect: Effect, covered: Token, out: &mut Batch) {
        match effect {
            Effect::Down(at, state) => self.service_down(now, up, at, state.as_ref(), covered, out),
            Effect::Up(at) => self.service_up(now, up, at, out),
            Effect::Deleted(at) => self.service_deleted(now, up, at, out),
            Effect::Status(at, state) => {
                for id in self.items_of_service(up, at) {
                    self.set_live_state(now, id, &state.borrow(), covered, out);
                }
            }
            Effect::Group(at, group) => self.group_changed(now, up, at, &group, covered, out),
        }
    }

    /// Whether an interactive upstream has the service up, to which items of others move.
    pub(super) fn is_replaced(&self, at: usize) -> bool {
        self.services.list.get(at).is_some_and(super::services::Service::takes_requests)
    }

    fn offers(&self, up: UpstreamId, at: usize) -> bool {
        self.services.list.get(at).is_some_and(|service| service.offers.iter().any(|offer| offer.up == up))
    }

    fn service_down(
        &mut self,
        now: Now,
        up: UpstreamId,
        at: usize,
        state: Option<&OwnedState>,
        covered: Token,
        out: &mut Batch,
    ) {
        let state = down_state(state);
        let publishes = self.upstreams.get(usize::from(up.0)).is_some_and(|upstream| upstream.publishes);
        if self.is_replaced(at) && !publishes {
            return self.move_to_other_upstream(now, at, out);
        }
        for id in self.items_of_service(up, at) {
            self.stream_lost(now, id, &state.borrow(), covered, out);
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
            self.stream_lost(now, id, &state, 0, out);
        }
    }

    fn group_changed(
        &mut self,
        now: Now,
        up: UpstreamId,
        at: usize,
        group: &GroupStatus,
        covered: Token,
        out: &mut Batch,
    ) {
        for id in self.items_of_service(up, at) {
            let Some(item) = self.items.get_mut(id).filter(|i| *i.group == *group.group) else { continue };
            if let Some(merged) = &group.merged_to {
                item.group = merged.as_slice().into();
                if let Some(record) = self.records.get_mut(id) {
                    record.set_group(merged);
                }
                let status = Status {
                    domain: item.spec.domain,
                    stream: 1,
                    container: DataType::NO_DATA,
                    group: Some(merged),
                    ..Status::default()
                };
                let written = encode::write(&mut self.scratch, 64 + merged.len(), |w| status.encode(w));
                if let Ok(bytes) = written
                    && !item.holders.is_empty()
                {
                    let kind = if covered == 0 { Kind::Message } else { Kind::Covered };
                    out.push(kind, SideId::ALL, id, covered, bytes);
                }
            }
            if let Some(state) = &group.status {
                self.set_live_state(now, id, &state.borrow(), covered, out);
            }
        }
    }

    /// Moves items whose upstream has the service down to another upstream that has it up, if there is one.
    pub(super) fn move_to_other_upstream(&mut self, now: Now, at: usize, out: &mut Batch) {
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
                self.stream_lost(now, id, &state, 0, out);
            }
        }
    }

    /// Applies to an item the state that its source has set for many items at once. No effect on items without
    /// a refresh.
    fn set_live_state(&mut self, now: Now, id: ItemId, state: &State<'_>, covered: Token, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if !item.phase.is_live() {
            return;
        }
        self.stream_lost(now, id, state, covered, out);
        if matches!(state.stream, StreamState::Closed | StreamState::Redirected) {
            self.end_item(now, id, out);
        }
    }

    /// The open items of a service whose stream is at this upstream.
    pub(super) fn items_of_service(&self, up: UpstreamId, at: usize) -> Vec<ItemId> {
        let Some(service) = self.services.list.get(at) else { return Vec::new() };
        self.items.open_where(|i| i.spec.service == service.id && i.is_at(up))
    }
}
