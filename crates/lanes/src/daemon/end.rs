//! The end of lanes. Whatever the reason, the daemon drains messages that the reader will never read (decision 8).

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, PairId, Reply};
use utipc_os::disposal::Large;

use super::groups::Members;
use super::node_end::NodeEnding;
use super::pairs::{Pair, side};
use super::state::LaneEvent;
use super::table::Lane;
use super::work::{LANE_RECORDS, STEP_BYTES, STEP_LANES, STEP_RECORDS};
use super::{Context, DAEMON, Effect, Lanes, ProcessId};
use crate::{Kind, Recovered, Step};

/// Maximum number of pairs without lanes that one call drops.
const EXPIRED_MAX: usize = STEP_LANES;

/// Reason why a process no longer uses the lanes of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// It closed the socket.
    Closed,
    /// It shut the connection down.
    Shutdown,
    /// The socket is hosted from now on. The process has read this many bytes of the first unread message of a lane.
    Hosted(Option<(LaneId, u32)>),
    /// The process is gone.
    Dead,
}

impl EndCause {
    /// Messages to the socket come back from now on.
    pub(super) fn is_gone(self) -> bool {
        matches!(self, Self::Closed | Self::Dead)
    }

    /// Bytes that the process has read of the first unread message of a lane.
    pub(super) fn read_of(self, id: LaneId) -> usize {
        match self {
            Self::Hosted(Some((lane, read))) if lane == id => read as usize,
            _ => 0,
        }
    }
}

/// The end of the lanes of a socket, in progress.
#[derive(Debug)]
pub(super) struct Ending {
    port: u32,
    cause: EndCause,
    /// Its lanes come back when one process holds the socket again.
    is_shared: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was done yet.
    Begin,
    /// The lanes to and from the node end.
    Node(NodeEnding),
    /// The lanes that the socket writes are stopped; this one was the last.
    Stop(Option<LaneId>),
    /// The lanes that it reads are read out; this one was begun last.
    Read(Option<LaneId>, Option<Box<ReadOut>>),
}

impl Ending {
    pub(super) fn new(port: u32, cause: EndCause, is_shared: bool) -> Self {
        Self { port, cause, is_shared, phase: Phase::Begin }
    }
}

/// The reading out of a lane whose reader has stopped.
///
/// It first reads while the writer still writes, without releasing space, so that little is left when the lane is
/// marked gone: from then on the writer sends by the node, but what is left must reach the receiver's queue first.
#[derive(Debug)]
struct ReadOut {
    id: LaneId,
    /// See [`Lane::read_out`].
    number: u64,
    from: u32,
    left: Recovered,
    is_gone: bool,
    /// Bytes that the process has read of the first message.
    read: usize,
    group: Option<Members>,
}

impl Lanes {
    pub(super) fn step_end(&mut self, context: &mut Context<'_>, ending: &mut Ending) -> bool {
        let (port, cause) = (ending.port, ending.cause);
        loop {
            ending.phase = match &mut ending.phase {
                Phase::Begin => {
                    let Some(socket) = self.sockets.get_mut(&port) else { return false };
                    if socket.reads_out {
                        // An earlier ending goes first.
                        return true;
                    }
                    // No new lane begins.
                    let user = if cause == EndCause::Shutdown { socket.user } else { socket.user.take() };
                    if ending.is_shared && user.is_none() {
                        return false;
                    }
                    Phase::Node(NodeEnding::default())
                }
                Phase::Node(node) => {
                    if node.step(self, context, port, cause) {
                        return true;
                    }
                    Phase::Stop(None)
                }
                Phase::Stop(last) => {
                    let socket = self.sockets.get(&port);
                    let ids =
                        socket.map_or_else(Vec::new, |socket| socket.lanes.some_after(*last, STEP_LANES));
                    *last = ids.last().copied();
                    for id in &ids {
                        if ending.is_shared {
                            self.suspend(port, *id);
                        }
                        self.end_writing(context, *id, port, cause);
                    }
                    if ids.len() == STEP_LANES {
                        return true;
                    }
                    // All writers are stopped before the first lane is read out.
                    Phase::Read(None, None)
                }
                Phase::Read(last, current) => return self.step_read(context, port, cause, last, current),
            };
        }
    }

    /// Notes a lane that comes back when one process holds the socket again. Node lanes come back when the socket needs
    /// them, those of a group when one of its members asks.
    fn suspend(&mut self, port: u32, id: LaneId) {
        let is_own = |lane: &&Lane| lane.from != 0 && lane.to != 0 && lane.group.is_none();
        let lane = self.lanes.get(&id).filter(|lane| !lane.state.has_ended()).filter(is_own);
        if let (Some(lane), Some(socket)) = (lane, self.sockets.get_mut(&port)) {
            socket.suspended.insert((lane.from, lane.to), ());
        }
    }

    /// One step through the lanes that a socket reads.
    fn step_read(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        cause: EndCause,
        last: &mut Option<LaneId>,
        current: &mut Option<Box<ReadOut>>,
    ) -> bool {
        let (mut visits, mut bytes) = (STEP_RECORDS, 0);
        while visits > 0 && bytes < STEP_BYTES {
            if let Some(out) = current.take() {
                *current = self.read_some(context, port, cause, out, &mut visits, &mut bytes);
                continue;
            }
            visits = visits.saturating_sub(LANE_RECORDS);
            let Some(id) = self.sockets.get(&port).and_then(|socket| socket.lanes.next_after(*last)) else {
                return false;
            };
            *last = Some(id);
            *current = self.begin_reading_out(context, port, cause, id);
            self.free_if_done(context, id);
        }
        true
    }

    /// Begins to read out a lane; ends it at once if its messages are lost.
    fn begin_reading_out(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        cause: EndCause,
        id: LaneId,
    ) -> Option<Box<ReadOut>> {
        let lane = self.lanes.get(&id).filter(|l| l.to == port && !l.state.is_reader_done())?;
        let (from, group) = (lane.from, lane.group);
        // After a shutdown unread messages are dropped. Those of a group are not returned either.
        let is_lost = cause == EndCause::Shutdown || cause.is_gone() && group.is_some();
        let arena = self.pairs.get(id.pair).map(|pair| &pair.arena).filter(|_| !is_lost);
        let left = arena.map(|arena| arena.read_out(side(id.writer), id.slot.into(), lane.class));
        match left {
            Some(Ok(left)) => {
                let number = self.lanes.begin_read_out(id);
                let read = cause.read_of(id);
                return Some(Box::new(ReadOut { id, number, from, left, is_gone: false, read, group }));
            }
            Some(Err(_)) => self.corrupt += 1,
            None => {}
        }
        self.abandon_reading(context, id, port, cause.is_gone());
        None
    }

    /// Reads some messages of a lane into the socket's queue at the node; returns what is left to do.
    fn read_some(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        cause: EndCause,
        mut out: Box<ReadOut>,
        visits: &mut u32,
        bytes: &mut usize,
    ) -> Option<Box<ReadOut>> {
        let id = out.id;
        let is_own = |lane: &Lane| lane.read_out == out.number && !lane.state.is_reader_done();
        if !self.lanes.get(&id).is_some_and(is_own) {
            // Its reader has given it up, or another ending reads it out. This may be the last use of the memory.
            context.effects.push(Effect::Free(Large::new(out)));
            return None;
        }
        let (mut body, mut bodies) = (Vec::new(), Vec::new());
        let is_over = loop {
            if *bytes >= STEP_BYTES {
                break false;
            }
            match out.left.next(&mut body, visits) {
                Ok(Step::Record(Kind::Data)) => {
                    *bytes += body.len();
                    bodies.push(std::mem::take(&mut body));
                }
                Ok(Step::Record(_)) => {}
                Ok(Step::Unfinished) => break false,
                Ok(Step::Empty) if !out.is_gone => {
                    // What was written until the mark belongs to the step that makes it, or the writer's next message
                    // by the node could overtake it.
                    if *visits < STEP_RECORDS / 2 {
                        *visits = 0;
                        break false;
                    }
                    self.mark_gone(id);
                    out.left.note_gone();
                    out.is_gone = true;
                }
                Ok(Step::Empty) => break true,
                Err(_) => {
                    self.corrupt += 1;
                    break true;
                }
            }
        };
        self.adopt(context, port, &mut out, bodies);
        if !is_over {
            return Some(out);
        }
        // The writer may have waited for the end of the lane.
        self.finished.push(out.from);
        // Before the lane, and with it maybe the memory, is freed.
        drop(out);
        self.abandon_reading(context, id, port, cause.is_gone());
        self.free_if_done(context, id);
        None
    }

    /// Queues messages of a lane at the node.
    fn adopt(&mut self, context: &mut Context<'_>, port: u32, out: &mut ReadOut, bodies: Vec<Vec<u8>>) {
        if bodies.is_empty() {
            return;
        }
        if let Some(members) = &mut out.group {
            self.corrupt += members.adopt(context, [out.from, port], bodies, std::mem::take(&mut out.read));
            return;
        }
        for body in bodies {
            if !context.stack.adopt(context.now, out.from, port, body, std::mem::take(&mut out.read)) {
                self.corrupt += 1;
            }
        }
    }

    /// From now on the writer's sends fail.
    pub(super) fn mark_gone(&self, id: LaneId) {
        if let Some(pair) = self.pairs.get(id.pair) {
            // Fails only for a slot that does not exist.
            let _ = pair.arena.mark_gone(side(id.writer), id.slot.into());
        }
    }

    /// Ends writing by `port`; the reader reads the rest.
    pub(super) fn end_writing(&mut self, context: &mut Context<'_>, id: LaneId, port: u32, cause: EndCause) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| lane.from == port) else { return };
        let (from, to, reader, before) = (lane.from, lane.to, lane.reader, lane.state);
        let is_dead = cause == EndCause::Dead && !self.processes.contains(&lane.writer);
        // What a member sends last is the event that it has left.
        let is_followed = !cause.is_gone() || lane.group.is_some();
        let must_drain = is_followed && reader != DAEMON;
        self.lanes.stop(id, must_drain);
        if is_dead {
            self.advance(id, LaneEvent::WriterDone);
        }
        self.retire(context, id, from, to);
        // The daemon need not notify itself.
        if before.has_ended() || reader == DAEMON {
            return;
        }
        if let Some(pair) = self.pairs.get(id.pair) {
            // Fails only for a slot that does not exist. The notice below reaches readers that do not watch the
            // doorbell.
            let _ = pair.arena.freeze(side(id.writer), id.slot.into());
        }
        if self.lanes.get(&id).is_some_and(|lane| lane.state.is_read()) {
            let gone = cause.is_gone();
            self.notify(context, reader, Notice::LaneOver { port: to, lane: id, end: LaneEnd::Reader, gone });
        }
    }

    /// Ends reading by `port`; messages that are still in the lane are lost.
    fn abandon_reading(&mut self, context: &mut Context<'_>, id: LaneId, port: u32, gone: bool) {
        let Some(lane) = self.lanes.get(&id).filter(|l| l.to == port && !l.state.is_reader_done()) else {
            return;
        };
        let (from, to) = (lane.from, lane.to);
        self.finish_reader(id, to);
        self.retire(context, id, from, to);
        self.mark_gone(id);
        self.dismiss_writer(context, id, gone);
    }

    /// The reader is done: asks a living writer to confirm that it is too.
    pub(super) fn dismiss_writer(&mut self, context: &mut Context<'_>, id: LaneId, gone: bool) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| !lane.state.is_writer_done()) else { return };
        let (writer, port) = (lane.writer, lane.from);
        self.notify(context, writer, Notice::LaneOver { port, lane: id, end: LaneEnd::Writer, gone });
    }

    /// Lets messages between the two sockets go by the node again.
    fn retire(&mut self, context: &mut Context<'_>, id: LaneId, from: u32, to: u32) {
        if let Some(socket) = self.sockets.get_mut(&from) {
            socket.group_lanes.remove(&id);
        }
        if self.lanes.retire(id, from, to) {
            context.stack.remove_lane(from, to);
        }
    }

    /// Handles the confirmation of one end that it no longer touches the lane.
    pub fn done(
        &mut self,
        context: &mut Context<'_>,
        process: ProcessId,
        id: LaneId,
        end: LaneEnd,
    ) -> Result<Reply, Failure> {
        let Some(lane) = self.lanes.get(&id) else { return Err(Failure::State) };
        let (from, to) = (lane.from, lane.to);
        match end {
            LaneEnd::Writer if lane.writer == process => {
                if lane.reader == DAEMON {
                    // A correct process confirms the end after the notice of it.
                    self.drop_outbound(context, from, false);
                }
                self.end_writing(context, id, from, EndCause::Hosted(None));
                self.advance(id, LaneEvent::WriterDone);
            }
            LaneEnd::Reader if lane.reader == process => self.finish_reading(context, id, to),
            _ => return Err(Failure::State),
        }
        self.free_if_done(context, id);
        Ok(Reply::Done)
    }

    fn finish_reading(&mut self, context: &mut Context<'_>, id: LaneId, port: u32) {
        let Some(lane) = self.lanes.get(&id) else { return };
        match (lane.state.has_ended(), lane.writer) {
            (false, DAEMON) => self.drop_inbound(context, port),
            // The reader gives up everything that is still to come.
            (false, _) => self.abandon_reading(context, id, port, false),
            (true, _) if !lane.state.is_reader_done() => {
                self.finish_reader(id, port);
                self.dismiss_writer(context, id, false);
            }
            (true, _) => {}
        }
    }

    /// Moves a lane to its next state.
    pub(super) fn advance(&mut self, id: LaneId, event: LaneEvent) {
        self.lanes.advance(id, event);
    }

    /// Notes that the socket `to` is done with a lane, which may complete a drain.
    fn finish_reader(&mut self, id: LaneId, to: u32) {
        if let (Some(after), Some(socket)) = (self.lanes.finish_reader(id), self.sockets.get_mut(&to)) {
            socket.unopened.remove((after, id));
        }
    }

    /// Handles a report that the memory of a lane is malformed: the lane ends for both, and so does its connection.
    pub fn report(
        &mut self,
        context: &mut Context<'_>,
        process: ProcessId,
        id: LaneId,
    ) -> Result<Reply, Failure> {
        let Some(lane) = self.lanes.get(&id) else { return Err(Failure::State) };
        let (from, to, writer, reader) = (lane.from, lane.to, lane.writer, lane.reader);
        self.corrupt += 1;
        let port = match process {
            _ if process == reader => to,
            _ if process == writer => from,
            _ => return Err(Failure::State),
        };
        if writer == DAEMON {
            self.drop_inbound(context, to);
        } else if reader == DAEMON {
            self.refuse_outbound(context, from);
        } else if port == to {
            self.abandon_reading(context, id, to, false);
        } else {
            self.end_writing(context, id, from, EndCause::Shutdown);
        }
        self.free_if_done(context, id);
        context.stack.abort(context.now, port);
        Ok(Reply::Done)
    }

    /// Frees a lane that neither side uses.
    pub(super) fn free_if_done(&mut self, context: &mut Context<'_>, id: LaneId) {
        let Some(lane) = self.take_free(id) else { return };
        if let Some(pair) = self.pairs.get(id.pair) {
            // Fails only for a slot that does not exist.
            let _ = pair.arena.close_slot(side(id.writer), id.slot.into());
        }
        if lane.writer == DAEMON
            && let Some(inbound) = self.inbound.remove(&lane.to)
        {
            inbound.writer.retire();
        }
        self.pairs.free_slot(context.now, id);
        if let Some(socket) = self.sockets.get_mut(&lane.to) {
            // A later socket may have the port of the one to which the lane led.
            socket.granted = socket.granted.saturating_sub(lane.granted);
        }
        lane.charge.end(context.stack);
        let is_gone = |side: &ProcessId| *side != DAEMON && !self.processes.contains(side);
        if self.pairs.get(id.pair).is_some_and(|pair| pair.sides.iter().any(is_gone)) {
            self.drop_pair_if_empty(context, id.pair);
        }
    }

    fn drop_pair_if_empty(&mut self, context: &mut Context<'_>, pair: PairId) {
        if let Some((id, pair)) = self.pairs.take_if_empty(pair) {
            self.end_pair(context, id, pair);
        }
    }

    /// Tells the processes of a pair that it is over, and frees its memory, however much of it they have written.
    fn end_pair(&self, context: &mut Context<'_>, id: PairId, pair: Pair) {
        let sides = pair.sides;
        self.notify(context, sides[0], Notice::PairOver(id));
        if sides[0] != sides[1] {
            self.notify(context, sides[1], Notice::PairOver(id));
        }
        if let Some(near) = &pair.near
            && let Some(user) = near.watched
        {
            context.watch.unwatch(user, &near.knock);
        }
        context.effects.push(Effect::Free(Large::new(pair)));
    }

    /// Drops pairs of a process that is gone.
    pub(super) fn step_drop_pairs(
        &mut self,
        context: &mut Context<'_>,
        process: ProcessId,
        last: &mut Option<PairId>,
    ) -> bool {
        let pairs = self.pairs.some_of(process, *last, STEP_LANES);
        *last = pairs.last().copied();
        for pair in &pairs {
            self.drop_pair_if_empty(context, *pair);
        }
        !pairs.is_empty()
    }

    /// Drops pairs that have had no lanes for some time.
    pub(super) fn expire_pairs(&mut self, context: &mut Context<'_>) {
        for _ in 0..EXPIRED_MAX {
            let Some((id, pair)) = self.pairs.expire(context.now) else { return };
            self.end_pair(context, id, pair);
        }
    }

    /// Ends the writing side of lanes of a process that is gone, from `last` on.
    pub(super) fn step_forget(
        &mut self,
        context: &mut Context<'_>,
        process: ProcessId,
        last: &mut Option<LaneId>,
    ) -> bool {
        let ids = self.lanes.written_by(process, *last);
        for id in &ids {
            *last = Some(*id);
            self.advance(*id, LaneEvent::WriterDone);
            self.free_if_done(context, *id);
        }
        !ids.is_empty()
    }
}
