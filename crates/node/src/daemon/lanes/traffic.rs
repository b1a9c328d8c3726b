//! What goes through the lanes between processes and their node, a bounded part in each turn.

use utipc_core::Time;
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Endpoint, SendError, State};
use utipc_core::wire::{Message, SHORT_HEADER, blocks};
use utipc_lanes::{Kind, LaneError, Peek, Wakeup, Writer};

use utipc_attach::{LaneId, PairId};

use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::lanes::node_lanes::{Attention, Way};

/// Bytes that one lane gets rid of in one turn, then it is the next one's; a message may exceed it.
const BUDGET: usize = 128 << 10;

/// What a message counts beside its bytes.
const MESSAGE_COST: usize = 256;

/// The largest header that a lane carries, bytes.
const HEADER_MAX: usize = 60;

/// The class of the largest ring that the node writes, 1 MiB: with room for three of the largest messages only, both sides
/// would wait for each other all the time.
const LARGEST: u8 = 3;

/// The same where a process has many lanes: 256 KiB.
const LARGEST_OF_MANY: u8 = 2;

/// How a look at an outbound lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Nothing is left.
    All,
    /// The turn's share is used up.
    Share,
    /// The endpoint takes no more now.
    Blocked,
    /// Nor ever: the connection is over.
    Refused,
    /// What is in it makes no sense.
    Nonsense,
}

impl Dispatcher {
    /// A process knocks: something is in its lanes, or there is room again.
    pub(in crate::daemon) fn serve_lanes(&mut self, now: Time, pair: PairId) {
        self.stay_awake_for(pair);
        let Some(near) = self.broker.pairs.get(pair).and_then(|pair| pair.near.as_ref()) else { return };
        let (mut ready, mut room) = (Vec::new(), Vec::new());
        near.inc.take_ready(|slot| ready.push(slot));
        near.out.take_room(|slot| room.push(slot));
        for slot in ready {
            let id = LaneId { pair, writer: 1, slot: slot as u16 };
            if let Some(port) = self.broker.lanes.get(&id).map(|lane| lane.from) {
                self.list(port, Attention::Armed);
            }
        }
        for slot in room {
            let id = LaneId { pair, writer: 0, slot: slot as u16 };
            if let Some(port) = self.broker.lanes.get(&id).map(|lane| lane.to) {
                self.deliver(now, port);
            }
        }
    }

    /// The next turn looks at an outbound lane, if nobody did because of `was`.
    fn list(&mut self, port: u32, was: Attention) {
        if let Some(outbound) = self.node_lanes.outbound.get_mut(&port)
            && outbound.attention == was
        {
            outbound.attention = Attention::Listed;
            self.node_lanes.listed.push_back(port);
        }
    }

    /// Every listed lane gets its share.
    pub(in crate::daemon) fn carry_all(&mut self, now: Time) {
        for _ in 0..self.node_lanes.listed.len() {
            let Some(port) = self.node_lanes.listed.pop_front() else { return };
            if let Some(outbound) = self.node_lanes.outbound.get_mut(&port) {
                outbound.attention = Attention::Blocked;
            }
            self.carry_out(now, port, BUDGET);
        }
    }

    /// Hands up to `share` bytes of an outbound lane to the endpoint.
    pub(in crate::daemon) fn carry_out(&mut self, now: Time, port: u32, share: usize) {
        let carried = self.try_carry_out(now, port, share);
        let Some(outbound) = self.node_lanes.outbound.get_mut(&port) else { return };
        let listed = outbound.attention == Attention::Listed;
        let armed = if carried == Carried::All { outbound.reader.arm() } else { Ok(false) };
        if outbound.reader.take_wakeup() == Wakeup::TellDaemon
            && let Some(far) = self.fars.get(&port)
        {
            far.unplug();
        }
        outbound.attention = match (carried, armed) {
            (Carried::All, Ok(false)) => Attention::Armed,
            (Carried::Blocked | Carried::Refused, _) => Attention::Blocked,
            (Carried::Nonsense, _) | (_, Err(_)) => return self.refuse_outbound(now, port),
            (Carried::All | Carried::Share, Ok(_)) => Attention::Listed,
        };
        if outbound.attention == Attention::Listed && !listed {
            self.node_lanes.listed.push_back(port);
        }
        if carried == Carried::Refused {
            // Its process was told that the message is on its way: if the connection does not know its end yet, this is it.
            self.driver.stack.abort(now, port);
        }
    }

    fn try_carry_out(&mut self, now: Time, port: u32, share: usize) -> Carried {
        let own = self.driver.stack.own_node();
        let datagram = self.is_datagram(port);
        let mut message = std::mem::take(&mut self.node_lanes.message);
        let mut left = share;
        let carried = loop {
            let Some(outbound) = self.node_lanes.outbound.get_mut(&port) else { break Carried::All };
            let record = match outbound.reader.peek() {
                Ok(Peek::Record(record)) => record,
                Ok(Peek::Empty | Peek::Ended) => break Carried::All,
                Err(_) => break Carried::Nonsense,
            };
            let way = if datagram {
                let mut header = [0; HEADER_MAX];
                let len = outbound.reader.read_header(&record, &mut header);
                Way::of(header.get(..len).unwrap_or_default(), record.len(), own)
            } else {
                None
            };
            let header = way.map_or(SHORT_HEADER, |(_, header)| header);
            let sizes = header + 1..=header + MAX_USER_DATA;
            if record.kind() != Kind::Data || !sizes.contains(&record.len()) || datagram && way.is_none() {
                break Carried::Nonsense;
            }
            message.resize(record.len() - header, 0);
            outbound.reader.copy_payload(&record, header, &mut message);
            let (len, cost) = (record.len(), blocks(record.len()));
            let way = way.map(|(way, _)| way);
            let sent = match way {
                Some(way) if self.node_lanes.waits_for(port, way.found.node) => Err(SendError::WouldBlock),
                way => self.send_from_lane(now, port, &message, way),
            };
            let taken = match (sent, way) {
                (Ok(()), _) => true,
                // It does not hold up those for other nodes.
                (Err(SendError::WouldBlock), Some(way)) => self.node_lanes.park(port, way, &message).is_ok(),
                (Err(SendError::WouldBlock), None) => false,
                (Err(_), _) => break Carried::Refused,
            };
            if !taken {
                break Carried::Blocked;
            }
            let Some(outbound) = self.node_lanes.outbound.get_mut(&port) else { break Carried::All };
            outbound.reader.consume(record, cost);
            self.awake.note_moved(len);
            left = left.saturating_sub(len + MESSAGE_COST);
            if left == 0 {
                break Carried::Share;
            }
        };
        self.node_lanes.message = message;
        if carried == Carried::Blocked
            && let Some(outbound) = self.node_lanes.outbound.get_mut(&port)
        {
            outbound.reader.release();
        }
        carried
    }

    /// Something has happened to a connection with lanes of the node.
    pub(in crate::daemon) fn carry(&mut self, now: Time, port: u32) {
        self.deliver(now, port);
        self.send_unsent(now, port);
        let endpoint = self.driver.stack.endpoint(port);
        let datagram = endpoint.is_some_and(|e| !e.kind().is_connection_oriented());
        let writable = endpoint.is_some_and(|e| e.readiness().writable);
        let over = !datagram && endpoint.is_none_or(|e| e.state() != State::Established);
        // Without a connection more is taken as soon as less waits.
        if writable || datagram {
            self.list(port, Attention::Blocked);
        }
        if over && let Some(outbound) = self.node_lanes.outbound.remove(&port) {
            drop(self.end_outbound(outbound.lane, false));
            self.finish_lane(now, outbound.lane);
        }
    }

    /// Writes what an endpoint has received into its process's lane, as far as there is room.
    pub(in crate::daemon) fn deliver(&mut self, now: Time, port: u32) {
        let Some(lane) = self.node_lanes.inbound.get(&port).map(|lane| lane.lane) else { return };
        let owner = self.broker.lanes.get(&lane).map_or(0, |lane| lane.to_owner);
        let datagram = self.is_datagram(port);
        // Without a connection nothing else bounds what is ahead of the reader.
        let largest = if self.has_few_lanes(owner) && !datagram { LARGEST } else { LARGEST_OF_MANY };
        let lanes = &mut self.node_lanes;
        let Some(inbound) = lanes.inbound.get_mut(&port).filter(|lane| !lane.ended) else { return };
        let writer = &mut inbound.writer;
        let mut broken = None;
        let awake = &mut self.awake;
        let mut take = |message: &Message| {
            awake.note_moved(message.size());
            put(writer, message, largest).unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        };
        let count = self.driver.stack.hand_out(now, port, &mut take);
        self.broker.corrupt += u64::from(matches!(broken, Some(LaneError::Corrupt(_))));
        let at_end = |endpoint: &Endpoint| !datagram && endpoint.is_at_end();
        let over = broken.is_some() || self.driver.stack.endpoint(port).is_none_or(at_end);
        let told = if over {
            inbound.ended = true;
            inbound.writer.mark(Kind::End, &[])
        } else if count > 0 {
            inbound.writer.flush()
        } else {
            return;
        };
        // A lane that takes nothing more ends with its socket.
        if told == Ok(Wakeup::TellDaemon)
            && let Some(far) = self.fars.get(&port)
        {
            far.flag();
        }
        let lane = inbound.lane;
        // Who gets a question answers soon.
        self.stay_awake_for(lane.pair);
        if over && let Some(lane) = self.broker.lanes.get_mut(&lane) {
            (lane.ended, lane.writer_done) = (true, true);
        }
    }
}

/// Writes a message into a lane; false if there is no room, and the reader tells when there is.
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
    writer.want_room()?;
    match push(writer) {
        Ok(true) => {
            writer.ignore_room();
            Ok(true)
        }
        // Room for a larger ring comes when the reader has left an older one; if there is none, it never comes.
        Err(LaneError::NeedsRing(_)) if writer.outstanding_cost() == 0 => Err(LaneError::NoRing),
        Ok(false) | Err(LaneError::NeedsRing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
