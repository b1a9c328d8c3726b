//! The daemon's part of the data path: lanes between sockets of processes, and between processes and the node.
//!
//! [`Lanes`] owns the arenas, the lanes in them and what waits for them. It touches nothing else of the daemon: what a
//! call needs comes as a [`Context`], and actions outside (notices, descriptors, log) leave as [`Effect`]s.
//!
//! | Question | File |
//! |---|---|
//! | Which sockets get a lane, and when may the reader use it? | `open.rs` |
//! | Which lanes are there, and between which sockets? | `table.rs`; their states: `state.rs` |
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
mod state;
mod table;
mod taps;
#[cfg(test)]
mod tests;
mod traffic;
mod unopened;
mod unsent;
mod work;

use std::time::Duration;

use utipc_attach::{LaneEnd, LaneId, Notice, PairId};
use utipc_core::Time;
use utipc_core::quota::UserId;
use utipc_core::stack::Stack;
use utipc_core::waiting::Waiters;
use utipc_os::disposal::Large;
use utipc_os::reactor::{Event as Ready, Reactor, Waker};

pub use crate::Tapped;
pub use end::EndCause;
pub use node_lanes::is_datagram;
pub use unsent::SocketEnd;
pub use work::Work;

use awake::Awake;
use node_lanes::{Inbound, Outbound};
use pairs::Pairs;
use table::{Lane, Table};
use taps::Taps;
use unopened::Unopened;
use unsent::UnsentMessages;
use utipc_os::many::{Index, Many};
use work::STEP_LANES;

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
    /// Leaves a job to the turn of a socket's user.
    fn later(&mut self, port: u32, job: Job) {
        self.effects.push(Effect::Run(self.stack.user_of(port), job));
    }

    fn warn(&mut self, text: String) {
        self.effects.push(Effect::Warn(text));
    }
}

/// A bounded step of work on lanes; see [`Lanes::run`].
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Read the lane that this socket writes to the node.
    CarryOut(u32),
    /// Write to the lane by which this socket receives from the node.
    Fill(u32),
    /// Continue with the lanes that this pair's process has used.
    Serve(PairId),
    /// Open more lanes to this socket.
    Open(u32),
    /// Continue with unsent messages of this socket.
    Resend(u32),
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
    /// Call [`Lanes::run`] with this job, in the turn of this user; `None` is the daemon's own.
    Run(Option<UserId>, Job),
    /// Log a warning.
    Warn(String),
    /// Drop this memory, written by processes, on another thread: if the daemon has the last mapping, the system frees
    /// all of it.
    Free(Large),
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
    /// Lanes, by the ports of writer and reader, that ended because the socket was shared: they come back when one
    /// process holds it again.
    suspended: Many<(u32, u32), ()>,
}

/// All lanes of the daemon; see the module.
#[derive(Debug)]
pub struct Lanes {
    pairs: Pairs,
    lanes: Table,
    processes: Index<ProcessId, ProcessLanes>,
    sockets: Index<u32, SocketLanes>,
    /// Sockets whose node lanes were read out in this turn, and writers of lanes that were.
    finished: Vec<u32>,
    /// Node lanes that processes write, by the port of the socket.
    outbound: Index<u32, Outbound>,
    /// Node lanes that processes read.
    inbound: Index<u32, Inbound>,
    unsent: UnsentMessages,
    /// Programs that poll until a full lane has room: if the reader frees none in time, the daemon ends the wait, and
    /// the next send finds that the receiver does not read. Decision 22.
    room_waits: Waiters<u32, Time>,
    awake: Awake,
    taps: Taps,
    /// Times that the memory of a lane was malformed.
    corrupt: u64,
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
    (|lanes| lanes.unsent.deadline(), |lanes, context| lanes.unsent.expire(context)),
    (|lanes| lanes.room_waits.deadline(), Lanes::expire_room_waits),
];

impl Lanes {
    /// No lanes. The reactor's tokens of pairs are `token` plus the number of the pair.
    #[must_use]
    pub fn new(token: u64) -> Self {
        Self {
            pairs: Pairs::new(token),
            lanes: Table::default(),
            processes: Index::default(),
            sockets: Index::default(),
            finished: Vec::new(),
            outbound: Index::default(),
            inbound: Index::default(),
            unsent: UnsentMessages::default(),
            room_waits: Waiters::default(),
            awake: Awake::default(),
            taps: Taps::default(),
            corrupt: 0,
        }
    }

    /// Gives back memory of one of the [`PARTS`](utipc_os::many::PARTS) of tables that many entries have left.
    pub fn shrink(&mut self, part: usize) {
        self.pairs.shrink(part);
        self.processes.shrink(part);
        self.sockets.shrink(part);
        self.lanes.shrink(part);
        self.outbound.shrink(part);
        self.inbound.shrink(part);
        self.unsent.shrink(part);
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
        self.room_waits.leave(port);
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

    /// Makes the descriptor of a socket writable in `millis`, although a lane is full; replaces an earlier time.
    pub fn await_room(&mut self, now: Time, port: u32, millis: u8) {
        if self.sockets.contains(&port) {
            self.room_waits.set(port, now.plus_millis(millis.into()));
        }
    }

    /// Ends waits for room whose time is over: some now, the others by the next call.
    fn expire_room_waits(&mut self, context: &mut Context<'_>) {
        for _ in 0..STEP_LANES {
            let Some(port) = self.room_waits.pop_up_to(context.now) else { return };
            context.effects.push(Effect::Writable(port));
        }
    }

    /// Wakes all processes that sleep until the node takes more, some now and the others in later turns.
    pub fn ring_all(&mut self) {
        self.awake.ring_all(&self.pairs);
    }

    /// Continues [`Self::ring_all`].
    pub fn step_ring(&mut self) {
        self.awake.step_ring(&self.pairs);
    }

    /// Whether there is more for [`Self::step_ring`] to do.
    pub fn is_ringing(&self) -> bool {
        self.awake.is_ringing()
    }

    /// Waits until something has happened, at most `pause`; as [`Reactor::wait`].
    pub fn wait(
        &mut self,
        reactor: &mut Reactor,
        pause: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> utipc_os::Result<bool> {
        self.awake.wait(&self.pairs, reactor, pause, ready)
    }

    /// Reports what was written into lanes since the last call, with the ports of writer and reader; 0 is the node.
    /// The first call begins the taps and reports nothing from existing lanes.
    pub fn read_taps(&mut self, report: &mut dyn FnMut([u32; 2], Tapped<'_>)) {
        self.taps.read(&self.lanes, &self.pairs, report);
    }

    /// Ends the taps.
    pub fn end_taps(&mut self) {
        self.taps = Taps::default();
    }

    /// Does one step: at most 64 records or 64 KiB, and 16 lanes. Returns whether there is more to do.
    pub fn step(&mut self, context: &mut Context<'_>, work: &mut Work) -> bool {
        work.step(self, context)
    }

    /// Whether messages of a socket that have left their lane are unsent.
    pub fn has_unsent(&self, port: u32) -> bool {
        self.unsent.contains(port) || self.sockets.get(&port).is_some_and(|socket| socket.reads_out)
    }

    /// Whether a message that the process sends by a request would overtake earlier ones.
    pub fn holds_back(&self, port: u32) -> bool {
        self.outbound.contains(&port) || self.has_unsent(port)
    }

    /// Whether the process has ended the socket while messages that it has sent before are unsent.
    pub fn is_ending(&self, port: u32) -> bool {
        self.unsent.is_ending(port)
    }

    /// Does a job.
    pub fn run(&mut self, context: &mut Context<'_>, job: Job) {
        match job {
            Job::CarryOut(port) => self.carry_listed(context, port),
            Job::Fill(port) => self.fill(context, port),
            Job::Serve(pair) => self.serve_behind(context, pair),
            Job::Open(port) => self.open_more(context, port),
            Job::Resend(port) => self.unsent.resend(context, port),
        }
    }

    /// Ends a connection, or closes a socket: at once, or after its unsent messages.
    pub fn end_socket(&mut self, context: &mut Context<'_>, port: u32, end: SocketEnd) {
        self.unsent.end(context, port, end);
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

    /// Adds a lane, and counts it with the processes and sockets that use it.
    fn insert(&mut self, id: LaneId, lane: Lane) {
        if let Some(process) = self.processes.get_mut(&lane.writer) {
            process.written += 1;
        }
        if let Some(process) = self.processes.get_mut(&lane.reader) {
            process.read += 1;
        }
        for port in [lane.from, lane.to] {
            if let Some(socket) = self.sockets.get_mut(&port) {
                socket.lanes.insert(id, ());
            }
        }
        self.lanes.insert(id, lane);
    }

    /// The counterpart of [`Self::insert`], of a lane that neither side uses.
    fn take_free(&mut self, id: LaneId) -> Option<Lane> {
        let lane = self.lanes.take_free(id)?;
        if let Some(process) = self.processes.get_mut(&lane.writer) {
            process.written -= 1;
        }
        if let Some(process) = self.processes.get_mut(&lane.reader) {
            process.read -= 1;
        }
        for port in [lane.from, lane.to] {
            if let Some(socket) = self.sockets.get_mut(&port) {
                socket.lanes.remove(&id);
            }
        }
        Some(lane)
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
