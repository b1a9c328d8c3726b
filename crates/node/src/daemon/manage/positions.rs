//! Where the lists of bindings of processes continue: the position does not fit the number that a request carries.

use std::collections::{BTreeMap, VecDeque};

use utipc_core::names::ListPosition;

use crate::daemon::attachments::AttachmentId;

/// Maximum number of positions kept for one process. Our choice: seldom do more threads of a process fetch lists at the
/// same time; the oldest list then begins again.
const MAX_POSITIONS: usize = 16;

/// The positions of all processes.
#[derive(Debug, Default)]
pub(super) struct Positions {
    of: BTreeMap<AttachmentId, VecDeque<(u64, ListPosition)>>,
    last_number: u64,
    /// List entries visited for all requests.
    visited: u64,
}

impl Positions {
    /// A number for a position, above all earlier ones.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Keeps the position with this number.
    pub(super) fn put(&mut self, id: AttachmentId, number: u64, position: ListPosition) {
        let all = self.of.entry(id).or_default();
        if all.len() == MAX_POSITIONS {
            all.pop_front();
        }
        all.push_back((number, position));
    }

    /// The position with this number; `None` if it was not kept.
    pub(super) fn get(&self, id: AttachmentId, number: u64) -> Option<ListPosition> {
        let all = self.of.get(&id)?;
        all.iter().find(|(other, _)| *other == number).map(|(_, position)| *position)
    }

    /// Forgets a process that is gone.
    pub(super) fn forget(&mut self, id: AttachmentId) {
        self.of.remove(&id);
    }

    /// Counts visited entries.
    pub(super) fn note_visited(&mut self, entries: usize) {
        self.visited += entries as u64;
    }

    /// List entries visited so far.
    pub(super) fn visited(&self) -> u64 {
        self.visited
    }
}

#[cfg(test)]
mod tests {
    use utipc_core::addr::{NodeAddr, Scope, ServiceRange};
    use utipc_core::names::NameTable;

    use super::*;

    #[test]
    fn positions_are_bounded_for_each_process() {
        let mut table = NameTable::new(NodeAddr(1), false);
        for n in 0..100 {
            let _ = table.bind(1, ServiceRange::new(100, n, n), Scope::Cluster).unwrap();
        }
        let all: Vec<ListPosition> = table.list(None).map(|(at, _)| at).collect();
        let position = |n: u32| all[n as usize];
        let mut positions = Positions::default();
        for n in 0..100 {
            positions.put(1, n, position(n as u32));
        }
        positions.put(2, 7, position(8));
        assert_eq!(positions.of[&1].len(), MAX_POSITIONS);
        assert_eq!(positions.get(1, 99), Some(position(99)));
        assert_eq!(positions.get(1, 1), None);
        positions.forget(1);
        assert_eq!(positions.get(1, 99), None);
        assert_eq!(positions.get(2, 7), Some(position(8)));
    }
}
