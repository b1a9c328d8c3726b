//! The feeds of a source, one for each service, and the packets that are kept for sinks that are behind.

use std::collections::HashMap;

use super::Policy;
use super::backlog::Backlog;
use super::catching_up::STALL;
use crate::backbone::FeedId;
use crate::backbone::feed_out::FeedOut;
use crate::hub::Token;

/// One feed.
#[derive(Debug)]
pub(super) struct Feed {
    /// Its packet under construction.
    pub(super) out: FeedOut,
    policy: Policy,
    /// Number of joined sinks.
    pub(super) members: u32,
    /// Packets for sinks that are behind.
    pub(super) backlog: Backlog,
    /// Once a state of its service was put into it: the service, and the announcement to which the last status belongs
    /// (0: to none).
    pub(super) covering: Option<(u16, Token)>,
}

/// All feeds, by index.
#[derive(Debug)]
pub(super) struct FeedTable {
    list: Vec<Feed>,
    /// Index by service id.
    by_service: HashMap<u16, u16>,
    /// Policies of services, by name.
    policies: HashMap<String, Policy>,
    /// Policy of all other services.
    policy: Policy,
    /// Bytes of all backlogs.
    kept: usize,
    /// Maximum number of bytes of all backlogs.
    stall: usize,
}

impl Default for FeedTable {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            by_service: HashMap::new(),
            policies: HashMap::new(),
            policy: Policy::default(),
            kept: 0,
            stall: STALL,
        }
    }
}

impl FeedTable {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn get(&self, feed: u16) -> Option<&Feed> {
        self.list.get(usize::from(feed))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, feed: u16) -> Option<&mut Feed> {
        self.list.get_mut(usize::from(feed))
    }

    /// The feed under construction.
    #[inline]
    pub(super) fn out(&self, feed: u16) -> Option<&FeedOut> {
        self.get(feed).map(|feed| &feed.out)
    }

    /// The feed under construction.
    #[inline]
    pub(super) fn out_mut(&mut self, feed: u16) -> Option<&mut FeedOut> {
        self.get_mut(feed).map(|feed| &mut feed.out)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Feed)> {
        (0..).zip(&self.list)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Feed> {
        self.list.iter_mut()
    }

    /// The index of a feed.
    pub(super) fn index(&self, id: FeedId) -> Option<u16> {
        self.iter().find(|(_, feed)| feed.out.id == id).map(|(at, _)| at)
    }

    /// The feed of a service.
    pub(super) fn of_service(&self, service: u16) -> Option<u16> {
        self.by_service.get(&service).copied()
    }

    /// Adds the feed of a service.
    pub(super) fn add(&mut self, service: u16, name: &str, out: FeedOut) {
        let policy = self.policies.get(name).copied().unwrap_or(self.policy);
        // The caller keeps the number of feeds below `MAX_FEEDS`, which fits.
        self.by_service.insert(service, self.list.len() as u16);
        self.list.push(Feed { out, policy, members: 0, backlog: Backlog::default(), covering: None });
    }

    /// See [`SourceSide::set_policy`](super::SourceSide::set_policy).
    pub(super) fn set_policy(&mut self, service: Option<&str>, policy: Policy) {
        match service {
            Some(name) => drop(self.policies.insert(name.to_owned(), policy)),
            None => self.policy = policy,
        }
    }

    /// The policy of a feed.
    pub(super) fn policy_of(&self, feed: u16) -> Policy {
        self.get(feed).map_or(self.policy, |feed| feed.policy)
    }

    /// Bytes of all backlogs.
    #[inline]
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Maximum number of bytes of all backlogs.
    pub(super) fn stall(&self) -> usize {
        self.stall
    }

    pub(super) fn set_stall(&mut self, bytes: usize) {
        self.stall = bytes;
    }

    /// Keeps a packet for the sinks that are behind.
    pub(super) fn keep(&mut self, feed: u16, packet: &[u8]) {
        if let Some(feed) = self.list.get_mut(usize::from(feed)) {
            feed.backlog.push(packet);
            self.kept += packet.len();
        }
    }

    /// Frees the kept packets of each feed before the number that `next` returns; `None`: all of them.
    pub(super) fn trim(&mut self, next: impl Fn(u16) -> Option<u64>) {
        if self.kept == 0 {
            return;
        }
        for (at, feed) in (0..).zip(&mut self.list) {
            self.kept -= feed.backlog.trim(next(at).unwrap_or(feed.backlog.end()));
        }
    }
}
