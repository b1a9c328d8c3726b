//! The ranges of one service type, ordered for lookup.
//!
//! Order: lowest `lower` first; of equal ones the newest range first. In that order the first range whose upper end
//! reaches an instance is the only candidate for "first matching range", and because the running maximum of the upper
//! ends is monotone, it is found by binary search. The order is cut into chunks with a running maximum over the
//! chunks and one within each, so that an insertion touches one chunk and one word per chunk.

use crate::collections::Slot;

/// Entries in one chunk. Small enough that an insertion is cheap, large enough that 65535 ranges need few chunks.
const CHUNK: usize = 64;

/// Position of a range in the order: lower end, then newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RangeKey {
    lower: u32,
    age: u64,
}

impl RangeKey {
    /// The key of the range that was the `born`-th one made.
    pub(super) const fn new(lower: u32, born: u64) -> Self {
        Self { lower, age: u64::MAX - born }
    }
}

/// One range in the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeEntry {
    pub(super) key: RangeKey,
    pub(super) upper: u32,
    /// The range itself.
    pub(super) range: Slot,
}

impl RangeEntry {
    fn overlaps(&self, lower: u32, upper: u32) -> bool {
        self.key.lower <= upper && self.upper >= lower
    }
}

/// An ordered run of entries; `reach[i]` is the highest upper end of entries 0 to i.
#[derive(Debug, Default)]
struct Chunk {
    reach: Vec<u32>,
    entries: Vec<RangeEntry>,
}

impl Chunk {
    fn of(entries: Vec<RangeEntry>) -> Self {
        let mut chunk = Self { reach: Vec::new(), entries };
        chunk.refresh();
        chunk
    }

    fn refresh(&mut self) {
        let mut highest = 0;
        self.reach.clear();
        self.reach.extend(self.entries.iter().map(|e| {
            highest = highest.max(e.upper);
            highest
        }));
    }

    fn highest(&self) -> u32 {
        self.reach.last().copied().unwrap_or(0)
    }

    fn last_key(&self) -> Option<RangeKey> {
        self.entries.last().map(|e| e.key)
    }

    fn first_lower(&self) -> u32 {
        self.entries.first().map_or(u32::MAX, |e| e.key.lower)
    }
}

/// The ranges of one type. Most types have a single range, kept without any indirection.
#[derive(Debug, Default)]
pub(super) enum RangeIndex {
    #[default]
    Empty,
    One(RangeEntry),
    Many(Box<Chunks>),
}

impl RangeIndex {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(super) fn insert(&mut self, entry: RangeEntry) {
        match self {
            Self::Empty => *self = Self::One(entry),
            Self::One(old) => {
                let mut chunks = Box::<Chunks>::default();
                chunks.insert(*old);
                chunks.insert(entry);
                *self = Self::Many(chunks);
            }
            Self::Many(chunks) => chunks.insert(entry),
        }
    }

    /// Removes the range with this key.
    pub(super) fn remove(&mut self, key: RangeKey) {
        match self {
            Self::Empty => {}
            Self::One(entry) => {
                if entry.key == key {
                    *self = Self::Empty;
                }
            }
            Self::Many(chunks) => {
                chunks.remove(key);
                if let Some(only) = chunks.only() {
                    *self = Self::One(only);
                }
            }
        }
    }

    /// The first range in order that has an instance of `lower..=upper`.
    pub(super) fn first(&self, lower: u32, upper: u32) -> Option<Slot> {
        match self {
            Self::Empty => None,
            Self::One(entry) => entry.overlaps(lower, upper).then_some(entry.range),
            Self::Many(chunks) => chunks.first(lower, upper),
        }
    }

    /// Every range that has an instance of `lower..=upper`, in order.
    pub(super) fn overlapping(&self, lower: u32, upper: u32) -> impl Iterator<Item = Slot> + '_ {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(entry) => (Some(entry), None),
            Self::Many(chunks) => (None, Some(chunks)),
        };
        one.into_iter()
            .chain(many.into_iter().flat_map(move |c| c.reaching(lower, upper)))
            .filter(move |e| e.overlaps(lower, upper))
            .map(|e| e.range)
    }
}

/// Two or more ranges.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Highest upper end of chunks 0 to i.
    reach: Vec<u32>,
    chunks: Vec<Chunk>,
}

impl Chunks {
    fn insert(&mut self, entry: RangeEntry) {
        let place = self.chunks.partition_point(|c| c.last_key() < Some(entry.key));
        let place = place.min(self.chunks.len().saturating_sub(1));
        if let Some(chunk) = self.chunks.get_mut(place) {
            let at = chunk.entries.partition_point(|e| e.key < entry.key);
            if chunk.entries.len() < CHUNK {
                chunk.entries.insert(at, entry);
                chunk.refresh();
            } else {
                // At the very end start a new chunk: bindings made in ascending order then leave full ones behind.
                let cut = if at == CHUNK { CHUNK } else { CHUNK / 2 };
                let mut tail = chunk.entries.split_off(cut);
                if at >= cut {
                    tail.insert(at - cut, entry)
                } else {
                    chunk.entries.insert(at, entry)
                }
                chunk.refresh();
                self.chunks.insert(place + 1, Chunk::of(tail));
            }
        } else {
            self.chunks.push(Chunk::of(vec![entry]));
        }
        self.refresh_from(place);
    }

    fn remove(&mut self, key: RangeKey) {
        let place = self.chunks.partition_point(|c| c.last_key() < Some(key));
        let Some(chunk) = self.chunks.get_mut(place) else { return };
        let at = chunk.entries.partition_point(|e| e.key < key);
        if chunk.entries.get(at).is_none_or(|e| e.key != key) {
            return;
        }
        chunk.entries.remove(at);
        chunk.refresh();
        let left = chunk.entries.len();
        // Small neighbours are joined, so that removals cannot leave many nearly empty chunks behind.
        let next = self.chunks.get(place + 1).map_or(CHUNK, |c| c.entries.len());
        if left == 0 {
            self.chunks.remove(place);
        } else if left + next <= CHUNK / 2 {
            let mut tail = self.chunks.remove(place + 1);
            if let Some(chunk) = self.chunks.get_mut(place) {
                chunk.entries.append(&mut tail.entries);
                chunk.refresh();
            }
        }
        self.refresh_from(place);
    }

    fn refresh_from(&mut self, place: usize) {
        self.reach.truncate(place);
        let mut highest = self.reach.last().copied().unwrap_or(0);
        for chunk in self.chunks.get(place..).unwrap_or_default() {
            highest = highest.max(chunk.highest());
            self.reach.push(highest);
        }
    }

    fn only(&self) -> Option<RangeEntry> {
        match self.chunks.as_slice() {
            [chunk] => match chunk.entries.as_slice() {
                [entry] => Some(*entry),
                _ => None,
            },
            _ => None,
        }
    }

    fn first(&self, lower: u32, upper: u32) -> Option<Slot> {
        let chunk = self.chunks.get(self.reach.partition_point(|r| *r < lower))?;
        let entry = chunk.entries.get(chunk.reach.partition_point(|r| *r < lower))?;
        (entry.key.lower <= upper).then_some(entry.range)
    }

    /// Candidates for an overlap with `lower..=upper`: entries of chunks that reach it and do not lie behind it.
    fn reaching(&self, lower: u32, upper: u32) -> impl Iterator<Item = &RangeEntry> {
        let from = self.reach.partition_point(|r| *r < lower);
        let chunks = self.chunks.get(from..).unwrap_or_default();
        chunks
            .iter()
            .take_while(move |c| c.first_lower() <= upper)
            .filter(move |c| c.highest() >= lower)
            .flat_map(|c| c.entries.iter())
    }
}
