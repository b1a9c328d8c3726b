//! A run: virtual time, all nodes, and every event in order.

use std::collections::{BTreeMap, HashSet};

use utipc_core::crypto::{Mode, variation};
use utipc_core::wire::Encrypted;
use utipc_core::{Event, NodeAddr, Rng, Target, Time};

use crate::Outcome;
use crate::check::{Broken, Violation};
use crate::config::SimConfig;
use crate::connections::Connections;
use crate::contact::Contacts;
use crate::datagrams::Datagrams;
use crate::faults::{self, Fault};
use crate::host::{Host, Style, media_address, plane_of};
use crate::livelock::{Activity, Livelock};
use crate::network::Network;
use crate::trace::Trace;

/// A scheduled action of the simulator.
#[derive(Debug)]
pub(crate) enum Action {
    Fault(Fault),
    /// An application of the node performs an action.
    Act {
        node: usize,
        incarnation: u64,
    },
    /// An application with much data to send on a connection continues.
    BulkSend {
        node: usize,
        incarnation: u64,
        port: u32,
        left: u32,
    },
    /// A slow application reads its socket.
    Read {
        node: usize,
        incarnation: u64,
        port: u32,
    },
}

/// A whole simulated cluster.
pub(crate) struct Cluster {
    pub(crate) config: SimConfig,
    style: Style,
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<Host>,
    agenda: BTreeMap<(Time, u64), Action>,
    noted: u64,
    pub(crate) contacts: Contacts,
    pub(crate) datagrams: Datagrams,
    pub(crate) connections: Connections,
    trace: Trace,
    livelock: Livelock,
    /// The varying part of the nonce of every frame sent under the master key.
    nonces: HashSet<(u32, u64)>,
    /// Whether applications send, bind and connect now.
    pub(crate) busy: bool,
    pub(crate) topology_events: u64,
    contacts_lost: u64,
    rounds: u64,
    started_at: Time,
    indices: BTreeMap<NodeAddr, usize>,
}

/// Length of the busy period of a round, milliseconds.
const BUSY_MS: u64 = 12_000;
/// Start of the virtual clock in half of the runs, milliseconds: just before a 32-bit count of milliseconds wraps.
const LATE_START_MS: u64 = (1 << 32) - 20_000;

/// Runs a simulation.
///
/// # Errors
/// The first [`Violation`] of an invariant, and the outcome until then.
pub fn run(config: &SimConfig) -> Result<Outcome, Box<(Violation, Outcome)>> {
    let mut cluster = Cluster::new(config.clone());
    let result = cluster.run();
    let outcome = cluster.outcome();
    match result {
        Ok(()) => Ok(outcome),
        Err(violation) => Err(Box::new((violation, outcome))),
    }
}

impl Cluster {
    fn new(config: SimConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let started_at =
            if config.near_wrap { Time::from_millis(LATE_START_MS) } else { Time::from_millis(1000) };
        let style = Style { legacy: rng.below(2) == 0, mtu: [1500, 1500, 600, 9000][rng.below(4) as usize] };
        let network = Network::new(config.nodes, config.bearers, Rng::new(rng.next_u64()));
        Self {
            style,
            now: started_at,
            network,
            hosts: (0..config.nodes).map(Host::new).collect(),
            agenda: BTreeMap::new(),
            noted: 0,
            contacts: Contacts::new(config.nodes),
            datagrams: Datagrams::default(),
            connections: Connections::default(),
            trace: Trace::new(config.seed, config.log),
            livelock: Livelock::new(config.nodes),
            nonces: HashSet::new(),
            busy: false,
            topology_events: 0,
            contacts_lost: 0,
            rounds: 0,
            started_at,
            indices: BTreeMap::new(),
            rng,
            config,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            trace: self.trace.hash(),
            events: self.trace.events,
            rounds: self.rounds,
            virtual_ms: self.now.as_millis() - self.started_at.as_millis(),
            frames: self.network.frames,
            datagrams: self.datagrams.delivered,
            returned: self.datagrams.returned,
            connection_bytes: self.connections.bytes,
            connections: self.connections.made,
            broken_connections: self.connections.broken,
            topology_events: self.topology_events,
            contacts_lost: self.contacts_lost,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        for node in 0..self.config.nodes {
            let after = self.rng.below(1500);
            self.plan(self.now.plus_millis(after), Action::Fault(Fault::Start(node)));
        }
        // The loss of a first contact is never excused. So drop late copies of the frames that set it up, because they
        // could end it.
        self.apply_fault(Fault::Quality(faults::worst(&self.config)))?;
        self.step_until(self.now.plus_millis(2000))?;
        let end = self.started_at.plus_millis(self.config.duration_ms);
        while self.rounds == 0 || self.now < end {
            self.busy_time()?;
            self.quiet_time()?;
            self.rounds += 1;
        }
        Ok(())
    }

    fn busy_time(&mut self) -> Result<(), Violation> {
        let until = self.now.plus_millis(BUSY_MS);
        for (at, fault) in faults::plan(&mut self.rng, &self.config, self.now, until) {
            self.plan(at, Action::Fault(fault));
        }
        self.busy = true;
        for node in 0..self.config.nodes {
            let incarnation = self.hosts[node].incarnation;
            self.plan(self.now, Action::Act { node, incarnation });
        }
        self.step_until(until)?;
        self.busy = false;
        // Perform the planned repairs now, and drop all other planned actions.
        let left: Vec<Action> = std::mem::take(&mut self.agenda).into_values().collect();
        let mut again = Vec::new();
        for action in left {
            match action {
                Action::Fault(fault @ (Fault::Restore(_) | Fault::Repair(..) | Fault::Start(_))) => {
                    self.apply_fault(fault)?
                }
                read @ Action::Read { .. } => again.push(read),
                _ => {}
            }
        }
        for action in again {
            self.plan(self.now, action);
        }
        self.apply_fault(Fault::Quality([0; 3]))
    }

    pub(crate) fn plan(&mut self, at: Time, action: Action) {
        self.noted += 1;
        self.agenda.insert((at.max(self.now), self.noted), action);
    }

    pub(crate) fn broken(&self, node: usize, broken: Broken) -> Violation {
        Violation { at: self.now, node: self.hosts[node].addr, broken }
    }

    /// Counts an activity of `node`. Too many at one instant are a violation.
    fn count(&mut self, node: usize, activity: Activity) -> Result<(), Violation> {
        self.livelock.count(self.now, activity).map_err(|broken| self.broken(node, broken))
    }

    /// Processes everything that happens up to `end`.
    pub(crate) fn step_until(&mut self, end: Time) -> Result<(), Violation> {
        loop {
            let arrival = self.network.next_arrival();
            let planned = self.agenda.keys().next().map(|(at, _)| *at);
            let due = self.hosts.iter().filter_map(|h| Some((h.running.as_ref()?.deadline?, h.index))).min();
            let times = [arrival, planned, due.map(|d| d.0)];
            let Some(next) = times.into_iter().flatten().min().filter(|t| *t <= end) else {
                self.now = self.now.max(end);
                return Ok(());
            };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                self.arrive()?;
            } else if planned == Some(next) {
                if let Some((_, action)) = self.agenda.pop_first() {
                    self.perform(action)?;
                }
            } else if let Some((_, node)) = due {
                self.time_out(node)?;
            }
        }
    }

    fn arrive(&mut self) -> Result<(), Violation> {
        let Some(flight) = self.network.arrive(self.now) else { return Ok(()) };
        let place = ((usize::from(flight.plane) * self.config.nodes + flight.from) * self.config.nodes
            + flight.to) as u64;
        self.trace.note(self.now, b'f', place, &flight.bytes);
        if let Some(running) = &mut self.hosts[flight.to].running {
            let bearer = running.bearers[usize::from(flight.plane)];
            running.stack.receive(self.now, bearer, &flight.bytes);
            self.flush(flight.to)?;
        }
        Ok(())
    }

    fn time_out(&mut self, node: usize) -> Result<(), Violation> {
        if let Some(running) = &mut self.hosts[node].running {
            running.stack.handle_timeout(self.now);
            let after = running.stack.deadline();
            if after.is_some_and(|at| at <= self.now) {
                let what = format!("node {node} requests its next timeout at {after:?} again and again");
                return Err(self.broken(node, Broken::Livelock(what)));
            }
            self.count(node, Activity::Timeout { node })?;
            self.flush(node)?;
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) -> Result<(), Violation> {
        self.count(0, Activity::Action)?;
        let is_current = |c: &Self, node: usize, incarnation| c.hosts[node].incarnation == incarnation;
        match action {
            Action::Fault(fault) => self.apply_fault(fault),
            Action::Act { node, incarnation } if is_current(self, node, incarnation) => self.act(node),
            Action::Read { node, incarnation, port } if is_current(self, node, incarnation) => {
                self.resume_reader(node, port);
                self.read(node, port)?;
                self.flush(node)
            }
            Action::BulkSend { node, incarnation, port, left } if is_current(self, node, incarnation) => {
                self.bulk_send(node, port, left)?;
                self.flush(node)
            }
            Action::Act { .. } | Action::Read { .. } | Action::BulkSend { .. } => Ok(()),
        }
    }

    fn apply_fault(&mut self, fault: Fault) -> Result<(), Violation> {
        self.trace.note(self.now, b'!', 0, format!("{fault:?}").as_bytes());
        match fault {
            Fault::Quality(parts) => self.network.quality = faults::quality(parts),
            Fault::Cut(paths) => {
                for (a, b) in paths {
                    self.network.set_cut(a, b, true);
                    self.contacts.disturb(a, b);
                }
            }
            Fault::Restore(paths) => {
                for (a, b) in paths {
                    self.network.set_cut(a, b, false);
                    self.contacts.heal(self.now, a, b);
                }
            }
            Fault::Fail(plane, a, b) => self.network.set_failed(plane, a, b, true),
            Fault::Repair(plane, a, b) => self.network.set_failed(plane, a, b, false),
            Fault::Hold(a, b, ms) => self.network.hold(a, b, self.now.plus_millis(ms)),
            Fault::Crash(node) => self.crash(node),
            Fault::Start(node) if self.hosts[node].running.is_none() => {
                let seed = self.rng.next_u64();
                self.hosts[node].start(self.now, self.style, &self.config, seed);
                // Only a first contact must be established at once; contact with a restarted node may suffer
                // from earlier faults.
                for other in (0..self.config.nodes).filter(|_| self.hosts[node].incarnation > 1) {
                    self.contacts.heal(self.now, node, other);
                }
                self.flush(node)?;
            }
            Fault::Start(_) => {}
        }
        Ok(())
    }

    fn crash(&mut self, node: usize) {
        let Some(running) = self.hosts[node].running.take() else { return };
        self.contacts.crashed(node);
        for other in 0..self.config.nodes {
            self.network.clear(self.now, node, other);
        }
        self.forget_applications(running);
    }

    /// Processes everything that a node has produced: frames, events, readiness.
    pub(crate) fn flush(&mut self, node: usize) -> Result<(), Violation> {
        loop {
            self.transmit(node)?;
            let Some(running) = &mut self.hosts[node].running else { return Ok(()) };
            if let Some(event) = running.stack.poll_event() {
                self.count(node, Activity::Event { node })?;
                self.on_event(node, event)?;
            } else if let Some(port) = running.stack.poll_ready() {
                self.count(node, Activity::Ready { node, port })?;
                self.on_ready(node, port)?;
            } else {
                running.deadline = running.stack.deadline();
                return Ok(());
            }
        }
    }

    fn transmit(&mut self, node: usize) -> Result<(), Violation> {
        let Some(running) = &mut self.hosts[node].running else { return Ok(()) };
        let batch = running.stack.frames();
        let mut steps = Ok(());
        for frame in batch.frames() {
            let bytes = &*batch.frame(frame);
            if !is_nonce_new(&mut self.nonces, bytes) {
                steps = steps.and(Err(Broken::Nonce("used for a second frame".to_owned())));
            }
            let plane = running.bearers.iter().position(|b| *b == frame.bearer).unwrap_or_default() as u8;
            for to in (0..self.config.nodes).filter(|to| *to != node) {
                let meant = match frame.to {
                    Target::Broadcast => true,
                    Target::Unicast(addr) => media_address(plane, to) == addr,
                };
                if meant {
                    self.network.send(self.now, plane, node, to, bytes);
                    steps =
                        steps.and(self.livelock.count(self.now, Activity::Frame { plane, from: node, to }));
                }
            }
        }
        batch.clear();
        steps.map_err(|broken| self.broken(node, broken))
    }

    fn on_event(&mut self, node: usize, event: Event) -> Result<(), Violation> {
        self.trace.note(self.now, b'e', node as u64, format!("{event:?}").as_bytes());
        match event {
            Event::AddressFinal(addr) => {
                self.hosts[node].addr = addr;
                self.indices.insert(addr, node);
            }
            Event::NodeUp(peer) => {
                if let Some(peer) = self.index_of(peer) {
                    self.contacts.went_up(node, peer);
                }
            }
            Event::LinkDown { link, peer, .. } => {
                let (Some(peer), plane) = (self.index_of(peer), plane_of(&link)) else { return Ok(()) };
                self.network.clear_plane(self.now, plane, node, peer);
                self.network.clear_plane(self.now, plane, peer, node);
            }
            Event::NodeDown(peer) => {
                let Some(peer) = self.index_of(peer) else { return Ok(()) };
                self.contacts_lost += 1;
                self.network.clear(self.now, node, peer);
                self.network.clear(self.now, peer, node);
                self.contacts.went_down(self.now, node, peer).map_err(|b| self.broken(node, b))?;
                self.check_connections_end(node, peer)?;
            }
            _ => {}
        }
        let running = self.hosts[node].running.as_mut();
        if running.is_some_and(|r| !r.started && r.stack.address_is_final()) {
            self.hosts[node].addr =
                self.hosts[node].running.as_ref().map_or(NodeAddr::NONE, |r| r.stack.own_node());
            self.indices.insert(self.hosts[node].addr, node);
            self.start_applications(node)?;
        }
        Ok(())
    }

    pub(crate) fn index_of(&self, addr: NodeAddr) -> Option<usize> {
        self.indices.get(&addr).copied()
    }

    pub(crate) fn note(&mut self, what: u8, node: usize, bytes: &[u8]) {
        self.trace.note(self.now, what, node as u64, bytes);
    }
}

/// Notes the nonce of a frame under the master key, which all nodes have.
fn is_nonce_new(nonces: &mut HashSet<(u32, u64)>, frame: &[u8]) -> bool {
    let header = Encrypted::parse(frame).ok().filter(|header| header.tx_slot == 0);
    header
        .is_none_or(|header| nonces.insert((variation(Mode::Cluster, &header, NodeAddr::NONE), header.seqno)))
}
