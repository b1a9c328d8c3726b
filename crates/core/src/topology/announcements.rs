//! What is left to do for the subscriptions of each party: changes that it has not been told of yet, and subscriptions
//! of connections that have ended. It is done in portions, in the order in which it came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::interests::SubscriptionId;
use super::{MAX_ALL_WAITING_CHANGES, MAX_WAITING_CHANGES};
use crate::addr::{NodeAddr, ServiceRange};
use crate::names::Change;
use crate::quota::UserId;
use crate::wire::SUBSCRIPTION_LEN;

/// Whose subscriptions are served in one order: a user of this host, or another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    /// The user that is charged for the subscriptions.
    pub user: Option<UserId>,
    /// The node, if it is another one.
    pub node: NodeAddr,
}

/// How far a change has been announced to a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To the connections up to this one that are finding their first bindings.
    Finding(Option<u32>),
    /// To these, and to the subscriptions from this one on, the newest first.
    Subscriptions(SubscriptionId),
}

impl Place {
    /// Nobody knows of the change.
    pub(super) const BEGIN: Self = Self::Finding(None);
}

/// The subscriptions of a connection: the service type of each one, by its request and id.
pub(super) type Subscriptions = BTreeMap<([u8; SUBSCRIPTION_LEN], SubscriptionId), u32>;

/// What a connection has left when it ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    subscriptions: Subscriptions,
    /// Memory that is freed in portions too.
    ranges: BTreeSet<ServiceRange>,
}

impl Ended {
    pub(super) fn new(subscriptions: Subscriptions, ranges: BTreeSet<ServiceRange>) -> Self {
        Self { subscriptions, ranges }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty() && self.ranges.is_empty()
    }

    /// Takes an item out.
    pub(super) fn free(&mut self) -> Option<Freed> {
        let subscription = self.subscriptions.pop_first();
        let found = subscription.map(|((_, id), service)| Freed::Subscription { service, id });
        found.or_else(|| self.ranges.pop_first().map(|_| Freed::Memory))
    }
}

/// What has been taken out of [`Ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    Subscription { service: u32, id: SubscriptionId },
    Memory,
}

#[derive(Debug)]
enum Item {
    Change(Change),
    TimedOut { service: u32, id: SubscriptionId },
}

/// The next thing to do for a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Free what a connection has left.
    Free(Freed),
    /// Go on with a change; if a part is left, [`Announcements::put_back`] it.
    Change(Change, Place),
    /// End a subscription.
    TimedOut { service: u32, id: SubscriptionId },
    /// A change was dropped.
    Dropped,
    /// Close a connection with an interest in this type; [`Announcements::forget_lost`] if there is none.
    Close(u32),
}

/// What is left to do for one party.
#[derive(Debug)]
struct Backlog {
    ended: VecDeque<Ended>,
    items: VecDeque<Item>,
    /// Number of changes in `items`.
    changes: usize,
    /// How far the first item is, if it is a change.
    place: Place,
    /// After too many changes, until all is done: service types of which changes were dropped.
    lost: Option<BTreeSet<u32>>,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { ended: VecDeque::new(), items: VecDeque::new(), changes: 0, place: Place::BEGIN, lost: None }
    }
}

impl Backlog {
    fn next(&mut self) -> Option<Step> {
        while let Some(ended) = self.ended.front_mut() {
            if let Some(freed) = ended.free() {
                return Some(Step::Free(freed));
            }
            self.ended.pop_front();
        }
        // Before their later items: a subscription that times out would not be found.
        if let Some(service) = self.lost.as_ref().and_then(BTreeSet::first) {
            return Some(Step::Close(*service));
        }
        let change = match self.items.pop_front()? {
            Item::Change(change) => change,
            Item::TimedOut { service, id } => return Some(Step::TimedOut { service, id }),
        };
        self.changes -= 1;
        let place = core::mem::replace(&mut self.place, Place::BEGIN);
        let Some(lost) = &mut self.lost else { return Some(Step::Change(change, place)) };
        lost.insert(change.binding.range.service);
        Some(Step::Dropped)
    }
}

/// What is left to do for all parties.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    backlogs: BTreeMap<Party, Backlog>,
    /// Changes that wait for all parties together.
    changes: usize,
    /// Parties for which something has been left and that were not reported.
    unreported: VecDeque<Party>,
}

impl Announcements {
    /// Whether something is left to do for a party.
    pub(super) fn contains(&self, party: Party) -> bool {
        self.backlogs.contains_key(&party)
    }

    /// A party for which something has been left; reported once until all is done.
    pub(super) fn poll(&mut self) -> Option<Party> {
        self.unreported.pop_front()
    }

    fn backlog(&mut self, party: Party) -> &mut Backlog {
        let Self { backlogs, unreported, .. } = self;
        backlogs.entry(party).or_insert_with(|| {
            unreported.push_back(party);
            Backlog::default()
        })
    }

    /// Adds a change, of which a part may have been announced if nothing else is left. A party may have as many as are
    /// still free for all, so that slow ones leave room for those that have just a few.
    pub(super) fn add_change(&mut self, party: Party, change: &Change, place: Place) {
        let most = MAX_WAITING_CHANGES.min(MAX_ALL_WAITING_CHANGES.saturating_sub(self.changes));
        let backlog = self.backlog(party);
        if backlog.changes >= most || backlog.lost.is_some() {
            backlog.lost.get_or_insert_default().insert(change.binding.range.service);
            return;
        }
        if backlog.items.is_empty() {
            backlog.place = place;
        }
        backlog.items.push_back(Item::Change(*change));
        backlog.changes += 1;
        self.changes += 1;
    }

    /// Adds a subscription that has timed out.
    pub(super) fn add_timeout(&mut self, party: Party, service: u32, id: SubscriptionId) {
        self.backlog(party).items.push_back(Item::TimedOut { service, id });
    }

    /// Adds what a connection has left.
    pub(super) fn add_ended(&mut self, party: Party, ended: Ended) {
        self.backlog(party).ended.push_back(ended);
    }

    /// Takes the next thing to do for a party; if there is none, the party has caught up.
    pub(super) fn next(&mut self, party: Party) -> Option<Step> {
        let step = self.backlogs.get_mut(&party)?.next();
        match step {
            Some(Step::Change(..) | Step::Dropped) => self.changes -= 1,
            None => {
                self.backlogs.remove(&party);
            }
            Some(_) => {}
        }
        step
    }

    /// Puts back what is left of a change.
    pub(super) fn put_back(&mut self, party: Party, change: Change, place: Place) {
        let backlog = self.backlog(party);
        backlog.items.push_front(Item::Change(change));
        backlog.place = place;
        backlog.changes += 1;
        self.changes += 1;
    }

    /// All connections that lack changes of a type are closed.
    pub(super) fn forget_lost(&mut self, party: Party, service: u32) {
        if let Some(lost) = self.backlogs.get_mut(&party).and_then(|backlog| backlog.lost.as_mut()) {
            lost.remove(&service);
        }
    }
}
