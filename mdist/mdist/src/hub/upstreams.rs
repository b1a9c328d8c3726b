//! Upstreams and their services come, change and go; what that means for the items.

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed};
use rssl::rwf::{DataState, OwnedState, State, StreamState, code};

use super::batch::Batch;
use super::ids::{ItemId, Now, UpstreamId};
use super::services::Offer;
use super::side_requests::suspect_state;
use super::state::Hub;

/// What a change of a directory does to items, after the sides have the new directory.
enum Effect {
    /// The upstream's service is down.
    Down(usize),
    /// It is up again: its items are asked for anew.
    Up(usize),
    /// The upstream does not offer it any more.
    Deleted(usize),
    /// All items that had an answer get this state.
    Status(usize, OwnedState),
    /// The items of a group.
    Group(usize, GroupStatus),
}

impl Hub {
    /// An upstream is there. `publishes`: it opens the item streams itself and is never asked (a non-interactive provider);
    /// the hub then keeps its items' last values whatever the cache setting is.
    pub fn upstream_up(&mut self, now: Now, up: UpstreamId, publishes: bool, out: &mut Batch) {
        self.upstream_down(now, up, "The connection was replaced", out);
        let at = usize::from(up.0);
        if self.upstreams.len() <= at {
            self.upstreams.resize_with(at + 1, Default::default);
        }
        if let Some(upstream) = self.upstreams.get_mut(at) {
            upstream.up = true;
            upstream.publishes = publishes;
        }
    }

    /// An upstream's directory came, or changed. `anew`: what is not in it is not offered (a refresh with clear-cache).
    pub fn upstream_services(
        &mut self,
        now: Now,
        up: UpstreamId,
        changes: Vec<(Action, Listed)>,
        anew: bool,
        out: &mut Batch,
    ) {
        self.apply_pending_first();
        let Some(upstream) = self.upstreams.get(usize::from(up.0)).filter(|u| u.up) else { return };
        let publishes = upstream.publishes;
        let mut effects = Vec::new();
        let mut deleted = Vec::new();
        if anew {
            for (at, service) in self.services.list.iter_mut().enumerate() {
                let kept =
                    |o: &Offer| changes.iter().any(|(a, s)| *a != Action::Delete && s.id == o.listed.id);
                if service.offers.iter().any(|o| o.up == up && !kept(o)) {
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
                self.offer(up, publishes, listed, anew, &mut effects);
            }
        }
        self.show(&deleted, out);
        for effect in effects {
            self.affect(now, up, effect, out);
        }
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// Takes over one service of an upstream's directory, and notes what that does to items.
    fn offer(
        &mut self,
        up: UpstreamId,
        publishes: bool,
        listed: Listed,
        anew: bool,
        effects: &mut Vec<Effect>,
    ) {
        // Without a name it can only be a change of one that is known.
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
                old.info = listed.info.or_else(|| old.info.take().filter(|_| !anew));
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

    /// An upstream is lost, with all its services and streams.
    pub fn upstream_down(&mut self, now: Now, up: UpstreamId, reason: &str, out: &mut Batch) {
        self.apply_pending_first();
        let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)).filter(|u| u.up) else { return };
        upstream.up = false;
        let publishes = upstream.publishes;
        for service in &mut self.services.list {
            service.offers.retain(|o| o.up != up);
        }
        self.show(&[], out);
        let text = format!("Source lost: {reason}");
        let stream = if publishes { StreamState::Open } else { StreamState::ClosedRecover };
        let state = State { stream, data: DataState::Suspect, code: code::NONE, text: text.as_bytes() };
        for id in self.items.which(|i| i.link.is_some_and(|l| l.up == up)) {
            if publishes {
                self.unlink(now, id, false);
            }
            self.lost(now, id, &state, out);
        }
        self.posts_lost(up, out);
        if let Some(upstream) = self.upstreams.get_mut(usize::from(up.0)) {
            upstream.streams = Default::default();
        }
    }

    fn show(&mut self, deleted: &[usize], out: &mut Batch) {
        if self.services.show(deleted) {
            out.services(std::sync::Arc::clone(self.services.directory()));
        }
    }

    fn affect(&mut self, now: Now, up: UpstreamId, effect: Effect, out: &mut Batch) {
        match effect {
            Effect::Down(at) => {
                let state = suspect_state(StreamState::Open, code::NONE, "Service down");
                for id in self.of_service(up, at) {
                    self.lost(now, id, &state, out);
                    if let Some(item) = self.items.get_mut(id) {
                        item.recovering = true;
                    }
                }
                self.move_stranded(now, at, out);
            }
            Effect::Up(at) => {
                for id in self.of_service(up, at) {
                    let Some(item) = self.items.get_mut(id) else { continue };
                    if item.published {
                        // It cannot be asked; its stream went on, so the cache has what it published.
                        item.recovering = false;
                        self.tell_image(id, out);
                    } else if item.recovering || item.state.data == DataState::Suspect {
                        item.recovering = true;
                        self.enqueue(id, true);
                    }
                }
                self.move_stranded(now, at, out);
            }
            Effect::Deleted(at) => {
                let state = suspect_state(
                    StreamState::ClosedRecover,
                    code::NONE,
                    "The source has withdrawn the service",
                );
                for id in self.of_service(up, at) {
                    if self.items.get(id).is_some_and(|i| i.published) {
                        self.unlink(now, id, false);
                    }
                    self.lost(now, id, &state, out);
                }
            }
            Effect::Status(at, state) => {
                for id in self.of_service(up, at) {
                    self.restate(now, id, &state.borrow(), out);
                }
            }
            Effect::Group(at, group) => {
                for id in self.of_service(up, at) {
                    let Some(item) = self.items.get_mut(id).filter(|i| *i.group == *group.group) else {
                        continue;
                    };
                    if let Some(merged) = &group.merged_to {
                        item.group = merged.as_slice().into();
                        if let Some(record) = self.records.get_mut(id) {
                            record.set_group(merged);
                        }
                    }
                    if let Some(state) = &group.status {
                        self.restate(now, id, &state.borrow(), out);
                    }
                }
            }
        }
    }

    /// Items whose upstream has the service down go to another that has it up, if there is one.
    fn move_stranded(&mut self, now: Now, at: usize, out: &mut Batch) {
        let Some(service) = self.services.list.get(at) else { return };
        if !service.offers.iter().any(|o| !o.publishes && o.is_usable()) {
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
            for id in self.of_service(up, at) {
                self.unlink(now, id, true);
                self.lost(now, id, &state, out);
            }
        }
    }

    /// A state that a source gave to many items at once; those without an answer yet are not meant.
    fn restate(&mut self, now: Now, id: ItemId, state: &State<'_>, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if !item.link.is_some_and(|l| l.live) {
            return;
        }
        self.lost(now, id, state, out);
        if matches!(state.stream, StreamState::Closed | StreamState::Redirected) {
            self.end(now, id, out);
        }
    }

    /// The open items of a service that have their stream at this upstream.
    fn of_service(&self, up: UpstreamId, at: usize) -> Vec<ItemId> {
        let Some(service) = self.services.list.get(at) else { return Vec::new() };
        self.items.which(|i| i.spec.service == service.id && i.link.is_some_and(|l| l.up == up))
    }
}
