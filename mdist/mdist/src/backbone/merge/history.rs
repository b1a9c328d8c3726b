//! Recent packets of a feed, with an index in which each entry points to the one before it of the same item.
//!
//! After a burst of requests thousands of images arrive, and each needs the later entries of its item. Scanning
//! all entries for each image would take longer than the burst.

use std::collections::{HashMap, VecDeque};

use super::stream_of;
use crate::backbone::wire::Entry;

/// The entries of one packet.
#[derive(Debug)]
struct Past {
    first: u64,
    last: u64,
    bytes: Vec<u8>,
}

/// The position of an entry, and the number of the one before it of the same item.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// The item; 0 if no image of it can be awaited, or the entry concerns none.
    item: i32,
    /// Offset in the bytes of its packet.
    offset: u32,
    /// Number of the item's entry before this one; 0, or the number of a removed entry, if there is none.
    before: u64,
}

/// Consecutive packets of one feed.
#[derive(Debug, Default)]
pub(super) struct History {
    packets: VecDeque<Past>,
    /// One for each entry of the packets.
    index: VecDeque<IndexEntry>,
    /// Number of the last entry of each item.
    latest: HashMap<i32, u64>,
    bytes: usize,
}

impl Past {
    /// Bytes of memory, including the index.
    fn size(&self) -> usize {
        self.bytes.len() + (self.last + 1 - self.first) as usize * size_of::<IndexEntry>()
    }
}

impl History {
    /// Bytes of all packets and their index.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all packets.
    pub(super) fn clear(&mut self) {
        // Free the memory as well, because bursts are rare.
        *self = Self::default();
    }

    /// Appends the entries of the next packet, which were decoded before; `first` is the number of the first. Those of
    /// items for which `awaits` is false cannot be found: most updates of a full load are such, and finding a place in
    /// the index is most of an entry's cost.
    pub(super) fn push(&mut self, first: u64, entries: &[u8], awaits: impl Fn(i32) -> bool) {
        let (mut rest, mut number) = (entries, first);
        while !rest.is_empty() {
            let offset = (entries.len() - rest.len()) as u32;
            let Ok(entry) = Entry::take(&mut rest) else { break };
            let item = Some(item_of(&entry)).filter(|item| awaits(*item)).unwrap_or(0);
            let before = if item == 0 { 0 } else { self.latest.insert(item, number).unwrap_or(0) };
            self.index.push_back(IndexEntry { item, offset, before });
            number += 1;
        }
        if number > first {
            let past = Past { first, last: number - 1, bytes: entries.to_vec() };
            self.bytes += past.size();
            self.packets.push_back(past);
        }
    }

    /// Removes the oldest packet; returns whether there was one.
    pub(super) fn pop(&mut self) -> bool {
        let Some(past) = self.packets.pop_front() else { return false };
        self.bytes -= past.size();
        for number in past.first..=past.last {
            if let Some(entry) = self.index.pop_front()
                && self.latest.get(&entry.item) == Some(&number)
            {
                self.latest.remove(&entry.item);
            }
        }
        true
    }

    /// The entries of an item after number `after` up to `upto`, in order; `None` if the history begins later.
    pub(super) fn of(&self, item: i32, after: u64, upto: u64) -> Option<Vec<(u64, Entry<'_>)>> {
        let mut found = Vec::new();
        if after >= upto {
            return Some(found);
        }
        let begin = self.packets.front().map(|past| past.first).filter(|first| *first <= after + 1)?;
        let mut number = self.latest.get(&item).copied().unwrap_or(0);
        while number > after {
            let entry = self.index.get((number - begin) as usize)?;
            if number <= upto {
                found.push((number, self.entry(number, entry.offset)?));
            }
            number = entry.before;
        }
        found.reverse();
        Some(found)
    }

    fn entry(&self, number: u64, offset: u32) -> Option<Entry<'_>> {
        let past = self.packets.get(self.packets.partition_point(|past| past.last < number))?;
        Entry::take(&mut past.bytes.get(offset as usize..)?).ok()
    }
}

/// The item that an entry is for; 0: none.
fn item_of(entry: &Entry<'_>) -> i32 {
    match entry {
        Entry::Message(message) => stream_of(message),
        Entry::Gone { item, .. } => *item,
        Entry::Image { .. } | Entry::Cut { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(item: i32, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&item.to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes
    }

    /// The numbers and items of these packets, and a history of them.
    fn filled(packets: &[Vec<i32>]) -> (Vec<(u64, i32)>, History) {
        let (mut all, mut history, mut number) = (Vec::new(), History::default(), 1);
        for items in packets.iter().filter(|items| !items.is_empty()) {
            let (first, mut bytes) = (number, Vec::new());
            for &item in items {
                let text = message(item.abs(), number);
                match item {
                    0 => Entry::Cut { sink: 7 }.append(&mut bytes),
                    ..0 => Entry::Gone { item: -item, message: &text }.append(&mut bytes),
                    _ => Entry::Message(&text).append(&mut bytes),
                }
                all.push((number, item));
                number += 1;
            }
            history.push(first, &bytes, |_| true);
        }
        (all, history)
    }

    /// The next pseudo-random number below `max`.
    fn random(state: &mut u64, max: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % max
    }

    #[test]
    fn index_finds_the_same_entries_as_a_full_scan() {
        let mut state = 7;
        for round in 0..2_000 {
            let mut any = |max| random(&mut state, max);
            let packets: Vec<Vec<i32>> =
                (0..any(12)).map(|_| (0..any(6)).map(|_| any(9) as i32 - 4).collect()).collect();
            let (mut all, mut history) = filled(&packets);
            for _ in 0..any(4) {
                let last = history.packets.front().map_or(0, |past| past.last);
                history.pop();
                all.retain(|(number, _)| *number > last);
            }
            let (after, upto) = (any(40), any(40));
            let reaches = after >= upto || all.first().is_some_and(|(first, _)| *first <= after + 1);
            for item in 1..5 {
                let wanted =
                    |(number, it): &&(u64, i32)| it.abs() == item && *number > after && *number <= upto;
                let expected = reaches.then(|| all.iter().filter(wanted).copied().collect::<Vec<_>>());
                let found = history.of(item, after, upto).map(|found| {
                    let what = found.into_iter().map(|(number, entry)| match entry {
                        Entry::Message(bytes) if bytes == message(item, number) => (number, item),
                        Entry::Gone { message: bytes, .. } if bytes == message(item, number) => {
                            (number, -item)
                        }
                        other => panic!("{other:?}"),
                    });
                    what.collect::<Vec<_>>()
                });
                assert_eq!(found, expected, "round {round}: item {item} after {after} up to {upto}");
            }
            while history.pop() {}
            assert!(history.bytes == 0 && history.latest.is_empty() && history.index.is_empty());
        }
    }
}
