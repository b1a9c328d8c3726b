//! The end of lanes between a process and its node: messages that the process has sent go to the endpoint, those that
//! it has not received go back there. Both before the request that ends them is answered.

use utipc_attach::LaneId;
use utipc_os::disposal::Large;

use super::end::EndCause;
use super::node_lanes::Inbound;
use super::pairs::side;
use super::state::LaneEvent;
use super::work::{STEP_BYTES, STEP_RECORDS};
use super::{Context, DAEMON, Effect, Lanes};
use crate::{Kind, Recovered, Step, Writer};

/// The end of the node lanes of a socket, in progress.
#[derive(Debug, Default)]
pub(super) struct NodeEnding {
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Begin,
    /// Messages that the process has not read are gathered, then given back to the endpoint, newest first.
    Inbound(Box<Unread>),
    /// Everything that the process has written is sent, up to this position of the lane.
    Carry(Option<u64>),
    /// The rest, which the endpoint does not accept now, waits at the node.
    Unsent(LaneId, Box<Recovered>),
}

#[derive(Debug)]
struct Unread {
    lane: LaneId,
    writer: Writer,
    /// `None`: all are gathered.
    left: Option<Recovered>,
    messages: Vec<Vec<u8>>,
    /// Bytes of the first message that the process has read.
    read: usize,
}

/// The result of [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    Some,
    All,
    Malformed,
}

/// Adds messages of a lane to `messages`, as many as one step may.
fn gather(left: &mut Recovered, messages: &mut Vec<Vec<u8>>) -> Gathered {
    let (mut visits, mut bytes, mut body) = (STEP_RECORDS, 0, Vec::new());
    while bytes < STEP_BYTES {
        match left.next(&mut body, &mut visits) {
            Ok(Step::Record(Kind::Data)) => {
                bytes += body.len();
                messages.push(std::mem::take(&mut body));
            }
            Ok(Step::Record(_)) => {}
            Ok(Step::Unfinished) => return Gathered::Some,
            Ok(Step::Empty) => return Gathered::All,
            Err(_) => return Gathered::Malformed,
        }
    }
    Gathered::Some
}

impl Lanes {
    /// One step; whether there is more to do.
    pub(super) fn step_node_end(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        cause: EndCause,
        ending: &mut NodeEnding,
    ) -> bool {
        loop {
            ending.phase = match &mut ending.phase {
                Phase::Begin => match self.inbound.remove(&port) {
                    Some(inbound) => {
                        Phase::Inbound(Box::new(self.begin_inbound_end(context, port, inbound, cause)))
                    }
                    None => Phase::Carry(None),
                },
                Phase::Inbound(unread) => {
                    if self.step_unread(context, port, unread) {
                        return true;
                    }
                    let Phase::Inbound(unread) = std::mem::take(&mut ending.phase) else { return false };
                    let Unread { lane, writer, .. } = *unread;
                    self.finish_inbound(context, port, lane, writer);
                    Phase::Carry(None)
                }
                Phase::Carry(until) => {
                    if self.step_carry(context, port, until) {
                        return true;
                    }
                    let Some(outbound) = self.outbound.remove(&port) else { return false };
                    let Some(left) = self.end_outbound(outbound.lane) else {
                        self.finish_outbound(context, port, outbound.lane, cause.is_gone());
                        return false;
                    };
                    self.set_reads_out(port, true);
                    Phase::Unsent(outbound.lane, Box::new(left))
                }
                Phase::Unsent(lane, left) => {
                    let (lane, mut messages) = (*lane, Vec::new());
                    let gathered = gather(left, &mut messages);
                    self.corrupt += u64::from(gathered == Gathered::Malformed);
                    let is_over = self.keep_unsent(context, port, messages);
                    if !is_over && gathered == Gathered::Some {
                        return true;
                    }
                    // The pair may be gone with the lane.
                    let left = std::mem::replace(&mut ending.phase, Phase::Carry(None));
                    self.finish_outbound(context, port, lane, cause.is_gone());
                    context.effects.push(Effect::Free(Large::new(left)));
                    return false;
                }
            };
        }
    }

    /// Makes requests of the process for this socket wait until its lane is read out, or no longer wait.
    fn set_reads_out(&mut self, port: u32, reads_out: bool) {
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.reads_out = reads_out;
        }
        if !reads_out {
            self.finished.push(port);
        }
    }

    fn begin_inbound_end(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        inbound: Inbound,
        cause: EndCause,
    ) -> Unread {
        let Inbound { lane, writer, .. } = inbound;
        self.mark_gone(lane);
        // The mark rang the daemon's own doorbell.
        self.serve_later(context, lane.pair);
        self.set_reads_out(port, true);
        let left = self.recovered(lane);
        Unread { lane, writer, left, messages: Vec::new(), read: cause.read_of(lane) }
    }

    fn step_unread(&mut self, context: &mut Context<'_>, port: u32, unread: &mut Unread) -> bool {
        if let Some(left) = &mut unread.left {
            let gathered = gather(left, &mut unread.messages);
            self.corrupt += u64::from(gathered == Gathered::Malformed);
            if gathered == Gathered::Some {
                return true;
            }
            unread.left = None;
        }
        let rest = unread.messages.len().saturating_sub(STEP_RECORDS as usize);
        let newest = unread.messages.split_off(rest);
        let read = if rest == 0 { unread.read } else { 0 };
        if !newest.is_empty() && !context.stack.take_back(context.now, port, newest, read) {
            self.corrupt += 1;
        }
        rest > 0
    }

    fn finish_inbound(&mut self, context: &mut Context<'_>, port: u32, lane: LaneId, writer: Writer) {
        self.advance(lane, LaneEvent::WriterDone);
        self.advance(lane, LaneEvent::ReaderDone);
        // Before another lane in the slot begins in the same ring.
        writer.retire();
        self.free_if_done(context, lane);
        self.set_reads_out(port, false);
    }

    /// Ends reading by a process that has not asked for the end of its socket's lanes: unread messages are lost.
    pub(super) fn drop_inbound(&mut self, context: &mut Context<'_>, port: u32) {
        if let Some(inbound) = self.inbound.remove(&port) {
            self.mark_gone(inbound.lane);
            self.serve_later(context, inbound.lane.pair);
            self.finish_inbound(context, port, inbound.lane, inbound.writer);
        }
    }

    /// The unread messages of a lane that was marked gone; `None` if it has none.
    fn recovered(&mut self, lane: LaneId) -> Option<Recovered> {
        let class = self.lanes.get(&lane)?.class;
        let recovered = self.pairs.get(lane.pair)?.arena.recover(side(lane.writer), lane.slot.into(), class);
        self.corrupt += u64::from(recovered.is_err());
        recovered.ok()
    }

    /// Marks a lane gone that a process writes; returns its contents.
    fn end_outbound(&mut self, lane: LaneId) -> Option<Recovered> {
        self.mark_gone(lane);
        self.recovered(lane)
    }

    /// The daemon is done with a lane that a process writes.
    fn finish_outbound(&mut self, context: &mut Context<'_>, port: u32, lane: LaneId, gone: bool) {
        if self.lanes.get(&lane).is_some_and(|lane| lane.from == port && lane.reader == DAEMON) {
            self.advance(lane, LaneEvent::ReaderDone);
            self.dismiss_writer(context, lane, gone);
            self.free_if_done(context, lane);
        }
        self.set_reads_out(port, false);
    }

    /// Ends writing by a process; what is in the lane is lost.
    pub(super) fn drop_outbound(&mut self, context: &mut Context<'_>, port: u32) {
        if let Some(outbound) = self.outbound.remove(&port) {
            self.mark_gone(outbound.lane);
            self.finish_outbound(context, port, outbound.lane, false);
        }
    }

    /// Ends a node lane with a malformed record, and its connection.
    pub(super) fn refuse_outbound(&mut self, context: &mut Context<'_>, port: u32) {
        self.corrupt += 1;
        if let Some(outbound) = self.outbound.remove(&port) {
            self.mark_gone(outbound.lane);
            self.finish_outbound(context, port, outbound.lane, true);
        }
        context.stack.abort(context.now, port);
    }
}
