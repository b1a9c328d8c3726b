//! The streams of one upstream, with the item of each stream id.

use std::collections::{HashMap, VecDeque};

use rssl::rwf::Domain;

use super::ids::{ItemId, Now};

/// First stream id of items; below it are login, directory and dictionaries.
pub(super) const FIRST_STREAM: i32 = 16;

/// Time for which a closed id is not reused, so that late messages of the old stream arrive before.
const REUSE_DELAY: Now = Now::from_secs(10);

/// Stream ids of publishers down to minus this are found by index, lower ones in a map.
const MAX_INDEXED: usize = 1 << 20;

/// One upstream stream: everything that is needed to pass on an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The item; `ItemId::NONE`: no stream.
    pub(super) item: ItemId,
    pub(super) domain: Domain,
    /// Whether updates go to the sides.
    pub(super) to_sides: bool,
    /// Whether updates go to the cache.
    pub(super) to_cache: bool,
}

impl Slot {
    const FREE: Self = Self { item: ItemId::NONE, domain: Domain(0), to_sides: false, to_cache: false };
}

/// All streams of one upstream.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Streams that the hub opened, by id.
    requested: Vec<Slot>,
    /// Closed ids of the hub, and from when they can be reused.
    closed: VecDeque<(Now, i32)>,
    /// Streams that the publisher opened, by negated id.
    published: Vec<Slot>,
    /// Streams that the publisher opened with ids too low for an index.
    published_by_id: HashMap<i32, Slot>,
}

impl Streams {
    /// The stream with this id, if it is open.
    #[inline]
    pub(super) fn get(&self, stream: i32) -> Option<&Slot> {
        let slot = match place(stream) {
            Place::Requested(at) => self.requested.get(at),
            Place::Published(at) => self.published.get(at),
            Place::ById => self.published_by_id.get(&stream),
        };
        slot.filter(|s| s.item != ItemId::NONE)
    }

    pub(super) fn get_mut(&mut self, stream: i32) -> Option<&mut Slot> {
        let slot = match place(stream) {
            Place::Requested(at) => self.requested.get_mut(at),
            Place::Published(at) => self.published.get_mut(at),
            Place::ById => self.published_by_id.get_mut(&stream),
        };
        slot.filter(|s| s.item != ItemId::NONE)
    }

    /// Opens a stream of the hub; returns its id.
    pub(super) fn open(&mut self, now: Now, item: ItemId, domain: Domain) -> i32 {
        let slot = Slot { item, domain, ..Slot::FREE };
        if let Some((until, stream)) = self.closed.front().copied()
            && until <= now
        {
            self.closed.pop_front();
            if let Place::Requested(at) = place(stream)
                && let Some(free) = self.requested.get_mut(at)
            {
                *free = slot;
                return stream;
            }
        }
        self.requested.push(slot);
        // There are at most as many streams as items and closed ids, far below 2^31.
        FIRST_STREAM + (self.requested.len() - 1) as i32
    }

    /// Adds a stream that the publisher opened.
    pub(super) fn accept(&mut self, stream: i32, item: ItemId, domain: Domain) {
        let slot = Slot { item, domain, ..Slot::FREE };
        match place(stream) {
            Place::Published(at) => {
                if self.published.len() <= at {
                    self.published.resize(at + 1, Slot::FREE);
                }
                if let Some(place) = self.published.get_mut(at) {
                    *place = slot;
                }
            }
            Place::Requested(_) | Place::ById => {
                self.published_by_id.insert(stream, slot);
            }
        }
    }

    /// Closes a stream. Ids of the hub are reused after [`REUSE_DELAY`].
    pub(super) fn close(&mut self, now: Now, stream: i32) {
        if let Some(slot) = self.get_mut(stream) {
            *slot = Slot::FREE;
            match place(stream) {
                Place::Requested(_) => self.closed.push_back((now + REUSE_DELAY, stream)),
                Place::Published(_) => {}
                Place::ById => {
                    self.published_by_id.remove(&stream);
                }
            }
        }
    }
}

/// The place of the slot of a stream id.
enum Place {
    Requested(usize),
    Published(usize),
    ById,
}

#[inline]
fn place(stream: i32) -> Place {
    if stream >= FIRST_STREAM {
        Place::Requested((stream - FIRST_STREAM) as usize)
    } else if stream < 0 && stream.unsigned_abs() as usize <= MAX_INDEXED {
        Place::Published(stream.unsigned_abs() as usize - 1)
    } else {
        Place::ById
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_id_is_reused_after_a_delay() {
        let mut s = Streams::default();
        let at = Now::from_secs;
        let first = s.open(at(0), ItemId(7), Domain(6));
        assert_eq!((first, s.get(first).map(|s| s.item)), (16, Some(ItemId(7))));
        s.close(at(1), first);
        assert!(s.get(first).is_none());
        assert_eq!(s.open(at(2), ItemId(8), Domain(6)), 17);
        assert_eq!(s.open(at(11), ItemId(9), Domain(6)), 16);
        assert_eq!(s.get(16).map(|s| s.item), Some(ItemId(9)));
    }

    #[test]
    fn publishers_may_use_any_negative_id() {
        let mut s = Streams::default();
        for (n, stream) in [-1, -6, -1_000_000, -2_000_000_000, i32::MIN].into_iter().enumerate() {
            s.accept(stream, ItemId(n as u32), Domain(6));
        }
        assert_eq!(s.get(-6).map(|s| s.item), Some(ItemId(1)));
        assert_eq!(s.get(i32::MIN).map(|s| s.item), Some(ItemId(4)));
        s.close(Now::ZERO, -2_000_000_000);
        assert!(
            s.get(-2_000_000_000).is_none()
                && s.get(-2).is_none()
                && s.get(0).is_none()
                && s.get(3).is_none()
        );
    }
}
