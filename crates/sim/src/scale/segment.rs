//! Nodes on one network segment, in virtual time: every frame arrives after the same time, and none is lost.
//!
//! Frames that were sent first arrive first, so the frames in flight are a queue. Each entry is the unchanged batch
//! that a node has produced in one call: a broadcast is stored once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use utipc_bench_kit::counts;
use utipc_core::wire::{LinkProtocolType, User};
use utipc_core::{
    BearerConfig, Event, FrameBatch, MediaAddr, NodeAddr, NodeId, Rng, Stack, StackConfig, Target, Time, View,
};

/// Time from sending to arrival of every frame: a switch in a data centre.
const LATENCY: Duration = Duration::from_micros(100);
/// Largest packet, bytes: Ethernet's.
const MTU: u32 = 1500;
/// A monitor threshold above every cluster of the simulator: all nodes supervise each other.
const NO_MONITOR: usize = 4095;

counts! {
    /// Counts of what nodes have sent. A broadcast counts once.
    pub struct Traffic {
        /// STATE messages that request a reply.
        probes,
        /// All STATE messages.
        states,
        /// All frames.
        frames,
        /// Bytes of TIPC, without the headers of the medium.
        bytes,
    }
}

impl Traffic {
    fn count(&mut self, batch: &FrameBatch) {
        for frame in batch.frames() {
            self.frames += 1;
            self.bytes += frame.len() as u64;
            let bytes = batch.frame(frame);
            let Ok(view) = View::parse(&bytes) else { continue };
            if view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::State {
                self.states += 1;
                self.probes += u64::from(view.probe());
            }
        }
    }
}

/// A change that a node has reported.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) at: Time,
    pub(super) node: usize,
    pub(super) peer: NodeAddr,
    pub(super) what: What,
}

/// Kind of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    ContactUp,
    ContactLost,
    /// The reason.
    LinkDown(String),
}

#[derive(Debug)]
struct Flight {
    at: Time,
    from: usize,
    batch: FrameBatch,
}

/// All nodes, and the frames in flight between them.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) now: Time,
    pub(super) traffic: Traffic,
    /// Changes that have not been read yet, in order.
    pub(super) changes: Vec<Change>,
    monitoring: bool,
    seed: u64,
    /// `None`: not started yet, or crashed.
    nodes: Vec<Option<Stack>>,
    addrs: BTreeMap<NodeAddr, usize>,
    deadlines: BTreeSet<(Time, usize)>,
    /// The entry of each node in [`Self::deadlines`].
    due: Vec<Option<Time>>,
    starts: BTreeSet<(Time, usize)>,
    flights: VecDeque<Flight>,
    /// Empty batches, for reuse.
    spare: Vec<FrameBatch>,
}

fn media(index: usize) -> MediaAddr {
    let [_, _, high, low] = (index as u32).to_be_bytes();
    MediaAddr::Ethernet([2, 0, 0, 0, high, low])
}

fn index_of(media: MediaAddr) -> Option<usize> {
    match media {
        MediaAddr::Ethernet([2, 0, 0, 0, high, low]) => Some(usize::from(u16::from_be_bytes([high, low]))),
        _ => None,
    }
}

impl Segment {
    /// A segment on which `count` nodes start at random times within `within_ms`.
    pub(super) fn new(count: usize, monitoring: bool, seed: u64, within_ms: u64) -> Self {
        let (mut rng, now) = (Rng::new(seed), Time::from_millis(1000));
        let at = |rng: &mut Rng| now + Duration::from_micros(rng.below(1000 * within_ms));
        Self {
            now,
            traffic: Traffic::default(),
            changes: Vec::new(),
            monitoring,
            starts: (0..count).map(|index| (at(&mut rng), index)).collect(),
            seed: rng.next_u64() >> 1,
            nodes: (0..count).map(|_| None).collect(),
            addrs: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            due: vec![None; count],
            flights: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// The running nodes, by number.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Stack)> {
        self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?)))
    }

    /// The running nodes in the order of the ring, by number.
    pub(super) fn ring(&self) -> Vec<usize> {
        self.addrs.values().copied().filter(|index| self.nodes[*index].is_some()).collect()
    }

    /// Address of a node; none before it is final.
    pub(super) fn addr(&self, index: usize) -> NodeAddr {
        self.nodes[index].as_ref().map_or(NodeAddr::NONE, Stack::own_node)
    }

    /// Whether a running node has this address.
    pub(super) fn is_running(&self, addr: NodeAddr) -> bool {
        self.addrs.get(&addr).is_some_and(|index| self.nodes[*index].is_some())
    }

    /// Ends a node without notice to the others.
    pub(super) fn crash(&mut self, index: usize) {
        self.nodes[index] = None;
        if let Some(due) = self.due[index].take() {
            self.deadlines.remove(&(due, index));
        }
    }

    /// Everything that happens up to `end`.
    pub(super) fn run_until(&mut self, end: Time) {
        loop {
            let arrival = self.flights.front().map(|flight| flight.at);
            let due = self.deadlines.first().map(|(at, _)| *at);
            let start = self.starts.first().map(|(at, _)| *at);
            let Some(next) = [arrival, due, start].into_iter().flatten().min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if start == Some(next)
                && let Some((_, index)) = self.starts.pop_first()
            {
                self.start(index);
            } else if arrival == Some(next)
                && let Some(flight) = self.flights.pop_front()
            {
                self.arrive(flight);
            } else if let Some((_, index)) = self.deadlines.first().copied() {
                self.with(index, |now, stack| stack.handle_timeout(now));
            }
        }
    }

    fn start(&mut self, index: usize) {
        let identity = Some(NodeId::from_text(&format!("node-{index}")));
        let config = StackConfig { identity, seed: self.seed + index as u64, ..StackConfig::default() };
        let mut stack = Stack::new(self.now, config);
        if !self.monitoring {
            stack.set_monitor_threshold(NO_MONITOR).expect("a threshold in its range");
        }
        self.nodes[index] = Some(stack);
        self.with(index, |now, stack| {
            let bearer = BearerConfig::new("eth:s0", media(index), MTU);
            stack.enable_bearer(now, bearer).expect("a valid bearer");
        });
    }

    fn arrive(&mut self, mut flight: Flight) {
        for frame in flight.batch.frames() {
            let bytes = &*flight.batch.frame(frame);
            let to = match frame.to {
                Target::Broadcast => 0..self.nodes.len(),
                Target::Unicast(at) => index_of(at).map_or(0..0, |to| to..to + 1),
            };
            for to in to.filter(|to| *to != flight.from) {
                self.with(to, |now, stack| stack.receive(now, 0, bytes));
            }
        }
        flight.batch.clear();
        self.spare.push(flight.batch);
    }

    /// Calls a node, if it runs, and processes the results.
    fn with(&mut self, index: usize, call: impl FnOnce(Time, &mut Stack)) {
        let now = self.now;
        let Some(stack) = self.nodes.get_mut(index).and_then(Option::as_mut) else { return };
        call(now, stack);
        if !stack.frames().is_empty() {
            let empty = self.spare.pop().unwrap_or_default();
            let batch = core::mem::replace(stack.frames(), empty);
            self.traffic.count(&batch);
            self.flights.push_back(Flight { at: now + LATENCY, from: index, batch });
        }
        while let Some(event) = stack.poll_event() {
            let (peer, what) = match event {
                Event::AddressFinal(addr) => {
                    self.addrs.insert(addr, index);
                    continue;
                }
                Event::NodeUp(peer) => (peer, What::ContactUp),
                Event::NodeDown(peer) => (peer, What::ContactLost),
                Event::LinkDown { peer, reason, .. } => (peer, What::LinkDown(format!("{reason:?}"))),
                _ => continue,
            };
            self.changes.push(Change { at: now, node: index, peer, what });
        }
        while stack.poll_ready().is_some() {}
        let due = stack.deadline();
        if due != self.due[index] {
            if let Some(before) = self.due[index] {
                self.deadlines.remove(&(before, index));
            }
            self.deadlines.extend(due.map(|at| (at, index)));
            self.due[index] = due;
        }
    }
}
