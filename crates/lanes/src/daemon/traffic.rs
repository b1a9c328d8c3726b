//! Traffic of the lanes between processes and their node, a bounded part in each turn.

use crate::{Kind, LaneError, Peek, Reader, Record, Wakeup, Writer};
use utipc_attach::{LaneId, PairId};
use utipc_core::limits::MAX_MESSAGE;
use utipc_core::socket::{Built, Endpoint, State, Unsent};
use utipc_core::stack::Stack;
use utipc_core::wire::{Message, blocks};

use super::awake::MAX_AWAKE;
use super::node_lanes::{Attention, Inbound, is_datagram};
use super::open::LARGEST_OF_MANY;
use super::pairs::Near;
use super::state::LaneEvent;
use super::work::{STEP_BYTES, STEP_RECORDS};
use super::{Context, Effect, Job, Lanes};

/// Bytes that one step reads from a lane or writes to it; a message may exceed it. Our choice: a step takes less than
/// 0.1 ms with large and with small messages.
const BUDGET: usize = 128 << 10;

/// Bytes that a message counts in addition to its length.
const MESSAGE_COST: usize = 1024;

/// Slots of a pair that one call serves.
const SERVED_MAX: u32 = 64;

/// Maximum amount that one call reads from a lane.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Bytes, with [`MESSAGE_COST`]; a message may exceed them.
    bytes: usize,
    /// Number of records, including empty ones.
    visits: u32,
}

/// Reason why the daemon stopped reading an outbound lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// The lane is empty.
    Empty,
    /// The budget is used up.
    Budget,
    /// The endpoint accepts no more now.
    Blocked,
    /// The endpoint accepts nothing more: the connection is over.
    Refused,
    /// A record is malformed.
    Malformed,
}

impl Lanes {
    /// Serves an arena: lists the lanes that its process has written to, and fills those where it has made room.
    pub fn serve(&mut self, context: &mut Context<'_>, pair: PairId) {
        self.awake.add(&self.pairs, pair);
        let Some(near) = self.pairs.near(pair) else { return };
        let (mut ready, mut room) = (Vec::new(), Vec::new());
        near.inc.take_some_ready(SERVED_MAX, |slot| ready.push(slot));
        near.out.take_some_room(SERVED_MAX, |slot| room.push(slot));
        if near.has_work() {
            self.serve_later(context, pair);
        }
        for slot in ready {
            let id = LaneId { pair, writer: 1, slot: slot as u16 };
            if let Some(port) = self.lanes.get(&id).map(|lane| lane.from) {
                self.list(context, port, Attention::Armed);
            }
        }
        for slot in room {
            let id = LaneId { pair, writer: 0, slot: slot as u16 };
            if let Some(port) = self.lanes.get(&id).map(|lane| lane.to)
                && let Some(inbound) = self.inbound.get_mut(&port)
                && !std::mem::replace(&mut inbound.is_unfilled, true)
            {
                context.later(port, Job::Fill(port));
            }
        }
    }

    /// Serves the arenas whose processes do not wake the daemon.
    pub fn serve_awake(&mut self, context: &mut Context<'_>) {
        for at in 0..MAX_AWAKE {
            let Some(pair) = self.awake.at(at) else { return };
            if self.pairs.near(pair).is_some_and(Near::has_work) {
                self.serve(context, pair);
            }
        }
    }

    /// Continues with an arena; see [`Job::Serve`].
    pub(super) fn serve_behind(&mut self, context: &mut Context<'_>, pair: PairId) {
        if let Some(near) = self.pairs.get_mut(pair).and_then(|pair| pair.near.as_mut()) {
            near.is_behind = false;
            self.serve(context, pair);
        }
    }

    /// Serves an arena in its user's turn.
    pub(super) fn serve_later(&mut self, context: &mut Context<'_>, pair: PairId) {
        if let Some(near) = self.pairs.get_mut(pair).and_then(|pair| pair.near.as_mut())
            && let Some(user) = near.watched
            && !std::mem::replace(&mut near.is_behind, true)
        {
            context.effects.push(Effect::Run(Some(user), Job::Serve(pair)));
        }
    }

    /// Lists an outbound lane for its user's turn, if it has this state.
    fn list(&mut self, context: &mut Context<'_>, port: u32, from: Attention) {
        if let Some(outbound) = self.outbound.get_mut(&port)
            && outbound.attention == from
        {
            outbound.attention = Attention::Listed;
            context.later(port, Job::CarryOut(port));
        }
    }

    /// Carries out a step of an outbound lane; see [`Job::CarryOut`].
    pub(super) fn carry_listed(&mut self, context: &mut Context<'_>, port: u32) {
        let Some(outbound) = self.outbound.get_mut(&port) else { return };
        if outbound.attention == Attention::Listed {
            outbound.attention = Attention::Blocked;
            self.carry_out(context, port, Budget { bytes: BUDGET, visits: (BUDGET / MESSAGE_COST) as u32 });
        }
    }

    /// Continues filling an inbound lane; see [`Job::Fill`].
    pub(super) fn fill(&mut self, context: &mut Context<'_>, port: u32) {
        if let Some(inbound) = self.inbound.get_mut(&port) {
            inbound.is_unfilled = false;
            self.deliver(context, port);
        }
    }

    /// Carries out a part of what the process has written for a socket before the first step; `until` is the last
    /// possible position. Whether there is more.
    pub(super) fn step_carry(
        &mut self,
        context: &mut Context<'_>,
        port: u32,
        until: &mut Option<u64>,
    ) -> bool {
        let Some(outbound) = self.outbound.get(&port) else { return false };
        let reader = &outbound.reader;
        let until = *until.get_or_insert_with(|| reader.position() + reader.unread_max());
        let more = self.carry_out(context, port, Budget { bytes: STEP_BYTES, visits: STEP_RECORDS });
        more && self.outbound.get(&port).is_some_and(|outbound| outbound.reader.position() < until)
    }

    /// Hands records of an outbound lane to its endpoint; returns whether the budget ended it.
    fn carry_out(&mut self, context: &mut Context<'_>, port: u32, budget: Budget) -> bool {
        let stopped = self.read_outbound(context, port, budget);
        let Some(outbound) = self.outbound.get_mut(&port) else { return false };
        if stopped == Stopped::Blocked {
            outbound.reader.release();
        }
        let listed = outbound.attention == Attention::Listed;
        let armed = if stopped == Stopped::Empty { outbound.reader.arm() } else { Ok(false) };
        if outbound.reader.take_wakeup() == Wakeup::TellDaemon {
            context.effects.push(Effect::Writable(port));
        }
        outbound.attention = match (stopped, armed) {
            (Stopped::Empty, Ok(false)) => Attention::Armed,
            (Stopped::Blocked | Stopped::Refused, _) => Attention::Blocked,
            (Stopped::Malformed, _) | (_, Err(_)) => {
                self.refuse_outbound(context, port);
                return false;
            }
            (Stopped::Empty | Stopped::Budget, Ok(_)) => Attention::Listed,
        };
        if outbound.attention == Attention::Listed && !listed {
            context.later(port, Job::CarryOut(port));
        }
        if stopped == Stopped::Refused {
            // The process believes that the message is on its way: if the connection has not noticed its end yet, it
            // ends now.
            context.stack.abort(context.now, port);
        }
        stopped == Stopped::Budget
    }

    fn read_outbound(&mut self, context: &mut Context<'_>, port: u32, budget: Budget) -> Stopped {
        let Budget { mut bytes, mut visits } = budget;
        loop {
            let Some(outbound) = self.outbound.get_mut(&port) else { return Stopped::Empty };
            let record = match outbound.reader.peek_within(&mut visits) {
                Ok(None) => return Stopped::Budget,
                Ok(Some(Peek::Record(_))) if bytes == 0 => return Stopped::Budget,
                Ok(Some(Peek::Record(record))) => record,
                Ok(Some(Peek::Empty | Peek::Ended)) => return Stopped::Empty,
                Err(_) => return Stopped::Malformed,
            };
            let sent = copy_out(context.stack, port, &outbound.reader, &record)
                .and_then(|message| self.send_or_park(context, port, message));
            if let Err(stopped) = sent {
                return stopped;
            }
            let Some(outbound) = self.outbound.get_mut(&port) else { return Stopped::Empty };
            outbound.reader.consume(record, blocks(record.len()));
            self.awake.note_moved(record.len());
            bytes = bytes.saturating_sub(record.len() + MESSAGE_COST);
            visits = visits.saturating_sub(1);
        }
    }

    /// Sends one message of a lane. Without a connection it may wait for its node, so that it does not hold up the
    /// others.
    fn send_or_park(&mut self, context: &mut Context<'_>, port: u32, message: Built) -> Result<(), Stopped> {
        let node = message.node();
        let unsent = if node.is_some_and(|node| self.unsent.waits_for(port, node)) {
            message
        } else {
            match context.stack.send_built(context.now, port, message) {
                Ok(()) => return Ok(()),
                Err(Unsent::Blocked(message)) => message,
                Err(Unsent::Over) => return Err(Stopped::Refused),
            }
        };
        let unsent = match node {
            Some(_) => self.unsent.park(context, port, unsent),
            None => Err(unsent),
        };
        unsent.map_err(|message| {
            context.stack.recycle(message.into_message());
            Stopped::Blocked
        })
    }

    /// Continues with the node lanes of a socket whose state has changed.
    pub fn carry(&mut self, context: &mut Context<'_>, port: u32) {
        self.deliver(context, port);
        self.unsent.send(context, port);
        let endpoint = context.stack.endpoint(port);
        let datagram = endpoint.is_some_and(|e| !e.kind().is_connection_oriented());
        let writable = endpoint.is_some_and(|e| e.readiness().writable);
        let over = !datagram && endpoint.is_none_or(|e| e.state() != State::Established);
        // Without a connection more is accepted as soon as less waits.
        if writable || datagram {
            self.list(context, port, Attention::Blocked);
        }
        if over {
            self.drop_outbound(context, port, false);
        }
    }

    /// Writes what an endpoint has received into its process's lane, as far as there is room: one step now, the rest in
    /// its user's turn.
    pub(super) fn deliver(&mut self, context: &mut Context<'_>, port: u32) {
        let unfilled = |inbound: &&Inbound| !inbound.is_unfilled;
        let Some(lane) = self.inbound.get(&port).filter(unfilled).map(|inbound| inbound.lane) else { return };
        let Some((reader, most)) = self.lanes.get(&lane).map(|lane| (lane.reader, lane.class)) else {
            return;
        };
        let datagram = is_datagram(context.stack, port);
        // A smaller ring holds only three of the largest messages: both sides would often wait for each other. Without
        // a connection no window bounds what is ahead of the reader.
        let largest = if self.has_few_lanes(reader) && !datagram { most } else { LARGEST_OF_MANY };
        let Self { inbound, awake, corrupt, .. } = self;
        let Some(inbound) = inbound.get_mut(&port).filter(|inbound| !inbound.ended) else { return };
        let writer = &mut inbound.writer;
        let (mut broken, mut left, mut cut) = (None, BUDGET, false);
        let mut take = |message: &Message| {
            cut = left == 0;
            if cut {
                return false;
            }
            left = left.saturating_sub(message.size() + MESSAGE_COST);
            awake.note_moved(message.size());
            put(writer, message, largest).unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        };
        let count = context.stack.hand_out(context.now, port, &mut take);
        *corrupt += u64::from(matches!(broken, Some(LaneError::Corrupt(_))));
        if cut {
            inbound.is_unfilled = true;
            context.later(port, Job::Fill(port));
        }
        let at_end = |endpoint: &Endpoint| !datagram && endpoint.is_at_end();
        let over = broken.is_some() || context.stack.endpoint(port).is_none_or(at_end);
        let told = if over {
            inbound.ended = true;
            inbound.writer.mark(Kind::End, &[])
        } else if count > 0 {
            inbound.writer.flush()
        } else {
            return;
        };
        // A lane that accepts nothing more ends with its socket.
        if told == Ok(Wakeup::TellDaemon) {
            context.effects.push(Effect::Readable(port));
        }
        // The process will probably answer soon.
        self.awake.add(&self.pairs, lane.pair);
        if over {
            self.advance(lane, LaneEvent::WriterDone);
        }
    }
}

/// Copies a record out and checks the copy.
fn copy_out(stack: &mut Stack, port: u32, reader: &Reader, record: &Record) -> Result<Built, Stopped> {
    if stack.endpoint(port).is_none() {
        return Err(Stopped::Refused);
    }
    if record.kind() != Kind::Data || record.len() > MAX_MESSAGE {
        return Err(Stopped::Malformed);
    }
    let mut bytes = stack.memory(record.len());
    reader.append_payload(record, &mut bytes);
    stack.check_built(port, bytes).ok_or(Stopped::Malformed)
}

/// Writes a message into a lane. False if there is no room; the reader reports when there is.
fn put(writer: &mut Writer, message: &Message, largest: u8) -> Result<bool, LaneError> {
    let bytes = message.bytes();
    let cost = blocks(bytes.len());
    let push = |writer: &mut Writer| match writer.push(&[], &[bytes], cost) {
        Ok(()) => Ok(true),
        Err(LaneError::Full) => Ok(false),
        Err(error) => Err(error),
    };
    let wanted = match push(writer) {
        Ok(false) => writer.class().map_or(0, |class| class + 1),
        Err(LaneError::NeedsRing(class)) => class,
        pushed => return pushed,
    };
    if wanted <= largest {
        match writer.grow(wanted) {
            Ok(()) => return push(writer),
            // The reader is some rings behind.
            Err(LaneError::NoRing) if writer.class().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    // The process reads much at once: this spares wake-ups, and leaves it enough to read.
    writer.want_outstanding(writer.outstanding_cost() / 2)?;
    match push(writer) {
        Ok(true) => {
            writer.ignore_room();
            Ok(true)
        }
        // Memory for a larger ring becomes free when the reader leaves an older one; without an older one, never.
        Err(LaneError::NeedsRing(_)) if writer.outstanding_cost() == 0 => Err(LaneError::NoRing),
        Ok(false) | Err(LaneError::NeedsRing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
