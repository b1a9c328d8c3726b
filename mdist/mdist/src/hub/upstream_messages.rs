//! Messages from upstreams: updates as they are, refreshes to who waits or to all, statuses with their consequences.

use rssl::rwf::{
    self, Class, Close, DataState, Key, Refresh, RefreshFlags, State, Status, StatusFlags, StreamState,
};
use rssl::rwf::{Update, code};

use super::batch::{Batch, Kind};
use super::encode;
use super::ids::{ItemId, Now, SideId, UpstreamId};
use super::item::Waiter;
use super::side_requests::suspect_state;
use super::state::Hub;
use crate::cache::Image;
use rssl::wire::to_vec;

/// Flag bit of an update that has a key, in the low seven bits of its flags. Spec: rssl.md §2.4.
const UPDATE_HAS_KEY: u8 = 0x08;

impl Hub {
    /// Takes one message of an item stream, or an acknowledgement on the login stream, from an upstream.
    ///
    /// An update is the hot path: a look at its head, its stream's slot, the cache if it is on, a copy into the batch.
    ///
    /// # Errors
    /// The message is malformed, or breaks a rule that makes its sender unusable: the connection is to be closed.
    #[inline]
    pub fn message(
        &mut self,
        now: Now,
        up: UpstreamId,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let head = rwf::peek(message)?;
        let Some(upstream) = self.upstreams.get(usize::from(up.0)) else { return Ok(()) };
        if head.class == Class::Update {
            let Some(slot) = upstream.streams.get(head.stream).copied() else {
                self.stats.late += 1;
                return Ok(());
            };
            if slot.domain != head.domain {
                return Err(UpstreamError::Domain { stream: head.stream });
            }
            if slot.pass && !slot.keep && !has_key(message) {
                self.stats.updates += 1;
                out.push(Kind::Message, SideId::ALL, slot.item, 0, message);
                return Ok(());
            }
            if slot.keep {
                self.keep_update(slot.item, message);
            }
            if slot.pass {
                self.stats.updates += 1;
                return if has_key(message) {
                    self.update_with_key(slot.item, message, out)
                } else {
                    out.push(Kind::Message, SideId::ALL, slot.item, 0, message);
                    Ok(())
                };
            }
            self.stats.early += u64::from(!slot.keep);
            return Ok(());
        }
        self.control_message(now, up, head, message, out)
    }

    #[cold]
    fn update_with_key(&mut self, id: ItemId, message: &[u8], out: &mut Batch) -> Result<(), UpstreamError> {
        let update = Update::decode(message)?;
        let Some(item) = self.items.get(id) else { return Ok(()) };
        let key = update.key.map(|k| ours(k, item.spec.service));
        let update = Update { key, ..update };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| update.encode(w))?;
        out.push(Kind::Message, SideId::ALL, id, 0, bytes);
        Ok(())
    }

    /// The content of an item cannot be kept: its images come from upstream from now on.
    pub(super) fn uncache(&mut self, id: ItemId) {
        self.stats.cache_errors += 1;
        if let Some(item) = self.items.get_mut(id) {
            item.uncacheable = true;
        }
        self.records.take(id);
        self.route_updates(id);
    }

    fn control_message(
        &mut self,
        now: Now,
        up: UpstreamId,
        head: rwf::Head,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        self.apply_pending_first();
        if head.class == Class::Ack {
            return self.ack(up, message, out);
        }
        let Some(upstream) = self.upstreams.get(usize::from(up.0)) else { return Ok(()) };
        let publishes = upstream.publishes;
        let Some(slot) = upstream.streams.get(head.stream).copied() else {
            return match head.class {
                Class::Refresh if publishes && head.stream < 0 => self.publish(now, up, message, out),
                Class::Refresh if head.stream < 0 => {
                    // A stream that the provider opens is not wanted here. Spec: rssl.md §6.
                    let close = Close { domain: head.domain, stream: head.stream, ..Close::default() };
                    self.outgoing.push_back((up, to_vec(|w| close.encode(w))?));
                    Ok(())
                }
                _ => {
                    self.stats.late += 1;
                    Ok(())
                }
            };
        };
        if slot.domain != head.domain {
            return Err(UpstreamError::Domain { stream: head.stream });
        }
        match head.class {
            Class::Refresh => self.refresh(now, up, slot.item, &Refresh::decode(message)?, message, out)?,
            Class::Status => self.status(now, slot.item, &Status::decode(message)?, out)?,
            Class::Generic => self.generic(slot.item, message, out)?,
            Class::Close => {
                let state =
                    suspect_state(StreamState::ClosedRecover, code::NONE, "The publisher closed the item");
                self.lost(now, slot.item, &state, out);
            }
            // Requests and posts do not come from a source.
            Class::Request | Class::Post | Class::Ack | Class::Update => {
                return Err(UpstreamError::Class { stream: head.stream });
            }
        }
        Ok(())
    }

    /// A refresh on a stream that a publisher just opened.
    fn publish(
        &mut self,
        now: Now,
        up: UpstreamId,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let refresh = Refresh::decode(message)?;
        let key = refresh
            .key
            .filter(|k| k.name.is_some())
            .ok_or(UpstreamError::NoKey { stream: refresh.stream })?;
        let theirs = key.service.ok_or(UpstreamError::NoKey { stream: refresh.stream })?;
        let Some(at) = self.services.offered(up, theirs) else {
            return Err(UpstreamError::Service { stream: refresh.stream, service: theirs });
        };
        let Some(service) = self.services.list.get(at) else { return Ok(()) };
        let spec = super::request::ItemSpec::new(service.id, refresh.domain, &key, None, false)?;
        let id = match self.items.find(&spec) {
            Some(id) => id,
            None if self.items.len() >= self.options.max_items => {
                self.stats.refused += 1;
                return Ok(());
            }
            None => self.items.add(spec, false),
        };
        let Some(item) = self.items.get(id) else { return Ok(()) };
        if item.link.is_some_and(|l| l.up != up) {
            // Somebody else publishes the same item and was first; this one takes over with a refresh after that one's end.
            return Ok(());
        }
        self.unlink(now, id, false);
        self.link(id, up, refresh.stream);
        if let Some(item) = self.items.get_mut(id) {
            item.published = true;
            item.recovering = true;
        }
        self.refresh(now, up, id, &refresh, message, out)
    }

    fn refresh(
        &mut self,
        now: Now,
        up: UpstreamId,
        id: ItemId,
        refresh: &Refresh<'_>,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        self.stats.refreshes += 1;
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        let Some(link) = item.link.as_mut() else { return Ok(()) };
        let solicited = refresh.flags.contains(RefreshFlags::SOLICITED);
        let clear = refresh.flags.contains(RefreshFlags::CLEAR_CACHE);
        let complete = refresh.flags.contains(RefreshFlags::COMPLETE);
        // Stock providers clear the cache with every part of an image, and number none: solicited, it is the next one.
        let first = !item.partial || refresh.part == Some(0) || refresh.part.is_none() && clear && !solicited;
        // A stream that did not have a refresh yet starts anew, whatever its flags say.
        let anew = first && (item.recovering || solicited || !link.live);
        let was_live = link.live;
        link.live = true;
        if let Some(asked) = link.asked.as_mut() {
            asked.at = now;
        }
        if first {
            // Who saw the item go stale must see it become good.
            let stale = item.imaged && item.state.data == DataState::Suspect;
            // Of one that is published for the first time everybody waits.
            item.to_all =
                !item.awaited && (item.recovering || stale || !solicited) || item.waiting.is_empty();
            item.receiving.append(&mut item.waiting);
            if item.snapshot {
                self.items.hide(id);
            }
        }
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        item.partial = !complete;
        item.set_state(&refresh.state);
        if *item.group != *refresh.group {
            item.group = refresh.group.into();
        }
        if first || !clear {
            self.keep_refresh(id, refresh, anew);
        } else {
            let flags = refresh.flags.without(RefreshFlags::CLEAR_CACHE);
            self.keep_refresh(id, &Refresh { flags, ..refresh.clone() }, anew);
        }
        if !was_live {
            self.route_updates(id);
        }
        self.give_refresh(id, refresh, message, first, anew, out)?;

        let over = match refresh.state.stream {
            StreamState::Closed | StreamState::Redirected => true,
            StreamState::NonStreaming => complete,
            StreamState::ClosedRecover => {
                self.retry(now, id);
                return Ok(());
            }
            StreamState::Open | StreamState::Unspecified => false,
        };
        if complete {
            self.answered(now, up, id, out);
        }
        if over {
            self.end(now, id, out);
        }
        Ok(())
    }

    /// Puts a refresh into the cache, if the item has one.
    fn keep_refresh(&mut self, id: ItemId, refresh: &Refresh<'_>, anew: bool) {
        let Some(item) = self.items.get_mut(id) else { return };
        let cached = match self.services.index(item.spec.service).and_then(|at| self.services.list.get(at)) {
            Some(service) => service.cached || item.published,
            None => false,
        };
        let forbidden = refresh.flags.contains(RefreshFlags::DO_NOT_CACHE);
        if !cached || item.spec.private || item.snapshot || item.uncacheable || forbidden {
            if self.records.take(id).is_some() {
                self.route_updates(id);
            }
            return;
        }
        let kept = self.records.take(id);
        let fresh = kept.is_none();
        let mut record = kept.unwrap_or_default();
        let applied = if anew && !refresh.flags.contains(RefreshFlags::CLEAR_CACHE) {
            let flags = refresh.flags.with(RefreshFlags::CLEAR_CACHE);
            self.cache.refresh(&mut record, &Refresh { flags, ..refresh.clone() })
        } else {
            self.cache.refresh(&mut record, refresh)
        };
        if applied.is_err() {
            return self.uncache(id);
        }
        self.records.put(id, record);
        if fresh {
            self.route_updates(id);
        }
    }

    /// Hands a refresh to those it is for.
    fn give_refresh(
        &mut self,
        id: ItemId,
        refresh: &Refresh<'_>,
        message: &[u8],
        first: bool,
        anew: bool,
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        let key = refresh.key.map(|k| ours(k, item.spec.service));
        let scratch = &mut self.scratch;
        let mut say = |kind, side, token, flags: RefreshFlags, state: State<'_>, out: &mut Batch| {
            if flags == refresh.flags && key == refresh.key && state == refresh.state {
                out.push(kind, side, id, token, message);
            } else {
                let refresh = Refresh { flags, key, state, ..refresh.clone() };
                let bytes = encode::write(scratch, message.len() + 16, |w| refresh.encode(w))?;
                out.push(kind, side, id, token, bytes);
            }
            rssl::Result::Ok(())
        };
        let flags = if anew { refresh.flags.with(RefreshFlags::CLEAR_CACHE) } else { refresh.flags };
        if item.to_all && !item.holders.is_empty() {
            say(Kind::Message, SideId::ALL, 0, flags.without(RefreshFlags::SOLICITED), refresh.state, out)?;
        }
        let solicited = flags.with(RefreshFlags::SOLICITED);
        let mut said = false;
        for w in item.receiving.iter().filter(|w| !w.snapshot) {
            if said {
                out.push_repeat(Kind::Image, w.side, id, w.token);
            } else {
                say(Kind::Image, w.side, w.token, solicited, refresh.state, out)?;
                said = true;
            }
        }
        let mut said = false;
        for w in item.receiving.iter().filter(|w| w.snapshot) {
            let stream = match refresh.state.stream {
                StreamState::Open | StreamState::Unspecified => StreamState::NonStreaming,
                other => other,
            };
            if said {
                out.push_repeat(Kind::Image, w.side, id, w.token);
            } else {
                say(Kind::Image, w.side, w.token, solicited, State { stream, ..refresh.state }, out)?;
                said = true;
            }
        }
        if item.to_all && first {
            // Their streams are live now: the further parts reach them with everybody's.
            item.receiving.retain(|w| w.snapshot);
        }
        Ok(())
    }

    /// A refresh is complete: the request is answered, and those who came between its parts get theirs.
    fn answered(&mut self, now: Now, up: UpstreamId, id: ItemId, out: &mut Batch) {
        self.complete_request(up, id);
        self.not_awaited(id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.receiving.clear();
        item.recovering = false;
        item.imaged = true;
        item.tries = 0;
        let service = item.spec.service;
        if !item.waiting.is_empty() {
            if self.records.have_image(id, item) {
                let waiting = std::mem::take(&mut item.waiting);
                self.give_image(now, id, &waiting, out);
            } else {
                self.ask_again(now, id, false);
            }
        }
        self.unwanted(now, id);
        if let Some(at) = self.services.index(service) {
            self.pump(now, at);
        }
    }

    /// The image of an item from the cache, to each of `to`.
    pub(super) fn give_image(&mut self, now: Now, id: ItemId, to: &[Waiter], out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        let Some(record) = self.records.get(id) else { return };
        let mut failed = false;
        for snapshot in [false, true] {
            let mut state = item.state.borrow();
            match state.stream {
                _ if snapshot => state.stream = StreamState::NonStreaming,
                // Upstream it is closed and asked for again; with us its stream is open, and stale.
                StreamState::ClosedRecover => state.stream = StreamState::Open,
                _ => {}
            }
            let to = to.iter().filter(|w| w.snapshot == snapshot);
            if to.clone().next().is_none() {
                continue;
            }
            let image = Image {
                domain: item.spec.domain,
                stream: id.stream(),
                solicited: true,
                key: Some(item.spec.key(item.spec.service)),
                state: Some(state),
            };
            self.stats.cached_images += to.clone().count() as u64;
            let given = self.cache.image(record, &image, self.options.max_part, |bytes| {
                let mut said = false;
                for w in to.clone() {
                    if said {
                        out.push_repeat(Kind::Image, w.side, id, w.token);
                    } else {
                        out.push(Kind::Image, w.side, id, w.token, bytes);
                        said = true;
                    }
                }
            });
            if given.is_err() {
                failed = true;
            }
        }
        if failed {
            // The record outgrew what the wire can carry: from now on images come from upstream.
            self.uncache(id);
            for w in to {
                self.want_image(now, id, *w, out);
            }
        }
    }

    /// Makes a stale item good again with what the cache has of it, for all streams.
    pub(super) fn tell_image(&mut self, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        if !self.records.have_image(id, item) || item.state.data != DataState::Suspect {
            return;
        }
        item.set_state(&State::OK);
        let Some(record) = self.records.get(id).filter(|_| !item.holders.is_empty()) else { return };
        let image = Image {
            domain: item.spec.domain,
            stream: id.stream(),
            solicited: false,
            key: Some(item.spec.key(item.spec.service)),
            state: Some(State::OK),
        };
        let tell = |bytes: &[u8]| out.push(Kind::Message, SideId::ALL, id, 0, bytes);
        if self.cache.image(record, &image, self.options.max_part, tell).is_err() {
            self.uncache(id);
        }
    }

    fn status(
        &mut self,
        now: Now,
        id: ItemId,
        status: &Status<'_>,
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        self.stats.statuses += 1;
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        if let Some(group) = status.group {
            item.group = group.into();
        }
        if let Some(record) = self.records.get_mut(id)
            && self.cache.status(record, status).is_err()
        {
            self.records.take(id);
        }
        if status.flags.contains(StatusFlags::CLEAR_CACHE) {
            item.imaged = false;
        }
        let (link, service) = (item.link, item.spec.service);
        let key = status.key.map(|k| {
            // The key of a redirection is another item's, and may be another service's.
            let other = link.zip(k.service).and_then(|(l, theirs)| self.services.offered(l.up, theirs));
            ours(k, other.and_then(|at| self.services.list.get(at)).map_or(service, |s| s.id))
        });
        let status = Status { key, ..status.clone() };
        let bytes = encode::write(&mut self.scratch, 128 + status.payload.len(), |w| status.encode(w))?;
        let Some(state) = status.state else {
            if !item.holders.is_empty() {
                out.push(Kind::Message, SideId::ALL, id, 0, bytes);
            }
            self.route_updates(id);
            return Ok(());
        };
        item.set_state(&state);
        tell(item, id, bytes, out);
        match state.stream {
            StreamState::Closed | StreamState::Redirected | StreamState::NonStreaming => {
                self.end(now, id, out)
            }
            StreamState::ClosedRecover => self.retry(now, id),
            StreamState::Open | StreamState::Unspecified => {
                if let Some(link) = link.filter(|l| !l.live && state.stream == StreamState::Open) {
                    // The source has the stream open and says why there is no image yet: it is not to be hurried.
                    self.complete_request(link.up, id);
                    self.end_snapshots(id, out);
                    self.pump_item(now, id);
                }
                self.route_updates(id);
                self.unwanted(now, id);
            }
        }
        Ok(())
    }

    /// The item's stream is over, or its upstream is: everybody is told, and it is asked for again. Private streams end,
    /// because only their client knows how to open them again.
    pub(super) fn lost(&mut self, now: Now, id: ItemId, state: &State<'_>, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        let ends = item.spec.private;
        let state = if ends { State { stream: StreamState::Closed, ..*state } } else { *state };
        item.set_state(&state);
        let bytes = encode::status(&mut self.scratch, item.spec.domain, &state);
        tell(item, id, bytes, out);
        if ends {
            self.end(now, id, out);
        } else if state.stream == StreamState::ClosedRecover {
            self.retry(now, id);
        }
    }

    /// The item has ended for good.
    pub(super) fn end(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        self.unlink(now, id, false);
        self.items.hide(id);
        let Some(item) = self.items.get_mut(id) else { return };
        item.life = super::item::Life::Over;
        item.published = false;
        self.records.take(id);
        for w in item.waiting.drain(..).chain(item.receiving.drain(..)).filter(|w| w.snapshot) {
            let bytes = encode::status(&mut self.scratch, item.spec.domain, &item.state.borrow());
            out.push(Kind::Refused, w.side, id, w.token, bytes);
        }
        if !item.holders.is_empty() {
            out.push_bare(Kind::Gone, SideId::ALL, id, 0);
        }
        self.unwanted(now, id);
    }

    fn generic(&mut self, id: ItemId, message: &[u8], out: &mut Batch) -> Result<(), UpstreamError> {
        let Some(item) = self.items.get(id) else { return Ok(()) };
        let generic = rwf::Generic::decode(message)?;
        let key = generic.key.map(|k| ours(k, item.spec.service));
        let generic = rwf::Generic { key, ..generic };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| generic.encode(w))?;
        match item.asker {
            Some((side, token)) if !item.spec.private => out.push(Kind::Reply, side, id, token, bytes),
            _ => out.push(Kind::Message, SideId::ALL, id, 0, bytes),
        }
        Ok(())
    }
}

/// Tells the streams of an item, and each of those that wait for its image, of a status.
fn tell(item: &super::item::Item, id: ItemId, bytes: &[u8], out: &mut Batch) {
    let mut said = false;
    if !item.holders.is_empty() {
        out.push(Kind::Message, SideId::ALL, id, 0, bytes);
        said = true;
    }
    for w in item.waiting.iter().filter(|w| !w.snapshot) {
        if said {
            out.push_repeat(Kind::Notice, w.side, id, w.token);
        } else {
            out.push(Kind::Notice, w.side, id, w.token, bytes);
            said = true;
        }
    }
}

/// A key with the hub's service id, if it has any.
fn ours(key: Key<'_>, service: u16) -> Key<'_> {
    Key { service: key.service.map(|_| service), ..key }
}

#[inline]
fn has_key(message: &[u8]) -> bool {
    // Flags above 0x7F take two bytes, the low seven bits in the second.
    let low = match (message.get(8), message.get(9)) {
        (Some(first), Some(second)) if first & 0x80 != 0 => *second,
        (Some(first), _) => *first,
        _ => 0,
    };
    low & UPDATE_HAS_KEY != 0
}

/// Why an upstream's connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// A message that cannot be decoded.
    #[error("malformed message: {0}")]
    Malformed(#[from] rssl::Error),
    /// A stream carries messages of two domains.
    #[error("a message on stream {stream} has another domain than the stream")]
    Domain {
        /// The stream.
        stream: i32,
    },
    /// A message that only consumers send.
    #[error("a message on stream {stream} is of a class that only consumers send")]
    Class {
        /// The stream.
        stream: i32,
    },
    /// A publisher's first refresh does not say which item it is.
    #[error(
        "the first refresh on stream {stream} has no key with service id and name; publishers must send one"
    )]
    NoKey {
        /// The stream.
        stream: i32,
    },
    /// A publisher's item belongs to no service that it announced.
    #[error(
        "the refresh on stream {stream} is of service {service}, which the publisher's directory does not have"
    )]
    Service {
        /// The stream.
        stream: i32,
        /// The service id in the key.
        service: u16,
    },
}
