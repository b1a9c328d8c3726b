//! Changes of upstreams and services. Their effects on items are applied in portions.

use rssl::rdm::directory::{Action, Service as Listed};
use rssl::rwf::{DataState, State, StreamState, code};

use super::batch::Batch;
use super::effects::Effect;
use super::ids::{Now, UpstreamId};
use super::services::Offer;
use super::state::Hub;

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
                    effects.push((at, Effect::Deleted { reported: recovers }));
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
                    effects.push((at, Effect::Deleted { reported: recovers }));
                    deleted.push(at);
                }
            } else {
                self.offer(up, publishes, recovers, listed, replaces, &mut effects);
            }
        }
        let effects = self.with_moves(publishes, effects);
        self.begin_effects(now, up, effects, &deleted, out);
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// Applies one service of an upstream's directory; adds the effects on items to `effects`.
    fn offer(
        &mut self,
        up: UpstreamId,
        publishes: bool,
        recovers: bool,
        listed: Listed,
        replaces: bool,
        effects: &mut Vec<(usize, Effect)>,
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
        let number = self.services.next_offer();
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
                service.offers.push(Offer::new(number, up, publishes, listed));
                (false, service.offer(up).is_some_and(|o| o.is_up()))
            }
        };
        match (was_up, is_up) {
            (true, false) => effects.push((at, Effect::down(status))),
            (false, true) => {
                effects.push((at, Effect::Up));
                effects.extend(status.map(|status| (at, Effect::Status(status))));
            }
            _ => effects.extend(status.map(|status| (at, Effect::Status(status)))),
        }
        effects.extend(groups.into_iter().map(|group| (at, Effect::Group(group))));
    }

    /// Removes an upstream that is lost, with all its services and streams.
    pub fn upstream_down(&mut self, now: Now, up: UpstreamId, reason: &str, out: &mut Batch) {
        self.apply_pending_first();
        if self.upstreams.get(usize::from(up.0)).is_none_or(|upstream| !upstream.up) {
            return;
        }
        self.hold_unanswered_back(up);
        let since = self.services.next_offer();
        let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) else { return };
        upstream.up = false;
        upstream.since = since;
        upstream.streams = Default::default();
        let stream = if upstream.publishes { StreamState::Open } else { StreamState::ClosedRecover };
        let text = format!("Source lost: {reason}");
        let state = State { stream, data: DataState::Suspect, code: code::NONE, text: text.as_bytes() };
        let mut effects = Vec::new();
        for (at, service) in self.services.list.iter_mut().enumerate() {
            if service.offer(up).is_some() {
                service.offers.retain(|o| o.up != up);
                effects.push((at, Effect::Lost(state.to_owned())));
            }
        }
        self.begin_effects(now, up, effects, &[], out);
        self.refuse_posts_of(up, out);
    }

    /// Tells the sides of changes of an upstream's services, and begins to apply the effects on items: place of the
    /// service, and effect. `deleted` are the services that their last upstream has removed.
    pub(super) fn begin_effects(
        &mut self,
        now: Now,
        up: UpstreamId,
        effects: Vec<(usize, Effect)>,
        deleted: &[usize],
        out: &mut Batch,
    ) {
        // Announcements go with the change of the directory, so that it takes one message.
        let numbers = self.announce_effects(up, &effects, out);
        self.publish_directory(deleted, out);
        let id = |at: usize| self.services.list.get(at).map(|service| service.id);
        let effects = effects.into_iter().zip(numbers);
        let effects = effects.filter_map(|((at, effect), number)| Some((id(at)?, effect, number))).collect();
        self.begin_sweeps(now, up, effects, out);
    }

    /// Adds the moves of items to upstreams that have the service up, after changes of the state of services.
    pub(super) fn with_moves(&self, publishes: bool, effects: Vec<(usize, Effect)>) -> Vec<(usize, Effect)> {
        let mut all = Vec::with_capacity(effects.len());
        for (at, effect) in effects {
            let moves = matches!(effect, Effect::Down(_) | Effect::Up | Effect::Watch) && self.can_move(at);
            // Items that move get the state of their move instead of that of their service.
            if !matches!(effect, Effect::Down(_)) || publishes || !self.is_replaced(at) {
                all.push((at, effect));
            }
            if moves {
                all.push((at, Effect::Move));
            }
        }
        all
    }

    /// Sends the sides the new directory, if it changed.
    pub(super) fn publish_directory(&mut self, deleted: &[usize], out: &mut Batch) {
        if self.services.rebuild_directory(deleted) {
            out.services(std::sync::Arc::clone(self.services.directory()));
        }
    }

    /// Whether an interactive upstream has the service up, to which items of others move.
    pub(super) fn is_replaced(&self, at: usize) -> bool {
        self.services.list.get(at).is_some_and(super::services::Service::takes_requests)
    }

    /// Whether an upstream takes the requests for items whose upstream has the service down.
    fn can_move(&self, at: usize) -> bool {
        let service = self.services.list.get(at);
        service.is_some_and(|service| {
            service.takes_requests() && service.offers.iter().any(|offer| !offer.publishes && !offer.is_up())
        })
    }
}
