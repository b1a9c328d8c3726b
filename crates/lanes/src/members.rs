//! Lanes to the members of a socket's group, and their windows. Decision 50.

use utipc_core::addr::ServiceAddr;
use utipc_core::group::{ACTIVE_WINDOW, IDLE_WINDOW};
use utipc_core::wire::{MULTICAST_HEADER, blocks};

use crate::awaited::Awaited;
use crate::{LaneError, OutboundLane, Sender};

impl OutboundLane {
    /// Checks the window of a member: as at the node, it may get one message of any size before its first read.
    pub(crate) fn check_window(&mut self, bytes: usize) -> Result<(), LaneError> {
        let cost = blocks(MULTICAST_HEADER + bytes);
        if self.window_left() < cost {
            self.writer.refresh()?;
            if self.window_left() < cost {
                return Err(LaneError::WindowFull);
            }
        }
        Ok(())
    }

    /// Blocks that may still be sent to a member.
    pub(crate) fn window_left(&self) -> u32 {
        let window = if self.writer.given_back() > 0 { ACTIVE_WINDOW } else { IDLE_WINDOW };
        u32::from(window).saturating_sub(self.outstanding())
    }
}

impl Sender {
    /// The members of the group to which lanes lead, by port: port and address.
    #[must_use]
    pub fn members(&self) -> Vec<(u32, ServiceAddr)> {
        let mut members: Vec<_> =
            self.lanes.iter().filter_map(|(port, lane)| Some((*port, lane.member?))).collect();
        members.sort_unstable_by_key(|(port, _)| *port);
        members
    }

    /// Blocks in the lane to the local socket `to` that its reader has not given back.
    pub fn unread(&mut self, to: u32) -> u32 {
        self.lanes.get_mut(&to).map_or(u32::MAX, |lane| {
            // Sending finds a lane that has ended.
            let _ = lane.writer.refresh();
            lane.outstanding()
        })
    }

    /// Notes that the call waits, for as long as it may, for the reader of the full lane to a member.
    pub fn wait_for_member(&mut self, to: u32) {
        self.awaited = Awaited::Lane(to);
        self.window_waits += 1;
    }

    /// [`Sender::check_room`] for a message to a member of the socket's group, whose window limits it too.
    ///
    /// # Errors
    /// [`LaneError::WindowFull`]; as [`Sender::check_room`].
    pub fn check_member_room(&mut self, to: u32, bytes: usize) -> Result<(), LaneError> {
        self.lanes.get_mut(&to).ok_or(LaneError::NoLane)?.check_window(bytes)?;
        self.check_room(to, bytes)
    }
}
