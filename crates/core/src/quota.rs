//! Quotas: what the sockets of each user of a host, and of all users together, may use.
//!
//! The [`Ledger`] is the only place where use is counted. The code that creates a resource charges it to a user, and
//! the code that releases it releases it from the same user. A socket stays charged to the user that opened it, also
//! when processes of other users hold it later. Sockets without a user, such as those of an embedded node, are not
//! charged.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// A user of the host; the owner of the node assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserId(pub u32);

impl UserId {
    /// All other nodes together, as subscribers of the topology server. No user of a host has this number.
    pub const NETWORK: Self = Self(u32::MAX);
}

/// A kind of resource that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Attached processes.
    Processes,
    /// Sockets, until the last message of a closed one has left.
    Sockets,
    /// Bindings.
    Bindings,
    /// Connections to the topology server.
    Subscribers,
    /// Subscriptions at the topology server.
    Subscriptions,
    /// Lanes.
    Lanes,
    /// Descriptors of the daemon: of sockets that programs poll, and of forks.
    Descriptors,
    /// Bytes: of messages that wait in queues of sockets, of the shared memory of lanes, and of tables for all others.
    Memory,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Processes,
        Self::Sockets,
        Self::Bindings,
        Self::Subscribers,
        Self::Subscriptions,
        Self::Lanes,
        Self::Descriptors,
        Self::Memory,
    ];

    /// Name in counters and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Sockets => "sockets",
            Self::Bindings => "bindings",
            Self::Subscribers => "subscribers",
            Self::Subscriptions => "subscriptions",
            Self::Lanes => "lanes",
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
        }
    }
}

/// A number for each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([u64; Resource::ALL.len()]);

impl Amounts {
    /// The same number for all.
    #[must_use]
    pub const fn all(amount: u64) -> Self {
        Self([amount; Resource::ALL.len()])
    }

    /// The number for one resource.
    #[must_use]
    pub fn get(&self, resource: Resource) -> u64 {
        self.0.get(resource as usize).copied().unwrap_or(0)
    }

    /// Sets the number for one resource.
    pub fn set(&mut self, resource: Resource, amount: u64) {
        if let Some(own) = self.0.get_mut(resource as usize) {
            *own = amount;
        }
    }

    fn add(&mut self, resource: Resource, amount: u64) {
        self.set(resource, self.get(resource).saturating_add(amount));
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }
}

/// The limits of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// What all users together may use.
    pub node: Amounts,
    /// What one user may use.
    pub user: Amounts,
    /// Users that only the limits of the node apply to. A part of these, one in [`Quotas::RESERVE`], is left for them.
    pub privileged: BTreeSet<UserId>,
    /// Bytes of memory that one of each resource takes, and that are charged as memory with it. Set them before
    /// anything is charged.
    pub costs: Amounts,
}

impl Quotas {
    /// One part in so many of each limit of the node is left for privileged users.
    pub const RESERVE: u64 = 16;

    /// No limits.
    #[must_use]
    pub fn unlimited() -> Self {
        let all = Amounts::all(u64::MAX);
        Self { node: all, user: all, privileged: BTreeSet::new(), costs: Amounts::default() }
    }
}

/// The quota that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{} of {} of {} are in use", .limit, resource.name(), if *.is_of_user { "the user" } else { "the node" })]
pub struct Exceeded {
    /// The resource.
    pub resource: Resource,
    /// The user that asked for it.
    pub user: UserId,
    /// The limit that is reached.
    pub limit: u64,
    /// Whether it is the user's own limit, or that of the node.
    pub is_of_user: bool,
}

/// What one user uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Used now.
    pub used: Amounts,
    /// Requests that were refused.
    pub refused: Amounts,
    /// Bytes of memory used that are charged for messages, and those that the memory of messages takes. The larger
    /// number counts.
    messages: u64,
    held: u64,
}

impl Usage {
    fn is_idle(&self) -> bool {
        self.used.is_zero()
    }

    /// Bytes that the memory of messages takes beyond what is charged for them: slots and pages that are free, and that
    /// no other user gets.
    fn unused(&self) -> u64 {
        self.held.saturating_sub(self.messages)
    }
}

/// Users without any use whose counts of refusals are kept.
const MAX_IDLE_USERS: usize = 1024;

/// What each user, and all together, use now.
#[derive(Debug)]
pub struct Ledger {
    quotas: Quotas,
    total: Usage,
    users: BTreeMap<UserId, Usage>,
    /// The system refuses memory.
    is_short: bool,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { quotas: Quotas::unlimited(), total: Usage::default(), users: BTreeMap::new(), is_short: false }
    }
}

impl Ledger {
    /// Replaces the limits. What is in use stays.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.quotas = quotas;
    }

    /// The limits.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// How much more of a resource a user may use.
    #[must_use]
    pub fn room(&self, user: UserId, resource: Resource) -> u64 {
        let (node, own) = self.rooms(user, resource);
        node.min(own)
    }

    /// Room within the limit of the node, and of the user.
    fn rooms(&self, user: UserId, resource: Resource) -> (u64, u64) {
        if self.is_short {
            return (0, u64::MAX);
        }
        let (node, own) = (self.quotas.node.get(resource), self.quotas.user.get(resource));
        let used = self.total.used.get(resource);
        if self.quotas.privileged.contains(&user) {
            return (node.saturating_sub(used), u64::MAX);
        }
        let open = node - node / Quotas::RESERVE;
        (open.saturating_sub(used), own.saturating_sub(self.used_by(user, resource)))
    }

    /// Checks that a user may use so much more of a resource; counts the refusal if not.
    ///
    /// # Errors
    /// [`Exceeded`]
    pub fn check(&mut self, user: UserId, resource: Resource, amount: u64) -> Result<(), Exceeded> {
        let Some(exceeded) = self.exceeded(user, resource, amount) else { return Ok(()) };
        self.refuse(user, exceeded.resource, 1);
        Err(exceeded)
    }

    /// The quota that so much more of a resource would exceed.
    #[must_use]
    pub fn exceeded(&self, user: UserId, resource: Resource, amount: u64) -> Option<Exceeded> {
        let (node, own) = self.rooms(user, resource);
        let is_of_user = own < amount;
        let limits = if is_of_user { &self.quotas.user } else { &self.quotas.node };
        let mut exceeded = Exceeded { resource, user, limit: limits.get(resource), is_of_user };
        if self.is_short {
            exceeded = Exceeded {
                resource: Resource::Memory,
                limit: self.total.used.get(Resource::Memory),
                ..exceeded
            };
        }
        if amount > node.min(own) {
            return Some(exceeded);
        }
        let cost = self.cost(resource, amount);
        if cost > 0 { self.exceeded(user, Resource::Memory, cost) } else { None }
    }

    /// Bytes of memory that are charged with so much of a resource.
    fn cost(&self, resource: Resource, amount: u64) -> u64 {
        if resource == Resource::Memory { 0 } else { self.quotas.costs.get(resource).saturating_mul(amount) }
    }

    /// Counts refusals that were decided by [`Self::room`].
    pub fn refuse(&mut self, user: UserId, resource: Resource, times: u64) {
        self.total.refused.add(resource, times);
        if self.users.len() >= MAX_IDLE_USERS && !self.users.contains_key(&user) {
            return;
        }
        self.users.entry(user).or_default().refused.add(resource, times);
    }

    /// Checks, then charges.
    ///
    /// # Errors
    /// [`Exceeded`]; nothing is charged.
    pub fn try_charge(&mut self, user: UserId, resource: Resource, amount: u64) -> Result<(), Exceeded> {
        self.check(user, resource, amount)?;
        self.charge(user, resource, amount);
        Ok(())
    }

    /// Charges a user for a resource that exists, even beyond its quota.
    pub fn charge(&mut self, user: UserId, resource: Resource, amount: u64) {
        if amount > 0 {
            self.total.used.add(resource, amount);
            self.users.entry(user).or_default().used.add(resource, amount);
            self.charge(user, Resource::Memory, self.cost(resource, amount));
        }
    }

    /// The counterpart of [`Self::charge`].
    pub fn release(&mut self, user: UserId, resource: Resource, amount: u64) {
        if amount == 0 {
            return;
        }
        let before = self.used_by(user, resource);
        debug_assert!(before >= amount, "{user:?} has {before} of {resource:?} and releases {amount}");
        // A defect here must not take more from the total than the user had.
        let amount = amount.min(before);
        self.total.used.set(resource, self.total.used.get(resource).saturating_sub(amount));
        if let Some(usage) = self.users.get_mut(&user) {
            usage.used.set(resource, before - amount);
        }
        self.release(user, Resource::Memory, self.cost(resource, amount));
        let users = self.users.len();
        let Some(usage) = self.users.get_mut(&user) else { return };
        if usage.is_idle() && (usage.refused.is_zero() || users > MAX_IDLE_USERS) {
            self.users.remove(&user);
        }
    }

    /// While the system refuses memory, no user may use more of any resource.
    pub(crate) fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// How many more bytes may be charged to a user for messages: those that its memory has free are charged already.
    pub(crate) fn message_room(&self, user: UserId) -> u64 {
        let unused = self.users.get(&user).map_or(0, Usage::unused);
        self.room(user, Resource::Memory).saturating_add(unused)
    }

    /// By how many bytes the memory of a user's messages may grow: messages are charged for more than they take.
    pub(crate) fn growth(&self, user: UserId) -> u64 {
        let paid = self.users.get(&user).map_or(0, |usage| usage.messages.saturating_sub(usage.held));
        self.room(user, Resource::Memory).saturating_add(paid)
    }

    /// Charges or releases the difference of two amounts of messages.
    pub(crate) fn change_messages(&mut self, user: UserId, before: u64, after: u64) {
        if before != after {
            self.change_usage(user, |usage| usage.messages = (usage.messages + after).saturating_sub(before));
        }
    }

    /// Charges a user for the bytes that the memory of its messages takes.
    pub(crate) fn set_held(&mut self, user: UserId, bytes: u64) {
        self.change_usage(user, |usage| usage.held = bytes);
    }

    fn change_usage(&mut self, user: UserId, change: impl FnOnce(&mut Usage)) {
        let usage = self.users.entry(user).or_default();
        let before = usage.messages.max(usage.held);
        change(usage);
        let after = usage.messages.max(usage.held);
        self.change(user, Resource::Memory, before, after);
    }

    /// Charges or releases the difference of two amounts.
    pub(crate) fn change(&mut self, user: UserId, resource: Resource, before: u64, after: u64) {
        if after > before {
            self.charge(user, resource, after - before);
        } else {
            self.release(user, resource, before - after);
        }
    }

    /// What a user uses of a resource.
    #[must_use]
    pub fn used_by(&self, user: UserId, resource: Resource) -> u64 {
        self.users.get(&user).map_or(0, |usage| usage.used.get(resource))
    }

    /// How often a resource was refused to a user.
    #[must_use]
    pub fn refused_to(&self, user: UserId, resource: Resource) -> u64 {
        self.users.get(&user).map_or(0, |usage| usage.refused.get(resource))
    }

    /// What all users use together.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.total
    }

    /// The users that use something or were refused something.
    pub fn users(&self) -> impl Iterator<Item = (UserId, Usage)> {
        self.users_from(UserId(0))
    }

    /// Those of them from a number on, in the order of their numbers.
    pub fn users_from(&self, first: UserId) -> impl Iterator<Item = (UserId, Usage)> {
        self.users.range(first..).map(|(user, usage)| (*user, *usage))
    }

    /// Whether the sums over all users are the totals.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let sum = |resource| self.users.values().map(|usage| usage.used.get(resource)).sum::<u64>();
        Resource::ALL.iter().all(|resource| sum(*resource) == self.total.used.get(*resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: UserId = UserId(1);
    const TWO: UserId = UserId(2);
    const ROOT: UserId = UserId(0);

    fn ledger(node: u64, user: u64) -> Ledger {
        let mut ledger = Ledger::default();
        let privileged = BTreeSet::from([ROOT]);
        let (node, user) = (Amounts::all(node), Amounts::all(user));
        ledger.set_quotas(Quotas { node, user, privileged, costs: Amounts::default() });
        ledger
    }

    #[test]
    fn quota_of_a_user_and_of_the_node_are_told_apart() {
        let mut ledger = ledger(32, 20);
        assert_eq!(ledger.try_charge(ONE, Resource::Lanes, 20), Ok(()));
        let own = ledger.try_charge(ONE, Resource::Lanes, 1).unwrap_err();
        assert_eq!((own.limit, own.is_of_user), (20, true));
        assert_eq!(ledger.try_charge(TWO, Resource::Lanes, 10), Ok(()));
        let node = ledger.try_charge(TWO, Resource::Lanes, 1).unwrap_err();
        assert_eq!((node.limit, node.is_of_user), (32, false));
        // What ordinary users may not use is left for privileged ones.
        assert_eq!(ledger.try_charge(ROOT, Resource::Lanes, 2), Ok(()));
        assert!(ledger.try_charge(ROOT, Resource::Lanes, 1).is_err());
        assert_eq!(ledger.room(ONE, Resource::Sockets), 20);
        assert_eq!(ledger.total().refused.get(Resource::Lanes), 3);
        assert!(ledger.is_balanced());
    }

    #[test]
    fn released_resources_can_be_used_again() {
        let mut ledger = ledger(100, 10);
        for _ in 0..1000 {
            ledger.try_charge(ONE, Resource::Memory, 10).unwrap();
            assert!(ledger.try_charge(ONE, Resource::Memory, 1).is_err());
            ledger.change(ONE, Resource::Memory, 10, 3);
            ledger.change(ONE, Resource::Memory, 3, 9);
            ledger.release(ONE, Resource::Memory, 9);
        }
        assert!(ledger.is_balanced());
        assert_eq!(ledger.total().used, Amounts::default());
        // The refusals stay visible.
        assert_eq!(ledger.users().count(), 1);
    }

    #[test]
    fn resources_are_charged_for_the_memory_that_they_take() {
        let mut ledger = ledger(10_000, 5000);
        let mut costs = Amounts::default();
        costs.set(Resource::Sockets, 100);
        ledger.set_quotas(Quotas { costs, ..ledger.quotas().clone() });
        ledger.try_charge(ONE, Resource::Memory, 4000).unwrap();
        assert_eq!((0..50).filter(|_| ledger.try_charge(ONE, Resource::Sockets, 1).is_ok()).count(), 10);
        assert_eq!(ledger.try_charge(ONE, Resource::Sockets, 1).unwrap_err().resource, Resource::Memory);
        assert_eq!(ledger.used_by(ONE, Resource::Memory), 5000);
        ledger.release(ONE, Resource::Sockets, 4);
        assert_eq!((ledger.room(ONE, Resource::Memory), ledger.is_balanced()), (400, true));
        ledger.release(ONE, Resource::Memory, 4000);
        ledger.release(ONE, Resource::Sockets, 6);
        assert_eq!(ledger.total().used, Amounts::default());
    }

    #[test]
    fn memory_that_messages_take_counts_if_it_is_more_than_they_are_charged_for() {
        let mut ledger = ledger(10_000, 5000);
        let used = |ledger: &Ledger| ledger.used_by(ONE, Resource::Memory);
        ledger.change_messages(ONE, 0, 3000);
        ledger.set_held(ONE, 2000);
        assert_eq!((used(&ledger), ledger.growth(ONE), ledger.message_room(ONE)), (3000, 3000, 2000));
        // Most messages are read; what is left lies on all of the pages.
        ledger.change_messages(ONE, 3000, 300);
        assert_eq!((used(&ledger), ledger.growth(ONE), ledger.message_room(ONE)), (2000, 3000, 4700));
        ledger.set_held(ONE, 0);
        ledger.change_messages(ONE, 300, 0);
        assert_eq!((used(&ledger), ledger.users().count()), (0, 0));
    }

    #[test]
    fn without_memory_of_the_system_everything_is_refused() {
        let mut ledger = ledger(100, 50);
        ledger.set_short(true);
        for resource in Resource::ALL {
            assert!(ledger.try_charge(ROOT, resource, 1).is_err(), "{resource:?}");
        }
        assert_eq!((ledger.growth(ONE), ledger.check(ONE, Resource::Lanes, 0)), (0, Ok(())));
        ledger.set_short(false);
        assert_eq!(ledger.try_charge(ONE, Resource::Lanes, 1), Ok(()));
    }

    #[test]
    fn lower_limits_refuse_more_and_keep_what_is_used() {
        let mut ledger = ledger(100, 50);
        ledger.try_charge(ONE, Resource::Bindings, 40).unwrap();
        let node = Amounts::all(30);
        ledger.set_quotas(Quotas { node, user: Amounts::all(10), ..ledger.quotas().clone() });
        assert_eq!(ledger.room(ONE, Resource::Bindings), 0);
        assert_eq!(ledger.used_by(ONE, Resource::Bindings), 40);
        ledger.release(ONE, Resource::Bindings, 35);
        assert_eq!(ledger.room(ONE, Resource::Bindings), 5);
    }

    #[test]
    fn refusals_of_many_users_take_bounded_memory() {
        let mut ledger = ledger(0, 0);
        for user in 0..10_000 {
            assert!(ledger.try_charge(UserId(user + 1), Resource::Sockets, 1).is_err());
        }
        assert_eq!(ledger.users().count(), MAX_IDLE_USERS);
        assert_eq!(ledger.total().refused.get(Resource::Sockets), 10_000);
    }
}
