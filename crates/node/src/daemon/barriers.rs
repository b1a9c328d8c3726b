//! Barriers that processes wait for.

use std::collections::BTreeMap;

use utipc_core::Barrier;

use super::attachments::AttachmentId;

/// Maximum number of barriers of one process at a time. Our choice: seldom do more threads of a process wait for one.
pub(super) const MAX_BARRIERS: usize = 16;

/// The barriers of all processes.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    of: BTreeMap<AttachmentId, BTreeMap<u32, Barrier>>,
    last_number: u32,
}

impl Barriers {
    /// Whether a process has as many as it may.
    pub(super) fn is_full(&self, id: AttachmentId) -> bool {
        self.of.get(&id).is_some_and(|own| own.len() >= MAX_BARRIERS)
    }

    /// Keeps a new barrier; returns its number.
    pub(super) fn insert(&mut self, id: AttachmentId, barrier: Barrier) -> u32 {
        let own = self.of.entry(id).or_default();
        self.last_number = self.last_number.wrapping_add(1);
        while own.contains_key(&self.last_number) {
            self.last_number = self.last_number.wrapping_add(1);
        }
        own.insert(self.last_number, barrier);
        self.last_number
    }

    /// A barrier of a process.
    pub(super) fn get_mut(&mut self, id: AttachmentId, number: u32) -> Option<&mut Barrier> {
        self.of.get_mut(&id)?.get_mut(&number)
    }

    /// Forgets a barrier that is reached or no longer awaited.
    pub(super) fn remove(&mut self, id: AttachmentId, number: u32) {
        if let Some(own) = self.of.get_mut(&id) {
            own.remove(&number);
            if own.is_empty() {
                self.of.remove(&id);
            }
        }
    }

    /// Forgets a process that is gone.
    pub(super) fn forget(&mut self, id: AttachmentId) {
        self.of.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_core::{Stack, StackConfig, Time};

    #[test]
    fn barriers_of_a_process_are_bounded_and_its_own() {
        let stack = Stack::new(Time::ZERO, StackConfig::default());
        let mut barriers = Barriers::default();
        let numbers: Vec<u32> =
            (0..MAX_BARRIERS).map(|_| barriers.insert(1, stack.begin_barrier(Time::ZERO))).collect();
        assert!(barriers.is_full(1) && !barriers.is_full(2));
        assert!(barriers.get_mut(1, numbers[3]).is_some() && barriers.get_mut(2, numbers[3]).is_none());
        barriers.remove(1, numbers[3]);
        assert!(!barriers.is_full(1) && barriers.get_mut(1, numbers[3]).is_none());
        barriers.forget(1);
        assert!(barriers.of.is_empty());
    }
}
