//! The daemon's one thread: a turn of its loop takes what has come from the wire and from processes, lets the node act,
//! and then tells everybody: frames to the wire, replies, notices, bells. In this order, so that whatever a reply
//! promises has happened.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use utipc_attach::{Greeting, PairId, Reply};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::Doorway;
use utipc_os::reactor::{Event as Ready, Interest, Reactor, Waker};

use super::attachment::{Attachment, AttachmentId, Holding};
use super::awake::Awake;
use super::broker::Broker;
use super::config::{DaemonConfig, DaemonError, Limits};
use super::congestion::Told;
use super::counters::{Cut, DaemonCounters};
use super::descriptors::Fars;
use super::handle::{Order, Orders};
use super::heritage::Heritages;
use super::keeping::Kept;
use super::manage::{Defaults, Naming};
use super::node_lanes::NodeLanes;
use super::policy::Policy;
use crate::engine::{Engine, now};
use crate::table::SharedTable;

/// What a token of the event loop stands for, in its upper byte; the bearers have 0. The rest names which one.
pub(super) mod token {
    pub(in crate::daemon) const DOORWAY: u64 = 1 << 56;
    pub(in crate::daemon) const ATTACHMENT: u64 = 2 << 56;
    pub(in crate::daemon) const PROCESS: u64 = 3 << 56;
    pub(in crate::daemon) const DESCRIPTOR: u64 = 4 << 56;
    pub(in crate::daemon) const LANES: u64 = 5 << 56;
    pub(in crate::daemon) const HERITAGE: u64 = 6 << 56;
    pub(in crate::daemon) const KIND: u64 = 0xff << 56;
}

/// A reply that leaves at the end of the turn.
pub(super) struct Outgoing {
    pub(super) to: AttachmentId,
    pub(super) reply: Reply,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// Everything that the daemon's thread owns.
pub(super) struct Hub {
    pub(super) engine: Engine,
    /// Its binding table where processes can read it; none if the system has refused the memory.
    pub(super) table: Option<SharedTable>,
    pub(super) reactor: Reactor,
    pub(super) doorway: Doorway,
    pub(super) versions: Greeting,
    pub(super) policy: Policy,
    pub(super) limits: Limits,
    /// The user that the daemon runs as.
    pub(super) own_user: u32,
    pub(super) attachments: HashMap<AttachmentId, Attachment>,
    /// Served attachments of each user.
    pub(super) users: BTreeMap<u32, usize>,
    pub(super) next_attachment: AttachmentId,
    /// Connections that have said nothing yet, oldest first, with the time when they are cut.
    pub(super) silent: VecDeque<(Time, AttachmentId)>,
    /// When the doorway is watched again, after the system had no descriptor for a newcomer.
    pub(super) reopen: Option<Time>,
    /// Sockets of processes, by port.
    pub(super) sockets: HashMap<u32, Holding>,
    pub(super) broker: Broker,
    pub(super) node_lanes: NodeLanes,
    pub(super) congestion: Told,
    pub(super) awake: Awake,
    pub(super) fars: Fars,
    pub(super) kept: Kept,
    /// The descriptor that came with the request in hand.
    pub(super) passed: Option<OwnedFd>,
    pub(super) heritages: Heritages,
    /// What new bearers begin with.
    pub(super) media: Defaults,
    pub(super) naming: Naming,
    pub(super) replies: Vec<Outgoing>,
    /// Attachments with new notices.
    pub(super) rung: Vec<AttachmentId>,
    /// Attachments that have come to their end in this turn.
    pub(super) ended: Vec<(AttachmentId, Cut)>,
    pub(super) counters: DaemonCounters,
    /// The address that processes were told.
    address: NodeAddr,
    orders: Arc<Orders>,
    /// Room for one packet that comes in.
    pub(super) packet: Vec<u8>,
    /// Room for the start of one that goes out.
    pub(super) head: Vec<u8>,
    stop: bool,
}

impl Hub {
    pub(super) fn new(config: DaemonConfig, orders: Arc<Orders>) -> Result<(Hub, Waker), DaemonError> {
        let label: Arc<str> = config.node.label.as_str().into();
        let naming = Naming::of(&config);
        let doorway = Doorway::open(&config.socket, config.socket_mode())?;
        let mut engine = Engine::new(config.node, label)?;
        engine.stack.set_binding_limit(config.limits.bindings);
        let table = SharedTable::share(&mut engine.stack).inspect_err(|error| {
            tracing::warn!(
                "processes will ask for every lookup: the binding table cannot be shared: {error}"
            );
        });
        let table = table.ok();
        let reactor = Reactor::new()?;
        engine.watch(&reactor, true)?;
        reactor.add(&doorway, token::DOORWAY, Interest::Read)?;
        let waker = reactor.waker();
        let hub = Hub {
            engine,
            table,
            reactor,
            doorway,
            versions: config.versions.unwrap_or(Greeting::OWN),
            policy: config.policy,
            limits: config.limits,
            own_user: utipc_os::fdpass::own_user(),
            attachments: HashMap::new(),
            users: BTreeMap::new(),
            next_attachment: 1,
            silent: VecDeque::new(),
            reopen: None,
            sockets: HashMap::new(),
            broker: Broker::default(),
            node_lanes: NodeLanes::default(),
            congestion: Told::default(),
            awake: Awake::default(),
            fars: Fars::new(),
            kept: Kept::default(),
            passed: None,
            heritages: Heritages::default(),
            media: Defaults::default(),
            naming,
            replies: Vec::new(),
            rung: Vec::new(),
            ended: Vec::new(),
            counters: DaemonCounters::default(),
            address: NodeAddr::NONE,
            orders,
            packet: vec![0; utipc_attach::MAX_PACKET],
            head: Vec::new(),
            stop: false,
        };
        Ok((hub, waker))
    }

    /// Runs until it is told to stop.
    pub(super) fn run(&mut self) {
        let mut ready = Vec::new();
        let mut time = now();
        self.finish(time);
        while !self.stop {
            let until = self.silent.front().map_or(Time::NEVER, |(at, _)| *at);
            let until = until.min(self.reopen.unwrap_or(Time::NEVER));
            let until = until.min(self.broker.pairs.deadline().unwrap_or(Time::NEVER));
            let until = until.min(self.node_lanes.deadline().unwrap_or(Time::NEVER));
            let until = until.min(self.kept.deadline().unwrap_or(Time::NEVER));
            let more = !self.node_lanes.listed.is_empty();
            let pause = self.engine.pause(time, if more { time } else { until });
            let waited = self.wait(pause, &mut ready);
            time = now();
            if waited.is_err() {
                self.engine.receive_all(time);
            }
            if waited.unwrap_or(true) {
                self.obey(time);
            }
            for event in &ready {
                self.dispatch(time, event);
            }
            self.serve_awake(time);
            self.engine.receive(time, &ready);
            self.engine.handle_timeout(time);
            self.silence(time);
            self.expire_pairs(time);
            self.expire_unsent(time);
            self.expire_orphans(time);
            self.finish(time);
        }
        self.leave(time);
    }

    fn dispatch(&mut self, now: Time, event: &Ready) {
        let id = (event.token & u64::from(u32::MAX)) as u32;
        match event.token & token::KIND {
            token::DOORWAY => self.admit(now),
            token::ATTACHMENT => self.serve(now, id),
            token::PROCESS => self.ended.push((id, Cut::Died)),
            token::DESCRIPTOR => self.far_is_left(now, id),
            token::LANES => self.serve_lanes(now, PairId(id)),
            token::HERITAGE => self.end_heritage(now, id),
            _ => {}
        }
    }

    /// The end of a turn: nobody has been told anything yet.
    fn finish(&mut self, now: Time) {
        self.note_all(now);
        self.carry_all(now);
        loop {
            self.bury(now);
            self.resume(now);
            self.note_all(now);
            self.tell_congestion();
            self.engine.flush();
            if self.engine.observe() {
                self.tell_address();
            }
            self.answer();
            if self.ended.is_empty() {
                break;
            }
        }
        for id in self.rung.drain(..) {
            if let Some(attachment) = self.attachments.get_mut(&id) {
                attachment.rings = false;
                attachment.ring();
            }
        }
    }

    fn note_all(&mut self, now: Time) {
        while let Some(port) = self.engine.stack.poll_ready() {
            self.note(now, port);
        }
    }

    fn tell_address(&mut self) {
        let address = self.engine.stack.own_node();
        if address == self.address || !self.engine.stack.address_is_final() {
            return;
        }
        self.address = address;
        for (id, attachment) in self.attachments.iter_mut().filter(|(_, a)| a.is_served()) {
            attachment.note(utipc_attach::Notice::Address(address));
            if !std::mem::replace(&mut attachment.rings, true) {
                self.rung.push(*id);
            }
        }
    }

    /// Does what the owner of the daemon has asked for.
    fn obey(&mut self, now: Time) {
        for order in self.orders.take() {
            match order {
                Order::Stop => self.stop = true,
                Order::Change(policy, limits) => {
                    (self.policy, self.limits) = (*policy, limits);
                    self.engine.stack.set_binding_limit(limits.bindings);
                }
                Order::Count(answer) => {
                    let mut counters = self.counters.clone();
                    counters.attached = self.users.values().sum();
                    counters.sockets = self.sockets.len();
                    counters.lanes = self.broker.lanes.len();
                    counters.pairs = self.broker.pairs.len();
                    counters.lanes_corrupt = self.broker.corrupt;
                    counters.node = self.engine.counters();
                    // Whoever asked may have gone.
                    let _ = answer.send(counters);
                }
                Order::Run(command) => command(&mut self.engine.stack, now),
            }
        }
    }

    /// Leaves the cluster. The end of their connection tells the processes.
    fn leave(&mut self, now: Time) {
        let all: Vec<AttachmentId> = self.attachments.keys().copied().collect();
        self.ended.extend(all.into_iter().map(|id| (id, Cut::Leaving)));
        self.bury(now);
        self.engine.leave();
    }
}
