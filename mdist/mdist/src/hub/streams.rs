//! The streams of one upstream: from stream id to item.

use std::collections::{HashMap, VecDeque};

use rssl::rwf::Domain;

use super::ids::{ItemId, Now};

/// First stream id of items; below it are login, directory and dictionaries.
pub(super) const FIRST_STREAM: i32 = 16;

/// How long an id that was closed is not used again: what was on its way for the old stream has come by then.
const REST: Now = Now::from_secs(10);

/// Provider-opened ids down to minus this are found by index; a publisher that numbers otherwise is served by a map.
const DENSE: usize = 1 << 20;

/// What an upstream stream is. All that an update needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// `ItemId::NONE`: no stream.
    pub(super) item: ItemId,
    pub(super) domain: Domain,
    /// Updates go to the sides.
    pub(super) pass: bool,
    /// Updates go to the cache.
    pub(super) keep: bool,
}

impl Slot {
    const FREE: Self = Self { item: ItemId::NONE, domain: Domain(0), pass: false, keep: false };
}

/// All streams of one upstream.
#[derive(Debug, Default)]
pub(super) struct Streams {
    ours: Vec<Slot>,
    resting: VecDeque<(Now, i32)>,
    theirs: Vec<Slot>,
    odd: HashMap<i32, Slot>,
}

impl Streams {
    /// The stream with this id, if it is open.
    #[inline]
    pub(super) fn get(&self, stream: i32) -> Option<&Slot> {
        let slot = match place(stream) {
            Place::Ours(at) => self.ours.get(at),
            Place::Theirs(at) => self.theirs.get(at),
            Place::Odd => self.odd.get(&stream),
        };
        slot.filter(|s| s.item != ItemId::NONE)
    }

    pub(super) fn get_mut(&mut self, stream: i32) -> Option<&mut Slot> {
        let slot = match place(stream) {
            Place::Ours(at) => self.ours.get_mut(at),
            Place::Theirs(at) => self.theirs.get_mut(at),
            Place::Odd => self.odd.get_mut(&stream),
        };
        slot.filter(|s| s.item != ItemId::NONE)
    }

    /// A new stream of ours.
    pub(super) fn open(&mut self, now: Now, item: ItemId, domain: Domain) -> i32 {
        let slot = Slot { item, domain, ..Slot::FREE };
        if let Some((until, stream)) = self.resting.front().copied()
            && until <= now
        {
            self.resting.pop_front();
            if let Place::Ours(at) = place(stream)
                && let Some(free) = self.ours.get_mut(at)
            {
                *free = slot;
                return stream;
            }
        }
        self.ours.push(slot);
        // Streams are at most items and resting ids; neither comes near 2^31.
        FIRST_STREAM + (self.ours.len() - 1) as i32
    }

    /// A stream that the provider opened.
    pub(super) fn accept(&mut self, stream: i32, item: ItemId, domain: Domain) {
        let slot = Slot { item, domain, ..Slot::FREE };
        match place(stream) {
            Place::Theirs(at) => {
                if self.theirs.len() <= at {
                    self.theirs.resize(at + 1, Slot::FREE);
                }
                if let Some(place) = self.theirs.get_mut(at) {
                    *place = slot;
                }
            }
            Place::Ours(_) | Place::Odd => {
                self.odd.insert(stream, slot);
            }
        }
    }

    /// Ends a stream; an id of ours rests before it is used again.
    pub(super) fn close(&mut self, now: Now, stream: i32) {
        if let Some(slot) = self.get_mut(stream) {
            *slot = Slot::FREE;
            match place(stream) {
                Place::Ours(_) => self.resting.push_back((now + REST, stream)),
                Place::Theirs(_) => {}
                Place::Odd => {
                    self.odd.remove(&stream);
                }
            }
        }
    }
}

enum Place {
    Ours(usize),
    Theirs(usize),
    Odd,
}

#[inline]
fn place(stream: i32) -> Place {
    if stream >= FIRST_STREAM {
        Place::Ours((stream - FIRST_STREAM) as usize)
    } else if stream < 0 && stream.unsigned_abs() as usize <= DENSE {
        Place::Theirs(stream.unsigned_abs() as usize - 1)
    } else {
        Place::Odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_id_rests_before_it_is_used_again() {
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
    fn a_providers_ids_may_be_anything_negative() {
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
