//! Everything that a socket receives from: its lanes and its node, in turn.
//!
//! Up to [`POLLED`] lanes are looked at directly. Any more are *armed*: their writers report them, so that receiving does
//! not get dearer with lanes that are idle. One round serves every lane that has something once; nobody is starved.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::{NodeAddr, PortId, ServiceRange};
use utipc_core::socket::{Received, RecvOptions, Returned, SocketKind};
use utipc_os::shm::{Peek, Ring};

use super::head::{Arrived, Expected};
use super::inbound::{Found, InLane, Sink};
use super::pair::{Pair, ReadyBox};

/// Lanes that are looked at directly.
const POLLED: usize = 8;
/// Own messages that came back, at most; the oldest are lost.
const RETURNED_MAX: usize = 1024;

/// Messages of other nodes that come by commands before there is a lane.
const FAR_BEFORE: u32 = 2;

/// What a receive leads to.
#[derive(Debug)]
pub(crate) enum Next {
    Got(Received),
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
    /// The node may hold something.
    node: bool,
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
            node: true,
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
        let before = self.listed.len();
        self.listed.retain(|other| *other != place);
        self.listed_left = self.listed_left.saturating_sub(before - self.listed.len());
        self.turn = self.turn.min(self.polled.len() + 1);
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
        self.pass_turn();
    }

    /// The node had something; `stays`: and the same or the rest of it will be read next.
    pub(crate) fn node_served(&mut self, stays: bool) {
        if !stays {
            self.pass_turn();
        }
    }

    /// The connection was set up by this name.
    pub(crate) fn set_service(&mut self, service: Option<ServiceRange>) {
        self.service = service;
    }

    /// An own message that comes back.
    pub(crate) fn give_back(&mut self, source: PortId, returned: Returned) {
        if self.returned.len() >= RETURNED_MAX {
            self.returned.pop_front();
        }
        self.returned.push_back(Received { source, returned: Some(returned), ..Received::default() });
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
    }

    /// What to do next for a call that receives into `sink`. Call again after having done it.
    pub(crate) fn next(
        &mut self,
        own: Own,
        sink: &mut Sink<'_>,
        options: RecvOptions,
        ready: &ReadyBox,
    ) -> Next {
        if own.kind.is_connection_oriented() {
            return self.next_connected(own, sink, options);
        }
        if let Some((place, offset)) = self.begun {
            return match self.look(own, place) {
                Ok(Found::Message(record, arrived)) => {
                    self.take(own, place, (record, arrived), offset, sink, options)
                }
                // Nobody takes back what was begun, except the daemon when the socket changes hands.
                Ok(Found::Nothing | Found::Ended) => {
                    self.begun = None;
                    self.next(own, sink, options, ready)
                }
                Err(next) => next,
            };
        }
        if let Some(returned) = self.returned.pop_front() {
            self.messages += 1;
            return Next::Got(returned);
        }
        let mut rounds = 0;
        while rounds < 2 {
            match self.turn {
                0 if self.node => return Next::AskNode,
                0 => self.pass_turn(),
                turn if turn <= self.polled.len() => {
                    let place = self.polled[turn - 1];
                    match self.look(own, place) {
                        Ok(Found::Message(record, arrived)) => {
                            self.pass_turn();
                            return self.take(own, place, (record, arrived), 0, sink, options);
                        }
                        Ok(Found::Nothing) => self.pass_turn(),
                        Ok(Found::Ended) => return self.ended(place),
                        Err(next) => return next,
                    }
                }
                _ => match self.next_listed(own, sink, options) {
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
    fn next_listed(&mut self, own: Own, sink: &mut Sink<'_>, options: RecvOptions) -> Option<Next> {
        while self.listed_left > 0 {
            self.listed_left -= 1;
            let place = self.listed.pop_front()?;
            match self.look(own, place) {
                Ok(Found::Message(record, arrived)) => {
                    // To the end of the line: it may have more.
                    self.listed.push_back(place);
                    return Some(self.take(own, place, (record, arrived), 0, sink, options));
                }
                Ok(Found::Ended) => return Some(self.ended(place)),
                Ok(Found::Nothing) => {
                    if let Err(next) = self.arm(place) {
                        return Some(next);
                    }
                }
                Err(next) => return Some(next),
            }
        }
        None
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

    fn take(
        &mut self,
        own: Own,
        place: usize,
        (record, arrived): (utipc_os::shm::Record, Arrived),
        offset: usize,
        sink: &mut Sink<'_>,
        options: RecvOptions,
    ) -> Next {
        let Some(lane) = &mut self.lanes[place] else { return Next::Nothing };
        let (mut received, rest, ring) = lane.receive(record, &arrived, offset, sink, options);
        if ring == Ring::TellDaemon {
            self.tell.push(lane.id);
        }
        if own.kind.is_connection_oriented() {
            received.destination = self.service;
        }
        self.begun = rest.map(|offset| (place, offset));
        if !options.peek {
            self.bytes += received.len as u64;
            self.messages += u64::from(rest.is_none());
        }
        Next::Got(received)
    }

    /// A connection has one lane at most, and what comes after it is at the node.
    fn next_connected(&mut self, own: Own, sink: &mut Sink<'_>, options: RecvOptions) -> Next {
        let Some(&place) = self.polled.first() else { return self.node_or_nothing() };
        let found = match self.look(own, place) {
            Ok(found) => found,
            Err(next) => return next,
        };
        let offset = self.begun.map_or(0, |(_, offset)| offset);
        match found {
            Found::Message(record, arrived) if own.kind == SocketKind::Stream => {
                self.read_stream(own, place, (record, arrived), offset, sink, options)
            }
            Found::Message(record, arrived) => {
                self.take(own, place, (record, arrived), offset, sink, options)
            }
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
        (mut record, mut arrived): (utipc_os::shm::Record, Arrived),
        mut offset: usize,
        sink: &mut Sink<'_>,
        options: RecvOptions,
    ) -> Next {
        let mut received =
            Received { destination: self.service, importance: arrived.importance, ..Received::default() };
        // Memory that grows takes the first message.
        let first = arrived.data.saturating_sub(offset);
        let buffer = sink.room(first);
        while let Some(lane) = &mut self.lanes[place] {
            received.source = PortId { port: lane.other, node: lane.node.unwrap_or(own.node) };
            let room = &mut buffer[received.len..];
            let len = lane.copy(&record, &arrived, offset, room);
            received.len += len;
            if options.peek {
                return Next::Got(received);
            }
            offset += len;
            if offset < arrived.data {
                self.begun = Some((place, offset));
                break;
            }
            if lane.consume(record) == Ring::TellDaemon {
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
        Next::Got(received)
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
    if lane.take_ring() == Ring::TellDaemon {
        tell.push(lane.id);
    }
}
