//! Everything that a socket receives from: its lanes and its node, in turn.
//!
//! Up to [`POLLED`] lanes are looked at directly. Any more are *armed*: their writers report them, so that receiving does
//! not get dearer with lanes that are idle. In one round every lane that has something has one turn, with a share that is the
//! same for all; nobody is starved.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::{NodeAddr, PortId, ServiceRange};
use utipc_core::socket::{Received, RecvOptions, SocketKind};
use utipc_lanes::{Peek, Record, Wakeup};
use utipc_os::shm::prefetch;

use super::head::{Arrived, Expected};
use super::inbound::{Found, InLane, Sink};
use super::pair::{Pair, ReadyBox};

/// Lanes that are looked at directly.
pub(super) const POLLED: usize = 8;
/// Messages of one lane that one turn takes where there are more lanes than that: each turn begins with pages and lines
/// that nobody has touched since the last round.
pub(super) const SHARE: u32 = 8;
/// Listed lanes ahead of the one whose turn it is whose place is fetched, and those whose next record is.
const FETCHED: (usize, usize) = (2, 1);
/// Messages of listed lanes between two of the node's, which speaks for all that have no lane yet.
const NODE_EVERY: u32 = 64;
/// Own messages that came back, at most; the oldest are lost.
const RETURNED_MAX: usize = 1024;
/// Messages of other nodes that come by commands before there is a lane.
const FAR_BEFORE: u32 = 2;

/// One receive.
pub(crate) struct Call<'a> {
    pub(crate) sink: Sink<'a>,
    pub(crate) options: RecvOptions,
    /// What the caller is told. Filled where it is: to hand it on from step to step costs more than all else that is done
    /// for a message.
    pub(crate) received: Received,
}

impl<'a> Call<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: RecvOptions) -> Self {
        Self { sink, options, received: Received::default() }
    }
}

/// What a receive leads to.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message, or a part of one: see [`Call::received`].
    Got,
    Nothing,
    /// The node may hold something: ask it, then tell by [`Receiver::node_served`] or [`Receiver::node_is_empty`].
    AskNode,
    /// A lane is over: leave it, then go on.
    Ended(LaneId),
    /// A lane holds what no honest process writes: leave it and report it.
    Corrupt(LaneId),
}

/// Whose socket it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) node: NodeAddr,
    pub(crate) port: u32,
    pub(crate) kind: SocketKind,
}

/// The receiving half of a socket.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// `None` in places that are free.
    lanes: Vec<Option<InLane>>,
    free: Vec<usize>,
    places: HashMap<LaneId, usize>,
    /// Places of lanes that are looked at directly.
    polled: Vec<usize>,
    /// Places of other lanes that may have something.
    listed: VecDeque<usize>,
    /// Whose turn it is: 0 the node's, then the polled lanes, then `listed_left` of the listed ones.
    turn: usize,
    listed_left: usize,
    /// Messages that this turn has taken.
    taken: u32,
    /// The node may hold something,
    node: bool,
    /// and has waited for so many turns of listed lanes.
    node_waited: u32,
    /// The socket has a descriptor: whoever arms a lane asks for the daemon to be told too.
    telling: bool,
    /// A message that was begun or looked at: its lane's place, and the bytes read.
    begun: Option<(usize, usize)>,
    /// Own messages that came back without leaving this process.
    returned: VecDeque<Received>,
    pairs: Vec<(Arc<Pair>, u32)>,
    /// Lanes whose writer's process waits for a descriptor: the daemon tells it that there is room.
    tell: Vec<LaneId>,
    /// Messages of other nodes that came by commands; many: it has asked for a lane.
    far: u32,
    /// The service by which a connection was set up.
    service: Option<ServiceRange>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            polled: Vec::new(),
            listed: VecDeque::new(),
            turn: 0,
            listed_left: 0,
            taken: 0,
            node: true,
            node_waited: 0,
            telling: false,
            begun: None,
            returned: VecDeque::new(),
            pairs: Vec::new(),
            tell: Vec::new(),
            far: 0,
            service: None,
            messages: 0,
            bytes: 0,
        }
    }

    /// Adds a lane; reports about it go to `ready`.
    pub(crate) fn add(&mut self, mut lane: InLane, ready: &Arc<ReadyBox>) {
        lane.reader.tell_daemon(self.telling);
        lane.pair.set_reader(lane.id.slot, Some(Arc::clone(ready)));
        match self.pairs.iter_mut().find(|(pair, _)| pair.id == lane.pair.id) {
            Some((_, lanes)) => *lanes += 1,
            None => self.pairs.push((Arc::clone(&lane.pair), 1)),
        }
        let id = lane.id;
        let place = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        self.lanes[place] = Some(lane);
        self.places.insert(id, place);
        if self.polled.len() < POLLED {
            self.polled.push(place);
        } else {
            self.list(place);
        }
    }

    /// Takes a lane out; `None` if it is not there.
    pub(crate) fn remove(&mut self, id: LaneId) -> Option<InLane> {
        let place = self.places.remove(&id)?;
        let lane = self.lanes[place].take()?;
        self.free.push(place);
        lane.pair.set_reader(id.slot, None);
        self.polled.retain(|other| *other != place);
        if lane.listed {
            let before = self.listed.len();
            self.listed.retain(|other| *other != place);
            self.listed_left = self.listed_left.saturating_sub(before - self.listed.len());
        }
        self.turn = self.turn.min(self.polled.len() + 1);
        self.taken = 0;
        if self.begun.is_some_and(|(begun, _)| begun == place) {
            self.begun = None;
        }
        if let Some(at) = self.pairs.iter().position(|(pair, _)| pair.id == id.pair) {
            self.pairs[at].1 -= 1;
            if self.pairs[at].1 == 0 {
                self.pairs.swap_remove(at);
            }
        }
        Some(lane)
    }

    /// Whether a lane from the node shall be asked for, after a message of another node was fetched by a command.
    pub(crate) fn wants_node_lane(&mut self) -> bool {
        self.far = self.far.saturating_add(1);
        self.far == FAR_BEFORE && !self.lanes.iter().flatten().any(InLane::is_for_all)
    }

    /// The socket takes lanes again.
    pub(crate) fn forget_refusals(&mut self) {
        self.far = 0;
    }

    /// The lanes that there are.
    pub(crate) fn ids(&self) -> Vec<LaneId> {
        self.places.keys().copied().collect()
    }

    /// The message that was begun: its lane, and the bytes read.
    pub(crate) fn begun(&self) -> Option<(LaneId, u32)> {
        let (place, offset) = self.begun?;
        let lane = self.lanes.get(place)?.as_ref()?;
        Some((lane.id, u32::try_from(offset).unwrap_or(u32::MAX)))
    }

    pub(crate) fn has_lanes(&self) -> bool {
        !self.places.is_empty()
    }

    /// The arenas of its lanes.
    pub(crate) fn pairs(&self) -> Vec<Arc<Pair>> {
        self.pairs.iter().map(|(pair, _)| Arc::clone(pair)).collect()
    }

    /// What waits in its lanes, and what came back: messages, and the bytes of those in lanes with their headers.
    pub(crate) fn waiting(&self) -> (u32, u64) {
        let returned = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        self.lanes
            .iter()
            .flatten()
            .map(|lane| lane.reader.waiting())
            .fold((returned, 0), |sum, lane| (sum.0.saturating_add(lane.0), sum.1.saturating_add(lane.1)))
    }

    /// Whether a writer was awake when it was last seen.
    pub(crate) fn some_partner_is_awake(&self) -> bool {
        self.pairs.iter().any(|(pair, _)| pair.partner_is_awake())
    }

    /// The node has something, or may have.
    pub(crate) fn node_is_ready(&mut self) {
        self.node = true;
    }

    /// The node had nothing.
    pub(crate) fn node_is_empty(&mut self) {
        self.node = false;
        self.node_waited = 0;
        self.pass_turn();
    }

    /// The node had something; `stays`: and the same or the rest of it will be read next.
    pub(crate) fn node_served(&mut self, stays: bool) {
        if !stays {
            self.node_waited = 0;
            self.pass_turn();
        }
    }

    /// The connection was set up by this name.
    pub(crate) fn set_service(&mut self, service: Option<ServiceRange>) {
        self.service = service;
    }

    /// An own message that comes back.
    pub(crate) fn give_back(&mut self, returned: Received) {
        if self.returned.len() >= RETURNED_MAX {
            self.returned.pop_front();
        }
        self.returned.push_back(returned);
    }

    /// Lanes about which the daemon has to tell their writer's process.
    pub(crate) fn take_tell(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.tell)
    }

    fn list(&mut self, place: usize) {
        if let Some(lane) = &mut self.lanes[place]
            && !std::mem::replace(&mut lane.listed, true)
        {
            self.listed.push_back(place);
        }
    }

    fn pass_turn(&mut self) {
        self.turn += 1;
        self.taken = 0;
    }

    /// The lane whose turn it is yields a message: whether its turn is over with it.
    #[inline]
    fn ends_turn(&mut self) -> bool {
        self.taken += 1;
        let share = if self.places.len() > self.polled.len() { SHARE } else { 1 };
        self.taken >= share
    }

    /// What to do next for a call. Call again after having done it.
    pub(crate) fn next(&mut self, own: Own, call: &mut Call<'_>, ready: &ReadyBox) -> Next {
        if own.kind.is_connection_oriented() {
            return self.next_connected(own, call);
        }
        if let Some((place, offset)) = self.begun {
            return match self.look(own, place) {
                Ok(Found::Message(record, arrived)) => {
                    self.take(own, place, (record, &arrived), offset, call)
                }
                // Nobody takes back what was begun, except the daemon when the socket changes hands.
                Ok(Found::Nothing | Found::Ended) => {
                    self.begun = None;
                    self.next(own, call, ready)
                }
                Err(next) => next,
            };
        }
        if let Some(returned) = self.returned.pop_front() {
            self.messages += 1;
            call.received = returned;
            return Next::Got;
        }
        let mut rounds = 0;
        while rounds < 2 {
            match self.turn {
                0 if self.node => return Next::AskNode,
                0 => self.pass_turn(),
                turn if self.node && self.node_waited >= NODE_EVERY && turn > self.polled.len() => {
                    return Next::AskNode;
                }
                turn if turn <= self.polled.len() => {
                    let place = self.polled[turn - 1];
                    match self.look(own, place) {
                        Ok(Found::Message(record, arrived)) => {
                            if self.ends_turn() {
                                self.pass_turn();
                            }
                            return self.take(own, place, (record, &arrived), 0, call);
                        }
                        Ok(Found::Nothing) => self.pass_turn(),
                        Ok(Found::Ended) => return self.ended(place),
                        Err(next) => return next,
                    }
                }
                _ => match self.next_listed(own, call) {
                    Some(next) => return next,
                    None => {
                        rounds += 1;
                        self.begin_round(ready);
                    }
                },
            }
        }
        Next::Nothing
    }

    /// The turn of the listed lanes; `None` when all have had theirs.
    fn next_listed(&mut self, own: Own, call: &mut Call<'_>) -> Option<Next> {
        while self.listed_left > 0 {
            let place = *self.listed.front()?;
            match self.look(own, place) {
                Ok(Found::Message(record, arrived)) => {
                    if self.ends_turn() {
                        // To the end of the line: it may have more.
                        self.end_listed_turn();
                        self.listed.push_back(place);
                    }
                    self.node_waited = self.node_waited.saturating_add(1);
                    return Some(self.take(own, place, (record, &arrived), 0, call));
                }
                Ok(Found::Ended) => {
                    self.end_listed_turn();
                    return Some(self.ended(place));
                }
                Ok(Found::Nothing) => {
                    self.end_listed_turn();
                    if let Err(next) = self.arm(place) {
                        return Some(next);
                    }
                }
                Err(next) => {
                    self.end_listed_turn();
                    return Some(next);
                }
            }
        }
        None
    }

    /// The first of the listed lanes has had its turn.
    fn end_listed_turn(&mut self) {
        self.listed.pop_front();
        self.listed_left -= 1;
        self.taken = 0;
        self.fetch_ahead();
    }

    /// Has fetched what the next listed lanes' turns need: with many of them nothing of it has stayed in the caches since
    /// the last round.
    #[inline]
    fn fetch_ahead(&self) {
        let at = |ahead: usize| self.listed.get(ahead).and_then(|place| self.lanes.get(*place));
        if let Some(lane) = at(FETCHED.0) {
            prefetch(lane);
        }
        if let Some(Some(lane)) = at(FETCHED.1) {
            lane.reader.prefetch();
        }
    }

    /// From now on the daemon is told of what comes into a lane that nobody looks at.
    pub(crate) fn tell_daemon(&mut self) {
        self.telling = true;
        for place in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[place] else { continue };
            lane.reader.tell_daemon(true);
            // Armed already, without that: looked at once more in its turn, and armed anew.
            if !self.polled.contains(&place) {
                self.list(place);
            }
        }
    }

    /// A lane that was read to its end: nothing to receive, and to be left.
    pub(crate) fn lane_at_end(&mut self) -> Option<LaneId> {
        let Self { lanes, polled, .. } = self;
        polled
            .iter()
            .find_map(|place| lanes[*place].as_mut().and_then(|lane| lane.is_at_end().then_some(lane.id)))
    }

    /// Whether a receive finds something without the node, or nonsense. Nothing is armed.
    pub(crate) fn has_something_here(&mut self, ready: &ReadyBox) -> bool {
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        if !self.returned.is_empty() || self.begun.is_some() || !self.listed.is_empty() {
            return true;
        }
        let Self { lanes, polled, tell, .. } = self;
        // Nonsense is something too: the receive reports it.
        let mut has = |lane: &mut InLane| {
            let found = lane.reader.peek() != Ok(Peek::Empty);
            note_ring(lane, tell);
            found
        };
        polled.iter().any(|place| lanes[*place].as_mut().is_some_and(&mut has))
    }

    /// Whether what the node may have is for the next receive: for a connection it comes after its lane.
    pub(crate) fn node_counts(&self, kind: SocketKind) -> bool {
        self.node && !(kind.is_connection_oriented() && self.has_lanes())
    }

    /// Asks the writer of a listed lane to report it, unless it has something already.
    fn arm(&mut self, place: usize) -> Result<(), Next> {
        let Some(lane) = &mut self.lanes[place] else { return Ok(()) };
        let armed = lane.reader.arm();
        note_ring(lane, &mut self.tell);
        match armed {
            Ok(true) => self.listed.push_back(place),
            Ok(false) => lane.listed = false,
            Err(_) => return Err(Next::Corrupt(lane.id)),
        }
        Ok(())
    }

    fn begin_round(&mut self, ready: &ReadyBox) {
        self.turn = 0;
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        self.listed_left = self.listed.len();
    }

    /// Fetches reports about armed lanes.
    fn collect(&mut self, ready: &ReadyBox) {
        for (pair, _) in &self.pairs {
            pair.dispatch();
        }
        ready.take(|id| {
            if let Some(&place) = self.places.get(&id)
                && !self.polled.contains(&place)
            {
                self.list(place);
            }
        });
    }

    #[inline]
    fn look(&mut self, own: Own, place: usize) -> Result<Found, Next> {
        let Some(lane) = &mut self.lanes[place] else { return Ok(Found::Nothing) };
        let from = PortId { port: lane.other, node: lane.node.unwrap_or(own.node) };
        let from = (!lane.is_for_all()).then_some(from);
        let expected = Expected { node: own.node, port: own.port, from, kind: own.kind };
        let found = lane.look(&expected);
        if !matches!(found, Ok(Found::Message(..))) {
            note_ring(lane, &mut self.tell);
        }
        found.map_err(|_| Next::Corrupt(lane.id))
    }

    fn ended(&self, place: usize) -> Next {
        self.lanes[place].as_ref().map_or(Next::Nothing, |lane| Next::Ended(lane.id))
    }

    #[inline]
    fn take(
        &mut self,
        own: Own,
        place: usize,
        message: (Record, &Arrived),
        offset: usize,
        call: &mut Call<'_>,
    ) -> Next {
        let Some(lane) = &mut self.lanes[place] else { return Next::Nothing };
        let (rest, ring) = lane.receive(message, offset, call);
        if ring == Wakeup::TellDaemon {
            self.tell.push(lane.id);
        }
        if own.kind.is_connection_oriented() {
            call.received.destination = self.service;
        }
        self.begun = rest.map(|offset| (place, offset));
        if !call.options.peek {
            self.bytes += call.received.len as u64;
            self.messages += u64::from(rest.is_none());
        }
        Next::Got
    }

    /// A connection has one lane at most, and what comes after it is at the node.
    fn next_connected(&mut self, own: Own, call: &mut Call<'_>) -> Next {
        let Some(&place) = self.polled.first() else { return self.node_or_nothing() };
        let found = match self.look(own, place) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let offset = self.begun.map_or(0, |(_, offset)| offset);
        match found {
            Found::Message(record, arrived) if own.kind == SocketKind::Stream => {
                self.read_stream(own, place, (record, arrived), offset, call)
            }
            Found::Message(record, arrived) => self.take(own, place, (record, &arrived), offset, call),
            Found::Nothing => {
                // What the node has comes after the lane's end; till then nobody need look there.
                self.node = false;
                Next::Nothing
            }
            Found::Ended => self.ended(place),
        }
    }

    fn node_or_nothing(&self) -> Next {
        if self.node { Next::AskNode } else { Next::Nothing }
    }

    /// As many bytes as there are and fit; a look (peek) sees one message's.
    fn read_stream(
        &mut self,
        own: Own,
        place: usize,
        (mut record, mut arrived): (Record, Arrived),
        mut offset: usize,
        call: &mut Call<'_>,
    ) -> Next {
        let Call { sink, options, received } = call;
        received.destination = self.service;
        received.importance = arrived.importance;
        // Memory that grows takes the first message.
        let first = arrived.data.saturating_sub(offset);
        let buffer = sink.room(first);
        while let Some(lane) = &mut self.lanes[place] {
            received.source = PortId { port: lane.other, node: lane.node.unwrap_or(own.node) };
            let room = &mut buffer[received.len..];
            let len = lane.copy(&record, &arrived, offset, room);
            received.len += len;
            if options.peek {
                return Next::Got;
            }
            offset += len;
            if offset < arrived.data {
                self.begun = Some((place, offset));
                break;
            }
            if lane.consume(record) == Wakeup::TellDaemon {
                self.tell.push(lane.id);
            }
            self.messages += 1;
            self.begun = None;
            offset = 0;
            if received.len == buffer.len() {
                break;
            }
            match self.look(own, place) {
                Ok(Found::Message(next, head)) => (record, arrived) = (next, head),
                // What was read is the answer; the next call finds the same again.
                Ok(Found::Nothing | Found::Ended) | Err(_) => break,
            }
        }
        self.bytes += received.len as u64;
        Next::Got
    }

    /// Before sleeping: asks every writer to wake this process; true if there is something already.
    pub(crate) fn arm_all(&mut self, kind: SocketKind, ready: &ReadyBox) -> bool {
        for at in 0..self.polled.len() {
            let place = self.polled[at];
            if let Some(lane) = &mut self.lanes[place] {
                // Nonsense is found again by the look that follows.
                let found = lane.reader.arm().unwrap_or(true);
                note_ring(lane, &mut self.tell);
                if found {
                    return true;
                }
            }
        }
        if self.places.len() > self.polled.len() {
            self.collect(ready);
        }
        !self.listed.is_empty() || !self.returned.is_empty() || self.node_counts(kind)
    }
}

/// A lane that is found empty gives all its room back, for which its writer may wait by a descriptor.
fn note_ring(lane: &mut InLane, tell: &mut Vec<LaneId>) {
    if lane.take_wakeup() == Wakeup::TellDaemon {
        tell.push(lane.id);
    }
}
