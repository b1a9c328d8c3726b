//! Options of consumers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::items::{self, Item, Shares};
use crate::message_set::MessageSet;

/// Options of a [`Consumer`](super::Consumer).
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Address of the server.
    pub to: SocketAddr,
    /// All items.
    pub items: Arc<Vec<Item>>,
    /// Distribution of the items to the mounts.
    pub shares: Shares,
    /// Number of mounts.
    pub mounts: usize,
    /// Number of threads that serve the mounts.
    pub threads: usize,
    /// Name of the service.
    pub service: String,
    /// Item requests per second, of all mounts together.
    pub request_rate: u64,
    /// Ticks per second that requests, posts and generic messages are divided into.
    pub ticks: u64,
    /// Requests snapshots instead of streams.
    pub snapshot: bool,
    /// Loads the dictionaries from the server before items are requested.
    pub download: bool,
    /// Posts per second and mount, and how many of them have stamps.
    pub posts: (u64, u64),
    /// Generic messages per second and mount, and how many of them have stamps.
    pub generics: (u64, u64),
    /// Messages of the publisher: to post, and to check and compare what is received.
    pub sets: Arc<Vec<MessageSet>>,
    /// Checks the count in every update, so that gaps and losses are found; the publisher must be `sink_driven_src`.
    pub check: bool,
    /// Decodes every field of every update, as an application does.
    pub decode: bool,
    /// Keeps the fields of all items, so that they can be compared with the publisher's.
    pub compare: bool,
    /// Stamps hold nanoseconds, not microseconds.
    pub nanoseconds: bool,
    /// First and longest backoff before a mount reconnects; `None`: it does not reconnect.
    pub reconnect: Option<(Duration, Duration)>,
    /// Spins instead of sleeping.
    pub busy: bool,
    /// User name of the logins.
    pub user: String,
    /// Bytes per second that each mount reads at most; `None`: no limit. For tests of slow consumers.
    pub slow: Option<u64>,
}

impl ConsumerOptions {
    /// One mount for `items` items, with the defaults of the vendor's performance consumer.
    #[must_use]
    pub fn new(to: SocketAddr, items: usize, sets: Arc<Vec<MessageSet>>) -> Self {
        Self {
            to,
            items: Arc::new(items::generated(items)),
            shares: Shares::one(items),
            mounts: 1,
            threads: 1,
            service: "DIRECT_FEED".into(),
            request_rate: 500_000,
            ticks: 1_000,
            snapshot: false,
            download: false,
            posts: (0, 0),
            generics: (0, 0),
            sets,
            check: true,
            decode: false,
            compare: false,
            nanoseconds: false,
            reconnect: Some((Duration::from_millis(100), Duration::from_secs(5))),
            busy: false,
            user: "client".into(),
            slow: None,
        }
    }
}
