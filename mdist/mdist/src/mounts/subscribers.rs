//! The streams of each item, to which its updates are fanned out.

/// Reasons why a stream does not get the frame of the batch unchanged but for the stream id.
pub(crate) mod flag {
    /// Its image has not come: it gets nothing but statuses.
    pub(crate) const WAITING: u8 = 1;
    /// The consumer paused it: it gets no updates.
    pub(crate) const PAUSED: u8 = 2;
    /// It has a view: it gets some fields only.
    pub(crate) const VIEW: u8 = 4;
    /// It gets the key in every update.
    pub(crate) const KEY: u8 = 8;
    /// It is a symbol list whose items the server opens.
    pub(crate) const LISTS: u8 = 16;
}

/// Number of bits of a mount's index.
const PLACE: u32 = 24;

/// One stream of an item. It is small because a popular item has very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    /// The consumer's stream id.
    pub(crate) id: i32,
    /// Flags in the high bits, index of its mount in the low ones.
    mount: u32,
}

impl Subscriber {
    /// A stream of the mount with this index, which is below 2^24: descriptors run out long before.
    pub(crate) fn new(mount: u32, id: i32, flags: u8) -> Self {
        Self { id, mount: u32::from(flags) << PLACE | mount & Self::MASK }
    }

    const MASK: u32 = (1 << PLACE) - 1;

    /// Index of its mount.
    #[inline]
    pub(crate) fn mount(self) -> usize {
        (self.mount & Self::MASK) as usize
    }

    #[inline]
    pub(crate) fn flags(self) -> u8 {
        (self.mount >> PLACE) as u8
    }

    fn is(self, mount: u32, id: i32) -> bool {
        self.mount & Self::MASK == mount && self.id == id
    }
}

/// The streams of one item. Most items have one stream, which is stored in place.
#[derive(Clone, Debug, Default)]
pub(crate) enum Subscribers {
    #[default]
    None,
    One(Subscriber),
    Many(Vec<Subscriber>),
}

impl Subscribers {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Subscriber] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Subscriber] {
        match self {
            Self::None => &mut [],
            Self::One(one) => std::slice::from_mut(one),
            Self::Many(many) => many,
        }
    }

    /// Prefetches the list: reads of all its cache lines overlap, while a walk would wait for one after the other.
    #[inline]
    pub(crate) fn touch(&self) {
        if let Self::Many(many) = self {
            for line in many.chunks(64 / size_of::<Subscriber>()) {
                std::hint::black_box(line.first().map(|one| one.id));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn push(&mut self, subscriber: Subscriber) {
        match self {
            Self::None => *self = Self::One(subscriber),
            Self::One(one) => *self = Self::Many(vec![*one, subscriber]),
            Self::Many(many) => many.push(subscriber),
        }
    }

    pub(crate) fn remove(&mut self, mount: u32, id: i32) {
        match self {
            Self::None => {}
            Self::One(one) => {
                if one.is(mount, id) {
                    *self = Self::None;
                }
            }
            Self::Many(many) => {
                if let Some(at) = many.iter().position(|one| one.is(mount, id)) {
                    many.swap_remove(at);
                }
                if let [one] = **many {
                    *self = Self::One(one);
                }
            }
        }
    }

    pub(crate) fn set_flags(&mut self, mount: u32, id: i32, flags: u8) {
        if let Some(one) = self.as_mut_slice().iter_mut().find(|one| one.is(mount, id)) {
            *one = Subscriber::new(mount, id, flags);
        }
    }
}

/// A worker's state of an item of the hub.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) subscribers: Subscribers,
    /// Number of `Kind::Opened` entries; given back to the hub with the last stream.
    pub(crate) holds: u32,
    /// Number of the announcement after which its last refresh for all streams came; see
    /// [`Announcements`](super::announce::Announcements).
    pub(crate) refreshed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_grow_and_shrink() {
        let mut all = Subscribers::default();
        for mount in 0..3 {
            all.push(Subscriber::new(mount, 5, flag::WAITING));
            all.set_flags(mount, 5, 0);
        }
        all.set_flags(1, 5, flag::PAUSED);
        all.set_flags(1, 6, flag::VIEW);
        all.remove(0, 5);
        assert_eq!(all.as_slice().iter().map(|s| s.flags()).sum::<u8>(), flag::PAUSED);
        all.remove(2, 5);
        assert!(matches!(all, Subscribers::One(s) if s.mount() == 1 && s.id == 5));
        all.remove(2, 5);
        assert_eq!(all.as_slice().len(), 1);
        all.remove(1, 5);
        assert!(all.is_empty());
    }
}
