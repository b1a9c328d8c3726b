//! Work on lanes whose length processes control. It is done in steps of a bounded size, and goes on where the last
//! step ended; the caller decides how many steps it does at a time.

use utipc_attach::{LaneId, PairId};
use utipc_core::socket::SocketOption;

use super::count::Counting;
use super::end::Ending;
use super::{Context, EndCause, Lanes, ProcessId};

/// Number of records that one step reads, including empty ones; beginning a lane counts as [`LANE_RECORDS`].
pub(super) const STEP_RECORDS: u32 = 64;
/// See [`STEP_RECORDS`].
pub(super) const LANE_RECORDS: u32 = 4;
/// Bytes of the records that one step reads; the last one may exceed them.
pub(super) const STEP_BYTES: usize = 64 << 10;
/// Number of lanes, or pairs of processes, that one step begins, stops or frees.
pub(super) const STEP_LANES: usize = 16;

/// Work in progress; see [`Lanes::step`].
#[derive(Debug)]
pub struct Work(pub(super) Task);

#[derive(Debug)]
pub(super) enum Task {
    /// The lanes of a socket end.
    End(Box<Ending>),
    /// Lanes that ended because the socket was shared come back; this was the last so far.
    Lend { port: u32, holder: ProcessId, last: Option<(u32, u32)> },
    /// The pairs of a process that is gone, up to this one.
    ForgetPairs { process: ProcessId, last: Option<PairId> },
    /// The same: lanes that it wrote.
    ForgetLanes { process: ProcessId, last: Option<LaneId> },
    /// Counts what waits in unopened lanes.
    Count(Box<Counting>),
    /// Carries out what a process has written for its socket, up to this position of the lane.
    Carry { port: u32, until: Option<u64> },
}

impl Work {
    /// Ends the lanes of a socket. Whatever the reason, the daemon reads out what their readers will not read.
    #[must_use]
    pub fn end(port: u32, cause: EndCause) -> Self {
        Self(Task::End(Box::new(Ending::new(port, cause, false))))
    }

    /// Ends the lanes of a socket that several processes hold; they come back when one process holds it again.
    #[must_use]
    pub fn share(port: u32) -> Self {
        Self(Task::End(Box::new(Ending::new(port, EndCause::Hosted(None), true))))
    }

    /// The process `holder` alone holds the socket again: its lanes come back.
    #[must_use]
    pub fn lend(port: u32, holder: ProcessId) -> Self {
        Self(Task::Lend { port, holder, last: None })
    }

    /// Drops the pairs of a process that is gone, and ends the writing side of its lanes: it may have closed sockets
    /// without confirming yet that it no longer writes their lanes. A pair whose lanes are unread stays until they are
    /// read.
    #[must_use]
    pub fn forget(process: ProcessId) -> Self {
        Self(Task::ForgetPairs { process, last: None })
    }

    /// Counts the messages, or their bytes, in unopened lanes of a socket, for an option that counts what waits. Spec:
    /// tipc.md §8.9.
    #[must_use]
    pub fn count(port: u32, option: SocketOption) -> Self {
        Self(Task::Count(Box::new(Counting::new(port, option))))
    }

    /// Carries out what the process has written for a socket before this call. What it writes during that time waits
    /// for the next turn: it may write faster than the daemon reads.
    #[must_use]
    pub fn carry(port: u32) -> Self {
        Self(Task::Carry { port, until: None })
    }

    /// The result of [`Work::count`] once it is done.
    #[must_use]
    pub fn counted(&self) -> u32 {
        match &self.0 {
            Task::Count(counting) => counting.result(),
            _ => 0,
        }
    }

    /// See [`Lanes::step`].
    pub(super) fn step(&mut self, lanes: &mut Lanes, context: &mut Context<'_>) -> bool {
        match &mut self.0 {
            Task::End(ending) => lanes.step_end(context, ending),
            Task::Lend { port, holder, last } => lanes.step_lend(context, *port, *holder, last),
            Task::ForgetPairs { process, last } => {
                if lanes.step_drop_pairs(context, *process, last) {
                    return true;
                }
                self.0 = Task::ForgetLanes { process: *process, last: None };
                true
            }
            Task::ForgetLanes { process, last } => lanes.step_forget(context, *process, last),
            Task::Count(counting) => {
                let socket = lanes.sockets.get(&counting.port());
                counting.step(socket, &lanes.lanes, &lanes.pairs)
            }
            Task::Carry { port, until } => lanes.step_carry(context, *port, until),
        }
    }
}
