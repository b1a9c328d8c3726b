//! Paths to other members that were lost, and whether messages of the view may be missing for it.

use std::collections::BTreeSet;

use crate::view::{MemberId, View};

/// What a member has lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Messages of the view are missing, because the path to a member was lost.
    broken: bool,
    /// Peers whose path was lost since the last ballot was promised.
    peers: BTreeSet<MemberId>,
    /// They are more than `peers` holds.
    many: bool,
}

impl Losses {
    /// Whether messages of the view are missing.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Messages of the view are missing; false if that was known.
    pub(super) fn set_broken(&mut self) -> bool {
        !std::mem::replace(&mut self.broken, true)
    }

    /// The path to a peer is lost.
    pub(super) fn note(&mut self, peer: MemberId, most: usize) {
        if self.peers.len() < most {
            self.peers.insert(peer);
        } else {
            self.many = true;
        }
    }

    /// A ballot is promised.
    pub(super) fn forget(&mut self) {
        self.peers.clear();
        self.many = false;
    }

    /// A view begins. A member that installed it earlier may have sent messages while the path to it was lost.
    pub(super) fn begin(&mut self, view: &View, me: MemberId, reaches: impl Fn(MemberId) -> bool) {
        let cut_off = |id: MemberId| self.peers.contains(&id) || !reaches(id);
        self.broken = self.many || view.members().any(|id| id != me && cut_off(id));
    }
}
