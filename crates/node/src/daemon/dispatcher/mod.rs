//! The dispatcher: owns the node driver and the daemon's components, hands each request to the components that it
//! concerns, and executes their effects.
//!
//! | Question | File |
//! |---|---|
//! | What happens in which order? | `event_loop.rs` |
//! | How does a process attach? | `admission.rs` |
//! | What does a request do? | `requests.rs`; sending and receiving: `transfer.rs`; about the node: `queries.rs` |
//! | When does a process learn that a socket is ready? | `readiness.rs` |
//! | What happens when processes share a socket? | `holders.rs` |
//! | What happens when a process is gone? | `recovery.rs` |
//! | What if there is much to do? | `tasks.rs` |

mod admission;
mod event_loop;
mod holders;
mod lane_tasks;
mod queries;
mod readiness;
mod recovery;
mod requests;
mod tasks;
mod transfer;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use utipc_attach::{Failure, Greeting, PairId};
use utipc_core::addr::NodeAddr;
use utipc_core::quota::{Resource, UserId};
use utipc_core::shares::Shares;
use utipc_core::{Origin, SubscriberWork, Time};
use utipc_lanes::daemon::{Context, Effect, Lanes, Watch};
use utipc_os::disposal::{Disposal, Reclaim};
use utipc_os::fdpass::Doorway;
use utipc_os::reactor::{Event as Ready, Interest, Waker};

use super::attachments::{Admission, AttachmentId, Attachments, Outgoing, Rules};
use super::barriers::Barriers;
use super::config::{DaemonConfig, DaemonError};
use super::counters::{DaemonCounters, EndReason};
use super::descriptors::Descriptors;
use super::inheritance::{Inheritances, Orphans};
use super::manage::{self, Management};
use super::memory::{self, Trim};
use super::orders::Orders;
use super::quotas;
use super::reactors::Reactors;
use super::sockets::Sockets;
use super::table::Replica;
use super::token;
use super::turns::TurnMeter;
use crate::driver::NodeDriver;

use tasks::Task;

/// Data and descriptors that follow a reply.
#[derive(Default)]
struct Answer {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// The reply is sent in a later turn.
    comes_later: bool,
}

/// A user's jobs, each of which is a bounded step in the user's turn.
#[derive(Debug)]
enum Job {
    /// Read events of its descriptors.
    Poll,
    /// Handle one of these events.
    Event(Ready),
    /// All that were read are handled.
    EndPoll,
    /// Read a lane that its socket writes to the node.
    CarryOut(u32),
    /// Write to the lane by which its socket receives from the node.
    Fill(u32),
    /// Continue with the lanes that a pair's process has used.
    Serve(PairId),
    /// Open more lanes to its socket.
    Open(u32),
    /// Continue with unsent messages of its socket.
    Resend(u32),
    /// Handle the close of a socket's descriptor.
    Closed(u32),
    /// Hang up descriptors that have waited for the user's events.
    HangUp,
    /// Collect receivers of multicasts of its socket, or of another node, or make copies for them.
    Spread(Origin),
    /// Continue with work of the topology server.
    Subscriber(SubscriberWork),
    /// Continue a task.
    Task(Task),
}

/// Watches descriptors for the lanes.
#[derive(Debug)]
struct Watcher<'a> {
    reactors: &'a mut Reactors,
    attachments: &'a Attachments,
}

impl Watch for Watcher<'_> {
    fn watch(&mut self, process: u32, waker: &Waker, token: u64) -> Option<UserId> {
        let user = UserId(self.attachments.peer(process)?.uid);
        self.reactors.watch(user, waker, (token, Interest::Waker)).ok().map(|()| user)
    }

    fn unwatch(&mut self, user: UserId, waker: &Waker) {
        self.reactors.unwatch(user, waker);
    }
}

/// Everything that the daemon's thread owns; see the module.
pub(super) struct Dispatcher {
    driver: NodeDriver,
    reactors: Reactors,
    rules: Rules,
    admission: Admission,
    attachments: Attachments,
    sockets: Sockets,
    lanes: Lanes,
    descriptors: Descriptors,
    inheritances: Inheritances,
    orphans: Orphans,
    management: Management,
    barriers: Barriers,
    replica: Replica,
    /// Effects of the lanes; empty between two calls of them.
    effects: Vec<Effect>,
    /// Closes what processes have sent.
    disposal: Disposal,
    /// Frees memory that they have shared.
    reclaim: Reclaim,
    /// The replies of this turn.
    replies: Vec<Outgoing>,
    /// Attachments that have ended in this turn.
    ended: Vec<(AttachmentId, EndReason)>,
    /// Sockets that no process reaches and whose lanes have not ended yet: their bindings still exist.
    ending: usize,
    /// Processes that have ended and whose sockets and lanes are being freed.
    leaving: usize,
    /// By socket: the attachment that waits until the receivers of its multicast are known, and the number of bytes
    /// that it has sent.
    collecting: BTreeMap<u32, (AttachmentId, u32)>,
    /// The jobs of users.
    shares: Shares<Job>,
    /// Buffer for the events of one user.
    events: Vec<Ready>,
    trim: Trim,
    turns: TurnMeter,
    counters: DaemonCounters,
    /// The address that processes know.
    address: NodeAddr,
    orders: Arc<Orders>,
    /// Buffer for one incoming packet.
    packet: Vec<u8>,
    /// Buffer for the start of an outgoing packet.
    head: Vec<u8>,
    stop: bool,
}

impl Dispatcher {
    pub(super) fn new(
        mut config: DaemonConfig,
        orders: Arc<Orders>,
    ) -> Result<(Dispatcher, Waker), DaemonError> {
        let label: Arc<str> = config.node.label.as_str().into();
        let management = Management::new(&config);
        let doorway = match config.passed.take() {
            Some(doorway) => doorway,
            None => Doorway::open(&config.socket, config.socket_mode())?,
        };
        let mut driver = NodeDriver::new(config.node, label)?;
        memory::install(&mut driver.stack);
        driver.stack.set_binding_limit(config.limits.bindings);
        let rules = Rules::new(config.policy, config.limits);
        driver.stack.ledger_mut().set_quotas(quotas::quotas(rules.limits(), rules.own_user()));
        let replica = Replica::new(&mut driver.stack);
        driver.stack.watch_groups();
        let reactors = Reactors::new()?;
        driver.watch(&reactors.main, true)?;
        let admission = Admission::new(&reactors.main, doorway, config.versions.unwrap_or(Greeting::OWN))?;
        let waker = reactors.main.waker();
        let disposal = Disposal::default();
        let descriptors = Descriptors::new(disposal.clone());
        let dispatcher = Dispatcher {
            driver,
            reactors,
            rules,
            admission,
            attachments: Attachments::new(disposal.clone()),
            sockets: Sockets::default(),
            lanes: Lanes::new(token::LANES),
            descriptors,
            inheritances: Inheritances::new(disposal.clone()),
            orphans: Orphans::default(),
            management,
            barriers: Barriers::default(),
            replica,
            effects: Vec::new(),
            disposal,
            reclaim: Reclaim::default(),
            replies: Vec::new(),
            ended: Vec::new(),
            ending: 0,
            leaving: 0,
            collecting: BTreeMap::new(),
            shares: Shares::default(),
            events: Vec::new(),
            trim: Trim::default(),
            turns: TurnMeter::default(),
            counters: DaemonCounters {
                release: env!("CARGO_PKG_VERSION"),
                pid: std::process::id(),
                started: crate::observe::wall_ms(),
                ..DaemonCounters::default()
            },
            address: NodeAddr::NONE,
            orders,
            packet: vec![0; utipc_attach::MAX_PACKET],
            head: Vec::new(),
            stop: false,
        };
        Ok((dispatcher, waker))
    }

    /// Runs a call of the lanes and executes its effects.
    fn with_lanes<T>(&mut self, now: Time, call: impl FnOnce(&mut Lanes, &mut Context<'_>) -> T) -> T {
        let Self { lanes, driver, reactors, attachments, effects, .. } = self;
        let watch = &mut Watcher { reactors, attachments };
        let result = call(lanes, &mut Context { now, stack: &mut driver.stack, watch, effects });
        if !self.effects.is_empty() {
            self.execute_effects();
        }
        result
    }

    fn execute_effects(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Notify { to, notice, descriptor } => {
                    self.attachments.notify(to, notice);
                    if let Some((port, end)) = descriptor {
                        self.report_lane(port, end);
                    }
                }
                Effect::Readable(port) => self.descriptors.set_readable(port),
                Effect::Writable(port) => self.descriptors.set_writable(port),
                Effect::CarryOut(port) => self.push_for(port, Job::CarryOut(port)),
                Effect::Fill(port) => self.push_for(port, Job::Fill(port)),
                Effect::Serve(user, pair) => self.shares.push(user, Job::Serve(pair)),
                Effect::Open(port) => self.push_for(port, Job::Open(port)),
                Effect::Resend(port) => self.push_for(port, Job::Resend(port)),
                Effect::Free(memory) => self.reclaim.drop_later(memory),
                Effect::Warn(text) => tracing::warn!("{text}"),
            }
        }
        self.effects = effects;
    }

    /// Adds a job of the user of a socket.
    fn push_for(&mut self, port: u32, job: Job) {
        let user = self.owner_of(port);
        self.shares.push(user, job);
    }

    /// Whether the attachment holds the socket.
    fn check_holds(&self, id: AttachmentId, port: u32) -> Result<(), Failure> {
        if self.sockets.is_held_by(port, id) { Ok(()) } else { Err(Failure::NoSocket(port)) }
    }

    /// The user of a process, to whom what it creates is charged.
    fn user(&self, id: AttachmentId) -> Result<UserId, Failure> {
        self.attachments.peer(id).map(|peer| UserId(peer.uid)).ok_or(Failure::State)
    }

    /// Checks that a user may use more of a resource.
    fn check_quota(&mut self, user: UserId, resource: Resource, amount: u64) -> Result<(), Failure> {
        let ledger = self.driver.stack.ledger_mut();
        ledger.check(user, resource, amount).map_err(|exceeded| quotas::refuse(ledger, exceeded))
    }

    /// Ends an attachment at the end of the turn.
    fn end_attachment(&mut self, id: AttachmentId, reason: EndReason) {
        self.ended.push((id, reason));
    }
}
