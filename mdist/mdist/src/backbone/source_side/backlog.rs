//! The packets of a feed that sinks which are behind have not been sent yet.

use std::collections::VecDeque;
use std::time::Instant;

/// Consecutive packets of one feed, with numbers that count them.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Number of the oldest packet.
    first: u64,
    packets: VecDeque<Box<[u8]>>,
    /// Time until which packets of the feed may overtake each other, because some were sent by unicast.
    pub(super) unordered_until: Option<Instant>,
}

impl Backlog {
    /// The number that the next packet gets.
    pub(super) fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// The packet with this number.
    pub(super) fn get(&self, number: u64) -> Option<&[u8]> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get(at).map(|packet| &**packet)
    }

    /// Appends a packet.
    pub(super) fn push(&mut self, packet: &[u8]) {
        self.packets.push_back(packet.into());
    }

    /// Removes the packets before `number`; returns their bytes.
    pub(super) fn trim(&mut self, number: u64) -> usize {
        let mut removed = 0;
        while self.first < number {
            let Some(packet) = self.packets.pop_front() else { break };
            removed += packet.len();
            self.first += 1;
        }
        if self.packets.is_empty() {
            // Stalls are rare: free the memory.
            self.packets = VecDeque::new();
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_numbers_when_older_ones_are_removed() {
        let mut backlog = Backlog::default();
        assert_eq!((backlog.trim(5), backlog.end(), backlog.get(0)), (0, 0, None));
        for packet in [&b"a"[..], b"bb", b"ccc"] {
            backlog.push(packet);
        }
        assert_eq!((backlog.trim(1), backlog.end()), (1, 3));
        assert_eq!(backlog.get(0), None);
        assert_eq!(
            (backlog.get(1), backlog.get(2), backlog.get(3)),
            (Some(&b"bb"[..]), Some(&b"ccc"[..]), None)
        );
        assert_eq!((backlog.trim(9), backlog.end()), (5, 3));
        backlog.push(b"d");
        assert_eq!((backlog.get(3), backlog.end()), (Some(&b"d"[..]), 4));
    }
}
