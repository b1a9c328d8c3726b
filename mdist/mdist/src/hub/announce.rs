//! Announcements: one state, or one change of groups, for many items of a service.
//!
//! A consumer that watches the states or groups of a service learns such a change by one message of the directory, and
//! applies it to its items itself; all others get a status for each item. So the log has the announcement, then the
//! items' statuses as [`Kind::Covered`], then [`Kind::AnnouncementEnd`]. No other message of these items is between.
//!
//! A source distributor puts the three into its feed, in this order. The state of a service has to be in the feed too:
//! on another path it could overtake, or be overtaken by, the items' own messages.
//!
//! [`Kind::Covered`]: super::Kind::Covered
//! [`Kind::AnnouncementEnd`]: super::Kind::AnnouncementEnd

use rssl::rdm::directory::{Action, GroupStatus, Service as Listed, ServiceState};
use rssl::rwf::{DataState, OwnedState, StreamState, Update};

use super::batch::Batch;
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

impl Hub {
    /// Puts an announcement into the log, if the change holds for every item that a consumer would apply it to. Returns
    /// its number; 0: each item needs a status, because the change does not hold for items of another upstream, or
    /// ends streams.
    pub(super) fn announce(
        &mut self,
        up: UpstreamId,
        at: usize,
        change: &Change,
        reach: Reach,
        out: &mut Batch,
    ) -> Token {
        let Some(service) = self.services.list.get(at).filter(|service| service.is_shown()) else { return 0 };
        let status = change.status();
        let keeps_streams = status.is_none_or(|state| {
            matches!(state.stream, StreamState::Open | StreamState::ClosedRecover)
                && state.data != DataState::NoChange
        });
        if !keeps_streams {
            return 0;
        }
        let suspect = status.is_some_and(|state| state.data == DataState::Suspect);
        let service = service.id;
        let fits = |item: &Item| {
            item.is_at(up) && (reach == Reach::All && suspect || item.phase.is_live())
                || suspect && item.state.data == DataState::Suspect
        };
        // Consumers apply the change to the items of which they have had an image.
        let exception = |item: &Item| {
            item.spec.service == service
                && !item.holders.is_empty()
                && item.image.is_known()
                && change.concerns(item)
                && !fits(item)
        };
        if self.items.any_open(exception) {
            return 0;
        }
        self.announcements += 1;
        let number = self.announcements;
        out.announce(Announcement { number, service, change: change.clone() });
        number
    }

    /// Handles a source distributor's message about states of a service: an announcement that its items' statuses
    /// follow, another state of the service, or the end of the statuses.
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
            self.end_announcement(up, at, out);
            let was_up = self.offers_up(up, at);
            let Listed { state, groups, .. } = listed;
            let mut number = 0;
            if let Some(ServiceState { up: is_up, accepting, status }) = state {
                if let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(up)) {
                    offer.listed.state = Some(ServiceState { up: is_up, accepting, status: None });
                }
                if let Some(status) = status.filter(|_| is_up || !self.is_replaced(at)) {
                    number = self.announce(up, at, &Change::Service(status), Reach::All, out);
                }
            } else if let Some(group) = groups.into_iter().next() {
                number = self.announce(up, at, &Change::Group(group), Reach::Live, out);
            }
            if let Some(offer) = self.services.list.get_mut(at).and_then(|s| s.offer(up)) {
                offer.announcement = number;
            }
            self.publish_directory(&[], out);
            if was_up != self.offers_up(up, at) {
                // The distributor recovers the items; an image that is lost on the way is missed from now on.
                for id in self.items_of_service(up, at) {
                    self.watch_if_stale(now, id);
                }
                self.move_to_other_upstream(now, at, out);
            }
            self.pump(now, at);
        }
        Ok(())
    }

    /// Ends the announcement of an upstream's service whose statuses are being received.
    fn end_announcement(&mut self, up: UpstreamId, at: usize, out: &mut Batch) {
        let offer = self.services.list.get_mut(at).and_then(|s| s.offer(up));
        let number = offer.map_or(0, |offer| std::mem::take(&mut offer.announcement));
        out.end_announcement(number);
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
