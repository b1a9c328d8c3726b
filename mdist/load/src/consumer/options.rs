//! What clients are told to do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::items::{self, Item, Shares};
use crate::message_set::MessageSet;

/// What clients are to do.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// The server.
    pub to: SocketAddr,
    /// All items that there are.
    pub items: Arc<Vec<Item>>,
    /// Which mounts there are, and which items each asks for.
    pub shares: Shares,
    /// How many mounts.
    pub mounts: usize,
    /// The mounts are spread over so many threads.
    pub threads: usize,
    /// The service's name.
    pub service: String,
    /// Item requests a second, over all mounts.
    pub request_rate: u64,
    /// Ticks a second that requests, contributions and generic messages are cut into.
    pub ticks: u64,
    /// All items are asked for once, without updates.
    pub snapshot: bool,
    /// Dictionaries are loaded from the server before items are asked for.
    pub download: bool,
    /// Contributions a second for each mount, and how many of them have stamps.
    pub posts: (u64, u64),
    /// The same of generic messages.
    pub generics: (u64, u64),
    /// What publishers send: for contributions, and to check and compare what comes.
    pub sets: Arc<Vec<MessageSet>>,
    /// Every update's count is looked at: gaps and losses are seen. The publisher is ours.
    pub check: bool,
    /// Every field of every update is looked at, as an application would.
    pub decode: bool,
    /// All items' fields are kept, so that they can be compared with the publisher's.
    pub compare: bool,
    /// Stamps hold nanoseconds, not microseconds.
    pub nanoseconds: bool,
    /// A mount that was cut connects again after this time, doubled up to the second; `None`: it stays away.
    pub reconnect: Option<(Duration, Duration)>,
    /// Looks for work without a pause.
    pub busy: bool,
    /// Who they say they are.
    pub user: String,
    /// Most bytes that are taken in one second by each mount; `None`: all there is. For tests of slow consumers.
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
