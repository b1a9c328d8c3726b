//! One item of the hub, and the table of all items.

mod lifecycle;
mod table;
mod waiters;

use std::sync::Arc;

use rssl::rwf::{DataState, OwnedState, State, StreamState};

use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::request::ItemSpec;
pub(super) use lifecycle::{Event, Image, Phase, Publication, Transition};
#[cfg(test)]
pub(super) use lifecycle::{next_image, next_phase, next_publication};
pub(super) use table::Items;
pub(super) use waiters::Waiters;

/// A queue of requests of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Requests of consumers.
    Consumers,
    /// Requests of the hub's own making, which are paced.
    Recovery,
}

/// The item's stream upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) up: UpstreamId,
    pub(super) stream: i32,
    /// Number of the upstream's offer of the service when the stream was opened.
    pub(super) offer: u32,
    /// The request whose image is not complete.
    pub(super) pending: Option<PendingRequest>,
    /// Requests without an answer of their own: an unsolicited image completes a request too.
    pub(super) unanswered: u8,
}

/// A request whose image is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    /// Identifies the request, so that the deadline of an earlier one does not end it.
    pub(super) number: u32,
    /// Time at which it was sent, or at which the last part came.
    pub(super) at: Now,
    /// Whether it counts in the recovery window.
    pub(super) paced: bool,
}

/// A request of a side that waits for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) side: SideId,
    pub(super) token: Token,
    pub(super) snapshot: bool,
}

/// The recipients of the refresh under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipients {
    /// The item's `receiving` list.
    Waiters,
    /// All live streams as well.
    All,
}

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) spec: Arc<ItemSpec>,
    pub(super) phase: Phase,
    pub(super) image: Image,
    pub(super) publication: Publication,
    /// Number of uses of the place, which distinguishes an entry for an earlier item from one for this item.
    pub(super) age: u32,
    /// Number of the last sweep that has reached it, or that had begun when it was added.
    pub(super) swept: u32,
    /// Whether it was opened for snapshot requests only.
    pub(super) snapshot: bool,
    pub(super) link: Option<Link>,
    /// The queue of its service that has the item.
    pub(super) queue: Option<Queue>,
    /// Failed requests in a row.
    pub(super) tries: u8,
    /// Ends of upstreams in a row, while its first image was awaited.
    pub(super) unanswered_ends: u8,
    /// Time for which its next request is held back.
    pub(super) held_back: Now,
    /// Time since which it has been suspect although its upstream is up, and no request was under way.
    pub(super) stale_since: Option<Now>,
    /// Whether it is in the hub's list of stale items to request again.
    pub(super) is_watched: bool,
    /// Requests since it became suspect while its upstream was up.
    pub(super) stale_requests: u8,
    pub(super) recipients: Recipients,
    /// The last known state: the one that the upstream sent, or the one set when the upstream was lost.
    pub(super) state: OwnedState,
    pub(super) group: Box<[u8]>,
    /// Holds by side.
    pub(super) holders: Vec<(SideId, u32)>,
    pub(super) waiting: Waiters,
    /// Waiters that get the refresh under way.
    pub(super) receiving: Vec<Waiter>,
    /// Time at which the hold after the last close ends.
    pub(super) closing: Option<Now>,
    /// Whether its values can be cached: false after the cache could not apply a message of it.
    pub(super) cacheable: bool,
    /// The sender of the last generic message, which gets the answer.
    pub(super) generic_sender: Option<(SideId, Token)>,
}

impl Item {
    fn new(spec: Arc<ItemSpec>, age: u32, swept: u32, snapshot: bool) -> Self {
        Self {
            spec,
            phase: Phase::NoStream,
            image: Image::Missing,
            publication: Publication::Requested,
            age,
            swept,
            snapshot,
            link: None,
            queue: None,
            tries: 0,
            unanswered_ends: 0,
            held_back: Now::ZERO,
            stale_since: None,
            is_watched: false,
            stale_requests: 0,
            recipients: Recipients::Waiters,
            state: OwnedState::default(),
            group: Box::default(),
            holders: Vec::new(),
            waiting: Waiters::default(),
            receiving: Vec::new(),
            closing: None,
            cacheable: true,
            generic_sender: None,
        }
    }

    /// Passes an event to all three state machines.
    pub(super) fn apply(&mut self, event: Event) {
        match lifecycle::next_phase(self.phase, event) {
            Transition::To(phase) => self.phase = phase,
            Transition::Stay => {}
            Transition::Illegal => debug_assert!(false, "{event:?} in phase {:?}", self.phase),
        }
        match lifecycle::next_image(self.image, event) {
            Transition::To(image) => self.image = image,
            Transition::Stay => {}
            Transition::Illegal => debug_assert!(false, "{event:?} with image {:?}", self.image),
        }
        match lifecycle::next_publication(self.publication, event) {
            Transition::To(publication) => self.publication = publication,
            Transition::Stay => {}
            Transition::Illegal => debug_assert!(false, "{event:?} in publication {:?}", self.publication),
        }
    }

    /// Whether the item's stream is at this upstream.
    pub(super) fn is_at(&self, up: UpstreamId) -> bool {
        self.link.is_some_and(|link| link.up == up)
    }

    /// Whether a request for its image is under way.
    pub(super) fn is_requested(&self) -> bool {
        self.link.is_some_and(|link| link.pending.is_some())
    }

    /// Whether no side and no publisher needs it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.holders.is_empty()
            && self.waiting.is_empty()
            && self.receiving.is_empty()
            && !self.publication.is_published()
    }

    /// Takes over a state; parts without a value (`Unspecified`, `NoChange`) keep the old one.
    pub(super) fn set_state(&mut self, state: &State<'_>) {
        if state.stream != StreamState::Unspecified {
            self.state.stream = state.stream;
        }
        if state.data != DataState::NoChange {
            self.state.data = state.data;
        }
        self.state.code = state.code;
        if self.state.text != state.text {
            self.state.text = state.text.to_vec();
        }
    }

    /// Puts the waiters of an interrupted refresh back among those that wait.
    pub(super) fn requeue_receiving(&mut self) {
        let interrupted = std::mem::take(&mut self.receiving);
        interrupted.into_iter().for_each(|waiter| self.waiting.add(waiter));
    }

    /// Adds one hold of a side.
    pub(super) fn hold(&mut self, side: SideId) {
        match self.holders.iter_mut().find(|(s, _)| *s == side) {
            Some((_, holds)) => *holds = holds.saturating_add(1),
            None => self.holders.push((side, 1)),
        }
    }

    /// Takes back holds of a side; with the last one its streaming waiters go too.
    pub(super) fn release(&mut self, side: SideId, holds: u32) {
        let Some(at) = self.holders.iter().position(|(s, _)| *s == side) else { return };
        if let Some((_, has)) = self.holders.get_mut(at) {
            *has = has.saturating_sub(holds);
            if *has == 0 {
                self.holders.swap_remove(at);
                self.waiting.take_where(|w| w.side == side && !w.snapshot);
                self.receiving.retain(|w| w.side != side || w.snapshot);
            }
        }
    }
}
