//! A table of values at dense, reused indexes; a generation distinguishes each use of an index from earlier ones.

/// Identifies a value of a [`Slots`]: index and generation. As a `u64`: generation high, index low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// The index, dense from 0; also used for tables that accompany the [`Slots`].
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_u64(value: u64) -> Self {
        #[allow(clippy::cast_possible_truncation)]
        Self { index: value as u32, generation: (value >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by ticket. An outdated [`Ticket`] finds nothing.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> Ticket {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.value = Some(value);
            return Ticket { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { generation: 1, value: Some(value) });
        Ticket { index, generation: 1 }
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&T> {
        self.slots
            .get(ticket.index as usize)
            .filter(|slot| slot.generation == ticket.generation)?
            .value
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.slots
            .get_mut(ticket.index as usize)
            .filter(|slot| slot.generation == ticket.generation)?
            .value
            .as_mut()
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let slot =
            self.slots.get_mut(ticket.index as usize).filter(|slot| slot.generation == ticket.generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(ticket.index);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            Some((Ticket { index, generation: slot.generation }, slot.value.as_ref()?))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated_ticket_finds_nothing() {
        let mut slots = Slots::default();
        let first = slots.insert("a");
        assert_eq!(slots.remove(first), Some("a"));
        let second = slots.insert("b");
        assert_eq!((first.index(), slots.get(first)), (second.index(), None));
        assert_eq!(slots.remove(first), None);
        assert_eq!((slots.get(second), slots.len()), (Some(&"b"), 1));
        assert_eq!(Ticket::from_u64(second.to_u64()), second);
    }
}
