//! The addresses from which a sink's sources send their feeds. Any process of the cluster can send to a feed's service
//! address; packets from other addresses are counted and dropped before they reach the merge.
//!
//! A source names its address on the connection, in `Welcome`. TIPC sets the origin of a datagram from the socket that
//! sent it, so another process of the cluster cannot send from there.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::wire::Header;
use super::{Address, SourceId};

/// Lost sources whose addresses are remembered: their packets under way are no attack. Number of sources.
const DEPARTED: usize = 64;

/// The senders, shared by the sink side and its feeds.
#[derive(Clone, Debug, Default)]
pub(super) struct Senders(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of changes of `known`.
    version: AtomicU64,
    known: Mutex<Known>,
    /// Packets dropped because they did not come from their source.
    foreign: AtomicU64,
    logged: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    senders: HashMap<SourceId, Address>,
    /// Lost sources, oldest first.
    departed: VecDeque<SourceId>,
}

impl Senders {
    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// Accepts the packets of a source from this address only.
    pub(super) fn set(&self, source: SourceId, from: Address) {
        self.change(|known| {
            known.departed.retain(|departed| *departed != source);
            known.senders.insert(source, from);
        });
    }

    /// Records that a source is lost.
    pub(super) fn leave(&self, source: SourceId) {
        self.change(|known| {
            if known.senders.contains_key(&source) {
                known.departed.push_back(source);
            }
            if known.departed.len() > DEPARTED
                && let Some(oldest) = known.departed.pop_front()
            {
                known.senders.remove(&oldest);
            }
        });
    }

    /// Packets dropped so far.
    pub(super) fn foreign(&self) -> u64 {
        self.0.foreign.load(Ordering::Relaxed)
    }
}

/// The feeds' view of the senders, with a copy of the table, so that a packet needs no lock.
#[derive(Debug)]
pub(super) struct Filter {
    senders: Senders,
    version: u64,
    known: HashMap<SourceId, Address>,
}

impl Filter {
    pub(super) fn new(senders: Senders) -> Self {
        // Differs from the first version, so that the first packet reads the table.
        Self { senders, version: u64::MAX, known: HashMap::new() }
    }

    /// The header of a packet that its source has sent; `None`: it is counted and has to be dropped.
    #[inline]
    pub(super) fn check(&mut self, from: Address, packet: &[u8]) -> Option<Header> {
        let shared = &self.senders.0;
        let version = shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.known.clone_from(&shared.known.lock().unwrap_or_else(PoisonError::into_inner).senders);
            self.version = version;
        }
        let header = Header::decode(packet).ok();
        let own = header.filter(|header| self.known.get(&header.source) == Some(&from));
        if own.is_none() {
            self.drop_foreign(from, header.as_ref());
        }
        own
    }

    #[cold]
    fn drop_foreign(&self, from: Address, header: Option<&Header>) {
        let shared = &self.senders.0;
        shared.foreign.fetch_add(1, Ordering::Relaxed);
        if shared.logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let claim = header.map_or_else(
            || "is not a packet of a feed".to_owned(),
            |header| format!("claims to be from {} on {}", header.source, header.feed),
        );
        tracing::warn!(
            "a datagram from {:08x}:{} {claim} and is dropped: its sender is not a source of this program; further ones are only counted (backbone_foreign_packets)",
            from.0 >> 32,
            from.0 as u32
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backbone::FeedId;

    fn packet(source: u32) -> Vec<u8> {
        let (source, feed) = (SourceId(source), FeedId(1));
        Header { count: 0, source, feed, first: 1, position: 0, part: None, unordered: false }
            .encode()
            .to_vec()
    }

    #[test]
    fn only_packets_from_the_address_of_their_source_pass() {
        let senders = Senders::default();
        let mut filter = Filter::new(senders.clone());
        assert_eq!(filter.check(Address(7), &packet(1)), None, "no source is known");
        senders.set(SourceId(1), Address(7));
        senders.set(SourceId(2), Address(8));
        assert!(filter.check(Address(7), &packet(1)).is_some());
        assert_eq!(filter.check(Address(8), &packet(1)), None, "another source's address");
        assert_eq!(filter.check(Address(7), b"no packet"), None);
        assert_eq!(senders.foreign(), 3);
    }

    #[test]
    fn packets_under_way_of_a_lost_source_are_not_foreign_and_the_memory_of_them_is_bounded() {
        let senders = Senders::default();
        let mut filter = Filter::new(senders.clone());
        for source in 0..2 * DEPARTED as u32 {
            senders.set(SourceId(source), Address(source.into()));
            senders.leave(SourceId(source));
            assert!(filter.check(Address(source.into()), &packet(source)).is_some());
        }
        assert_eq!(filter.known.len(), DEPARTED);
        assert_eq!(filter.check(Address(0), &packet(0)), None);
        senders.set(SourceId(127), Address(9));
        assert_eq!(filter.check(Address(127), &packet(127)), None, "it has another address now");
        assert!(filter.check(Address(9), &packet(127)).is_some());
    }
}
