//! The daemon's part of the data path: lanes between sockets of processes, and between processes and the node.
//!
//! [`Lanes`] owns the arenas, the lanes in them and what waits for them. It touches nothing else of the daemon: what a
//! call needs comes as a [`Context`], and actions outside (notices, descriptors, log) leave as [`Effect`]s.
//!
//! | Question | File |
//! |---|---|
//! | Which sockets get a lane, and when may the reader use it? | `open.rs` |
//! | Which states does a lane have? | `state.rs` |
//! | How does a lane end? | `end.rs`; one to or from the node: `node_end.rs` |
//! | How is long work divided into steps? | `work.rs`; collections that cannot be iterated: `os/many.rs` |
//! | When do messages between members of a group use lanes? | `groups.rs` |
//! | Which processes share memory? | `pairs.rs` |
//! | How do lanes between a process and the node begin and end? | `node_lanes.rs` |
//! | Which messages go through them in one turn? | `traffic.rs` |
//! | Which messages wait because a queue to another node is full? | `unsent.rs` |
//! | When does the daemon check lanes instead of sleeping? | `awake.rs` |
//! | How does a capture see messages in lanes? | `taps.rs` |

mod awake;
mod count;
mod end;
mod groups;
mod node_end;
mod node_lanes;
mod open;
mod pairs;
mod quotas;
mod room;
mod state;
mod taps;
#[cfg(test)]
mod tests;
mod traffic;
mod unopened;
mod unsent;
mod work;

use std::collections::VecDeque;

use utipc_attach::{LaneEnd, LaneId, Notice, PairId};
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_core::stack::Stack;
use utipc_os::disposal::Large;
use utipc_os::heap::shrink_queue;
use utipc_os::reactor::Waker;

pub use crate::Tapped;
pub use end::EndCause;
pub use node_lanes::is_datagram;
pub use unsent::SocketEnd;
pub use work::Work;

use awake::Awake;
use groups::Members;
use node_lanes::{Inbound, Outbound};
use pairs::Pairs;
use quotas::Charge;
use state::LaneState;
use taps::Taps;
use unopened::Unopened;
use unsent::Messages;
use utipc_os::many::{Index, Many};

/// Number of a process at the daemon; not 0.
pub type ProcessId = u32;

/// Lanes of a socket that are forgotten at once.
const DROPPED_MAX: usize = 256;

/// Maximum number of lanes of a socket whose bytes are shown.
const SHOWN_LANES: usize = 64;

/// The daemon as one side of a pair; no process has this number.
const DAEMON: ProcessId = 0;

/// Watches the event descriptors by which processes wake the daemon.
pub trait Watch: std::fmt::Debug {
    /// Reports `token` when the process uses the waker; returns the user for whom it is watched, `None` if that is
    /// impossible.
    fn watch(&mut self, process: ProcessId, waker: &Waker, token: u64) -> Option<UserId>;

    /// Watches it no longer.
    fn unwatch(&mut self, user: UserId, waker: &Waker);
}

/// State outside the lanes that a call may use.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Time,
    /// The node.
    pub stack: &'a mut Stack,
    /// Watches what processes write for the node.
    pub watch: &'a mut dyn Watch,
    /// Where actions outside of the lanes go.
    pub effects: &'a mut Vec<Effect>,
}

impl Context<'_> {
    fn warn(&mut self, text: String) {
        self.effects.push(Effect::Warn(text));
    }
}

/// An action outside of the lanes; the caller executes them in order.
#[derive(Debug)]
pub enum Effect {
    /// Queue a notice for a process.
    Notify {
        /// The process.
        to: ProcessId,
        /// The notice.
        notice: Notice,
        /// The socket and its end of the lane, if its descriptor, where it has one, reports the notice.
        descriptor: Option<(u32, LaneEnd)>,
    },
    /// Make the descriptor of this socket readable.
    Readable(u32),
    /// Make it writable.
    Writable(u32),
    /// Call [`Lanes::carry_listed`] for the lane that this socket writes to the node: in its user's turn.
    CarryOut(u32),
    /// Call [`Lanes::fill`] for the lane by which this socket receives from the node: in its user's turn.
    Fill(u32),
    /// Call [`Lanes::serve_behind`] for this pair, in the user's turn.
    Serve(UserId, PairId),
    /// Call [`Lanes::open_more`] for this socket, in its user's turn.
    Open(u32),
    /// Call [`Lanes::resend`] for this socket, in its user's turn.
    Resend(u32),
    /// Log a warning.
    Warn(String),
    /// Drop this memory, written by processes, on another thread: if the daemon has the last mapping, the system frees
    /// all of it.
    Free(Large),
}

/// One lane.
#[derive(Debug)]
struct Lane {
    /// Ports of the sockets; 0 for the node.
    from: u32,
    to: u32,
    writer: ProcessId,
    reader: ProcessId,
    state: LaneState,
    /// It stays unopened until its reader has received this many messages.
    opens_after: Option<u64>,
    /// The number of its last read-out: an earlier one gives up. 0: there was none.
    read_out: u64,
    /// The class of the largest ring that the writer was granted. The daemon does not read a larger one.
    class: u8,
    /// Bytes of rings beyond the first that the writer was granted at the cost of the receiver's buffer.
    granted: u64,
    charge: Charge,
    /// Between members of a group.
    group: Option<Members>,
}

impl Lane {
    /// The notice of the lane to the process at one end.
    fn notice(&self, id: LaneId, end: LaneEnd) -> Notice {
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
}

/// A process that may use lanes.
#[derive(Debug)]
struct ProcessLanes {
    /// Its new sockets use lanes.
    takes_lanes: bool,
    /// Lanes that its sockets write, and read.
    written: usize,
    read: usize,
}

/// The lanes of one socket.
#[derive(Debug, Default)]
struct SocketLanes {
    /// The one process that holds the socket and may use lanes for it.
    user: Option<ProcessId>,
    /// The process polls a descriptor in place of the socket.
    polled: bool,
    /// Lanes that it writes or reads, until they are free.
    lanes: Many<LaneId, ()>,
    /// Lanes to other members of its group that it writes; at most as many as a group with lanes has members.
    group_lanes: Many<LaneId, ()>,
    /// Lanes that its process may not read yet.
    unopened: Unopened,
    /// More lanes are opened in the next turn.
    is_opening: bool,
    /// Its lanes to and from the node are read out: requests of its process wait.
    reads_out: bool,
    /// Bytes of rings that the writers to this socket were granted.
    granted: u64,
    /// When its descriptor becomes writable again, although a lane is full.
    awaits_room_until: Option<Time>,
    /// Lanes, by the ports of writer and reader, that ended because the socket was shared: they come back when one
    /// process holds it again.
    suspended: Many<(u32, u32), ()>,
}

/// All lanes of the daemon; see the module.
#[derive(Debug)]
pub struct Lanes {
    pairs: Pairs,
    lanes: Many<LaneId, Lane>,
    /// Lanes by the process that writes them.
    writers: Many<(ProcessId, LaneId), ()>,
    processes: Index<ProcessId, ProcessLanes>,
    sockets: Index<u32, SocketLanes>,
    /// The lanes in use, by the ports of writer and reader.
    between: Index<(u32, u32), LaneId>,
    /// By the ports of writer and reader: lanes whose writer has stopped and whose reader has not read everything.
    draining: Index<(u32, u32), usize>,
    /// Lanes that were drained in this turn.
    drained: Vec<(u32, u32)>,
    /// Sockets whose node lanes were read out in this turn, and writers of lanes that were.
    finished: Vec<u32>,
    /// Lanes that were read out.
    read_outs: u64,
    /// Node lanes that processes write, by the port of the socket.
    outbound: Index<u32, Outbound>,
    /// Node lanes that processes read.
    inbound: Index<u32, Inbound>,
    /// The process that was woken last, of those that sleep until the node takes more.
    ringing: Option<ProcessId>,
    unsent: Index<u32, Messages>,
    /// Times at which unsent messages of ended sockets are dropped, and the sockets; oldest first.
    lingering: VecDeque<(Time, u32)>,
    /// Sockets with a time in `awaits_room_until`, in the order of these times.
    room_waits: Many<(Time, u32), ()>,
    awake: Awake,
    taps: Taps,
    /// Times that the memory of a lane was malformed.
    corrupt: u64,
    /// The reactor's token of a pair is this number plus the pair's.
    token: u64,
}

/// Numbers for the daemon's counters.
#[derive(Clone, Copy, Debug)]
pub struct LaneCounts {
    /// Lanes.
    pub lanes: usize,
    /// Pairs of processes that share memory.
    pub pairs: usize,
    /// Times that the memory of a lane was malformed.
    pub corrupt: u64,
}

/// When a timer is due, and what does what is due then.
type Timer = (fn(&Lanes) -> Time, fn(&mut Lanes, &mut Context<'_>));

const TIMERS: [Timer; 3] = [
    (|lanes| lanes.pairs.deadline().unwrap_or(Time::NEVER), Lanes::expire_pairs),
    (|lanes| lanes.lingering.front().map_or(Time::NEVER, |(until, _)| *until), Lanes::expire_unsent),
    (|lanes| lanes.room_waits.first().map_or(Time::NEVER, |(until, _)| until), Lanes::expire_room_waits),
];

impl Lanes {
    /// No lanes. The reactor's tokens of pairs are `token` plus the number of the pair.
    #[must_use]
    pub fn new(token: u64) -> Self {
        Self {
            pairs: Pairs::default(),
            lanes: Many::default(),
            writers: Many::default(),
            processes: Index::default(),
            sockets: Index::default(),
            between: Index::default(),
            draining: Index::default(),
            drained: Vec::new(),
            finished: Vec::new(),
            read_outs: 0,
            outbound: Index::default(),
            inbound: Index::default(),
            ringing: None,
            unsent: Index::default(),
            lingering: VecDeque::new(),
            room_waits: Many::default(),
            awake: Awake::default(),
            taps: Taps::default(),
            corrupt: 0,
            token,
        }
    }

    /// Gives back memory of one of the [`PARTS`](utipc_os::many::PARTS) of tables that many entries have left.
    pub fn shrink(&mut self, part: usize) {
        self.pairs.shrink(part);
        self.processes.shrink(part);
        self.sockets.shrink(part);
        self.between.shrink(part);
        self.draining.shrink(part);
        self.outbound.shrink(part);
        self.inbound.shrink(part);
        self.unsent.shrink(part);
        shrink_queue(&mut self.lingering);
    }

    /// Counts lanes, pairs and faults.
    #[must_use]
    pub fn counts(&self) -> LaneCounts {
        LaneCounts { lanes: self.lanes.len(), pairs: self.pairs.len(), corrupt: self.corrupt }
    }

    /// Time when [`Self::handle_timeout`] has something to do.
    pub fn deadline(&self) -> Time {
        TIMERS.iter().map(|(due, _)| due(self)).min().unwrap_or(Time::NEVER)
    }

    /// Does what is due by now, a bounded part of it in each call.
    pub fn handle_timeout(&mut self, context: &mut Context<'_>) {
        for (_, handle) in TIMERS {
            handle(self, context);
        }
    }

    /// Adds a process that has attached.
    pub fn add_process(&mut self, id: ProcessId, takes_lanes: bool) {
        self.processes.insert(id, ProcessLanes { takes_lanes, written: 0, read: 0 });
    }

    /// Removes a process that is gone; its lanes end with its sockets.
    pub fn remove_process(&mut self, id: ProcessId) {
        self.processes.remove(&id);
    }

    /// Adds a socket that this process alone holds.
    pub fn add_socket(&mut self, port: u32, holder: ProcessId) {
        let user = self.processes.get(&holder).filter(|process| process.takes_lanes).map(|_| holder);
        self.sockets.insert(port, SocketLanes { user, ..SocketLanes::default() });
    }

    /// Removes a socket whose lanes have ended. Drop the result on another thread: peers that have not confirmed the
    /// end of their lanes make it large.
    #[must_use = "dropping it takes long"]
    pub fn remove_socket(&mut self, port: u32) -> Option<Large> {
        self.forget_room_wait(port);
        self.sockets.remove(&port).filter(|socket| socket.lanes.len() > DROPPED_MAX).map(Large::new)
    }

    /// The process polls a descriptor in place of the socket from now on, or no longer.
    pub fn set_polled(&mut self, port: u32, polled: bool) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.polled = polled;
        }
    }

    /// Sockets whose lanes were read out in this turn or have ended: something may have changed for their processes.
    pub fn take_finished(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.finished)
    }

    /// Whether a socket has lanes that its process may not read yet.
    pub fn has_unopened(&self, port: u32) -> bool {
        self.sockets.get(&port).is_some_and(|socket| socket.unopened.first().is_some())
    }

    /// Whether a process has written something for a socket that the daemon has not read.
    pub fn has_written(&self, port: u32) -> bool {
        self.outbound.get(&port).is_some_and(|outbound| outbound.reader.has_waiting())
    }

    /// Lanes of a socket.
    pub fn count_of(&self, port: u32) -> usize {
        self.sockets.get(&port).map_or(0, |socket| socket.lanes.len())
    }

    /// Bytes that the open lanes of a socket have carried and that were read: written by it, and read
    /// by it. Only its first 64 lanes count: a reply shows many sockets.
    #[must_use]
    pub fn bytes_of(&self, port: u32) -> [u64; 2] {
        let mut bytes = [0; 2];
        let lanes = self.sockets.get(&port).map_or_else(Vec::new, |s| s.lanes.some_after(None, SHOWN_LANES));
        for id in &lanes {
            let (Some(lane), Some(pair)) = (self.lanes.get(id), self.pairs.get(id.pair)) else { continue };
            let carried = pair.arena.carried(pairs::side(id.writer), id.slot.into());
            if lane.from == port {
                bytes[0] += carried;
            }
            if lane.to == port {
                bytes[1] += carried;
            }
        }
        bytes
    }

    /// Whether data of a socket may go by lanes: one process holds it.
    pub fn is_direct(&self, port: u32) -> bool {
        self.user(port).is_some()
    }

    /// Whether a process takes lanes.
    pub fn takes_lanes(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.takes_lanes)
    }

    /// The process that may use lanes for a socket.
    fn user(&self, port: u32) -> Option<ProcessId> {
        self.sockets.get(&port).and_then(|socket| socket.user)
    }

    /// Counts a new lane with the processes that use it; the daemon counts none.
    fn charge(&mut self, id: LaneId, writer: ProcessId, reader: ProcessId) {
        if writer != DAEMON {
            self.writers.insert((writer, id), ());
        }
        if let Some(process) = self.processes.get_mut(&writer) {
            process.written += 1;
        }
        if let Some(process) = self.processes.get_mut(&reader) {
            process.read += 1;
        }
    }

    /// The counterpart of [`Self::charge`].
    fn discharge(&mut self, writer: ProcessId, reader: ProcessId) {
        if let Some(process) = self.processes.get_mut(&writer) {
            process.written -= 1;
        }
        if let Some(process) = self.processes.get_mut(&reader) {
            process.read -= 1;
        }
    }

    /// Notifies a process about a lane or a pair.
    fn notify(&self, context: &mut Context<'_>, to: ProcessId, notice: Notice) {
        let descriptor = match notice {
            // The writer reports the first message; before that, there is nothing to read.
            Notice::Lane { lane, end: LaneEnd::Reader, .. }
            | Notice::GroupLane { lane, end: LaneEnd::Reader, .. }
            | Notice::NodeLane { lane, end: LaneEnd::Reader, .. }
            | Notice::LaneOver { lane, end: LaneEnd::Reader, .. }
                if self.is_armed(lane) =>
            {
                None
            }
            Notice::Lane { port, end, .. }
            | Notice::GroupLane { port, end, .. }
            | Notice::NodeLane { port, end, .. }
            | Notice::LaneOver { port, end, .. } => Some((port, end)),
            _ => None,
        };
        context.effects.push(Effect::Notify { to, notice, descriptor });
    }
}
