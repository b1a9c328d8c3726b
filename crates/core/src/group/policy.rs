//! What a member does about members that do not read. Beyond Linux, and never on by default. Spec: tipc.md §9.8.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::MESSAGE_OVERHEAD;

/// How long a bound socket may take to join before it counts as no member, if the policy ignores such bindings. Ours:
/// longer than the tolerance of a link, in which its JOIN arrives or contact is lost.
pub const JOIN_TIME: Duration = Duration::from_millis(2000);
/// Bit of word 8 of JOIN: the sender accepts EVICT. The upper half tells the word from one left over by other software.
pub(crate) const ACCEPTS_EVICT: u32 = 0x7574_0001;
/// Word 8 of LEAVE and EVICT: the member held others up.
pub(crate) const TOO_SLOW: u32 = 0x7574_0001;

/// What happens when a member has no window left for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SlowMember {
    /// The send waits, as on Linux.
    #[default]
    Wait,
    /// The member does not get the message; the others do.
    Drop,
    /// The member gets the message later, unless a newer one with the same key replaces it before.
    Conflate {
        /// Maximum number of messages kept for one member, 1 to [`SlowMember::MAX_KEYS`]; the oldest gives way.
        keys: u32,
        /// Maximum amount of memory of the messages kept for one member, bytes, at most [`SlowMember::MAX_BYTES`].
        bytes: u32,
    },
    /// The send waits; a member that holds one up for longer than this is evicted.
    Evict {
        /// The limit in ms, 1 to [`SlowMember::MAX_LIMIT_MS`].
        after_ms: u32,
    },
}

impl SlowMember {
    /// Maximum number of keys of one member.
    pub const MAX_KEYS: u32 = 65_536;
    /// Maximum number of bytes kept for one member.
    pub const MAX_BYTES: u32 = 64 << 20;
    /// Longest limit of an eviction, ms: one hour.
    pub const MAX_LIMIT_MS: u32 = 3_600_000;
    /// [`SlowMember::Conflate`] with at most 1024 messages and 1 MiB for each member.
    pub const CONFLATE: Self = Self::Conflate { keys: 1024, bytes: 1 << 20 };

    /// The name, for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Drop => "drop",
            Self::Conflate { .. } => "conflate",
            Self::Evict { .. } => "evict",
        }
    }
}

/// Policy of a member. It concerns what this member sends, and is not known to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupPolicy {
    /// What happens when a member has no window left.
    pub slow: SlowMember,
    /// Sockets that are bound to the group's type and do not join within [`JOIN_TIME`] are no members: no send waits
    /// for them.
    pub ignores_bindings: bool,
}

impl GroupPolicy {
    /// The policy of Linux: sends wait, also for sockets that are bound to the group's type and never join.
    pub const LINUX: Self = Self { slow: SlowMember::Wait, ignores_bindings: false };

    /// A policy that ignores sockets that never join.
    #[must_use]
    pub const fn new(slow: SlowMember) -> Self {
        Self { slow, ignores_bindings: true }
    }

    /// Whether its values are in their ranges.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        match self.slow {
            SlowMember::Wait | SlowMember::Drop => true,
            SlowMember::Conflate { keys, bytes } => {
                keys > 0 && keys <= SlowMember::MAX_KEYS && bytes > 0 && bytes <= SlowMember::MAX_BYTES
            }
            SlowMember::Evict { after_ms } => after_ms > 0 && after_ms <= SlowMember::MAX_LIMIT_MS,
        }
    }

    /// Whether no send waits for a member's window.
    pub(crate) const fn never_waits(self) -> bool {
        matches!(self.slow, SlowMember::Drop | SlowMember::Conflate { .. })
    }

    /// How long a member may hold a send up.
    pub(super) const fn limit(self) -> Option<Duration> {
        match self.slow {
            SlowMember::Evict { after_ms } => Some(Duration::from_millis(after_ms as u64)),
            _ => None,
        }
    }

    /// Whether members may evict the socket: those that evict others accept it themselves.
    pub(crate) const fn accepts_evict(self) -> bool {
        matches!(self.slow, SlowMember::Evict { .. })
    }

    /// Whether the socket gets news that Linux does not have: of evictions, and of missing messages.
    pub(crate) const fn has_news(self) -> bool {
        self.ignores_bindings || !matches!(self.slow, SlowMember::Wait)
    }
}

/// What a message to one member was sent as; the receiver sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyOf {
    /// A message to this member.
    #[default]
    Unicast,
    /// A message to all members with its instance.
    Multicast,
    /// A message to all members.
    Broadcast,
}

/// A message that is kept for a slow member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) data: Arc<Vec<u8>>,
    pub(crate) copy_of: CopyOf,
    /// Blocks of the member's window.
    pub(crate) cost: u32,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.data.len() + MESSAGE_OVERHEAD
    }
}

/// The newest message of each key that one member has yet to get, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// By number, which increases.
    messages: BTreeMap<u64, (u64, Kept)>,
    /// The number of the message with a key.
    keys: BTreeMap<u64, u64>,
    next: u64,
    bytes: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn front(&self) -> Option<&Kept> {
        self.messages.first_key_value().map(|(_, (_, kept))| kept)
    }

    pub(super) fn pop(&mut self) -> Option<Kept> {
        let (_, (key, kept)) = self.messages.pop_first()?;
        self.keys.remove(&key);
        self.bytes -= kept.bytes();
        Some(kept)
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some((_, kept)) = self.keys.remove(&key).and_then(|number| self.messages.remove(&number)) else {
            return false;
        };
        self.bytes -= kept.bytes();
        true
    }

    /// Keeps the newest message of a key, within the limits and `room` more bytes than now. Returns how many older ones
    /// it has replaced, and how many were dropped, the new one perhaps included.
    pub(super) fn keep(&mut self, key: u64, kept: Kept, keys: u32, bytes: u32, room: u64) -> (u64, u64) {
        let allowed = (self.bytes as u64).saturating_add(room).min(bytes.into());
        let replaced = u64::from(self.remove(key));
        let size = kept.bytes();
        if size as u64 > allowed {
            return (replaced, 1);
        }
        let mut dropped = 0;
        while self.messages.len() >= keys as usize || (self.bytes + size) as u64 > allowed {
            if self.pop().is_none() {
                break;
            }
            dropped += 1;
        }
        self.bytes += size;
        self.keys.insert(key, self.next);
        self.messages.insert(self.next, (key, kept));
        self.next += 1;
        (replaced, dropped)
    }
}

/// What this socket did not send to a member because it is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SlowCounters {
    /// Messages dropped.
    pub dropped: u64,
    /// Messages replaced by newer ones with their key.
    pub conflated: u64,
    /// Messages that wait for its window.
    pub kept: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(mark: u8, size: usize) -> Kept {
        Kept { data: vec![mark; size].into(), copy_of: CopyOf::Unicast, cost: 1 }
    }

    fn marks(backlog: &mut Backlog) -> Vec<u8> {
        std::iter::from_fn(|| backlog.pop()).map(|kept| kept.data[0]).collect()
    }

    #[test]
    fn newest_message_of_a_key_takes_its_place_in_the_order() {
        let mut backlog = Backlog::default();
        for (key, mark) in [(1, b'a'), (2, b'b'), (1, b'c'), (3, b'd'), (2, b'e')] {
            let (_, dropped) = backlog.keep(key, kept(mark, 10), 10, 100_000, u64::MAX);
            assert_eq!(dropped, 0);
        }
        assert_eq!((backlog.len(), backlog.bytes()), (3, 3 * (10 + MESSAGE_OVERHEAD)));
        assert_eq!(marks(&mut backlog), b"cde");
        assert_eq!(backlog.bytes(), 0);
    }

    #[test]
    fn keys_bytes_and_room_are_bounded_and_the_oldest_gives_way() {
        let mut backlog = Backlog::default();
        for mark in 0..100 {
            backlog.keep(mark.into(), kept(mark, 10), 3, 100_000, u64::MAX);
        }
        assert_eq!(marks(&mut backlog), [97, 98, 99]);
        let size = (10 + MESSAGE_OVERHEAD) as u32;
        for mark in 0..100 {
            backlog.keep(mark.into(), kept(mark, 10), 1000, 2 * size + 1, u64::MAX);
            assert!(backlog.bytes() <= 2 * size as usize + 1);
        }
        // No room at all: what is kept gives way to the newest.
        assert_eq!(backlog.keep(7, kept(7, 10), 1000, 2 * size + 1, 0), (0, 1));
        assert_eq!(marks(&mut backlog), [99, 7]);
        assert_eq!(backlog.keep(1, kept(1, 10), 1000, size, 0), (0, 1), "not even one");
        assert_eq!(backlog.keep(1, kept(1, 10), 1000, size - 1, 1 << 20), (0, 1), "larger than the limit");
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_message_that_cannot_be_kept_takes_the_older_one_of_its_key_along() {
        let mut backlog = Backlog::default();
        backlog.keep(1, kept(1, 10), 10, 1000, u64::MAX);
        assert_eq!(
            backlog.keep(1, kept(2, 1000), 10, 1000, u64::MAX),
            (1, 1),
            "the older one is out of date"
        );
        assert!(backlog.is_empty());
    }

    #[test]
    fn policies_out_of_range_are_invalid() {
        let all = [
            (SlowMember::Wait, true),
            (SlowMember::CONFLATE, true),
            (SlowMember::Conflate { keys: 0, bytes: 1 }, false),
            (SlowMember::Conflate { keys: 65_537, bytes: 1 }, false),
            (SlowMember::Conflate { keys: 1, bytes: (64 << 20) + 1 }, false),
            (SlowMember::Evict { after_ms: 0 }, false),
            (SlowMember::Evict { after_ms: 3_600_000 }, true),
            (SlowMember::Evict { after_ms: 3_600_001 }, false),
        ];
        for (slow, is_valid) in all {
            assert_eq!(GroupPolicy::new(slow).is_valid(), is_valid, "{slow:?}");
        }
    }
}
