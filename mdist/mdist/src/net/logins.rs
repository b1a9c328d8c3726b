//! Connections with a login, counted by user and by address, so that none of these takes the places of all others.
//!
//! A client may claim any user name. So the connections of one user at one address are counted as well: a client cannot
//! use up what a user of another address may have.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::pending::network;

/// Limits of connections with a login; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginLimits {
    /// All connections.
    pub total: u32,
    /// Connections of one user.
    pub per_user: Option<u32>,
    /// Connections from one address.
    pub per_address: Option<u32>,
    /// Connections of one user from one address.
    pub per_user_and_address: Option<u32>,
}

impl LoginLimits {
    /// Half of all connections for one user and for one address, and a quarter for one user at one address; at least 1.
    #[must_use]
    pub fn shares(total: u32) -> Self {
        let (half, quarter) = (Some(total.div_ceil(2)), Some(total.div_ceil(4)));
        Self { total, per_user: half, per_address: half, per_user_and_address: quarter }
    }
}

/// The limit that forbids a login, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// [`LoginLimits::total`].
    Total(u32),
    /// [`LoginLimits::per_user`].
    User(u32),
    /// [`LoginLimits::per_address`].
    Address(u32),
    /// [`LoginLimits::per_user_and_address`].
    UserAndAddress(u32),
}

/// The entry of a connection in [`Logins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginEntry {
    /// Hash of the user's name or token, which may be long.
    user: u64,
    address: IpAddr,
}

/// The counts of connections with a login. All threads share them.
#[derive(Debug, Default)]
pub struct Logins {
    hasher: RandomState,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    users: HashMap<u64, u32>,
    addresses: HashMap<IpAddr, u32>,
    pairs: HashMap<(u64, IpAddr), u32>,
}

impl Logins {
    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts one more connection of `user`, which is a name or a token.
    ///
    /// # Errors
    /// The limit that forbids it; nothing is counted.
    pub fn admit(&self, limits: &LoginLimits, user: &[u8], from: IpAddr) -> Result<LoginEntry, LoginRefusal> {
        let entry = LoginEntry { user: self.hasher.hash_one(user), address: network(from) };
        let LoginEntry { user, address } = entry;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= limits.total {
            return Err(LoginRefusal::Total(limits.total));
        }
        if let Some(most) = reached(&counts.addresses, &address, limits.per_address) {
            return Err(LoginRefusal::Address(most));
        }
        if let Some(most) = reached(&counts.pairs, &(user, address), limits.per_user_and_address) {
            return Err(LoginRefusal::UserAndAddress(most));
        }
        if let Some(most) = reached(&counts.users, &user, limits.per_user) {
            return Err(LoginRefusal::User(most));
        }
        counts.total += 1;
        *counts.users.entry(user).or_default() += 1;
        *counts.addresses.entry(address).or_default() += 1;
        *counts.pairs.entry((user, address)).or_default() += 1;
        Ok(entry)
    }

    /// Takes back [`Logins::admit`].
    pub fn dismiss(&self, entry: LoginEntry) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total = counts.total.saturating_sub(1);
        discount(&mut counts.users, &entry.user);
        discount(&mut counts.addresses, &entry.address);
        discount(&mut counts.pairs, &(entry.user, entry.address));
    }
}

/// A place for one connection, which is given back when it is dropped.
#[derive(Debug)]
pub struct LoginPlace {
    logins: Arc<Logins>,
    limits: LoginLimits,
    from: IpAddr,
    entry: Option<LoginEntry>,
}

impl LoginPlace {
    /// A place that is not taken yet, for a connection from an address.
    #[must_use]
    pub fn new(logins: Arc<Logins>, limits: LoginLimits, from: IpAddr) -> Self {
        Self { logins, limits, from, entry: None }
    }

    /// Takes the place at the login of `user`; does nothing if it is taken.
    ///
    /// # Errors
    /// As [`Logins::admit`].
    pub fn take(&mut self, user: &[u8]) -> Result<(), LoginRefusal> {
        if self.entry.is_none() {
            self.entry = Some(self.logins.admit(&self.limits, user, self.from)?);
        }
        Ok(())
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.logins.dismiss(entry);
        }
    }
}

/// The limit, if as many are counted for `key`.
fn reached<K: Eq + Hash>(counts: &HashMap<K, u32>, key: &K, most: Option<u32>) -> Option<u32> {
    most.filter(|most| counts.get(key).copied().unwrap_or_default() >= *most)
}

fn discount<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Logs in until refused; returns the entries and the refusal.
    fn flood(
        logins: &Logins,
        mut next: impl FnMut(u32) -> (Vec<u8>, IpAddr),
    ) -> (Vec<LoginEntry>, LoginRefusal) {
        let mut entries = Vec::new();
        for number in 0.. {
            let (user, from) = next(number);
            match logins.admit(&LoginLimits::shares(5_000), &user, from) {
                Ok(entry) => entries.push(entry),
                Err(why) => return (entries, why),
            }
        }
        unreachable!("5,000 is the limit")
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let one = |_| (b"user".to_vec(), address(1));
        let names = |number: u32| (number.to_be_bytes().to_vec(), address(1));
        let hosts = |number: u32| (b"user".to_vec(), address(number as u8));
        // Who else can log in: another user of the address, the same user elsewhere, another user elsewhere.
        let others: [(&[u8], u8); 3] = [(b"other", 1), (b"user", 200), (b"other", 200)];
        for (next, most, refusal, admitted) in [
            (
                &one as &dyn Fn(u32) -> (Vec<u8>, IpAddr),
                1_250,
                LoginRefusal::UserAndAddress(1_250),
                [true; 3],
            ),
            (&names, 2_500, LoginRefusal::Address(2_500), [false, true, true]),
            (&hosts, 2_500, LoginRefusal::User(2_500), [true, false, true]),
        ] {
            let logins = Logins::default();
            let (entries, why) = flood(&logins, next);
            assert_eq!((entries.len(), why), (most, refusal));
            for ((user, last), expected) in others.into_iter().zip(admitted) {
                let entry = logins.admit(&LoginLimits::shares(5_000), user, address(last));
                assert_eq!(entry.is_ok(), expected, "{} at {last} after {refusal:?}", user.escape_ascii());
                entry.into_iter().for_each(|entry| logins.dismiss(entry));
            }
            entries.into_iter().for_each(|entry| logins.dismiss(entry));
            assert!(logins.is_empty() && logins.counts.lock().unwrap().pairs.is_empty());
        }
    }

    #[test]
    fn total_is_the_limit_of_all() {
        let logins = Logins::default();
        let limits = LoginLimits { total: 2, per_user: None, per_address: None, per_user_and_address: None };
        let first = logins.admit(&limits, b"a", address(1)).unwrap();
        logins.admit(&limits, b"a", address(1)).unwrap();
        assert_eq!(logins.admit(&limits, b"b", address(2)), Err(LoginRefusal::Total(2)));
        logins.dismiss(first);
        assert!(logins.admit(&limits, b"b", address(2)).is_ok());
    }
}
