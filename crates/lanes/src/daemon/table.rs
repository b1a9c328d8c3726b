//! The table of lanes: which exist, in which states, and between which sockets.

use utipc_attach::{LaneEnd, LaneId, Notice, PairId};
use utipc_os::many::{Index, Many};

use super::groups::Members;
use super::quotas::Charge;
use super::state::{LaneEvent, LaneState};
use super::work::STEP_LANES;
use super::{DAEMON, ProcessId};

/// The last key before the lanes that a process writes.
fn before(process: ProcessId) -> (ProcessId, LaneId) {
    (process.saturating_sub(1), LaneId { pair: PairId(u32::MAX), writer: u8::MAX, slot: u16::MAX })
}

/// One lane.
#[derive(Debug)]
pub(super) struct Lane {
    /// Ports of the sockets; 0 for the node.
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) writer: ProcessId,
    pub(super) reader: ProcessId,
    pub(super) state: LaneState,
    /// It stays unopened until its reader has received this many messages.
    pub(super) opens_after: Option<u64>,
    /// The number of its last read-out: an earlier one gives up. 0: there was none.
    pub(super) read_out: u64,
    /// The class of the largest ring that the writer was granted. The daemon does not read a larger one.
    pub(super) class: u8,
    /// Bytes of rings beyond the first that the writer was granted at the cost of the receiver's buffer.
    pub(super) granted: u64,
    pub(super) charge: Charge,
    /// Between members of a group.
    pub(super) group: Option<Members>,
}

impl Lane {
    /// A lane with its smallest ring, from the socket of one process to that of another.
    pub(super) fn new(
        (from, writer): (u32, ProcessId),
        (to, reader): (u32, ProcessId),
        state: LaneState,
        charge: Charge,
    ) -> Self {
        let (opens_after, group) = (None, None);
        Self {
            from,
            to,
            writer,
            reader,
            state,
            opens_after,
            read_out: 0,
            class: 0,
            granted: 0,
            charge,
            group,
        }
    }

    /// The notice of the lane to the process at one end.
    pub(super) fn notice(&self, id: LaneId, end: LaneEnd) -> Notice {
        let (port, other) = match end {
            LaneEnd::Writer => (self.from, self.to),
            LaneEnd::Reader => (self.to, self.from),
        };
        match self.group {
            None => Notice::Lane { port, other, lane: id, end },
            Some(members) => {
                let member = if end == LaneEnd::Writer { members.reader } else { members.writer };
                Notice::GroupLane { port, other, lane: id, end, member }
            }
        }
    }

    /// Moves it to its next state.
    pub(super) fn advance(&mut self, event: LaneEvent) {
        self.state = self.state.next(event);
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct Table {
    lanes: Many<LaneId, Lane>,
    /// Lanes by the process that writes them; the daemon counts none.
    writers: Many<(ProcessId, LaneId), ()>,
    /// The lanes in use, by the ports of writer and reader.
    between: Index<(u32, u32), LaneId>,
    /// By the ports of writer and reader: lanes whose writer has stopped and whose reader has not read everything.
    draining: Index<(u32, u32), usize>,
    /// Lanes that were drained in this turn.
    drained: Vec<(u32, u32)>,
    /// Lanes that were read out.
    read_outs: u64,
}

impl Table {
    /// See [`super::Lanes::shrink`].
    pub(super) fn shrink(&mut self, part: usize) {
        self.between.shrink(part);
        self.draining.shrink(part);
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn get(&self, id: &LaneId) -> Option<&Lane> {
        self.lanes.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id)
    }

    /// The lane after this one; the first one if that is `None`.
    pub(super) fn next_after(&self, last: Option<LaneId>) -> Option<LaneId> {
        self.lanes.next_after(last)
    }

    pub(super) fn insert(&mut self, id: LaneId, lane: Lane) {
        if lane.writer != DAEMON {
            self.writers.insert((lane.writer, id), ());
        }
        if lane.from != 0 && lane.to != 0 {
            self.between.insert((lane.from, lane.to), id);
        }
        self.lanes.insert(id, lane);
    }

    /// Removes a lane that neither side uses.
    pub(super) fn take_free(&mut self, id: LaneId) -> Option<Lane> {
        self.lanes.get(&id).filter(|lane| lane.state.is_free())?;
        let lane = self.lanes.remove(&id)?;
        self.writers.remove(&(lane.writer, id));
        Some(lane)
    }

    /// The lane in use between two sockets.
    pub(super) fn between(&self, from: u32, to: u32) -> Option<LaneId> {
        self.between.get(&(from, to)).copied()
    }

    /// Number of lanes in use between two sockets.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.between.len()
    }

    /// Whether a lane between two sockets is in use, or an older one is not drained.
    pub(super) fn is_taken(&self, from: u32, to: u32) -> bool {
        self.between.contains(&(from, to)) || self.draining.contains(&(from, to))
    }

    /// Whether a lane between two sockets is to be drained, or its drain is to be handled.
    pub(super) fn is_draining(&self, from: u32, to: u32) -> bool {
        self.draining.contains(&(from, to))
    }

    /// Whether a lane between two sockets has unread messages that come first.
    pub(super) fn drains(&self, from: u32, to: u32) -> bool {
        self.draining.get(&(from, to)).is_some_and(|lanes| *lanes > 0)
    }

    /// Whether any lane is to be drained.
    pub(super) fn has_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Lanes, by the ports of writer and reader, that were drained in this turn.
    pub(super) fn take_drained(&mut self) -> Vec<(u32, u32)> {
        let mut drained = std::mem::take(&mut self.drained);
        drained.retain(|ports| self.draining.get(ports) == Some(&0) && self.draining.remove(ports).is_some());
        drained
    }

    /// Moves a lane to its next state.
    pub(super) fn advance(&mut self, id: LaneId, event: LaneEvent) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.advance(event);
        }
    }

    /// The writer of a lane stops; `must_drain`: later messages to the reader wait until the lane is drained.
    pub(super) fn stop(&mut self, id: LaneId, must_drain: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let was_draining = lane.state.is_draining();
        lane.advance(if must_drain { LaneEvent::Stop } else { LaneEvent::Abandon });
        if !was_draining && lane.state.is_draining() {
            *self.draining.get_or_insert((lane.from, lane.to), || 0) += 1;
        }
    }

    /// The reader of a lane is done, which may complete a drain. Returns when the lane was to be opened, if it is
    /// unopened.
    pub(super) fn finish_reader(&mut self, id: LaneId) -> Option<u64> {
        let lane = self.lanes.get_mut(&id)?;
        let was_draining = lane.state.is_draining();
        lane.advance(LaneEvent::ReaderDone);
        let ports = (lane.from, lane.to);
        if was_draining && let Some(left) = self.draining.get_mut(&ports) {
            *left -= 1;
            if *left == 0 {
                self.drained.push(ports);
            }
        }
        lane.opens_after.take()
    }

    /// A lane is no longer in use; false if another one is between its sockets, or none.
    pub(super) fn retire(&mut self, id: LaneId, from: u32, to: u32) -> bool {
        self.between(from, to) == Some(id) && self.between.remove(&(from, to)).is_some()
    }

    /// The number of a new read-out of a lane.
    pub(super) fn begin_read_out(&mut self, id: LaneId) -> u64 {
        self.read_outs += 1;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.read_out = self.read_outs;
        }
        self.read_outs
    }

    /// Some lanes that a process writes, those behind `last`.
    pub(super) fn written_by(&self, process: ProcessId, last: Option<LaneId>) -> Vec<LaneId> {
        let last = last.map_or(before(process), |last| (process, last));
        let keys = self.writers.some_after(Some(last), STEP_LANES);
        keys.into_iter().take_while(|(writer, _)| *writer == process).map(|(_, id)| id).collect()
    }
}
