//! How lanes end. Whatever the reason, what the reader will never read the daemon reads in its stead (decision 8).

use utipc_attach::{Failure, LaneEnd, LaneId, Notice, PairId, Reply};
use utipc_core::Time;

use crate::daemon::attachments::attachment::AttachmentId;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::lanes::pairs::{DAEMON, side};

/// Why a process uses the lanes of a socket no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Why {
    /// It closed the socket.
    Closed,
    /// It shut the connection down.
    Shut,
    /// The socket is hosted from now on. Of the first unread message of a lane so many bytes were read.
    Hosted(Option<(LaneId, u32)>),
    /// The process is gone.
    Dead,
}

impl Why {
    /// Messages to the socket come back from now on.
    pub(in crate::daemon) fn is_gone(self) -> bool {
        matches!(self, Self::Closed | Self::Dead)
    }

    pub(in crate::daemon) fn read_of(self, id: LaneId) -> usize {
        match self {
            Self::Hosted(Some((lane, read))) if lane == id => read as usize,
            _ => 0,
        }
    }
}

impl Dispatcher {
    /// The lanes of a socket end.
    pub(in crate::daemon) fn end_lanes(&mut self, now: Time, port: u32, why: Why) {
        self.end_node_lanes(now, port, why);
        let Some(holding) = self.sockets.get_mut(&port) else { return };
        holding.unopened.clear();
        let lanes: Vec<LaneId> = holding.lanes.iter().copied().collect();
        // First of all nothing new may get in.
        for id in &lanes {
            self.end_writing(*id, port, why);
        }
        for id in lanes {
            self.end_reading(now, id, port, why);
            self.finish_lane(now, id);
        }
    }

    /// `port` writes no more: the reader reads to the end.
    fn end_writing(&mut self, id: LaneId, port: u32, why: Why) {
        let Some(lane) = self.broker.lanes.get_mut(&id).filter(|l| l.from == port) else { return };
        let (from, to) = (lane.from, lane.to);
        let was_over = std::mem::replace(&mut lane.ended, true);
        lane.writer_done |= why == Why::Dead && !self.attachments.contains_key(&lane.from_owner);
        let (told, reader_done, owner) = (lane.told, lane.reader_done, lane.to_owner);
        if !was_over && !reader_done && !why.is_gone() && owner != DAEMON {
            lane.drains = true;
            *self.broker.draining.entry((from, to)).or_default() += 1;
        }
        self.retire_lane(id, from, to);
        // The daemon need not tell itself.
        if was_over || owner == DAEMON {
            return;
        }
        if let Some(pair) = self.broker.pairs.get(id.pair) {
            // Refused for a slot that does not exist only; the notice below reaches who does not listen to this bell.
            let _ = pair.arena.freeze(side(id.writer), id.slot.into());
        }
        if told && !reader_done {
            let gone = why.is_gone();
            self.tell(owner, Notice::LaneOver { port: to, lane: id, end: LaneEnd::Reader, gone });
        }
    }

    /// `port` reads no more: what it has not read goes into its queue at the node, or is lost.
    fn end_reading(&mut self, now: Time, id: LaneId, port: u32, why: Why) {
        let Some(lane) = self.broker.lanes.get_mut(&id).filter(|l| l.to == port && !l.reader_done) else {
            return;
        };
        lane.reader_done = true;
        lane.ended = true;
        let (from, to) = (lane.from, lane.to);
        self.retire_lane(id, from, to);
        self.is_drained(id);
        let Some(pair) = self.broker.pairs.get(id.pair) else { return };
        let (writer, slot) = (side(id.writer), id.slot.into());
        let _ = pair.arena.mark_gone(writer, slot);
        // After a shutdown nobody wants them.
        let bodies = if why == Why::Shut { Vec::new() } else { self.unread(id) };
        let mut read = why.read_of(id);
        for body in bodies {
            if !self.driver.stack.adopt(now, from, to, body, read) {
                self.broker.corrupt += 1;
            }
            read = 0;
        }
        self.dismiss_writer(id, why.is_gone());
    }

    /// The whole messages in a lane that its reader has not read.
    fn unread(&mut self, id: LaneId) -> Vec<Vec<u8>> {
        let Some(pair) = self.broker.pairs.get(id.pair) else { return Vec::new() };
        let mut bodies = Vec::new();
        let found = pair.arena.recover(side(id.writer), id.slot.into()).and_then(|mut left| {
            let mut body = Vec::new();
            while let Some(kind) = left.next_into(&mut body)? {
                if kind == utipc_lanes::Kind::Data {
                    bodies.push(std::mem::take(&mut body));
                }
            }
            Ok(())
        });
        self.broker.corrupt += u64::from(found.is_err());
        bodies
    }

    /// The reader is done: the writer, if it lives, shall say that it is too.
    pub(in crate::daemon) fn dismiss_writer(&mut self, id: LaneId, gone: bool) {
        let Some(lane) = self.broker.lanes.get(&id).filter(|l| !l.writer_done) else { return };
        let (owner, port) = (lane.from_owner, lane.from);
        self.tell(owner, Notice::LaneOver { port, lane: id, end: LaneEnd::Writer, gone });
    }

    /// Messages between the two go by the node again.
    fn retire_lane(&mut self, id: LaneId, from: u32, to: u32) {
        if self.broker.between.get(&(from, to)) == Some(&id) {
            self.broker.between.remove(&(from, to));
            self.driver.stack.remove_lane(from, to);
        }
    }

    /// One end says that it will not touch the lane any more.
    pub(in crate::daemon) fn lane_done(
        &mut self,
        now: Time,
        who: AttachmentId,
        id: LaneId,
        end: LaneEnd,
    ) -> Result<Reply, Failure> {
        let Some(lane) = self.broker.lanes.get(&id) else { return Err(Failure::State) };
        let (from, to) = (lane.from, lane.to);
        match end {
            LaneEnd::Writer if lane.from_owner == who => {
                if lane.to_owner == DAEMON {
                    self.stop_outbound(now, from, false);
                }
                self.end_writing(id, from, Why::Hosted(None));
                if let Some(lane) = self.broker.lanes.get_mut(&id) {
                    lane.writer_done = true;
                }
            }
            LaneEnd::Reader if lane.to_owner == who => {
                let early = !lane.ended;
                self.finish_reading(now, id, to, early);
            }
            _ => return Err(Failure::State),
        }
        self.finish_lane(now, id);
        Ok(Reply::Done)
    }

    fn finish_reading(&mut self, now: Time, id: LaneId, port: u32, early: bool) {
        if early && self.broker.lanes.get(&id).is_some_and(|lane| lane.from_owner == DAEMON) {
            return self.stop_inbound(now, port);
        }
        if early {
            // It gives up what may still come.
            return self.end_reading(now, id, port, Why::Shut);
        }
        if let Some(lane) = self.broker.lanes.get_mut(&id).filter(|l| !l.reader_done) {
            lane.reader_done = true;
            self.is_drained(id);
            self.dismiss_writer(id, false);
        }
    }

    /// The reader of a lane is done with it.
    fn is_drained(&mut self, id: LaneId) {
        let Some(lane) = self.broker.lanes.get_mut(&id) else { return };
        if !std::mem::take(&mut lane.drains) {
            return;
        }
        let ports = (lane.from, lane.to);
        if let Some(left) = self.broker.draining.get_mut(&ports) {
            *left -= 1;
            if *left == 0 {
                self.broker.drained.push(ports);
            }
        }
    }

    /// A process found nonsense in a lane: it ends for both, and so does the connection that it belongs to.
    pub(in crate::daemon) fn report(
        &mut self,
        now: Time,
        who: AttachmentId,
        id: LaneId,
    ) -> Result<Reply, Failure> {
        let Some(lane) = self.broker.lanes.get(&id) else { return Err(Failure::State) };
        let (from, to, from_owner, to_owner) = (lane.from, lane.to, lane.from_owner, lane.to_owner);
        self.broker.corrupt += 1;
        let port = match who {
            _ if who == to_owner => to,
            _ if who == from_owner => from,
            _ => return Err(Failure::State),
        };
        if from_owner == DAEMON {
            self.stop_inbound(now, to);
        } else if to_owner == DAEMON {
            self.refuse_outbound(now, from);
        } else if port == to {
            self.end_reading(now, id, to, Why::Shut);
        } else {
            self.end_writing(id, from, Why::Shut);
        }
        self.finish_lane(now, id);
        self.driver.stack.abort(now, port);
        Ok(Reply::Done)
    }

    /// Frees a lane that nobody uses any more.
    pub(in crate::daemon) fn finish_lane(&mut self, now: Time, id: LaneId) {
        let Some(lane) = self.broker.lanes.get(&id).filter(|l| l.writer_done && l.reader_done) else {
            return;
        };
        let (from, to, granted) = (lane.from, lane.to, lane.granted);
        let (owner, reader) = (lane.from_owner, lane.to_owner);
        self.broker.lanes.remove(&id);
        if let Some(pair) = self.broker.pairs.get(id.pair) {
            // Refused for a slot that does not exist only.
            let _ = pair.arena.close_slot(side(id.writer), id.slot.into());
        }
        if owner == DAEMON
            && let Some(inbound) = self.node_lanes.inbound.remove(&to)
        {
            inbound.writer.retire();
        }
        self.broker.pairs.give_back(now, id);
        for port in [from, to] {
            if let Some(holding) = self.sockets.get_mut(&port) {
                holding.lanes.remove(&id);
            }
        }
        if let Some(holding) = self.sockets.get_mut(&to) {
            holding.granted -= granted;
        }
        if let Some(attachment) = self.attachments.get_mut(&owner) {
            attachment.lanes_out -= 1;
        }
        if let Some(attachment) = self.attachments.get_mut(&reader) {
            attachment.lanes_in -= 1;
        }
        let gone = self.broker.pairs.get(id.pair).is_some_and(|p| {
            p.sides.iter().any(|side| *side != DAEMON && !self.attachments.contains_key(side))
        });
        if gone && let Some((pair, sides)) = self.broker.pairs.drop_if_empty(id.pair) {
            self.tell_pair_over(pair, sides);
        }
    }

    pub(in crate::daemon) fn tell_pair_over(&mut self, pair: PairId, sides: [AttachmentId; 2]) {
        self.tell(sides[0], Notice::PairOver(pair));
        if sides[0] != sides[1] {
            self.tell(sides[1], Notice::PairOver(pair));
        }
    }

    /// Drops pairs that have been idle for long.
    pub(in crate::daemon) fn expire_pairs(&mut self, now: Time) {
        while let Some((pair, sides)) = self.broker.pairs.expire(now) {
            self.tell_pair_over(pair, sides);
        }
    }

    /// A process is gone that may have closed sockets without having said yet that it writes their lanes no more.
    pub(in crate::daemon) fn forget_writer(&mut self, now: Time, who: AttachmentId) {
        if self.broker.pairs.of(who).next().is_none() {
            return;
        }
        let lanes =
            self.broker.lanes.iter_mut().filter(|(_, lane)| lane.from_owner == who && !lane.writer_done);
        let left: Vec<LaneId> = lanes
            .map(|(id, lane)| {
                lane.writer_done = true;
                *id
            })
            .collect();
        for id in left {
            self.finish_lane(now, id);
        }
    }
}
