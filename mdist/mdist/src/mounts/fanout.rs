//! The fan-out of the hub's log to streams: most get the framed bytes with a stream id of their own, few an edited
//! message.

use std::mem;

use rssl::rwf::{DataState, RequestFlags, State, Status, StreamState, Update};

use super::item_trouble::{ItemTrouble, ReportedState, reported_state};
use super::mount::Stream;
use super::outputs::Fanned;
use super::patch::{self, RefreshView};
use super::slots::Ticket;
use super::subscribers::{Subscriber, flag};
use super::view::Viewed;
use super::worker::Worker;
use crate::hub::{Batch, Entry, ItemId, Kind};

/// Prefetch distance for subscribers, in entries.
const PREFETCH: usize = 2;

impl Worker {
    /// Applies the hub's log of one turn to all mounts. `services` are the hub's present ones; they are read only if
    /// the batch has a change of them.
    pub fn apply(&mut self, batch: &Batch, services: &[rssl::rdm::directory::Service]) {
        let dirty = self.outputs.dirty().len();
        for (at, entry) in batch.entries.iter().enumerate() {
            if let Some(soon) = batch.entries.get(at + PREFETCH)
                && let Some(item) = self.items.get(soon.item.index())
            {
                item.subscribers.touch();
            }
            if !entry.is_for(self.side) {
                continue;
            }
            match entry.kind {
                Kind::Message => self.fan_out(batch, entry),
                Kind::Covered => self.covered(entry.item, entry.token, batch.message(entry)),
                Kind::Announced => self.announced(batch, at, services),
                Kind::AnnouncementEnd => {}
                Kind::Opened => self.opened(entry.item, Ticket::from_u64(entry.token)),
                Kind::Image => self.image(Ticket::from_u64(entry.token), batch.message(entry)),
                Kind::Notice => self.notice(Ticket::from_u64(entry.token), batch.message(entry)),
                Kind::Refused => self.refused(Ticket::from_u64(entry.token), batch.message(entry)),
                Kind::Reply => self.reply(Ticket::from_u64(entry.token), batch.message(entry)),
                Kind::Gone => self.gone(entry.item),
                Kind::Services => self.services_changed(services),
            }
        }
        if !batch.reads.is_empty() {
            self.follow(batch, dirty);
        }
        self.resume_queues();
    }

    /// Fans out one message to all live streams of an item. This is the hot path.
    #[inline]
    fn fan_out(&mut self, batch: &Batch, entry: &Entry) {
        let message = batch.message(entry);
        let class = patch::class(message);
        if class == patch::REFRESH
            && let Some(item) = self.items.get_mut(entry.item.index())
        {
            item.refreshed = self.announcements.last();
        }
        let Some(item) = self.items.get(entry.item.index()) else { return };
        let same_for_all = entry.framed && is_same_for_all(class, message);
        let fanned = Fanned { framed: batch.framed(entry), same_for_all };
        let individual = &mut self.memory.individual;
        self.outputs.fan_out(fanned, item.subscribers.as_slice(), &self.shared.pool, |subscriber| {
            if subscriber.flags() & flag::WAITING == 0 || class == patch::STATUS {
                individual.push(subscriber);
            }
        });
        if !self.memory.individual.is_empty() {
            self.deliver_individually(message, class);
        }
        self.disconnect_slow_consumers();
    }

    /// Delivers a message to the subscribers in `individual`, edited for each of them.
    #[cold]
    fn deliver_individually(&mut self, message: &[u8], class: u8) {
        let mut individual = mem::take(&mut self.memory.individual);
        for subscriber in individual.drain(..) {
            let Some(ticket) = self.stream_of(subscriber) else { continue };
            match class {
                // A stream with a request at the hub gets the same status as a notice.
                patch::STATUS
                    if subscriber.flags() & flag::WAITING != 0 && self.is_requested_from_hub(ticket) => {}
                patch::STATUS => self.item_status(ticket, message, ItemTrouble::Suspect),
                patch::REFRESH => {
                    if let Some(view) = RefreshView::of(message) {
                        self.deliver_refresh(ticket, message, view);
                    }
                }
                patch::UPDATE => self.deliver_update(ticket, subscriber.flags(), message),
                _ => self.deliver_copy(ticket, message),
            }
        }
        self.memory.individual = individual;
    }

    /// Whether a request for the stream's image is at the hub.
    pub(super) fn is_requested_from_hub(&self, ticket: Ticket) -> bool {
        self.streams.get(ticket).is_some_and(|stream| stream.requested)
    }

    /// Delivers a message with only the stream id changed.
    fn deliver_copy(&mut self, ticket: Ticket, message: &[u8]) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let (mount, id) = (stream.mount, stream.id);
        let mut own = mem::take(&mut self.memory.copy);
        own.clear();
        own.extend_from_slice(message);
        patch::set_stream(&mut own, id);
        self.send(mount, &own);
        self.memory.copy = own;
    }

    /// Delivers an update as the stream requested it: not while it is paused, filtered by its view, and with
    /// the key.
    fn deliver_update(&mut self, ticket: Ticket, flags: u8, message: &[u8]) {
        if flags & flag::PAUSED != 0 {
            return;
        }
        if flags & (flag::VIEW | flag::KEY | flag::LISTS) == 0 {
            return self.deliver_copy(ticket, message);
        }
        let Some(stream) = self.streams.get(ticket) else { return };
        let Ok(mut update) = Update::decode(message) else { return };
        let mut filtered = Vec::new();
        if stream.opens_listed() {
            self.open_listed_items(ticket, update.container, update.payload);
        }
        let Some(stream) = self.streams.get(ticket) else { return };
        if let Some(view) = stream.view() {
            match view.payload(update.container, update.payload, &mut filtered) {
                Viewed::Filtered => update.payload = &filtered,
                // The update has nothing that the view selects.
                Viewed::Nothing => return,
                Viewed::Whole => {}
            }
        }
        if stream.flags.contains(RequestFlags::KEY_IN_UPDATES)
            && update.key.is_none()
            && let Some(key) = stream.extra.as_ref().and_then(|extra| extra.key.as_deref())
        {
            update.key = rssl::rwf::Key::decode(key).ok();
        }
        update.stream = stream.id;
        let mount = stream.mount;
        if let Ok(own) = update.to_vec() {
            self.send(mount, &own);
        }
    }

    /// Subscribes a stream to the item that the hub has opened for it. Apart from private streams, a mount has
    /// an item on one stream only.
    fn opened(&mut self, item: ItemId, ticket: Ticket) {
        if item == ItemId::NONE {
            return;
        }
        if self.items.len() <= item.index() {
            self.items.resize_with(item.index() + 1, Default::default);
        }
        let Some(entry) = self.items.get_mut(item.index()) else { return };
        entry.holds += 1;
        let Some(stream) = self.streams.get_mut(ticket) else { return self.release_item(item) };
        let is_open_already =
            entry.subscribers.as_slice().iter().any(|other| other.mount() == stream.mount.index() as usize);
        if is_open_already && !stream.flags.contains(RequestFlags::PRIVATE) {
            let text = b"this item is open on another stream";
            return self.refuse_stream(ticket, State::closed(rssl::rwf::code::ALREADY_OPEN, text));
        }
        stream.item = Some(item);
        entry.subscribers.push(Subscriber::new(stream.mount.index(), stream.id, flag::WAITING));
        self.set_flags(ticket);
    }

    /// Takes a part of the image that the stream requested.
    fn image(&mut self, ticket: Ticket, message: &[u8]) {
        let Some(view) = RefreshView::of(message) else { return };
        if self.streams.get(ticket).is_none() {
            return;
        }
        self.image_bytes = (self.image_bytes * 15 + message.len()).div_ceil(16);
        self.deliver_refresh(ticket, message, view);
    }

    /// Delivers a refresh, or a part of one, to one stream.
    fn deliver_refresh(&mut self, ticket: Ticket, message: &[u8], view: RefreshView) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        let Some(mount) = self.mounts.get(stream.mount) else { return };
        let reported = match view.stream_state {
            patch::CLOSED_RECOVER if stream.streaming() => {
                Some(reported_state(ItemTrouble::Recoverable, mount.recovery()))
            }
            ..=patch::OPEN if view.suspect => Some(reported_state(ItemTrouble::Suspect, mount.recovery())),
            _ => None,
        };
        if reported == Some(ReportedState::ClosedRecover) {
            let state = rssl::rwf::Refresh::decode(message)
                .map(|refresh| refresh.state.to_owned())
                .unwrap_or_default();
            let state = State { stream: StreamState::ClosedRecover, ..state.borrow() };
            return self.refuse_stream(ticket, state);
        }
        let is_stale = reported == Some(ReportedState::OpenSuspect);
        let (own, stream_state) = refresh_for(stream, message, view, is_stale);
        let was_waiting = mem::take(&mut stream.waiting);
        stream.refreshed = self.announcements.last();
        if view.complete {
            (stream.solicited, stream.requested) = (false, false);
        }
        let to = stream.mount;
        let opens_listed = stream.opens_listed();
        self.send(to, &own);
        if was_waiting {
            self.set_flags(ticket);
        }
        if opens_listed && let Ok((container, payload)) = rssl::rwf::peek_payload(message) {
            self.open_listed_items(ticket, container, payload);
        }
        if view.complete {
            self.request_answered(ticket);
        }
        if stream_state > patch::NON_STREAMING || (stream_state == patch::NON_STREAMING && view.complete) {
            self.end_stream(ticket);
        }
    }

    /// Handles a status with the reason why the stream's image has not come.
    fn notice(&mut self, ticket: Ticket, message: &[u8]) {
        // A service that is down must not block requests for others.
        self.request_answered(ticket);
        let down = self.streams.get(ticket).is_some_and(|stream| self.service_is_down(stream));
        self.item_status(ticket, message, if down { ItemTrouble::ServiceDown } else { ItemTrouble::Suspect });
    }

    fn refused(&mut self, ticket: Ticket, message: &[u8]) {
        if self.streams.get(ticket).is_some_and(|stream| !stream.is_unannounced()) {
            self.deliver_copy(ticket, message);
        }
        self.end_stream(ticket);
    }

    fn reply(&mut self, ticket: Ticket, message: &[u8]) {
        self.deliver_copy(ticket, message);
    }

    /// Ends the streams that still have an item that has ended.
    fn gone(&mut self, item: ItemId) {
        let Some(entry) = self.items.get_mut(item.index()) else { return };
        let left = entry.subscribers.as_slice().to_vec();
        for ticket in left.into_iter().filter_map(|one| self.stream_of(one)).collect::<Vec<_>>() {
            self.refuse_stream(ticket, State::closed_recover(0, b"the item has ended"));
        }
        self.release_item(item);
    }

    /// Delivers a status of an item to one stream, with the state that the consumer chose at login. Spec: rssl.md §6.3
    pub(super) fn item_status(&mut self, ticket: Ticket, message: &[u8], trouble: ItemTrouble) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Ok(mut status) = Status::decode(message) else { return };
        let recovery = self.mounts.get(stream.mount).map(|mount| mount.recovery()).unwrap_or_default();
        let mut ends = false;
        if let Some(state) = &mut status.state {
            let reported = match (state.stream, state.data) {
                (StreamState::Open | StreamState::Unspecified, DataState::Suspect) => {
                    Some(reported_state(trouble, recovery))
                }
                (StreamState::ClosedRecover, _) if stream.streaming() => {
                    Some(reported_state(ItemTrouble::Recoverable, recovery))
                }
                _ => None,
            };
            match reported {
                Some(ReportedState::OpenSuspect) => {
                    (state.stream, state.data) = (StreamState::Open, DataState::Suspect);
                }
                Some(ReportedState::ClosedRecover) => {
                    (state.stream, state.data) = (StreamState::ClosedRecover, DataState::Suspect);
                }
                None => {}
            }
            ends = state.is_final();
        }
        status.stream = stream.id;
        let mount = stream.mount;
        if !stream.is_unannounced()
            && let Ok(own) = status.to_vec()
        {
            self.send(mount, &own);
        }
        if ends {
            self.end_stream(ticket);
        }
    }

    /// Sets the stream's flags in its item's table of subscribers.
    pub(super) fn set_flags(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Some(item) = stream.item.and_then(|item| self.items.get_mut(item.index())) else { return };
        let mount_paused = self
            .mounts
            .get(stream.mount)
            .and_then(|mount| mount.login.as_ref())
            .is_some_and(|login| login.paused);
        let extra = stream.extra.as_deref();
        let bits = [
            (stream.waiting, flag::WAITING),
            (mount_paused || stream.flags.contains(RequestFlags::PAUSE), flag::PAUSED),
            (extra.is_some_and(|extra| extra.view.is_some()), flag::VIEW),
            (extra.is_some_and(|extra| extra.key.is_some()), flag::KEY),
            (stream.opens_listed(), flag::LISTS),
        ];
        let flags = bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit);
        item.subscribers.set_flags(stream.mount.index(), stream.id, flags);
    }
}

/// Whether all streams get the message unchanged but for the stream id. A state other than open and good depends on
/// what each consumer chose at login.
#[inline]
fn is_same_for_all(class: u8, message: &[u8]) -> bool {
    match class {
        patch::STATUS => false,
        patch::REFRESH => {
            RefreshView::of(message).is_some_and(|view| view.stream_state <= patch::OPEN && !view.suspect)
        }
        _ => true,
    }
}

/// A refresh with the stream id, flags, state and view of one stream. Also returns the state of the stream.
fn refresh_for(stream: &Stream, message: &[u8], view: RefreshView, is_stale: bool) -> (Vec<u8>, u8) {
    let mut own = message.to_vec();
    patch::set_stream(&mut own, stream.id);
    view.set_solicited(&mut own, stream.solicited && stream.id > 0);
    let mut state = view.stream_state;
    if is_stale {
        state = patch::OPEN;
        view.set_stale(&mut own);
    }
    if !stream.streaming() && state <= patch::OPEN {
        state = patch::NON_STREAMING;
        view.set_stream_state(&mut own, state);
    }
    if let Some(wanted) = stream.view() {
        match wanted.refresh(&own) {
            Some(filtered) => own = filtered,
            None => view.set_code(&mut own, rssl::rwf::code::FULL_VIEW_PROVIDED),
        }
    }
    (own, state)
}
