//! Who has an item: the table that an update goes through.

use super::slots::Ticket;

/// Why a stream does not simply get a copy of what comes for its item.
pub(crate) mod flag {
    /// Its image is still to come: it gets nothing.
    pub(crate) const WAITING: u8 = 1;
    /// The client paused it: no updates.
    pub(crate) const PAUSED: u8 = 2;
    /// It wants some fields only.
    pub(crate) const VIEW: u8 = 4;
    /// It wants the key in every update.
    pub(crate) const KEY: u8 = 8;
    /// It is a symbol list whose items the server opens.
    pub(crate) const LISTS: u8 = 16;
}

/// One stream of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) stream: Ticket,
    /// Place of its mount.
    pub(crate) mount: u32,
    /// The client's stream id.
    pub(crate) id: i32,
    pub(crate) flags: u8,
}

/// The streams of one item. Most items have one, so that is kept in place.
#[derive(Clone, Debug, Default)]
pub(crate) enum Subscribers {
    #[default]
    None,
    One(Subscriber),
    Many(Vec<Subscriber>),
}

impl Subscribers {
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

    pub(crate) fn remove(&mut self, stream: Ticket) {
        match self {
            Self::None => {}
            Self::One(one) => {
                if one.stream == stream {
                    *self = Self::None;
                }
            }
            Self::Many(many) => {
                if let Some(at) = many.iter().position(|one| one.stream == stream) {
                    many.swap_remove(at);
                }
                if let [one] = **many {
                    *self = Self::One(one);
                }
            }
        }
    }

    pub(crate) fn set_flags(&mut self, stream: Ticket, flags: u8) {
        if let Some(one) = self.as_mut_slice().iter_mut().find(|one| one.stream == stream) {
            one.flags = flags;
        }
    }
}

/// What a worker knows of an item of the hub.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) subscribers: Subscribers,
    /// How often the hub said `Opened`; given back when the last stream is gone.
    pub(crate) holds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let tickets: Vec<Ticket> = (1..4).map(Ticket::from_u64).collect();
        let one = |n: usize| Subscriber { stream: tickets[n], mount: 0, id: 5, flags: 0 };
        let mut all = Subscribers::default();
        for n in 0..3 {
            all.push(one(n));
        }
        all.set_flags(tickets[1], flag::PAUSED);
        all.remove(tickets[0]);
        assert_eq!(all.as_slice().iter().map(|s| s.flags).sum::<u8>(), flag::PAUSED);
        all.remove(tickets[2]);
        assert!(matches!(all, Subscribers::One(s) if s.stream == tickets[1]));
        all.remove(tickets[2]);
        assert_eq!(all.as_slice().len(), 1);
        all.remove(tickets[1]);
        assert!(all.is_empty());
    }
}
