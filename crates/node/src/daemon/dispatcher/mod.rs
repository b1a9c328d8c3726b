//! The daemon's one thread: a turn of its loop takes what has come from the wire and from processes, lets the node act,
//! and then tells everybody: frames to the wire, replies, notices, bells. In this order, so that whatever a reply
//! promises has happened.

pub(in crate::daemon) mod commands;
mod queries;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use utipc_attach::{Greeting, PairId, Reply};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::Doorway;
use utipc_os::reactor::{Event as Ready, Interest, Reactor, Waker};

use crate::daemon::attachments::attachment::{Attachment, AttachmentId, Holding};
use crate::daemon::attachments::policy::Policy;
use crate::daemon::config::{DaemonConfig, DaemonError, Limits};
use crate::daemon::counters::{Cut, DaemonCounters};
use crate::daemon::descriptors::Fars;
use crate::daemon::handle::{Order, Orders};
use crate::daemon::inheritance::Heritages;
use crate::daemon::inheritance::orphans::Kept;
use crate::daemon::lanes::awake::Awake;
use crate::daemon::lanes::broker::Broker;
use crate::daemon::lanes::node_lanes::NodeLanes;
use crate::daemon::manage::{Defaults, Naming};
use crate::daemon::table::congestion::Told;
use crate::driver::{NodeDriver, now};
use crate::table::SharedTable;

/// What a token of the event loop stands for, in its upper byte; the bearers have 0. The rest names which one.
pub(in crate::daemon) mod token {
    pub(in crate::daemon) const DOORWAY: u64 = 1 << 56;
    pub(in crate::daemon) const ATTACHMENT: u64 = 2 << 56;
    pub(in crate::daemon) const PROCESS: u64 = 3 << 56;
    pub(in crate::daemon) const DESCRIPTOR: u64 = 4 << 56;
    pub(in crate::daemon) const LANES: u64 = 5 << 56;
    pub(in crate::daemon) const HERITAGE: u64 = 6 << 56;
    pub(in crate::daemon) const KIND: u64 = 0xff << 56;
}

/// A reply that leaves at the end of the turn.
pub(in crate::daemon) struct Outgoing {
    pub(in crate::daemon) to: AttachmentId,
    pub(in crate::daemon) reply: Reply,
    pub(in crate::daemon) payload: Vec<u8>,
    pub(in crate::daemon) fds: Vec<OwnedFd>,
}

/// Everything that the daemon's thread owns.
pub(in crate::daemon) struct Dispatcher {
    pub(in crate::daemon) driver: NodeDriver,
    /// Its binding table where processes can read it; none if the system has refused the memory.
    pub(in crate::daemon) table: Option<SharedTable>,
    pub(in crate::daemon) reactor: Reactor,
    pub(in crate::daemon) doorway: Doorway,
    pub(in crate::daemon) versions: Greeting,
    pub(in crate::daemon) policy: Policy,
    pub(in crate::daemon) limits: Limits,
    /// The user that the daemon runs as.
    pub(in crate::daemon) own_user: u32,
    pub(in crate::daemon) attachments: HashMap<AttachmentId, Attachment>,
    /// Served attachments of each user.
    pub(in crate::daemon) users: BTreeMap<u32, usize>,
    pub(in crate::daemon) next_attachment: AttachmentId,
    /// Connections that have said nothing yet, oldest first, with the time when they are cut.
    pub(in crate::daemon) silent: VecDeque<(Time, AttachmentId)>,
    /// When the doorway is watched again, after the system had no descriptor for a newcomer.
    pub(in crate::daemon) reopen: Option<Time>,
    /// Sockets of processes, by port.
    pub(in crate::daemon) sockets: HashMap<u32, Holding>,
    pub(in crate::daemon) broker: Broker,
    pub(in crate::daemon) node_lanes: NodeLanes,
    pub(in crate::daemon) congestion: Told,
    pub(in crate::daemon) awake: Awake,
    pub(in crate::daemon) fars: Fars,
    pub(in crate::daemon) kept: Kept,
    /// The descriptor that came with the request in hand.
    pub(in crate::daemon) passed: Option<OwnedFd>,
    pub(in crate::daemon) heritages: Heritages,
    /// What new bearers begin with.
    pub(in crate::daemon) media: Defaults,
    pub(in crate::daemon) naming: Naming,
    pub(in crate::daemon) replies: Vec<Outgoing>,
    /// Attachments with new notices.
    pub(in crate::daemon) rung: Vec<AttachmentId>,
    /// Attachments that have come to their end in this turn.
    pub(in crate::daemon) ended: Vec<(AttachmentId, Cut)>,
    pub(in crate::daemon) counters: DaemonCounters,
    /// The address that processes were told.
    address: NodeAddr,
    orders: Arc<Orders>,
    /// Room for one packet that comes in.
    pub(in crate::daemon) packet: Vec<u8>,
    /// Room for the start of one that goes out.
    pub(in crate::daemon) head: Vec<u8>,
    stop: bool,
}

impl Dispatcher {
    pub(in crate::daemon) fn new(
        config: DaemonConfig,
        orders: Arc<Orders>,
    ) -> Result<(Dispatcher, Waker), DaemonError> {
        let label: Arc<str> = config.node.label.as_str().into();
        let naming = Naming::of(&config);
        let doorway = Doorway::open(&config.socket, config.socket_mode())?;
        let mut driver = NodeDriver::new(config.node, label)?;
        driver.stack.set_binding_limit(config.limits.bindings);
        let table = SharedTable::share(&mut driver.stack).inspect_err(|error| {
            tracing::warn!(
                "processes will ask for every lookup: the binding table cannot be shared: {error}"
            );
        });
        let table = table.ok();
        let reactor = Reactor::new()?;
        driver.watch(&reactor, true)?;
        reactor.add(&doorway, token::DOORWAY, Interest::Read)?;
        let waker = reactor.waker();
        let hub = Dispatcher {
            driver,
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
    pub(in crate::daemon) fn run(&mut self) {
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
            let pause = self.driver.pause(time, if more { time } else { until });
            let waited = self.wait(pause, &mut ready);
            time = now();
            if waited.is_err() {
                self.driver.receive_all(time);
            }
            if waited.unwrap_or(true) {
                self.obey(time);
            }
            for event in &ready {
                self.dispatch(time, event);
            }
            self.serve_awake(time);
            self.driver.receive(time, &ready);
            self.driver.handle_timeout(time);
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
            self.driver.flush();
            if self.driver.observe() {
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
        while let Some(port) = self.driver.stack.poll_ready() {
            self.note(now, port);
        }
    }

    fn tell_address(&mut self) {
        let address = self.driver.stack.own_node();
        if address == self.address || !self.driver.stack.address_is_final() {
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
                    self.driver.stack.set_binding_limit(limits.bindings);
                }
                Order::Count(answer) => {
                    let mut counters = self.counters.clone();
                    counters.attached = self.users.values().sum();
                    counters.sockets = self.sockets.len();
                    counters.lanes = self.broker.lanes.len();
                    counters.pairs = self.broker.pairs.len();
                    counters.lanes_corrupt = self.broker.corrupt;
                    counters.node = self.driver.counters();
                    // Whoever asked may have gone.
                    let _ = answer.send(counters);
                }
                Order::Run(command) => command(&mut self.driver.stack, now),
            }
        }
    }

    /// Leaves the cluster. The end of their connection tells the processes.
    fn leave(&mut self, now: Time) {
        let all: Vec<AttachmentId> = self.attachments.keys().copied().collect();
        self.ended.extend(all.into_iter().map(|id| (id, Cut::Leaving)));
        self.bury(now);
        self.driver.leave();
    }
}
