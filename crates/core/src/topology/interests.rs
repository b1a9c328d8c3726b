//! The subscriptions of a node by service type: whom a change of a binding concerns.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use super::announcements::Party;
use crate::addr::{Binding, PortId, Scope, ServiceRange};
use crate::time::Time;
use crate::wire::{ByteOrder, EVENT_LEN, EventKind, Filter, SUBSCRIPTION_LEN, encode_event};

/// Ascending: a higher id is newer.
pub(super) type SubscriptionId = u64;

/// A subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) connection: u32,
    pub(super) raw: [u8; SUBSCRIPTION_LEN],
    pub(super) order: ByteOrder,
    pub(super) range: ServiceRange,
    pub(super) filter: Filter,
    pub(super) expires: Time,
}

impl Entry {
    /// An event for this subscription.
    pub(super) fn event(&self, kind: EventKind, found: ServiceRange, port: PortId) -> [u8; EVENT_LEN] {
        encode_event(kind, found, port, &self.raw, self.order)
    }

    pub(super) fn wants(&self, binding: &Binding, edge: bool) -> bool {
        let scope_fits = match binding.scope {
            Scope::Node => !self.filter.has(Filter::CLUSTER_SCOPE),
            Scope::Cluster => !self.filter.has(Filter::NODE_SCOPE),
        };
        scope_fits && (edge || self.filter.has(Filter::PORTS)) && self.range.overlaps(&binding.range)
    }
}

/// What concerns a party in one service type.
#[derive(Debug, Default)]
struct Interest {
    subscriptions: BTreeMap<SubscriptionId, Entry>,
    /// Connections whose newest subscription has not found all of its first bindings.
    finding: BTreeSet<u32>,
}

/// The interests of all parties, by service type.
#[derive(Debug, Default)]
pub(super) struct Interests {
    services: BTreeMap<u32, BTreeMap<Party, Interest>>,
    subscriptions: usize,
}

impl Interests {
    /// Number of subscriptions.
    pub(super) fn len(&self) -> usize {
        self.subscriptions
    }

    pub(super) fn add(&mut self, party: Party, id: SubscriptionId, entry: Entry) {
        let interest = self.services.entry(entry.range.service).or_default().entry(party).or_default();
        interest.subscriptions.insert(id, entry);
        self.subscriptions += 1;
    }

    pub(super) fn remove(&mut self, party: Party, service: u32, id: SubscriptionId) -> Option<Entry> {
        let removed = self.change(party, service, |interest| interest.subscriptions.remove(&id));
        self.subscriptions -= usize::from(removed.flatten().is_some());
        removed.flatten()
    }

    /// A connection begins to find the first bindings of a subscription.
    pub(super) fn add_finding(&mut self, party: Party, service: u32, connection: u32) {
        let of_type = self.services.entry(service).or_default();
        of_type.entry(party).or_default().finding.insert(connection);
    }

    /// The connection has found them, or is gone.
    pub(super) fn remove_finding(&mut self, party: Party, service: u32, connection: u32) {
        self.change(party, service, |interest| interest.finding.remove(&connection));
    }

    fn change<T>(
        &mut self,
        party: Party,
        service: u32,
        change: impl FnOnce(&mut Interest) -> T,
    ) -> Option<T> {
        let of_type = self.services.get_mut(&service)?;
        let interest = of_type.get_mut(&party)?;
        let result = change(interest);
        if interest.subscriptions.is_empty() && interest.finding.is_empty() {
            of_type.remove(&party);
            if of_type.is_empty() {
                self.services.remove(&service);
            }
        }
        Some(result)
    }

    /// The first party with an interest in a service type, or the one behind another.
    pub(super) fn next_party(&self, service: u32, after: Option<Party>) -> Option<Party> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut parties = self.services.get(&service)?.range((from, Bound::Unbounded));
        parties.next().map(|(party, _)| *party)
    }

    fn interest(&self, party: Party, service: u32) -> Option<&Interest> {
        self.services.get(&service)?.get(&party)
    }

    /// The first connection that is finding bindings of a type, or the one behind another.
    pub(super) fn next_finding(&self, party: Party, service: u32, after: Option<u32>) -> Option<u32> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.interest(party, service)?.finding.range((from, Bound::Unbounded)).next().copied()
    }

    /// Subscriptions of a party to a type that are older than another, the newest first.
    pub(super) fn older_than(
        &self,
        party: Party,
        service: u32,
        newer: SubscriptionId,
    ) -> impl Iterator<Item = (SubscriptionId, &Entry)> {
        let interest = self.interest(party, service).into_iter();
        interest.flat_map(move |i| i.subscriptions.range(..newer).rev()).map(|(id, entry)| (*id, entry))
    }

    /// A connection of a party with an interest in a type.
    pub(super) fn any_connection(&self, party: Party, service: u32) -> Option<u32> {
        let interest = self.interest(party, service)?;
        let subscribed = interest.subscriptions.values().next().map(|entry| entry.connection);
        subscribed.or_else(|| interest.finding.first().copied())
    }
}
