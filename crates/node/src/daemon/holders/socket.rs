//! One socket of a process: its holders, and the readiness that was reported to them.

use utipc_core::socket::Readiness;

use super::Holder;
use crate::daemon::attachments::AttachmentId;

/// A holder other than the owner.
#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) holder: Holder,
    /// Whether a notice about the socket waits for it.
    pub(super) noted: bool,
}

impl Sharer {
    pub(super) fn new(holder: Holder) -> Self {
        Self { holder, noted: false }
    }

    /// The process, unless it is an inheritance.
    pub(super) fn process(&self) -> Option<AttachmentId> {
        match self.holder {
            Holder::Process(id) => Some(id),
            Holder::Inheritance(_) => None,
        }
    }
}

/// A socket of the node that processes hold.
#[derive(Debug)]
pub(super) struct Socket {
    /// `None` if only inheritances hold it, or nothing.
    pub(super) owner: Option<AttachmentId>,
    /// The other holders. If it has holders, requests carry the socket's data instead of lanes.
    pub(super) sharers: Vec<Sharer>,
    /// Its readiness at the last notice to, or the last request of, its process.
    pub(super) seen: Readiness,
    /// A notice about it waits for the owner.
    pub(super) noted: bool,
    /// A process waits for more than is there: each further change causes a notice.
    pub(super) watched: bool,
    pub(super) bindings: usize,
    /// Applications poll a descriptor in its place.
    pub(super) has_descriptor: bool,
}

impl Socket {
    pub(super) fn new(owner: AttachmentId, seen: Readiness) -> Self {
        Self {
            owner: Some(owner),
            sharers: Vec::new(),
            seen,
            noted: false,
            watched: false,
            bindings: 0,
            has_descriptor: false,
        }
    }

    /// Whether this process holds it.
    pub(super) fn is_held_by(&self, id: AttachmentId) -> bool {
        self.owner == Some(id) || self.sharers.iter().any(|sharer| sharer.process() == Some(id))
    }

    /// Removes the next owner from the sharers, and its mark that a notice waits.
    pub(super) fn take_successor(&mut self) -> Option<(AttachmentId, bool)> {
        let at = self.sharers.iter().position(|sharer| sharer.process().is_some())?;
        let successor = self.sharers.remove(at);
        successor.process().map(|id| (id, successor.noted))
    }

    /// Clears the mark that a notice about it waits for this process; returns whether it was set.
    pub(super) fn take_noted(&mut self, id: AttachmentId) -> bool {
        if self.owner == Some(id) {
            return std::mem::take(&mut self.noted);
        }
        let sharer = self.sharers.iter_mut().find(|sharer| sharer.process() == Some(id));
        sharer.is_some_and(|sharer| std::mem::take(&mut sharer.noted))
    }

    /// The processes that hold it, the owner first, each with its mark that a notice waits.
    pub(super) fn processes_mut(&mut self) -> impl Iterator<Item = (AttachmentId, &mut bool)> {
        let owner = self.owner.map(|id| (id, &mut self.noted));
        let sharers = self.sharers.iter_mut();
        owner.into_iter().chain(sharers.filter_map(|sharer| Some((sharer.process()?, &mut sharer.noted))))
    }
}

/// True if `new` has a condition that `old` did not have: a process may wait for it.
pub(super) fn has_grown(old: Readiness, new: Readiness) -> bool {
    new.readable && !old.readable
        || new.writable && !old.writable
        || new.read_closed && !old.read_closed
        || new.hung_up && !old.hung_up
}
