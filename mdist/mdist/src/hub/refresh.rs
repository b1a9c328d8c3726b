//! Refreshes from upstreams: passes them to the cache, and to the waiters or to all streams.

use rssl::rwf::{DataState, Refresh, RefreshFlags, State, StreamState};

use super::batch::{Batch, Kind};
use super::encode::{self, with_service};
use super::error::UpstreamError;
use super::ids::{ItemId, Now, SideId};
use super::item::{Event, Image, Phase, Recipients};
use super::state::Hub;

/// The position of a part in its image.
#[derive(Clone, Copy)]
struct Part {
    /// The first part of an image.
    first: bool,
    /// The first part of an image that replaces everything known of the item.
    restarts: bool,
    complete: bool,
}

impl Hub {
    /// Handles a refresh, or a part of one.
    pub(super) fn refresh(
        &mut self,
        now: Now,
        id: ItemId,
        refresh: &Refresh<'_>,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        self.stats.refreshes += 1;
        let Some(part) = self.begin_part(now, id, refresh) else { return Ok(()) };
        self.cache_refresh(id, refresh, part);
        self.route_updates(id);
        self.pass_refresh(id, refresh, message, part, out)?;
        let ends = match self.kept_open(id, refresh.state.stream) {
            StreamState::Closed | StreamState::Redirected => true,
            StreamState::NonStreaming => part.complete,
            StreamState::ClosedRecover => {
                self.retry(now, id);
                return Ok(());
            }
            StreamState::Open | StreamState::Unspecified => false,
        };
        if part.complete {
            self.image_completed(now, id, out);
        }
        if ends {
            self.end_item(now, id, out);
        }
        Ok(())
    }

    /// Applies a part to its item: state, group and phase. The first part also decides the recipients of the
    /// refresh. `None`: the item has no stream.
    fn begin_part(&mut self, now: Now, id: ItemId, refresh: &Refresh<'_>) -> Option<Part> {
        let item = self.items.get_mut(id)?;
        let link = item.link.as_mut()?;
        if let Some(pending) = link.pending.as_mut() {
            pending.at = now;
        }
        let solicited = refresh.flags.contains(RefreshFlags::SOLICITED);
        let clear = refresh.flags.contains(RefreshFlags::CLEAR_CACHE);
        let complete = refresh.flags.contains(RefreshFlags::COMPLETE);
        // Stock providers set CLEAR_CACHE on every part of an image, and number none. So a solicited one is the
        // next part.
        let first = item.phase != Phase::Receiving
            || refresh.part == Some(0)
            || refresh.part.is_none() && clear && !solicited;
        // The first refresh of a stream is a new start, whatever flags it has.
        let restarts = first && (item.image.restarts() || solicited || !item.phase.is_live());
        let is_late = first && solicited && link.unanswered > 0 && link.pending.is_none();
        if first && solicited {
            link.unanswered = link.unanswered.saturating_sub(1);
        }
        item.apply(if complete { Event::LastPart } else { Event::Part });
        if first {
            // Streams that were notified that the item is stale must get its new state too.
            let was_stale = item.image.is_known() && item.state.data == DataState::Suspect;
            // On first publication every holder is waiting for the image.
            // The answer to a request that the source's own image has completed has nothing new.
            let is_needless = is_late
                && item.image == Image::Known
                && item.state.data == DataState::Ok
                && refresh.state.data == DataState::Ok
                && matches!(refresh.state.stream, StreamState::Open | StreamState::Unspecified);
            let for_all = !item.publication.is_awaited()
                && (item.image.restarts() || was_stale || !solicited)
                || item.waiting.is_empty() && !is_needless;
            item.recipients = if for_all { Recipients::All } else { Recipients::Waiters };
            item.receiving.append(&mut item.waiting.take());
        }
        let was_suspect = item.state.data == DataState::Suspect;
        item.set_state(&refresh.state);
        self.recovered += u64::from(was_suspect && item.state.data == DataState::Ok);
        if *item.group != *refresh.group {
            item.group = refresh.group.into();
        }
        if first && item.snapshot {
            self.items.hide(id);
        }
        Some(Part { first, restarts, complete })
    }

    /// Puts a part into the cache, if the item is cached. Only a first part clears the record. A further part of an
    /// image whose first part is not cached any more is not cached either.
    fn cache_refresh(&mut self, id: ItemId, refresh: &Refresh<'_>, part: Part) {
        let Some(item) = self.items.get(id) else { return };
        let service = self.services.index(item.spec.service).and_then(|at| self.services.list.get(at));
        let cached = service.is_some_and(|service| service.cached || item.publication.is_published());
        let forbidden = refresh.flags.contains(RefreshFlags::DO_NOT_CACHE);
        if !cached || item.spec.private || item.snapshot || !item.cacheable || forbidden {
            return self.values.remove(id);
        }
        if !part.first && self.values.get(id).is_none() {
            return;
        }
        let clears = refresh.flags.contains(RefreshFlags::CLEAR_CACHE);
        let clear = if part.first { clears || part.restarts } else { false };
        let applied = if clear == clears {
            self.values.refresh(id, refresh)
        } else {
            let flags = refresh.flags.without(RefreshFlags::CLEAR_CACHE);
            let flags = if clear { flags.with(RefreshFlags::CLEAR_CACHE) } else { flags };
            self.values.refresh(id, &Refresh { flags, ..refresh.clone() })
        };
        if applied.is_err() {
            self.uncache(id);
        }
    }

    /// Puts a part into the batch for each stream and snapshot request that is to get it.
    fn pass_refresh(
        &mut self,
        id: ItemId,
        refresh: &Refresh<'_>,
        message: &[u8],
        part: Part,
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        let key = refresh.key.map(|k| with_service(k, item.spec.service));
        let scratch = &mut self.scratch;
        let mut push = |kind, side, token, flags: RefreshFlags, state: State<'_>, out: &mut Batch| {
            if flags == refresh.flags && key == refresh.key && state == refresh.state {
                out.push(kind, side, id, token, message);
            } else {
                let refresh = Refresh { flags, key, state, ..refresh.clone() };
                let bytes = encode::write(scratch, message.len() + 16, |w| refresh.encode(w))?;
                out.push(kind, side, id, token, bytes);
            }
            rssl::Result::Ok(())
        };
        let for_all = item.recipients == Recipients::All;
        let flags = if part.restarts { refresh.flags.with(RefreshFlags::CLEAR_CACHE) } else { refresh.flags };
        if for_all && !item.holders.is_empty() {
            let unsolicited = flags.without(RefreshFlags::SOLICITED);
            push(Kind::Message, SideId::ALL, 0, unsolicited, refresh.state, out)?;
        }
        let solicited = flags.with(RefreshFlags::SOLICITED);
        for snapshot in [false, true] {
            let stream = match refresh.state.stream {
                StreamState::Open | StreamState::Unspecified if snapshot => StreamState::NonStreaming,
                stream => stream,
            };
            let mut waiters = item.receiving.iter().filter(|w| w.snapshot == snapshot);
            if let Some(w) = waiters.next() {
                push(Kind::Image, w.side, w.token, solicited, State { stream, ..refresh.state }, out)?;
            }
            for w in waiters {
                out.push_repeat(Kind::Image, w.side, id, w.token);
            }
        }
        if for_all && part.first {
            // Their streams are live now: they get the further parts with all others.
            item.receiving.retain(|w| w.snapshot);
        }
        Ok(())
    }

    /// Completes the item's request, and serves requests that came between the parts of the image.
    fn image_completed(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        self.complete_request(id);
        self.stop_awaiting(id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.apply(Event::ImageComplete);
        item.receiving.clear();
        item.tries = 0;
        item.unanswered_ends = 0;
        let service = item.spec.service;
        self.watch_if_stale(now, id);
        let Some(item) = self.items.get_mut(id) else { return };
        if !item.waiting.is_empty() {
            if self.values.have_image(id, item) {
                let waiting = item.waiting.take();
                self.send_cached_image(now, id, &waiting, out);
            } else {
                self.request_again(now, id, false);
            }
        }
        self.release_if_unwanted(now, id);
        if let Some(at) = self.services.index(service) {
            self.pump(now, at);
        }
    }
}
