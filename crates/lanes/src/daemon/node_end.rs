//! The end of lanes between a process and its node: messages that the process has sent go to the endpoint, those that
//! it has not received go back there. Both before the request that ends them is answered.

use utipc_attach::LaneId;
use utipc_os::disposal::Large;

use super::end::EndCause;
use super::node_lanes::{Inbound, is_connected, is_datagram};
use super::work::{STEP_BYTES, STEP_RECORDS};
use super::{Context, Effect, Lanes};
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

impl NodeEnding {
    /// One step; whether there is more to do.
    pub(super) fn step(
        &mut self,
        lanes: &mut Lanes,
        context: &mut Context<'_>,
        port: u32,
        cause: EndCause,
    ) -> bool {
        loop {
            self.phase = match &mut self.phase {
                Phase::Begin => match lanes.inbound.remove(&port) {
                    Some(inbound) => {
                        Phase::Inbound(Box::new(Unread::begin(lanes, context, (port, inbound), cause)))
                    }
                    None => Phase::Carry(None),
                },
                Phase::Inbound(unread) => {
                    if unread.step(lanes, context, port) {
                        return true;
                    }
                    let Phase::Inbound(unread) = std::mem::take(&mut self.phase) else { return false };
                    let Unread { lane, writer, .. } = *unread;
                    lanes.finish_inbound(context, port, lane, writer);
                    Phase::Carry(None)
                }
                Phase::Carry(until) => {
                    if lanes.step_carry(context, port, until) {
                        return true;
                    }
                    let Some(outbound) = lanes.outbound.remove(&port) else { return false };
                    lanes.mark_gone(outbound.lane);
                    let Some(left) = lanes.recovered(outbound.lane) else {
                        lanes.finish_outbound(context, port, outbound.lane, cause.is_gone());
                        return false;
                    };
                    lanes.set_reads_out(port, true);
                    Phase::Unsent(outbound.lane, Box::new(left))
                }
                Phase::Unsent(lane, left) => {
                    let (lane, mut messages) = (*lane, Vec::new());
                    let gathered = gather(left, &mut messages);
                    lanes.corrupt += u64::from(gathered == Gathered::Malformed);
                    let is_over = !is_datagram(context.stack, port) && !is_connected(context.stack, port);
                    if !is_over && !messages.is_empty() {
                        lanes.corrupt += lanes.unsent.keep(context, port, messages);
                    }
                    if !is_over && gathered == Gathered::Some {
                        return true;
                    }
                    // The pair may be gone with the lane.
                    let left = std::mem::replace(&mut self.phase, Phase::Carry(None));
                    lanes.finish_outbound(context, port, lane, cause.is_gone());
                    context.effects.push(Effect::Free(Large::new(left)));
                    return false;
                }
            };
        }
    }
}

impl Unread {
    /// Ends a lane that the daemon writes; the process has read a part of it.
    fn begin(
        lanes: &mut Lanes,
        context: &mut Context<'_>,
        (port, inbound): (u32, Inbound),
        cause: EndCause,
    ) -> Self {
        let Inbound { lane, writer, .. } = inbound;
        lanes.mark_gone(lane);
        // The mark rang the daemon's own doorbell.
        lanes.serve_later(context, lane.pair);
        lanes.set_reads_out(port, true);
        let left = lanes.recovered(lane);
        Self { lane, writer, left, messages: Vec::new(), read: cause.read_of(lane) }
    }

    /// One step; whether there is more to do.
    fn step(&mut self, lanes: &mut Lanes, context: &mut Context<'_>, port: u32) -> bool {
        if let Some(left) = &mut self.left {
            let gathered = gather(left, &mut self.messages);
            lanes.corrupt += u64::from(gathered == Gathered::Malformed);
            if gathered == Gathered::Some {
                return true;
            }
            self.left = None;
        }
        let rest = self.messages.len().saturating_sub(STEP_RECORDS as usize);
        let newest = self.messages.split_off(rest);
        let read = if rest == 0 { self.read } else { 0 };
        if !newest.is_empty() && !context.stack.take_back(context.now, port, newest, read) {
            lanes.corrupt += 1;
        }
        rest > 0
    }
}
