//! Settings of mounts, and the state that the workers of a server share.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::pool::Pool;
use super::reason::Reason;
use super::slow_consumer::Limits;
use crate::net::{PendingLimits, network};

/// Settings of a server's mounts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the server in login replies and in refused handshakes.
    pub application: String,
    /// The transport: versions, ping time-outs, compression, frame size.
    pub transport: ServerOptions,
    /// Output buffers of one mount (`guaranteedOutputBuffers`, `maxOutputBuffers`).
    pub output: Limits,
    /// Streams that one mount may have open; also the OpenLimit that the directory shows. Spec: rssl.md §6.5
    pub open_limit: u32,
    /// Most requests that a consumer should have outstanding: the OpenWindow that the directory shows. Not enforced.
    pub open_window: u32,
    /// Most bytes of keys and views of one mount's open items.
    pub open_bytes: usize,
    /// Most such bytes of all mounts.
    pub open_bytes_total: usize,
    /// Whether posts are accepted.
    pub posts: bool,
    /// Most mounts of the server, counted from their login; further connections are refused in the handshake.
    pub max_mounts: u32,
    /// Most mounts of one user on the server; `None`: no limit.
    pub mounts_per_user: Option<u32>,
    /// Most mounts from one address on the server; `None`: no limit.
    pub mounts_per_address: Option<u32>,
    /// Most connections of one worker that have not logged in.
    pub pending: PendingLimits,
    /// Longest time from accepting a connection to its login.
    pub login_timeout: Duration,
    /// Latency measurement: `None`: off, `Some(false)`: over all mounts, `Some(true)`: for each mount as well.
    pub latency: Option<bool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            application: "p2ps".into(),
            transport: ServerOptions::default(),
            output: Limits { guaranteed: 800, max: 16_000 },
            open_limit: 1_000_000,
            open_window: 100_000,
            max_mounts: 5_000,
            open_bytes: 64 << 20,
            open_bytes_total: 1 << 30,
            posts: false,
            mounts_per_user: None,
            mounts_per_address: None,
            pending: PendingLimits::default(),
            login_timeout: Duration::from_secs(10),
            latency: None,
        }
    }
}

/// The state that the workers of one server share.
#[derive(Debug)]
pub struct Shared {
    /// Output buffers beyond the guarantees (`poolSize`).
    pub pool: Pool,
    mounts: AtomicU32,
    /// Bytes of keys and views of open items.
    open_bytes: AtomicUsize,
    /// Number of mounts by user.
    users: Mutex<HashMap<Vec<u8>, u32>>,
    /// Number of mounts by address.
    addresses: Mutex<HashMap<IpAddr, u32>>,
}

impl Shared {
    /// Creates the state with a pool of `buffers` output buffers.
    pub fn new(buffers: usize) -> Self {
        Self {
            pool: Pool::new(buffers),
            mounts: AtomicU32::new(0),
            open_bytes: AtomicUsize::new(0),
            users: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    /// Whether there are `most` mounts already.
    pub(crate) fn is_full(&self, most: u32) -> bool {
        self.mounts.load(Ordering::Relaxed) >= most
    }

    /// Counts one more mount.
    ///
    /// # Errors
    /// The limit that forbids it; nothing is counted.
    pub(crate) fn admit(&self, config: &Config, user: &[u8], from: IpAddr) -> Result<(), Refusal> {
        let more = |count: u32| (count < config.max_mounts).then_some(count + 1);
        if self.mounts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(Refusal::Mounts(config.max_mounts));
        }
        if !count(&self.addresses, network(from), config.mounts_per_address) {
            self.mounts.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::Address(config.mounts_per_address.unwrap_or_default()));
        }
        if !count(&self.users, user.to_vec(), config.mounts_per_user) {
            discount(&self.addresses, &network(from));
            self.mounts.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::User(config.mounts_per_user.unwrap_or_default()));
        }
        Ok(())
    }

    /// Counts bytes of keys and views; `false`: they would be more than `most`.
    pub(crate) fn take_bytes(&self, bytes: usize, most: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        self.open_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes back [`Shared::take_bytes`].
    pub(crate) fn give_back_bytes(&self, bytes: usize) {
        self.open_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of keys and views of open items, over all mounts.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes.load(Ordering::Relaxed)
    }

    /// Takes back [`Shared::admit`].
    pub(crate) fn dismiss(&self, user: &[u8], from: IpAddr) {
        discount(&self.users, user);
        discount(&self.addresses, &network(from));
        self.mounts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The limit that forbids a login, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// [`Config::max_mounts`].
    Mounts(u32),
    /// [`Config::mounts_per_address`].
    Address(u32),
    /// [`Config::mounts_per_user`].
    User(u32),
}

impl Refusal {
    /// The text for the consumer, with the setting.
    pub(crate) fn text(self, application: &str) -> String {
        match self {
            Self::Mounts(most) => {
                format!(
                    "{application} has {most} connections, the most it takes (max-mounts); try again later"
                )
            }
            Self::Address(most) => {
                format!("this address has {most} connections already, the most allowed (mounts-per-address)")
            }
            Self::User(most) => {
                format!("this user has {most} connections already, the most allowed (mounts-per-user)")
            }
        }
    }

    /// The reason to disconnect the mount.
    pub(crate) fn reason(self, application: &str) -> Reason {
        match self {
            Self::Mounts(most) => Reason::TooManyMounts { most },
            Self::Address(_) | Self::User(_) => Reason::LoginRefused(self.text(application)),
        }
    }
}

/// Counts one more of `key`; `false`: there are `most` already.
fn count<K: Eq + Hash>(counts: &Mutex<HashMap<K, u32>>, key: K, most: Option<u32>) -> bool {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let has = counts.get(&key).copied().unwrap_or_default();
    if most.is_some_and(|most| has >= most) {
        return false;
    }
    counts.insert(key, has + 1);
    true
}

/// Takes back [`count`].
fn discount<K: Eq + Hash + Borrow<Q>, Q: Eq + Hash + ?Sized>(counts: &Mutex<HashMap<K, u32>>, key: &Q) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
