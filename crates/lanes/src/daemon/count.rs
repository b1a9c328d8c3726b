//! Counting what waits in lanes that their reader does not know yet.

use utipc_attach::LaneId;
use utipc_core::limits::MESSAGE_OVERHEAD;
use utipc_core::socket::SocketOption;

use super::SocketLanes;
use super::pairs::{Pairs, side};
use super::table::Table;
use super::work::{LANE_RECORDS, STEP_RECORDS};
use crate::lane::Walk;

/// A count in progress; see [`super::Work::count`].
#[derive(Debug)]
pub(super) struct Counting {
    port: u32,
    option: SocketOption,
    /// The lane that was begun last.
    last: Option<(u64, LaneId)>,
    /// Index of the count in it.
    walk: Option<Walk>,
    messages: u32,
    bytes: u64,
}

impl Counting {
    pub(super) fn new(port: u32, option: SocketOption) -> Self {
        Self { port, option, last: None, walk: None, messages: 0, bytes: 0 }
    }

    pub(super) fn result(&self) -> u32 {
        let bytes = || self.bytes.saturating_add(u64::from(self.messages) * MESSAGE_OVERHEAD as u64);
        match self.option {
            SocketOption::ReceiveQueueDepth => self.messages,
            SocketOption::ReceiveQueueUsed => u32::try_from(bytes()).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// One step, for the lanes of its socket; whether there is more to do.
    pub(super) fn step(&mut self, socket: Option<&SocketLanes>, lanes: &Table, pairs: &Pairs) -> bool {
        let counts = matches!(self.option, SocketOption::ReceiveQueueDepth | SocketOption::ReceiveQueueUsed);
        let Some(socket) = socket.filter(|_| counts) else { return false };
        let mut visits = STEP_RECORDS;
        while visits > 0 {
            visits = visits.saturating_sub(LANE_RECORDS);
            let Some(at) = self.walk.map_or_else(|| socket.unopened.next_after(self.last), |_| self.last)
            else {
                return false;
            };
            self.last = Some(at);
            let id = at.1;
            // It may have been opened, or have ended, since the last step.
            let reader = lanes.get(&id).filter(|_| socket.unopened.contains(at)).and_then(|lane| {
                let arena = &pairs.get(id.pair)?.arena;
                arena.resume(side(id.writer), id.slot.into(), lane.class).ok()
            });
            let walk = self.walk.take();
            let Some(reader) = reader else { continue };
            let mut walk = walk.unwrap_or_else(|| reader.walk());
            while let Some(len) = reader.next_waiting(&mut walk, &mut visits) {
                self.messages = self.messages.saturating_add(1);
                self.bytes = self.bytes.saturating_add(len.into());
            }
            self.walk = Some(walk).filter(|walk| !walk.is_over());
        }
        true
    }
}
