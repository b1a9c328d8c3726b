//! States of services, and announcements of states and groups of their items, in the feeds.

use std::collections::HashMap;

use rssl::rdm::directory::{self, Action, Service, ServiceState};
use rssl::rwf::{DataType, Domain, Update, UpdateFlags};
use rssl::wire::to_vec;

use super::SourceSide;
use crate::backbone::Result;
use crate::backbone::wire::{Entry, SERVICE_STREAM};
use crate::hub::{Announcement, Batch, Change, Directory, Kind, Token};

/// What sinks have to know before statuses of many items.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    /// The last states of services, by id.
    states: HashMap<u16, ServiceState>,
    /// Announcements that wait for the change of the directory that follows.
    waiting: Vec<Announcement>,
}

impl SourceSide {
    /// Takes the announcement at index `at` of the log. It goes into the feed at once, or with the change of its
    /// service's state that follows.
    pub(super) fn announced(&mut self, batch: &Batch, at: usize) -> Result<()> {
        let announcement = batch.entries.get(at).and_then(|entry| batch.announcement(entry));
        self.announcing.waiting.extend(announcement.cloned());
        match batch.entries.get(at + 1).map(|next| next.kind) {
            Some(Kind::Announced | Kind::Services) => Ok(()),
            _ => self.put_announcements(),
        }
    }

    /// Puts the changed states of services into their feeds, and the announcements that wait.
    pub(super) fn states_changed(&mut self, directory: &Directory) -> Result<()> {
        for service in &directory.services {
            let Some(state) = &service.state else { continue };
            let Announcing { states, waiting } = &mut self.announcing;
            if states.get(&service.id) == Some(state) {
                continue;
            }
            let was_known = states.insert(service.id, state.clone()).is_some();
            let announced = waiting
                .iter()
                .any(|one| one.service == service.id && matches!(one.change, Change::Service(_)));
            if was_known && !announced {
                self.put_state(service.id, Some(state.clone()), Vec::new(), 0)?;
            }
        }
        self.put_announcements()
    }

    fn put_announcements(&mut self) -> Result<()> {
        for Announcement { number, service, change } in std::mem::take(&mut self.announcing.waiting) {
            match change {
                Change::Service(status) => {
                    let state = self.announcing.states.get(&service).cloned().unwrap_or_default();
                    self.put_state(
                        service,
                        Some(ServiceState { status: Some(status), ..state }),
                        Vec::new(),
                        number,
                    )?;
                }
                Change::Group(group) => self.put_state(service, None, vec![group], number)?,
            }
        }
        Ok(())
    }

    /// Ends an announcement: no more statuses of it follow.
    pub(super) fn announcement_ended(&mut self, number: Token) -> Result<()> {
        let is_covered = |(_, covering): (u16, Token)| covering == number;
        let ended = self.feeds.iter().filter(|(_, feed)| feed.covering.is_some_and(is_covered));
        let ended: Vec<u16> = ended.map(|(feed, _)| feed).collect();
        ended.into_iter().try_for_each(|feed| self.cover(feed, 0))
    }

    /// Makes known to which announcement the statuses that follow in a feed belong; 0: to none. They come in portions,
    /// with others between.
    #[inline]
    pub(super) fn cover(&mut self, feed: u16, number: Token) -> Result<()> {
        match self.feeds.get(feed).and_then(|feed| feed.covering) {
            Some((service, covering)) if covering != number => {
                self.put_state(service, None, Vec::new(), number)
            }
            _ => Ok(()),
        }
    }

    fn put_state(
        &mut self,
        id: u16,
        state: Option<ServiceState>,
        groups: Vec<directory::GroupStatus>,
        number: Token,
    ) -> Result<()> {
        let Some(feed) = self.feeds.of_service(id) else { return Ok(()) };
        if let Some(feed) = self.feeds.get_mut(feed) {
            feed.covering = Some((id, number));
        }
        let update = Update {
            domain: Domain::DIRECTORY,
            stream: SERVICE_STREAM,
            flags: UpdateFlags::DO_NOT_CONFLATE,
            container: DataType::MAP,
            // A sink knows the last ones only, so that the low bits identify them.
            seq: (number != 0).then_some(number as u32),
            ..Update::default()
        };
        let service = [(Action::Update, Service { id, state, groups, ..Service::default() })];
        let encoded = to_vec(|w| {
            update.encode_header(w)?;
            directory::encode(w, u32::MAX, &service)
        });
        match encoded {
            Ok(message) => self.put(feed, &Entry::Message(&message)),
            Err(why) => {
                // The sinks then get the items' statuses as their own.
                tracing::error!("cannot encode the state of a service for the sinks: {why}");
                Ok(())
            }
        }
    }
}
