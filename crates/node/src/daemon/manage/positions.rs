//! Where the lists of processes continue, as far as a position does not fit the number that a request carries.

use std::collections::{BTreeMap, VecDeque};

use utipc_core::BearerId;
use utipc_core::addr::NodeAddr;
use utipc_core::names::ListPosition;

use crate::daemon::attachments::AttachmentId;

/// Positions that are kept for one process. Ours: more threads of a process seldom fetch lists at the same time; the
/// oldest list has to begin again.
const MAX_POSITIONS: usize = 16;

/// The page that begins at a position, as the request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Page {
    /// Bindings in the form of the family; the number of a part.
    Names(u64),
    /// Bindings, after this many.
    Bindings(u32),
    /// Neighbours, after this many.
    Peers(u32),
    /// Links, after this many.
    Links(u32),
}

/// A key in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Position {
    /// Behind this binding.
    Binding(ListPosition),
    /// From this node on.
    Peer(NodeAddr),
    /// From this link on.
    Link(NodeAddr, BearerId),
}

/// The positions of all processes.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Positions {
    of: BTreeMap<AttachmentId, VecDeque<(Page, Position)>>,
    last_number: u64,
    /// List entries visited for all requests.
    visited: u64,
}

impl Positions {
    /// A number for [`Page::Names`], above all earlier ones.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Keeps the position at which a page begins.
    pub(in crate::daemon) fn put(&mut self, id: AttachmentId, page: Page, position: Position) {
        let all = self.of.entry(id).or_default();
        all.retain(|(other, _)| *other != page);
        if all.len() == MAX_POSITIONS {
            all.pop_front();
        }
        all.push_back((page, position));
    }

    /// The position at which a page begins; `None` if it was not kept.
    pub(in crate::daemon) fn get(&self, id: AttachmentId, page: Page) -> Option<Position> {
        let all = self.of.get(&id)?;
        all.iter().find(|(other, _)| *other == page).map(|(_, position)| *position)
    }

    /// Forgets a process that is gone.
    pub(in crate::daemon) fn forget(&mut self, id: AttachmentId) {
        self.of.remove(&id);
    }

    /// Counts visited entries.
    pub(in crate::daemon) fn note_visited(&mut self, entries: usize) {
        self.visited += entries as u64;
    }

    /// List entries visited so far.
    pub(in crate::daemon) fn visited(&self) -> u64 {
        self.visited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_bounded_for_each_process() {
        let mut positions = Positions::default();
        for n in 0..100 {
            positions.put(1, Page::Links(n), Position::Peer(NodeAddr(n)));
            positions.put(1, Page::Links(n), Position::Peer(NodeAddr(n + 1)));
        }
        positions.put(2, Page::Links(7), Position::Peer(NodeAddr(8)));
        assert_eq!(positions.of[&1].len(), MAX_POSITIONS);
        assert_eq!(positions.get(1, Page::Links(99)), Some(Position::Peer(NodeAddr(100))));
        assert_eq!(positions.get(1, Page::Links(1)), None);
        assert_eq!(positions.get(1, Page::Peers(99)), None);
        positions.forget(1);
        assert_eq!(positions.get(1, Page::Links(99)), None);
        assert_eq!(positions.get(2, Page::Links(7)), Some(Position::Peer(NodeAddr(8))));
    }
}
