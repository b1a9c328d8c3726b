//! The end of lanes. Whatever the reason, the daemon drains messages that the reader will never read (decision 8).

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, PairId, Reply};
use utipc_os::disposal::Large;

use super::pairs::{Pair, side};
use super::state::LaneEvent;
use super::{Context, DAEMON, Effect, Lanes, ProcessId};

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

impl Lanes {
    /// Ends the lanes of a socket.
    pub fn end(&mut self, context: &mut Context<'_>, port: u32, cause: EndCause) {
        self.end_node_lanes(context, port, cause);
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        socket.unopened.clear();
        let lanes: Vec<LaneId> = socket.lanes.iter().copied().collect();
        // Stop all writers before the first lane is read out.
        for id in &lanes {
            self.end_writing(context, *id, port, cause);
        }
        for id in lanes {
            self.end_reading(context, id, port, cause);
            self.free_if_done(context, id);
        }
    }

    /// Requests carry the data of a socket from now on.
    pub fn host(&mut self, context: &mut Context<'_>, port: u32, partly_read: Option<(LaneId, u32)>) {
        self.end(context, port, EndCause::Hosted(partly_read));
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.user = None;
        }
    }

    /// The same for a socket that several processes hold: its lanes come back when one process holds it again.
    pub fn host_for_sharing(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        if socket.user.take().is_none() {
            return;
        }
        for id in &socket.lanes {
            // Node lanes come back when the socket needs them.
            // Those of a group come back when one of its members asks.
            let is_own = |lane: &&super::Lane| lane.from != 0 && lane.to != 0 && lane.group.is_none();
            let lane = self.lanes.get(id).filter(|lane| !lane.state.has_ended()).filter(is_own);
            socket.suspended.extend(lane.map(|lane| (lane.from, lane.to)));
        }
        self.end(context, port, EndCause::Hosted(None));
    }

    /// Ends writing by `port`; the reader reads the rest.
    pub(super) fn end_writing(&mut self, context: &mut Context<'_>, id: LaneId, port: u32, cause: EndCause) {
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.from == port) else { return };
        let (from, to, before) = (lane.from, lane.to, lane.state);
        // What a member sends last is the event that it has left.
        let is_followed = !cause.is_gone() || lane.group.is_some();
        let must_drain = is_followed && lane.reader != DAEMON;
        lane.state = before.next(if must_drain { LaneEvent::Stop } else { LaneEvent::Abandon });
        if !before.is_draining() && lane.state.is_draining() {
            *self.draining.entry((from, to)).or_default() += 1;
        }
        if cause == EndCause::Dead && !self.processes.contains_key(&lane.writer) {
            lane.state = lane.state.next(LaneEvent::WriterDone);
        }
        let (state, reader) = (lane.state, lane.reader);
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
        if state.is_read() {
            let gone = cause.is_gone();
            self.notify(context, reader, Notice::LaneOver { port: to, lane: id, end: LaneEnd::Reader, gone });
        }
    }

    /// Ends reading by `port`; its unread messages go into its queue at the node, or are lost.
    fn end_reading(&mut self, context: &mut Context<'_>, id: LaneId, port: u32, cause: EndCause) {
        let Some(lane) = self.lanes.get(&id).filter(|l| l.to == port && !l.state.is_reader_done()) else {
            return;
        };
        let (from, to) = (lane.from, lane.to);
        self.finish_reader(id);
        self.retire(context, id, from, to);
        let Some(pair) = self.pairs.get(id.pair) else { return };
        let (writer, slot) = (side(id.writer), id.slot.into());
        let _ = pair.arena.mark_gone(writer, slot);
        let group = self.lanes.get(&id).and_then(|lane| lane.group);
        // After a shutdown unread messages are dropped. Those of a group are not returned either.
        let is_lost = cause == EndCause::Shutdown || cause.is_gone() && group.is_some();
        let bodies = if is_lost { Vec::new() } else { self.recover(id, usize::MAX) };
        let mut read = cause.read_of(id);
        if let Some(members) = group {
            self.corrupt += members.adopt(context, [from, to], bodies, read);
            return self.dismiss_writer(context, id, cause.is_gone());
        }
        for body in bodies {
            if !context.stack.adopt(context.now, from, to, body, read) {
                self.corrupt += 1;
            }
            read = 0;
        }
        self.dismiss_writer(context, id, cause.is_gone());
    }

    /// Reads the whole messages out of a lane whose reader has stopped, until they have `most` bytes.
    pub(super) fn recover(&mut self, id: LaneId, most: usize) -> Vec<Vec<u8>> {
        let largest = self.lanes.get(&id).map_or(0, |lane| lane.class);
        let Some(pair) = self.pairs.get(id.pair) else { return Vec::new() };
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        let found = pair.arena.recover(side(id.writer), id.slot.into(), largest).and_then(|mut left| {
            let mut body = Vec::new();
            while bytes < most
                && let Some(kind) = left.next_into(&mut body)?
            {
                if kind == crate::Kind::Data {
                    bytes += body.len() + size_of::<Vec<u8>>();
                    bodies.push(std::mem::take(&mut body));
                }
            }
            Ok(())
        });
        self.corrupt += u64::from(found.is_err());
        bodies
    }

    /// The reader is done: asks a living writer to confirm that it is too.
    pub(super) fn dismiss_writer(&mut self, context: &mut Context<'_>, id: LaneId, gone: bool) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| !lane.state.is_writer_done()) else { return };
        let (writer, port) = (lane.writer, lane.from);
        self.notify(context, writer, Notice::LaneOver { port, lane: id, end: LaneEnd::Writer, gone });
    }

    /// Lets messages between the two sockets go by the node again.
    fn retire(&mut self, context: &mut Context<'_>, id: LaneId, from: u32, to: u32) {
        if self.between.get(&(from, to)) == Some(&id) {
            self.between.remove(&(from, to));
            context.stack.remove_lane(from, to);
        }
    }

    /// Handles the confirmation of one end that it will not touch the lane any more.
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
                    self.stop_outbound(context, from, false);
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
            (false, DAEMON) => self.stop_inbound(context, port),
            // The reader gives up everything that is still to come.
            (false, _) => self.end_reading(context, id, port, EndCause::Shutdown),
            (true, _) if !lane.state.is_reader_done() => {
                self.finish_reader(id);
                self.dismiss_writer(context, id, false);
            }
            (true, _) => {}
        }
    }

    /// Moves a lane to its next state.
    pub(super) fn advance(&mut self, id: LaneId, event: LaneEvent) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.state = lane.state.next(event);
        }
    }

    /// Notes that the reader is done with a lane, which may complete a drain.
    fn finish_reader(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let was_draining = lane.state.is_draining();
        lane.state = lane.state.next(LaneEvent::ReaderDone);
        let ports = (lane.from, lane.to);
        if was_draining && let Some(left) = self.draining.get_mut(&ports) {
            *left -= 1;
            if *left == 0 {
                self.drained.push(ports);
            }
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
            self.stop_inbound(context, to);
        } else if reader == DAEMON {
            self.refuse_outbound(context, from);
        } else if port == to {
            self.end_reading(context, id, to, EndCause::Shutdown);
        } else {
            self.end_writing(context, id, from, EndCause::Shutdown);
        }
        self.free_if_done(context, id);
        context.stack.abort(context.now, port);
        Ok(Reply::Done)
    }

    /// Frees a lane that neither side uses any more.
    pub(super) fn free_if_done(&mut self, context: &mut Context<'_>, id: LaneId) {
        if self.lanes.get(&id).is_none_or(|lane| !lane.state.is_free()) {
            return;
        }
        let Some(lane) = self.lanes.remove(&id) else { return };
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
        for port in [lane.from, lane.to] {
            if let Some(socket) = self.sockets.get_mut(&port) {
                socket.lanes.remove(&id);
            }
        }
        if let Some(socket) = self.sockets.get_mut(&lane.to) {
            // A later socket may have the port of the one to which the lane led.
            socket.granted = socket.granted.saturating_sub(lane.granted);
        }
        self.discharge(lane.writer, lane.reader);
        lane.charge.end(context.stack);
        let is_gone = |side: &ProcessId| *side != DAEMON && !self.processes.contains_key(side);
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

    /// Drops the pairs of a process that is gone; a pair whose lanes are unread stays until they are read.
    pub fn drop_pairs_of(&mut self, context: &mut Context<'_>, process: ProcessId) {
        let pairs: Vec<PairId> = self.pairs.of(process).collect();
        for pair in pairs {
            self.drop_pair_if_empty(context, pair);
        }
    }

    /// Drops pairs that have had no lanes for some time.
    pub fn expire_pairs(&mut self, context: &mut Context<'_>) {
        while let Some((id, pair)) = self.pairs.expire(context.now) {
            self.end_pair(context, id, pair);
        }
    }

    /// Ends the writing side of the lanes of a process that is gone: it may have closed sockets without confirming yet
    /// that it no longer writes their lanes.
    pub fn forget_writer(&mut self, context: &mut Context<'_>, process: ProcessId) {
        if self.pairs.of(process).next().is_none() {
            return;
        }
        let lanes = self.lanes.iter_mut();
        let lanes = lanes.filter(|(_, lane)| lane.writer == process && !lane.state.is_writer_done());
        let left: Vec<LaneId> = lanes
            .map(|(id, lane)| {
                lane.state = lane.state.next(LaneEvent::WriterDone);
                *id
            })
            .collect();
        for id in left {
            self.free_if_done(context, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use utipc_core::quota::UserId;
    use utipc_core::socket::SocketKind;
    use utipc_core::stack::Stack;
    use utipc_core::{StackConfig, Time};
    use utipc_os::reactor::Waker;

    use super::super::Watch;
    use super::*;

    /// Watches nothing.
    #[derive(Debug)]
    struct Blind;

    impl Watch for Blind {
        fn watch(&mut self, _: ProcessId, _: &Waker, _: u64) -> Option<UserId> {
            None
        }

        fn unwatch(&mut self, _: UserId, _: &Waker) {}
    }

    #[test]
    fn memory_of_dead_processes_is_left_to_the_caller() {
        let (now, mut effects) = (Time::ZERO, Vec::new());
        let (mut stack, mut lanes) = (Stack::new(now, StackConfig::default()), Lanes::new(0));
        let ports = [1, 2].map(|process| {
            lanes.add_process(process, true, false);
            let port = stack.open(now, SocketKind::Rdm).unwrap();
            lanes.add_socket(port, process);
            port
        });
        let mut context = Context { now, stack: &mut stack, watch: &mut Blind, effects: &mut effects };
        assert_eq!(lanes.want(&mut context, 1, ports[0], ports[1]), Ok(Reply::Done));
        let pair = lanes.pairs.of(1).next().unwrap();
        let memory = Arc::downgrade(&lanes.pairs.get(pair).unwrap().arena.memory);
        for (process, port) in [1, 2].into_iter().zip(ports) {
            lanes.remove_process(process);
            lanes.end(&mut context, port, EndCause::Dead);
            lanes.remove_socket(port);
            lanes.forget_writer(&mut context, process);
            lanes.drop_pairs_of(&mut context, process);
        }
        assert_eq!(lanes.counts().pairs, 0);
        assert!(memory.upgrade().is_some(), "the daemon's thread has unmapped it");
        effects.clear();
        assert!(memory.upgrade().is_none());
    }
}
