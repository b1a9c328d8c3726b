//! The lanes of a socket that its process may not read yet.

use utipc_attach::LaneId;

use utipc_os::many::Many;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unopened {
    /// In the order in which they are opened: by the number of messages to be received first, then by lane. The value
    /// is the port of the writer.
    lanes: Many<(u64, LaneId), u32>,
    /// How many of them a socket writes.
    by_writer: Many<u32, u32>,
}

impl Unopened {
    /// Adds a lane that the socket `from` writes, to be opened when `after` messages were received.
    pub(super) fn add(&mut self, after: u64, id: LaneId, from: u32) {
        self.lanes.insert((after, id), from);
        *self.by_writer.get_or_insert(from, || 0) += 1;
    }

    /// Removes a lane, if present.
    pub(super) fn remove(&mut self, at: (u64, LaneId)) {
        let Some(from) = self.lanes.remove(&at) else { return };
        if let Some(count) = self.by_writer.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.by_writer.remove(&from);
            }
        }
    }

    /// Whether one of them is written by the socket `from`.
    pub(super) fn has_one_of(&self, from: u32) -> bool {
        self.by_writer.contains(&from)
    }

    pub(super) fn contains(&self, at: (u64, LaneId)) -> bool {
        self.lanes.contains(&at)
    }

    /// The one that is opened first.
    pub(super) fn first(&self) -> Option<(u64, LaneId)> {
        self.lanes.first()
    }

    /// The one that is opened after `last`; the first one if that is `None`.
    pub(super) fn next_after(&self, last: Option<(u64, LaneId)>) -> Option<(u64, LaneId)> {
        self.lanes.next_after(last)
    }
}
