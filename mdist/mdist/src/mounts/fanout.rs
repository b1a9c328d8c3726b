//! What the hub tells goes to the streams: a copy of the framed bytes and a stream id for most, more for the few.

use std::mem;

use rssl::rwf::{DataState, RequestFlags, State, Status, StreamState, Update};
use rssl::wire::to_vec;

use super::item_trouble::{ItemTrouble, ReportedState, reported_state};
use super::mount::MountId;
use super::patch::{self, RefreshView};
use super::slots::Ticket;
use super::subscribers::{Subscriber, flag};
use super::view::Viewed;
use super::worker::Worker;
use crate::hub::{Batch, Entry, ItemId, Kind};

/// How many entries ahead of the present one subscribers are fetched from memory.
const AHEAD: usize = 2;

impl Worker {
    /// Applies a turn of the hub to all mounts. The services are those of the hub now; they are read only if the batch says
    /// that they changed.
    pub fn apply(&mut self, batch: &Batch, services: &[rssl::rdm::directory::Service]) {
        let dirty = self.dirty.len();
        for (at, entry) in batch.entries.iter().enumerate() {
            if let Some(soon) = batch.entries.get(at + AHEAD)
                && let Some(item) = self.items.get(soon.item.index())
            {
                item.subscribers.touch();
            }
            if !entry.is_for(self.side) {
                continue;
            }
            match entry.kind {
                Kind::Message => self.fan_out(batch, entry),
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

    /// One message to all live streams of an item. The hot path.
    #[inline]
    fn fan_out(&mut self, batch: &Batch, entry: &Entry) {
        let Some(item) = self.items.get(entry.item.index()) else { return };
        let message = batch.message(entry);
        let class = patch::class(message);
        // Whoever wants the bytes as they are gets them; a state other than open and good is everybody's own matter.
        let common = match class {
            patch::STATUS => false,
            patch::REFRESH => {
                RefreshView::of(message).is_some_and(|view| view.stream_state <= patch::OPEN && !view.suspect)
            }
            _ => true,
        };
        let framed = batch.framed(entry);
        let common = common && entry.framed;
        let subscribers = item.subscribers.as_slice();
        // Where one alone gets it and nobody lists anything, a list would be a detour.
        let shared = subscribers.len() > 1 || !self.arena.is_idle();
        if shared && !self.arena.make_room(framed.len()) {
            let older = self.arena.older();
            for output in &mut self.outputs {
                output.give_way(older, &mut self.arena);
            }
            self.arena.make_room(framed.len());
        }
        let mut kept = None;
        for &subscriber in subscribers {
            if let Some(output) = self.outputs.get_mut(subscriber.mount())
                && common
                && subscriber.flags() == 0
                && output.plain
            {
                let (arena, pool) = (&mut self.arena, &self.shared.pool);
                let done = if shared && output.may_list() {
                    let at = *kept.get_or_insert_with(|| arena.keep(framed));
                    output.list(at, framed.len(), subscriber.id, arena, pool)
                } else {
                    output.push_frame(framed, subscriber.id, arena, pool)
                };
                if let Err(overflow) = done {
                    self.failed.push((output.mount, overflow));
                } else if !output.dirty {
                    output.dirty = true;
                    self.dirty.push(MountId(output.mount));
                }
            } else if subscriber.flags() & flag::WAITING == 0 || class == patch::STATUS {
                self.individual.push(subscriber);
            }
        }
        if !self.individual.is_empty() {
            self.deliver_individually(message, class);
        }
        while let Some((mount, overflow)) = self.failed.pop() {
            self.disconnect(mount, overflow.into());
        }
    }

    #[cold]
    fn deliver_individually(&mut self, message: &[u8], class: u8) {
        let mut individual = mem::take(&mut self.individual);
        for subscriber in individual.drain(..) {
            let Some(ticket) = self.stream_of(subscriber) else { continue };
            match class {
                // Whoever has asked the hub for an image hears the same as a notice.
                patch::STATUS if subscriber.flags() & flag::WAITING != 0 && self.is_asked(ticket) => {}
                patch::STATUS => self.item_status(ticket, message, ItemTrouble::Suspect),
                patch::REFRESH => {
                    if let Some(view) = RefreshView::of(message) {
                        self.give_refresh(ticket, message, view);
                    }
                }
                patch::UPDATE => self.give_update(ticket, subscriber.flags(), message),
                _ => self.give(ticket, message),
            }
        }
        self.individual = individual;
    }

    fn is_asked(&self, ticket: Ticket) -> bool {
        self.streams.get(ticket).is_some_and(|stream| stream.at_hub)
    }

    /// A copy with the stream's own id.
    fn give(&mut self, ticket: Ticket, message: &[u8]) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let (mount, id) = (stream.mount, stream.id);
        let mut own = mem::take(&mut self.own);
        own.clear();
        own.extend_from_slice(message);
        patch::set_stream(&mut own, id);
        self.send(mount, &own);
        self.own = own;
    }

    fn give_update(&mut self, ticket: Ticket, flags: u8, message: &[u8]) {
        if flags & flag::PAUSED != 0 {
            return;
        }
        if flags & (flag::VIEW | flag::KEY | flag::LISTS) == 0 {
            return self.give(ticket, message);
        }
        let Some(stream) = self.streams.get(ticket) else { return };
        let Ok(mut update) = Update::decode(message) else { return };
        let mut filtered = Vec::new();
        if stream.lists() {
            self.open_listed(ticket, update.container, update.payload);
        }
        let Some(stream) = self.streams.get(ticket) else { return };
        if let Some(view) = stream.view() {
            match view.payload(update.container, update.payload, &mut filtered) {
                Viewed::Filtered => update.payload = &filtered,
                // Nothing of it is in the view: the client need not hear of it.
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
        if let Ok(own) = to_vec(|w| update.encode(w)) {
            self.send(mount, &own);
        }
    }

    /// The token's request has an item.
    fn opened(&mut self, item: ItemId, ticket: Ticket) {
        if item == ItemId::NONE {
            return;
        }
        if self.items.len() <= item.index() {
            self.items.resize_with(item.index() + 1, Default::default);
        }
        let Some(entry) = self.items.get_mut(item.index()) else { return };
        entry.holds += 1;
        let Some(stream) = self.streams.get_mut(ticket) else { return self.let_go(item) };
        let twice =
            entry.subscribers.as_slice().iter().any(|other| other.mount() == stream.mount.index() as usize);
        if twice && !stream.flags.contains(RequestFlags::PRIVATE) {
            let text = b"this item is open on another stream";
            return self.refuse(ticket, closed(rssl::rwf::code::ALREADY_OPEN, text));
        }
        stream.item = Some(item);
        entry.subscribers.push(Subscriber::new(stream.mount.index(), stream.id, flag::WAITING));
        self.set_flags(ticket);
    }

    /// A part of the image that the token asked for.
    fn image(&mut self, ticket: Ticket, message: &[u8]) {
        let Some(view) = RefreshView::of(message) else { return };
        if self.streams.get(ticket).is_none() {
            return;
        }
        self.image_bytes = (self.image_bytes * 15 + message.len()).div_ceil(16);
        self.give_refresh(ticket, message, view);
    }

    /// A refresh, or a part of one, for one stream.
    fn give_refresh(&mut self, ticket: Ticket, message: &[u8], view: RefreshView) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        let Some(mount) = self.mounts.get(stream.mount) else { return };
        let outcome = match view.stream_state {
            patch::CLOSED_RECOVER if stream.streaming() => {
                Some(reported_state(ItemTrouble::Recoverable, mount.wants()))
            }
            ..=patch::OPEN if view.suspect => Some(reported_state(ItemTrouble::Suspect, mount.wants())),
            _ => None,
        };
        if outcome == Some(ReportedState::ClosedRecover) {
            let state = rssl::rwf::Refresh::decode(message)
                .map(|refresh| refresh.state.to_owned())
                .unwrap_or_default();
            return self.refuse(ticket, State { stream: StreamState::ClosedRecover, ..state.borrow() });
        }
        let mut own = message.to_vec();
        patch::set_stream(&mut own, stream.id);
        view.set_solicited(&mut own, stream.asked && stream.id > 0);
        let mut state = view.stream_state;
        if outcome == Some(ReportedState::OpenSuspect) {
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
        let was_waiting = mem::take(&mut stream.waiting);
        if view.complete {
            (stream.asked, stream.at_hub) = (false, false);
        }
        let to = stream.mount;
        let lists = stream.lists();
        self.send(to, &own);
        if was_waiting {
            self.set_flags(ticket);
        }
        if lists && let Ok((container, payload)) = rssl::rwf::peek_payload(message) {
            self.open_listed(ticket, container, payload);
        }
        if view.complete {
            self.answered(ticket);
        }
        if state > patch::NON_STREAMING || (state == patch::NON_STREAMING && view.complete) {
            self.end(ticket);
        }
    }

    /// Why the token still waits.
    fn notice(&mut self, ticket: Ticket, message: &[u8]) {
        // One service that is down must not hold up what is asked of others.
        self.answered(ticket);
        let down = self.streams.get(ticket).is_some_and(|stream| self.service_is_down(stream));
        self.item_status(ticket, message, if down { ItemTrouble::ServiceDown } else { ItemTrouble::Suspect });
    }

    fn refused(&mut self, ticket: Ticket, message: &[u8]) {
        if self.streams.get(ticket).is_some_and(|stream| !stream.unheard_of()) {
            self.give(ticket, message);
        }
        self.end(ticket);
    }

    fn reply(&mut self, ticket: Ticket, message: &[u8]) {
        self.give(ticket, message);
    }

    /// The item is no more: whoever still has a stream of it hears so.
    fn gone(&mut self, item: ItemId) {
        let Some(entry) = self.items.get_mut(item.index()) else { return };
        let left = entry.subscribers.as_slice().to_vec();
        for ticket in left.into_iter().filter_map(|one| self.stream_of(one)).collect::<Vec<_>>() {
            self.refuse(
                ticket,
                State { stream: StreamState::ClosedRecover, ..closed(0, b"the item has ended") },
            );
        }
        self.let_go(item);
    }

    /// A status of an item for one stream, after the client's own rules. Spec: rssl.md §6.3
    pub(super) fn item_status(&mut self, ticket: Ticket, message: &[u8], event: ItemTrouble) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Ok(mut status) = Status::decode(message) else { return };
        let wants = self.mounts.get(stream.mount).map(|mount| mount.wants()).unwrap_or_default();
        let mut over = false;
        if let Some(state) = &mut status.state {
            let outcome = match (state.stream, state.data) {
                (StreamState::Open | StreamState::Unspecified, DataState::Suspect) => {
                    Some(reported_state(event, wants))
                }
                (StreamState::ClosedRecover, _) if stream.streaming() => {
                    Some(reported_state(ItemTrouble::Recoverable, wants))
                }
                _ => None,
            };
            match outcome {
                Some(ReportedState::OpenSuspect) => {
                    (state.stream, state.data) = (StreamState::Open, DataState::Suspect);
                }
                Some(ReportedState::ClosedRecover) => {
                    (state.stream, state.data) = (StreamState::ClosedRecover, DataState::Suspect);
                }
                None => {}
            }
            over = state.is_final();
        }
        status.stream = stream.id;
        let mount = stream.mount;
        if !stream.unheard_of()
            && let Ok(own) = to_vec(|w| status.encode(w))
        {
            self.send(mount, &own);
        }
        if over {
            self.end(ticket);
        }
    }

    /// Says in the item's table what has to be done for this stream.
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
            (stream.lists(), flag::LISTS),
        ];
        let flags = bits.iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit);
        item.subscribers.set_flags(stream.mount.index(), stream.id, flags);
    }
}

/// CLOSED/SUSPECT.
pub(super) fn closed(code: u8, text: &[u8]) -> State<'_> {
    State::new(StreamState::Closed, DataState::Suspect, code, text)
}
