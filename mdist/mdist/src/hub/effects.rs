//! The effects of changes of an upstream and its services on one item.

use rssl::rdm::directory::GroupStatus;
use rssl::rwf::{DataState, DataType, OwnedState, State, Status, StreamState, code};

use super::announce::{Change, Reach};
use super::batch::{Batch, Kind};
use super::encode::{self, suspect_state};
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::item::{Event, Item, Queue};
use super::state::Hub;

/// The effect of a change on the items of a service whose stream is at the upstream.
#[derive(Debug)]
pub(super) enum Effect {
    /// The upstream is lost.
    Lost(OwnedState),
    /// The service is down; the state of its items.
    Down(OwnedState),
    /// The service is up again: its items are requested again.
    Up,
    /// The upstream recovers the items of the service, which is up again or down.
    Watch,
    /// The upstream does not offer the service any more. `reported`: its own messages may have told so already.
    Deleted { reported: bool },
    /// All live items of the service get this state.
    Status(OwnedState),
    /// The items of a group get another group, a state, or both.
    Group(GroupStatus),
    /// Items at any upstream that has the service down move to another one.
    Move,
}

impl Effect {
    /// The effect of a service that is down; `sent` is the state of its items, if the upstream has sent one.
    pub(super) fn down(sent: Option<OwnedState>) -> Self {
        let usual = || suspect_state(StreamState::Open, code::NONE, "Service down").to_owned();
        Self::Down(sent.unwrap_or_else(usual))
    }

    /// Whether it concerns an open item of the service.
    pub(super) fn concerns(&self, item: &Item, up: UpstreamId) -> bool {
        match self {
            Self::Move => item.link.is_some(),
            Self::Group(group) => item.is_at(up) && *item.group == *group.group,
            _ => item.is_at(up),
        }
    }

    /// The change to announce, and the items that it reaches.
    pub(super) fn change(&self) -> Option<(Change, Reach)> {
        match self {
            Self::Lost(state) | Self::Down(state) => Some((Change::Service(state.clone()), Reach::All)),
            Self::Status(state) => Some((Change::Service(state.clone()), Reach::Live)),
            Self::Group(group) => Some((Change::Group(group.clone()), Reach::Live)),
            Self::Up | Self::Watch | Self::Deleted { .. } | Self::Move => None,
        }
    }

    /// Whether all items that it changes are suspect afterwards, and in the same group as before.
    pub(super) fn only_suspects(&self) -> bool {
        match self {
            Self::Up => false,
            Self::Watch | Self::Deleted { .. } | Self::Move => true,
            Self::Lost(state) | Self::Down(state) | Self::Status(state) => state.data == DataState::Suspect,
            Self::Group(group) => {
                group.merged_to.is_none()
                    && group.status.as_ref().is_some_and(|state| state.data == DataState::Suspect)
            }
        }
    }
}

impl Hub {
    /// Applies an effect that concerns an item to it. `covered` is the announcement that has told some consumers of the
    /// change; 0: none.
    pub(super) fn apply_effect(
        &mut self,
        now: Now,
        id: ItemId,
        effect: &Effect,
        covered: Token,
        out: &mut Batch,
    ) {
        match effect {
            Effect::Lost(state) => {
                if state.stream == StreamState::Open {
                    // A publisher opens its streams again.
                    self.unlink(now, id, false);
                }
                self.stream_lost(now, id, &state.borrow(), covered, out);
            }
            Effect::Down(state) => {
                self.stream_lost(now, id, &state.borrow(), covered, out);
                if let Some(item) = self.items.get_mut(id) {
                    item.apply(Event::RestartDue);
                }
            }
            Effect::Up => self.item_is_up(now, id, out),
            Effect::Watch => self.watch_if_stale(now, id),
            Effect::Deleted { reported } => self.item_is_withdrawn(now, id, *reported, out),
            Effect::Status(state) => self.set_live_state(now, id, &state.borrow(), covered, out),
            Effect::Group(group) => self.group_changed(now, id, group, covered, out),
            Effect::Move => self.move_if_down(now, id, out),
        }
    }

    fn item_is_up(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        if item.publication.is_published() {
            // Images cannot be requested from a publisher. But its stream went on, so the cache has the item's present
            // value.
            item.apply(Event::ServiceBack);
            self.refresh_from_cache(id, out);
        } else if item.image.restarts() || item.state.data == DataState::Suspect {
            item.apply(Event::RestartDue);
            self.enqueue(id, Queue::Recovery);
        }
        self.watch_if_stale(now, id);
    }

    fn item_is_withdrawn(&mut self, now: Now, id: ItemId, reported: bool, out: &mut Batch) {
        let state =
            suspect_state(StreamState::ClosedRecover, code::NONE, "The source has withdrawn the service");
        let Some(item) = self.items.get(id) else { return };
        let is_lost =
            item.state.stream == StreamState::ClosedRecover && item.state.data == DataState::Suspect;
        if item.publication.is_published() {
            self.dequeue(id);
            self.unlink(now, id, false);
        } else if reported && is_lost && !item.spec.private {
            return self.retry(now, id);
        }
        self.stream_lost(now, id, &state, 0, out);
    }

    fn group_changed(&mut self, now: Now, id: ItemId, group: &GroupStatus, covered: Token, out: &mut Batch) {
        let Some(item) = self.items.get_mut(id) else { return };
        if let Some(merged) = &group.merged_to {
            item.group = merged.as_slice().into();
            self.values.set_group(id, merged);
            let status = Status {
                domain: item.spec.domain,
                stream: 1,
                container: DataType::NO_DATA,
                group: Some(merged),
                ..Status::default()
            };
            let written = encode::write(&mut self.scratch, 64 + merged.len(), |w| status.encode(w));
            if let Ok(bytes) = written
                && !item.holders.is_empty()
            {
                let kind = if covered == 0 { Kind::Message } else { Kind::Covered };
                out.push(kind, SideId::ALL, id, covered, bytes);
            }
        }
        if let Some(state) = &group.status {
            self.set_live_state(now, id, &state.borrow(), covered, out);
        }
    }

    /// Moves an item whose upstream has the service down to another upstream that has it up, if there is one.
    fn move_if_down(&mut self, now: Now, id: ItemId, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        let Some(service) = self.services.index(item.spec.service).and_then(|at| self.services.list.get(at))
        else {
            return;
        };
        let is_down =
            service.offers.iter().any(|offer| item.is_at(offer.up) && !offer.publishes && !offer.is_up());
        if !is_down || !service.takes_requests() {
            return;
        }
        let text = "Service down, another source takes over";
        let state = suspect_state(StreamState::ClosedRecover, code::FAILOVER_STARTED, text);
        self.dequeue(id);
        self.unlink(now, id, true);
        self.stream_lost(now, id, &state, 0, out);
    }

    /// Applies to an item the state that its source has set for many items at once. No effect on items without
    /// a refresh.
    fn set_live_state(&mut self, now: Now, id: ItemId, state: &State<'_>, covered: Token, out: &mut Batch) {
        let Some(item) = self.items.get(id) else { return };
        if !item.phase.is_live() {
            return;
        }
        self.stream_lost(now, id, state, covered, out);
        if matches!(state.stream, StreamState::Closed | StreamState::Redirected) {
            self.end_item(now, id, out);
        }
    }
}
