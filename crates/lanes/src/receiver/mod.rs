//! The receiving half of a socket: its lanes and the node, in turn.
//!
//! Up to [`POLLED`] lanes are checked directly. All others are *armed*: their writers report them, so that idle lanes
//! cost a receive nothing. In one round every lane that has something gets one turn with the same share.

mod arming;
mod next;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use utipc_attach::LaneId;
use utipc_core::addr::ServiceRange;
use utipc_core::socket::{Received, SocketKind};

use crate::inbound::InboundLane;
use crate::{Pair, ReadyLanes, Wakeup};

/// Lanes that are checked directly.
pub(crate) const POLLED: usize = 8;
/// Messages of one lane per turn if there are more lanes than [`POLLED`]: each turn begins with pages and lines that
/// are no longer in the caches.
pub(crate) const SHARE: u32 = 8;
/// Returned messages that wait, at most; beyond that the oldest are lost.
const RETURNED_MAX: usize = 1024;
/// Messages of other nodes that come by requests before a node lane is requested.
const REQUESTS_BEFORE_LANE: u32 = 2;

/// The result of one step of a receive.
#[derive(Debug)]
pub enum Next {
    /// A message, or a part of one: see [`ReceiveCall::received`](crate::ReceiveCall::received).
    Got,
    /// Nothing was received.
    Nothing,
    /// The node may have something: ask it, then report by [`Receiver::node_served`] or [`Receiver::node_is_empty`].
    AskNode,
    /// This lane is over: leave it, then go on.
    Ended(LaneId),
    /// This lane is corrupt: leave it and report it.
    Corrupt(LaneId),
}

/// The lanes that a socket reads, and its counters.
#[derive(Debug)]
pub struct Receiver {
    /// `None` in free places.
    lanes: Vec<Option<InboundLane>>,
    free: Vec<usize>,
    places: HashMap<LaneId, usize>,
    /// Places of lanes that are checked directly.
    polled: Vec<usize>,
    /// Places of other lanes that may have something.
    listed: VecDeque<usize>,
    /// Whose turn it is: 0 for the node, then each polled lane, then `listed_left` listed lanes.
    turn: usize,
    listed_left: usize,
    /// Messages taken in this turn.
    taken: u32,
    /// The node may have something.
    node_ready: bool,
    /// Turns of listed lanes that the node has waited for since.
    node_waited: u32,
    /// The socket has a descriptor: writers of armed lanes report to the daemon too.
    telling: bool,
    /// Lanes that are checked directly may be armed.
    armed: bool,
    /// The message that was read in part or peeked: its lane's place, and the bytes read.
    begun: Option<(usize, usize)>,
    /// Messages of the own socket that came back without leaving this process.
    returned: VecDeque<Received>,
    pairs: Vec<(Arc<Pair>, u32)>,
    /// Lanes whose writer's process waits for a descriptor, which the daemon has to make writable.
    to_wake: Vec<LaneId>,
    /// Messages of other nodes that came by requests.
    requests: u32,
    /// The service by which the connection was set up.
    service: Option<ServiceRange>,
    /// Messages received by lanes.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            lanes: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            polled: Vec::new(),
            listed: VecDeque::new(),
            turn: 0,
            listed_left: 0,
            taken: 0,
            node_ready: true,
            node_waited: 0,
            telling: false,
            armed: true,
            begun: None,
            returned: VecDeque::new(),
            pairs: Vec::new(),
            to_wake: Vec::new(),
            requests: 0,
            service: None,
            messages: 0,
            bytes: 0,
        }
    }
}

impl Receiver {
    /// Adds a lane; reports about it go to `ready`.
    pub fn add(&mut self, mut lane: InboundLane, ready: &Arc<ReadyLanes>) {
        // The daemon may have armed it.
        self.armed = true;
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

    /// Takes a lane out; `None` if it has none.
    pub fn remove(&mut self, id: LaneId) -> Option<InboundLane> {
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

    /// Takes all lanes out.
    pub fn remove_all(&mut self) {
        let lanes: Vec<LaneId> = self.places.keys().copied().collect();
        for lane in lanes {
            drop(self.remove(lane));
        }
    }

    /// Notes that a message of another node came by a request; returns whether to request a node lane.
    pub fn note_remote_request(&mut self) -> bool {
        self.requests = self.requests.saturating_add(1);
        self.requests == REQUESTS_BEFORE_LANE && !self.lanes.iter().flatten().any(InboundLane::is_from_any)
    }

    /// Forgets a refusal: a node lane may be requested again.
    pub fn forget_refusals(&mut self) {
        self.requests = 0;
    }

    /// The message that was read in part: its lane, and the bytes read.
    #[must_use]
    pub fn begun(&self) -> Option<(LaneId, u32)> {
        let (place, offset) = self.begun?;
        let lane = self.lanes.get(place)?.as_ref()?;
        Some((lane.id, u32::try_from(offset).unwrap_or(u32::MAX)))
    }

    /// Whether there is any lane.
    #[must_use]
    pub fn has_lanes(&self) -> bool {
        !self.places.is_empty()
    }

    /// The arenas of the lanes.
    #[must_use]
    pub fn pairs(&self) -> Vec<Arc<Pair>> {
        self.pairs.iter().map(|(pair, _)| Arc::clone(pair)).collect()
    }

    /// Waiting messages, in lanes and returned, and the bytes of those in lanes with their headers.
    #[must_use]
    pub fn waiting(&self) -> (u32, u64) {
        let returned = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        self.lanes
            .iter()
            .flatten()
            .map(|lane| lane.reader.waiting())
            .fold((returned, 0), |sum, lane| (sum.0.saturating_add(lane.0), sum.1.saturating_add(lane.1)))
    }

    /// Whether the process of any writer was awake when last seen.
    #[must_use]
    pub fn some_peer_is_awake(&self) -> bool {
        self.pairs.iter().any(|(pair, _)| pair.peer_is_awake())
    }

    /// Notes that the node has something, or may have.
    pub fn node_is_ready(&mut self) {
        self.node_ready = true;
    }

    /// Notes that the node had no message.
    pub fn node_is_empty(&mut self) {
        self.node_ready = false;
        self.node_waited = 0;
        self.end_turn();
    }

    /// Notes that the node had something. With `stays` the same message, or the rest of it, is read next.
    pub fn node_served(&mut self, stays: bool) {
        if !stays {
            self.node_waited = 0;
            self.end_turn();
        }
    }

    /// Whether the next receive may get something of the node. On a connection the lane comes first.
    #[must_use]
    pub fn node_counts(&self, kind: SocketKind) -> bool {
        self.node_ready && !(kind.is_connection_oriented() && self.has_lanes())
    }

    /// Sets the service by which the connection was set up.
    pub fn set_service(&mut self, service: Option<ServiceRange>) {
        self.service = service;
    }

    /// Queues a message of the own socket that comes back.
    pub fn give_back(&mut self, returned: Received) {
        if self.returned.len() >= RETURNED_MAX {
            self.returned.pop_front();
        }
        self.returned.push_back(returned);
    }

    /// Takes out the lanes whose writer the daemon has to wake.
    pub fn take_lanes_to_wake(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.to_wake)
    }

    fn list(&mut self, place: usize) {
        if let Some(lane) = &mut self.lanes[place]
            && !std::mem::replace(&mut lane.listed, true)
        {
            self.listed.push_back(place);
        }
    }

    fn end_turn(&mut self) {
        self.turn += 1;
        self.taken = 0;
    }
}

/// Notes the wake-up that a lane's writer is owed: an empty lane releases all its space, for which its writer may wait
/// by a descriptor.
fn note_wakeup(lane: &mut InboundLane, to_wake: &mut Vec<LaneId>) {
    if lane.take_wakeup() == Wakeup::TellDaemon {
        to_wake.push(lane.id);
    }
}
