//! Images for new streams and snapshot requests of open items: from the cache, from a refresh that is already awaited,
//! or from another request upstream.

use rssl::rwf::{DataState, OwnedState, State, StreamState, code};

use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state};
use super::ids::{ItemId, Now, SideId};
use super::item::{Phase, Waiter};
use super::services::Pick;
use super::state::Hub;
use crate::cache::Image;

impl Hub {
    /// Sends a waiter the item's image: from the cache, or else from the refresh that is under way or is
    /// requested now.
    pub(super) fn provide_image(&mut self, now: Now, id: ItemId, waiter: Waiter, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if self.values.have_image(id, item) {
            return self.send_cached_image(now, id, &[waiter], out);
        }
        let is_receiving = item.phase == Phase::Receiving;
        if waiter.snapshot && item.publication.is_published() && !is_receiving {
            let domain = item.spec.domain;
            let state = suspect_state(StreamState::ClosedRecover, code::NONE, "The item's image is not kept");
            return self.refuse(waiter.side, waiter.token, domain, &state, out);
        }
        let can_request = item.phase == Phase::Live && !item.is_requested();
        self.add_waiter(id, waiter);
        if can_request {
            self.request_again(now, id, false);
        }
        self.send_notice_if_stuck(id, waiter, out);
    }

    pub(super) fn add_waiter(&mut self, id: ItemId, waiter: Waiter) {
        if let Some(item) = self.items.get_mut(id) {
            item.waiting.add(waiter);
        }
    }

    /// Sends a token the reason why it waits, unless an answer of the upstream is under way.
    pub(super) fn send_notice_if_stuck(&mut self, id: ItemId, waiter: Waiter, out: &mut Batch) {
        use StreamState::{ClosedRecover, Open};
        let Some(item) = self.items.get(id) else { return };
        let Some(at) = self.services.index(item.spec.service) else { return };
        let Some(service) = self.services.list.get(at) else { return };
        let state = match (item.link, service.pick(item.spec.domain)) {
            (Some(_), _) if item.phase == Phase::Receiving => return,
            (Some(_), _) if item.publication.is_published() => {
                suspect_state(Open, code::NONE, "Waiting for the publisher's next image of the item")
            }
            // The source itself has sent the reason.
            (Some(link), _) if item.phase == Phase::Opening && link.pending.is_none() => {
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
            (None, Pick::Unavailable) if service.is_up() => {
                suspect_state(ClosedRecover, code::NONE, "The service accepts no requests")
            }
            (None, Pick::Unavailable) => {
                suspect_state(ClosedRecover, code::NONE, "Waiting for the service to come up")
            }
        };
        let message = encode::status(&mut self.scratch, item.spec.domain, &state);
        out.push(Kind::Notice, waiter.side, id, waiter.token, message);
    }

    /// Refuses the snapshot requests of an item whose source has announced that the image may take long.
    pub(super) fn end_snapshots(&mut self, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        let domain = item.spec.domain;
        let state = OwnedState { stream: StreamState::ClosedRecover, ..item.state.clone() };
        let ended = item.waiting.take_where(|w| w.snapshot);
        for w in ended {
            self.refuse(w.side, w.token, domain, &state.borrow(), out);
        }
    }

    /// Sends the item's image from the cache to each of `to`.
    pub(super) fn send_cached_image(&mut self, now: Now, id: ItemId, to: &[Waiter], out: &mut Batch) {
        let Some(item) = self.items.get(id).filter(|_| self.values.get(id).is_some()) else { return };
        self.values.used(id);
        let mut failed = false;
        for snapshot in [false, true] {
            let to = to.iter().filter(|w| w.snapshot == snapshot);
            if to.clone().next().is_none() {
                continue;
            }
            let mut state = item.state.borrow();
            match state.stream {
                _ if snapshot => state.stream = StreamState::NonStreaming,
                // The stream is closed upstream and requested again. For the sides it is open, and stale.
                StreamState::ClosedRecover => state.stream = StreamState::Open,
                _ => {}
            }
            let image = Image {
                domain: item.spec.domain,
                stream: id.stream(),
                solicited: true,
                key: Some(item.spec.key(item.spec.service)),
                state: Some(state),
            };
            self.stats.cached_images += to.clone().count() as u64;
            let sent = self.values.image(id, &image, self.options.max_part, |bytes| {
                let mut waiters = to.clone();
                if let Some(w) = waiters.next() {
                    out.push(Kind::Image, w.side, id, w.token, bytes);
                }
                for w in waiters {
                    out.push_repeat(Kind::Image, w.side, id, w.token);
                }
            });
            failed |= sent.is_err();
        }
        if failed {
            // The record is larger than a message can be. From now on images come from upstream.
            self.uncache(id);
            for w in to {
                self.provide_image(now, id, *w, out);
            }
        }
    }

    /// Makes a stale item good again on all streams, with the image in the cache.
    pub(super) fn refresh_from_cache(&mut self, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        if !self.values.have_image(id, item) || item.state.data != DataState::Suspect {
            return;
        }
        item.set_state(&State::OK);
        self.recovered += 1;
        if item.holders.is_empty() {
            return;
        }
        let image = Image {
            domain: item.spec.domain,
            stream: id.stream(),
            solicited: false,
            key: Some(item.spec.key(item.spec.service)),
            state: Some(State::OK),
        };
        let send = |bytes: &[u8]| out.push(Kind::Message, SideId::ALL, id, 0, bytes);
        if self.values.image(id, &image, self.options.max_part, send).is_err() {
            self.uncache(id);
        }
    }

    /// Drops the item's record after a message that the cache cannot apply. Its images come from upstream from
    /// now on.
    pub(super) fn uncache(&mut self, id: ItemId) {
        self.stats.cache_errors += 1;
        if let Some(item) = self.items.get_mut(id) {
            item.cacheable = false;
        }
        self.values.remove(id);
        self.route_updates(id);
    }
}
