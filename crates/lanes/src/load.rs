//! The load of receivers that lanes lead to, for the choice among those of an anycast. Decision 50.

use std::time::Instant;

use utipc_core::Load;

use crate::message::HEADER_MAX;
use crate::{LaneError, OutboundLane, Sender};

impl OutboundLane {
    /// The load of the reader, for a message of `bytes` without a connection.
    fn load(&mut self, bytes: usize) -> Load {
        match self.writer.check_room(bytes + HEADER_MAX) {
            Ok(()) => {
                if self.for_reader.is_waiting() {
                    self.end_wait(Instant::now());
                }
                self.unread_load()
            }
            // Sending finds a lane that has ended, or is damaged.
            Err(error) if error.is_over() || matches!(error, LaneError::Corrupt(_)) => Load::IDLE,
            // A larger ring may take it.
            Err(error) if self.wants_ring(error).is_some() => self.unread_load(),
            Err(LaneError::Full) if self.is_waited_for(Instant::now()) => Load::Full,
            Err(_) => Load::Silent,
        }
    }

    fn unread_load(&mut self) -> Load {
        if Load::of_blocks(self.outstanding()) != Load::IDLE {
            // The last observed load is never less than what is unread. The reader's line is loaded only if that
            // matters.
            let _ = self.writer.refresh();
        }
        Load::of_blocks(self.outstanding())
    }
}

impl Sender {
    /// The load of the local socket `to` as this sender sees it; `None` if no lane leads to it.
    pub fn load(&mut self, to: u32, bytes: usize) -> Option<Load> {
        self.lanes.get_mut(&to).map(|lane| lane.load(bytes))
    }
}
