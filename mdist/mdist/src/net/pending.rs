//! Connections that have not logged in: a pool with a limit, from which the oldest has to go for a new one.
//!
//! They do not count as mounts or publishers, so that hosts which only connect cannot keep others out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// Limits of a [`Pending`], in connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingLimits {
    /// Connections of all addresses.
    pub total: usize,
    /// Connections of one address.
    pub per_address: usize,
}

impl PendingLimits {
    /// The share of one of `threads` threads, which get the connections in turn; at least 1.
    #[must_use]
    pub fn share(self, threads: u16) -> Self {
        let share = |most: usize| most.div_ceil(usize::from(threads).max(1)).max(1);
        Self { total: share(self.total), per_address: share(self.per_address) }
    }
}

impl Default for PendingLimits {
    fn default() -> Self {
        // Hundreds of consumers of one host come back at once when their server has restarted.
        Self { total: 1_000, per_address: 500 }
    }
}

/// The connections of one thread that have not logged in. Every operation takes logarithmic time.
#[derive(Debug)]
pub struct Pending<K> {
    limits: PendingLimits,
    next: u64,
    /// Connections by entry number, oldest first.
    by_age: BTreeMap<u64, (K, IpAddr)>,
    /// Entry numbers by address.
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

impl<K: Copy> Pending<K> {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PendingLimits) -> Self {
        Self { limits, next: 0, by_age: BTreeMap::new(), by_address: HashMap::new() }
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Adds a connection from an address; returns its entry number, and the connection that has to be closed for it:
    /// the oldest of its address if that has too many, else the oldest of all.
    pub fn add(&mut self, id: K, from: IpAddr) -> (u64, Option<K>) {
        let from = network(from);
        let of_address = self.by_address.get(&from);
        let oldest = match of_address.filter(|all| all.len() >= self.limits.per_address) {
            Some(all) => all.first().copied(),
            None if self.len() >= self.limits.total => self.by_age.keys().next().copied(),
            None => None,
        };
        let closed = oldest.and_then(|oldest| self.remove(oldest));
        let entry = self.next;
        self.next += 1;
        self.by_age.insert(entry, (id, from));
        self.by_address.entry(from).or_default().insert(entry);
        (entry, closed)
    }

    /// Removes a connection that has logged in or ended.
    pub fn remove(&mut self, entry: u64) -> Option<K> {
        let (id, from) = self.by_age.remove(&entry)?;
        if let Some(all) = self.by_address.get_mut(&from) {
            all.remove(&entry);
            if all.is_empty() {
                self.by_address.remove(&from);
            }
        }
        Some(id)
    }
}

/// The part of an address for which connections are counted: an IPv6 host chooses the lower 64 bits freely.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn oldest_connection_goes_first_of_its_address_and_of_all() {
        let mut pool = Pending::new(PendingLimits { total: 4, per_address: 2 });
        let (a, none) = pool.add('a', address(1));
        assert_eq!((none, pool.add('b', address(1)).1), (None, None));
        assert_eq!(pool.add('c', address(1)).1, Some('a'), "the address has two");
        assert_eq!(pool.remove(a), None);
        assert_eq!((pool.add('d', address(2)).1, pool.add('e', address(3)).1), (None, None));
        assert_eq!(pool.add('f', address(4)).1, Some('b'), "four in all");
        assert_eq!(pool.add('g', address(4)).1, Some('c'));
        assert_eq!(pool.len(), 4);
    }

    #[test]
    fn connections_that_logged_in_take_no_room() {
        let mut pool = Pending::new(PendingLimits { total: 2, per_address: 1 });
        for round in 0..1000 {
            let (entry, closed) = pool.add(round, address(1));
            assert_eq!((closed, pool.remove(entry)), (None, Some(round)));
        }
        assert!(pool.is_empty() && pool.by_address.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_and_mapped_ones_count_as_one() {
        let parse = |text: &str| network(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:1"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    }

    #[test]
    fn limits_are_shared_between_threads() {
        let limits = PendingLimits { total: 10, per_address: 1 };
        assert_eq!(limits.share(4), PendingLimits { total: 3, per_address: 1 });
    }
}
