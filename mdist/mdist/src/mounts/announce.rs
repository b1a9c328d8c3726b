//! Changes of many items of a service: one message of the directory to consumers that watch this part of it, a status
//! for each item to all others. Spec: rssl.md §6.2

use std::collections::{HashMap, VecDeque};

use rssl::rdm::directory::{Action, GroupStatus, Service, ServiceState, filter};
use rssl::rwf::{DataState, OwnedState, RequestFlags, StreamState};

use super::item_trouble::{ItemTrouble, RecoveryOptions, ReportedState, reported_state};
use super::slots::Ticket;
use super::subscribers::flag;
use super::worker::Worker;
use crate::hub::{Announcement, Batch, Change, ItemId, Kind, Token};

/// Announcements whose recipients are kept. Several are under way if several upstreams or services have one at the same
/// time; of an older one each item gets its status.
const KEPT: usize = 64;

/// The mounts that have got each of the last announcements.
///
/// The statuses of an announcement's items may take several batches. A stream whose image comes between has an older
/// state than the announcement, so it gets its status: each stream and item has the number of the announcement after
/// which its last refresh came.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    /// Number of the last one.
    last: Token,
    /// Those that go with the next change of the directory.
    waiting: Vec<Announcement>,
    /// Recipients of the last ones by number, and whether it ends their streams.
    sent: VecDeque<(Token, HashMap<Ticket, bool>)>,
}

impl Announcements {
    /// Number of the last one; 0: there was none.
    #[inline]
    pub(super) fn last(&self) -> Token {
        self.last
    }

    /// Takes those that go with this change of the directory.
    pub(super) fn take_waiting(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.waiting)
    }

    fn add(&mut self, announcement: &Announcement) {
        self.last = announcement.number;
        self.waiting.push(announcement.clone());
        self.sent.push_back((announcement.number, HashMap::new()));
        if self.sent.len() > KEPT {
            self.sent.pop_front();
        }
    }

    /// Records that a mount has got these announcements.
    pub(super) fn sent(&mut self, mount: Ticket, numbers: Vec<(Token, bool)>) {
        for (number, ends) in numbers {
            if let Some((_, mounts)) = self.sent.iter_mut().find(|(known, _)| *known == number) {
                mounts.insert(mount, ends);
            }
        }
    }

    /// Whether the mount has got this announcement, and if so, whether it ends the streams.
    fn reached(&self, mount: Ticket, number: Token) -> Option<bool> {
        self.sent.iter().find(|(known, _)| *known == number)?.1.get(&mount).copied()
    }
}

impl Worker {
    /// Takes the announcement at index `at` of the log, and sends it unless it goes with the change of the directory
    /// that follows.
    #[cold]
    pub(super) fn announced(&mut self, batch: &Batch, at: usize, services: &[Service]) {
        if let Some(announcement) = batch.entries.get(at).and_then(|entry| batch.announcement(entry)) {
            self.announcements.add(announcement);
        }
        if !matches!(batch.entries.get(at + 1).map(|next| next.kind), Some(Kind::Announced | Kind::Services))
        {
            self.services_changed(services);
        }
    }

    /// Adds to a directory message of a mount the announcements that its stream's filter and service select. Returns
    /// their numbers, and whether each ends the mount's streams.
    pub(super) fn add_announcements(
        &self,
        mount: Ticket,
        wanted: u32,
        only: Option<u16>,
        announced: &[Announcement],
        selected: &mut Vec<(Action, Service)>,
    ) -> Vec<(Token, bool)> {
        let recovery = self.mounts.get(mount).map(|mount| mount.recovery()).unwrap_or_default();
        let mut numbers = Vec::new();
        for Announcement { number, service: id, change } in announced {
            let part = match change {
                Change::Service(_) => filter::STATE,
                Change::Group(_) => filter::GROUP,
            };
            let known = self.services.list.iter().find(|service| service.id == *id);
            let Some(known) = known.filter(|_| wanted & part != 0 && only.is_none_or(|only| only == *id))
            else {
                continue;
            };
            let at = selected.iter().position(|(_, service)| service.id == *id).unwrap_or_else(|| {
                selected.push((Action::Update, Service { id: *id, ..Service::default() }));
                selected.len() - 1
            });
            let Some((_, service)) = selected.get_mut(at).filter(|(action, _)| *action != Action::Delete)
            else {
                continue;
            };
            let reported = change.status().map(|state| reported(state, recovery));
            let ends = reported.as_ref().is_some_and(|state| state.stream == StreamState::ClosedRecover);
            match change {
                Change::Service(_) => {
                    let state = known.state.clone().unwrap_or_default();
                    service.state = Some(ServiceState { status: reported, ..state });
                }
                Change::Group(group) => {
                    service.groups.push(GroupStatus { status: reported, ..group.clone() });
                }
            }
            numbers.push((*number, ends));
        }
        numbers
    }

    /// Delivers a status of an item to the streams whose consumers have not got the announcement with this number.
    #[cold]
    pub(super) fn covered(&mut self, item: ItemId, number: Token, message: &[u8]) {
        let Some(entry) = self.items.get(item.index()) else { return };
        let is_known = entry.refreshed < number;
        let subscribers = entry.subscribers.as_slice().to_vec();
        for subscriber in subscribers {
            let Some(ticket) = self.stream_of(subscriber) else { continue };
            let Some(stream) = self.streams.get(ticket) else { continue };
            let is_waiting = subscriber.flags() & flag::WAITING != 0;
            let applies = is_known
                && !is_waiting
                && stream.refreshed < number
                && !stream.flags.contains(RequestFlags::PRIVATE);
            match self.announcements.reached(stream.mount, number).filter(|_| applies) {
                Some(true) => self.end_stream(ticket),
                Some(false) => {}
                // A stream with a request at the hub gets the same status as a notice.
                None if is_waiting && self.is_requested_from_hub(ticket) => {}
                None => self.item_status(ticket, message, ItemTrouble::Suspect),
            }
        }
        self.disconnect_slow_consumers();
    }
}

/// The state that a consumer with these options gets, as [`Worker::item_status`] sends it for single items.
fn reported(state: &OwnedState, recovery: RecoveryOptions) -> OwnedState {
    let reported = match (state.stream, state.data) {
        (StreamState::ClosedRecover, _) => reported_state(ItemTrouble::Recoverable, recovery),
        (_, DataState::Suspect) => reported_state(ItemTrouble::Suspect, recovery),
        _ => return state.clone(),
    };
    let stream = match reported {
        ReportedState::OpenSuspect => StreamState::Open,
        ReportedState::ClosedRecover => StreamState::ClosedRecover,
    };
    OwnedState { stream, data: DataState::Suspect, ..state.clone() }
}
