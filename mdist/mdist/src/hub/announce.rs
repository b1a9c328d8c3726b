//! Announcements: one state, or one change of groups, for many items of a service.
//!
//! A consumer that watches the states or groups of a service learns such a change by one message of the directory, and
//! applies it to its items itself; all others get a status for each item. So the log has the announcement, then the
//! items' statuses as [`Kind::Covered`], then [`Kind::AnnouncementEnd`]. Statuses come in portions, with messages of
//! other items between.
//!
//! A source distributor puts announcement and statuses into its feed, in this order, and before each run of statuses
//! the number of the announcement that they belong to. The state of a service has to be in the feed too: on another
//! path it could overtake, or be overtaken by, the items' own messages.
//!
//! [`Kind::Covered`]: super::Kind::Covered
//! [`Kind::AnnouncementEnd`]: super::Kind::AnnouncementEnd

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed, ServiceState};
use rssl::rwf::{DataState, OwnedState, StreamState, Update};

use super::batch::Batch;
use super::effects::Effect;
use super::error::UpstreamError;
use super::ids::{Now, Token, UpstreamId};
use super::item::Item;
use super::state::Hub;

/// A change of many items of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its number at this hub, counted from 1.
    pub number: Token,
    /// The hub's id of the service.
    pub service: u16,
    /// The change.
    pub change: Change,
}

/// The content of an [`Announcement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A state of all items of the service.
    Service(OwnedState),
    /// Another group or a state of all items of a group.
    Group(GroupStatus),
}

impl Change {
    /// The state that the items get, if they get one.
    #[must_use]
    pub fn status(&self) -> Option<&OwnedState> {
        match self {
            Self::Service(state) => Some(state),
            Self::Group(group) => group.status.as_ref(),
        }
    }

    fn concerns(&self, item: &Item) -> bool {
        match self {
            Self::Service(_) => true,
            Self::Group(group) => *item.group == *group.group,
        }
    }
}

/// The items of an upstream's service that a change reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All that have a stream.
    All,
    /// Those that have had a refresh on their stream.
    Live,
}

/// A change that may be announced, if it holds for every item that a consumer would apply it to.
struct Candidate {
    service: u16,
    change: Change,
    reach: Reach,
    /// Whether the items are suspect afterwards.
    suspect: bool,
    /// Whether no exception has been found.
    holds: bool,
}

impl Candidate {
    /// Whether a consumer would apply the change to this item of the service, although it does not hold for it.
    fn has_exception(&self, item: &Item, up: UpstreamId) -> bool {
        let fits = item.is_at(up) && (self.reach == Reach::All && self.suspect || item.phase.is_live())
            || self.suspect && item.state.data == DataState::Suspect;
        !fits && self.change.concerns(item)
    }
}

impl Hub {
    /// Announces the effects that set one state for many items of a service: place of the service, and effect. Returns
    /// a number for each; 0: it has no announcement.
    pub(super) fn announce_effects(
        &mut self,
        up: UpstreamId,
        effects: &[(usize, Effect)],
        out: &mut Batch,
    ) -> Vec<Token> {
        let changes = effects.iter().map(|(at, effect)| {
            // Items that move get the state of their move instead.
            let moves = matches!(effect, Effect::Down(_)) && self.is_replaced(*at);
            let (change, reach) = effect.change().filter(|_| !moves)?;
            self.announceable(*at, change, reach)
        });
        let changes = changes.collect();
        self.announce(up, changes, out)
    }

    /// Puts these changes into the log, each if it holds for every item that a consumer would apply it to.
    fn announce(&mut self, up: UpstreamId, changes: Vec<Option<Candidate>>, out: &mut Batch) -> Vec<Token> {
        let mut numbers = vec![0; changes.len()];
        let changes = changes.into_iter().enumerate();
        let mut changes: Vec<_> = changes.filter_map(|(place, change)| Some((place, change?))).collect();
        if changes.is_empty() {
            return numbers;
        }
        // All at once: a walk over the items takes about as long for one change as for all.
        changes.sort_by_key(|(_, change)| change.service);
        // Consumers apply a change to the items of which they have had an image. One that is live at the upstream is no
        // exception from any change; this check needs no memory besides the item.
        let concerned = self.items.open().filter(|item| !item.holders.is_empty() && item.image.is_known());
        for item in concerned.filter(|item| !(item.is_at(up) && item.phase.is_live())) {
            let service = item.spec.service;
            let first = changes.partition_point(|(_, change)| change.service < service);
            let of_service =
                changes.iter_mut().skip(first).take_while(|(_, change)| change.service == service);
            of_service.for_each(|(_, change)| change.holds &= !change.has_exception(item, up));
        }
        changes.sort_by_key(|(place, _)| *place);
        for (place, Candidate { service, change, holds, .. }) in changes {
            if let Some(number) = numbers.get_mut(place).filter(|_| holds) {
                self.announcements += 1;
                *number = self.announcements;
                out.announce(Announcement { number: *number, service, change });
            }
        }
        numbers
    }

    /// The change as a candidate for an announcement. `None`: each item needs a status, because the change ends
    /// streams, or its items may not have the state yet that an earlier change leads to.
    fn announceable(&self, at: usize, change: Change, reach: Reach) -> Option<Candidate> {
        let service = self.services.list.get(at).filter(|service| service.is_shown())?.id;
        let status = change.status();
        let keeps_streams = status.is_none_or(|state| {
            matches!(state.stream, StreamState::Open | StreamState::ClosedRecover)
                && state.data != DataState::NoChange
        });
        let suspect = status.is_some_and(|state| state.data == DataState::Suspect);
        // Those that an earlier loss has not reached yet will be suspect too.
        let is_known = self.sweeps.effects_on(service).all(|earlier| suspect && earlier.only_suspects());
        (keeps_streams && is_known).then_some(Candidate { service, change, reach, suspect, holds: true })
    }

    /// Handles a source distributor's message about states of a service: an announcement, another state of the service,
    /// or the announcement that the statuses which follow belong to.
    #[cold]
    pub(super) fn announced(
        &mut self,
        now: Now,
        up: UpstreamId,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let update = Update::decode(message)?;
        for (action, listed) in rssl::rdm::directory::decode(update.payload)? {
            let Some(at) = self.services.offered(up, listed.id).filter(|_| action != Action::Delete) else {
                continue;
            };
            let was_up = self.offers_up(up, at);
            let Listed { state, groups, .. } = listed;
            let mut change = None;
            if let Some(ServiceState { up: is_up, accepting, status }) = state {
                if let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(up)) {
                    offer.listed.state = Some(ServiceState { up: is_up, accepting, status: None });
                }
                let status = status.filter(|_| is_up || !self.is_replaced(at));
                change = status.map(|status| (Change::Service(status), Reach::All));
            } else if let Some(group) = groups.into_iter().next() {
                change = Some((Change::Group(group), Reach::Live));
            }
            let announced = change.and_then(|(change, reach)| {
                let change = self.announceable(at, change, reach);
                self.announce(up, vec![change], out).first().copied()
            });
            if let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(up)) {
                offer.covers(update.seq, announced);
            }
            self.publish_directory(&[], out);
            if was_up != self.offers_up(up, at) {
                // The distributor recovers the items; an image that is lost on the way is missed from now on.
                let effects = self.with_moves(false, vec![(at, Effect::Watch)]);
                self.begin_effects(now, up, effects, &[], out);
            }
            self.pump(now, at);
        }
        Ok(())
    }

    /// The announcement that covers the statuses which an item gets from its upstream now; 0: none.
    pub(super) fn covering(&self, item: &Item) -> Token {
        let Some(link) = item.link else { return 0 };
        let service = self.services.index(item.spec.service).and_then(|at| self.services.list.get(at));
        let offer = service.and_then(|service| service.offers.iter().find(|offer| offer.up == link.up));
        offer.map_or(0, |offer| offer.announcement)
    }

    fn offers_up(&self, up: UpstreamId, at: usize) -> bool {
        let service = self.services.list.get(at);
        service.is_some_and(|service| service.offers.iter().any(|offer| offer.up == up && offer.is_up()))
    }
}
