//! Messages from upstreams: updates are passed on unchanged, and other messages change their item.

use rssl::rwf::{
    self, Class, Close, Domain, Generic, Head, Key, Refresh, Status, StatusFlags, StreamState, Update, code,
};

use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state, with_service};
use super::error::UpstreamError;
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::item::{Event, Item, Phase};
use super::request::ItemSpec;
use super::state::Hub;

/// Flag bit of an update that has a key, in the low seven bits of its flags. Spec: rssl.md §2.4.
const UPDATE_HAS_KEY: u8 = 0x08;

type Result<T> = std::result::Result<T, UpstreamError>;

impl Hub {
    /// Handles one message of an item stream, or an acknowledgement on the login stream, from an upstream.
    ///
    /// Updates are the hot path: each costs a read of its head, a lookup of its stream, the cache if that is
    /// on, and a copy into the batch.
    ///
    /// # Errors
    /// The message is malformed, or breaks a rule that makes its sender unusable: the connection is to be closed.
    #[inline]
    pub fn message(&mut self, now: Now, up: UpstreamId, message: &[u8], out: &mut Batch) -> Result<()> {
        let head = rwf::peek(message)?;
        if !self.sweeps.is_empty() {
            self.settle_stream(now, up, head.stream, out);
        }
        let Some(upstream) = self.upstreams.get(usize::from(up.0)) else { return Ok(()) };
        if head.class == Class::Update {
            let Some(slot) = upstream.streams.get(head.stream).copied() else {
                if head.domain == Domain::DIRECTORY && upstream.recovers {
                    self.apply_pending_first();
                    return self.announced(now, up, message, out);
                }
                self.stats.late += 1;
                return Ok(());
            };
            if slot.domain != head.domain {
                return Err(UpstreamError::Domain { stream: head.stream });
            }
            if slot.to_sides && !slot.to_cache && !has_key(message) {
                self.stats.updates += 1;
                out.push(Kind::Message, SideId::ALL, slot.item, 0, message);
                return Ok(());
            }
            if slot.to_cache {
                self.cache_update(slot.item, message);
            }
            if slot.to_sides {
                self.stats.updates += 1;
                return if has_key(message) {
                    self.update_with_key(slot.item, message, out)
                } else {
                    out.push(Kind::Message, SideId::ALL, slot.item, 0, message);
                    Ok(())
                };
            }
            self.stats.early += u64::from(!slot.to_cache);
            return Ok(());
        }
        let handled = self.item_message(now, up, head, message, out);
        self.evict();
        handled
    }

    /// Settles the item of a stream.
    #[cold]
    fn settle_stream(&mut self, now: Now, up: UpstreamId, stream: i32, out: &mut Batch) {
        self.apply_pending_first();
        let slot = self.upstreams.get(usize::from(up.0)).and_then(|upstream| upstream.streams.get(stream));
        if let Some(item) = slot.map(|slot| slot.item) {
            self.settle(now, item, out);
        }
    }

    /// Passes an update with the hub's service id in its key.
    #[cold]
    fn update_with_key(&mut self, id: ItemId, message: &[u8], out: &mut Batch) -> Result<()> {
        let update = Update::decode(message)?;
        let Some(item) = self.items.get(id) else { return Ok(()) };
        let key = update.key.map(|k| with_service(k, item.spec.service));
        let update = Update { key, ..update };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| update.encode(w))?;
        out.push(Kind::Message, SideId::ALL, id, 0, bytes);
        Ok(())
    }

    /// Handles a message that is not an update.
    fn item_message(
        &mut self,
        now: Now,
        up: UpstreamId,
        head: Head,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<()> {
        self.apply_pending_first();
        if head.class == Class::Ack {
            return self.ack(up, message, out);
        }
        let Some(upstream) = self.upstreams.get(usize::from(up.0)) else { return Ok(()) };
        let Some(slot) = upstream.streams.get(head.stream).copied() else {
            return self.message_without_stream(now, up, head, message, out);
        };
        if slot.domain != head.domain {
            return Err(UpstreamError::Domain { stream: head.stream });
        }
        match head.class {
            Class::Refresh => self.refresh(now, slot.item, &Refresh::decode(message)?, message, out)?,
            Class::Status => self.status(now, slot.item, &Status::decode(message)?, out)?,
            Class::Generic => self.generic(slot.item, message, out)?,
            Class::Close => {
                let state =
                    suspect_state(StreamState::ClosedRecover, code::NONE, "The publisher closed the item");
                self.stream_lost(now, slot.item, &state, 0, out);
            }
            // Requests and posts do not come from a source.
            Class::Request | Class::Post | Class::Ack | Class::Update => {
                return Err(UpstreamError::Class { stream: head.stream });
            }
        }
        Ok(())
    }

    /// Handles a message on a stream that is not open: a publisher opens it, or the message is late.
    fn message_without_stream(
        &mut self,
        now: Now,
        up: UpstreamId,
        head: Head,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<()> {
        let publishes = self.upstreams.get(usize::from(up.0)).is_some_and(|u| u.publishes);
        if head.class == Class::Refresh && head.stream < 0 {
            if publishes {
                return self.publish(now, up, message, out);
            }
            // Only publishers may open streams. Spec: rssl.md §6.
            self.outgoing.push_back((up, Close::new(head.domain, head.stream).to_vec()?));
            return Ok(());
        }
        self.stats.late += 1;
        Ok(())
    }

    /// Handles the refresh with which a publisher opens a stream.
    fn publish(&mut self, now: Now, up: UpstreamId, message: &[u8], out: &mut Batch) -> Result<()> {
        let refresh = Refresh::decode(message)?;
        let stream = refresh.stream;
        let key = refresh.key.filter(|k| k.name.is_some()).ok_or(UpstreamError::NoKey { stream })?;
        let service = key.service.ok_or(UpstreamError::NoKey { stream })?;
        let Some(at) = self.services.offered(up, service) else {
            return Err(UpstreamError::Service { stream, service });
        };
        let Some(service) = self.services.list.get(at) else { return Ok(()) };
        let spec = ItemSpec::new(service.id, refresh.domain, &key, None, false)?;
        if let Some(id) = self.items.find(&spec) {
            self.settle(now, id, out);
        }
        let id = match self.items.find(&spec) {
            Some(id) => id,
            None if self.items.len() >= self.options.max_items => {
                self.stats.refused += 1;
                return Ok(());
            }
            None => self.items.add(spec, false),
        };
        let Some(item) = self.items.get(id) else { return Ok(()) };
        if item.link.is_some_and(|link| link.up != up) {
            // Another upstream has the item already. After its end, this publisher takes over with its next
            // refresh.
            return Ok(());
        }
        self.dequeue(id);
        self.unlink(now, id, false);
        self.link(id, up, stream);
        if let Some(item) = self.items.get_mut(id) {
            item.apply(Event::Published);
        }
        self.refresh(now, id, &refresh, message, out)
    }

    /// Handles a status: passes it on, and applies its state to the item.
    fn status(&mut self, now: Now, id: ItemId, status: &Status<'_>, out: &mut Batch) -> Result<()> {
        self.stats.statuses += 1;
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        if let Some(group) = status.group {
            item.group = group.into();
        }
        if self.values.status(id, status).is_err() {
            self.values.remove(id);
        }
        if status.flags.contains(StatusFlags::CLEAR_CACHE) {
            item.apply(Event::ImageCleared);
        }
        let (link, service) = (item.link, item.spec.service);
        let covered = self.items.get(id).map_or(0, |item| self.covering(item));
        let key = status.key.map(|k| self.key_of_status(k, link.map(|l| l.up), service));
        let status = Status { key, ..status.clone() };
        let bytes = encode::write(&mut self.scratch, 128 + status.payload.len(), |w| status.encode(w))?;
        let Some(item) = self.items.get_mut(id) else { return Ok(()) };
        let Some(state) = status.state else {
            if !item.holders.is_empty() {
                let kind = if covered == 0 { Kind::Message } else { Kind::Covered };
                out.push(kind, SideId::ALL, id, covered, bytes);
            }
            self.route_updates(id);
            return Ok(());
        };
        item.set_state(&state);
        push_status(item, id, bytes, covered, out);
        match self.kept_open(id, state.stream) {
            StreamState::Closed | StreamState::Redirected | StreamState::NonStreaming => {
                self.end_item(now, id, out);
            }
            StreamState::ClosedRecover => self.retry(now, id),
            StreamState::Open | StreamState::Unspecified => {
                let is_opening = self.items.get(id).is_some_and(|item| item.phase == Phase::Opening);
                if link.is_some() && is_opening && state.stream != StreamState::Unspecified {
                    // The source has the stream open and has sent the reason why there is no image yet, so the
                    // request does not time out.
                    self.complete_request(id);
                    self.end_snapshots(id, out);
                    self.pump_item(now, id);
                }
                self.route_updates(id);
                self.watch_if_stale(now, id);
                self.release_if_unwanted(now, id);
            }
        }
        Ok(())
    }

    /// The state of the item's stream at this hub: an upstream that recovers items keeps the stream that it has lost.
    pub(super) fn kept_open(&self, id: ItemId, stream: StreamState) -> StreamState {
        let link = self.items.get(id).and_then(|item| item.link);
        let up = link.and_then(|link| self.upstreams.get(usize::from(link.up.0)));
        let recovers = up.is_some_and(|up| up.recovers);
        if recovers && stream == StreamState::ClosedRecover { StreamState::Open } else { stream }
    }

    /// The key of a status with the hub's service id. A redirection names another item, maybe of another service.
    fn key_of_status<'a>(&self, key: Key<'a>, up: Option<UpstreamId>, service: u16) -> Key<'a> {
        let named = up.zip(key.service).and_then(|(up, id)| self.services.offered(up, id));
        let named = named.and_then(|at| self.services.list.get(at));
        with_service(key, named.map_or(service, |s| s.id))
    }

    /// Handles a generic message: an answer for the last sender, or a message for all streams.
    fn generic(&mut self, id: ItemId, message: &[u8], out: &mut Batch) -> Result<()> {
        let Some(item) = self.items.get(id) else { return Ok(()) };
        let generic = Generic::decode(message)?;
        let key = generic.key.map(|k| with_service(k, item.spec.service));
        let generic = Generic { key, ..generic };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| generic.encode(w))?;
        match item.generic_sender {
            Some((side, token)) if !item.spec.private => out.push(Kind::Reply, side, id, token, bytes),
            _ => out.push(Kind::Message, SideId::ALL, id, 0, bytes),
        }
        Ok(())
    }
}

/// Puts a status into the batch: for the item's streams, and for each request that waits for its image. `covered` is
/// the announcement that has told some consumers of it; 0: none.
pub(super) fn push_status(item: &Item, id: ItemId, bytes: &[u8], covered: Token, out: &mut Batch) {
    let mut pushed = false;
    if !item.holders.is_empty() {
        let kind = if covered == 0 { Kind::Message } else { Kind::Covered };
        out.push(kind, SideId::ALL, id, covered, bytes);
        pushed = true;
    }
    for w in item.waiting.iter().filter(|w| !w.snapshot) {
        if pushed {
            out.push_repeat(Kind::Notice, w.side, id, w.token);
        } else {
            out.push(Kind::Notice, w.side, id, w.token, bytes);
            pushed = true;
        }
    }
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
