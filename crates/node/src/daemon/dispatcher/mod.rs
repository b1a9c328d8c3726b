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
//! | What happens when a process is gone? | `recovery.rs`; if there is much to do: `releases.rs` |

mod admission;
mod event_loop;
mod holders;
mod queries;
mod readiness;
mod recovery;
mod releases;
mod requests;
mod transfer;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use utipc_attach::{Failure, Greeting};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_core::quota::{Resource, UserId};
use utipc_lanes::daemon::{Context, Effect, Lanes};
use utipc_os::disposal::{Disposal, Reclaim};
use utipc_os::fdpass::Doorway;
use utipc_os::reactor::{Reactor, Waker};

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
use super::sockets::Sockets;
use super::table::Replica;
use super::token;
use super::turns::TurnMeter;
use crate::driver::NodeDriver;

use releases::Release;

/// Data and descriptors that follow a reply.
#[derive(Default)]
struct Answer {
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// The reply is sent in a later turn.
    comes_later: bool,
}

/// Everything that the daemon's thread owns; see the module.
pub(super) struct Dispatcher {
    driver: NodeDriver,
    reactor: Reactor,
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
    /// Clean-up that goes on.
    releases: VecDeque<Release>,
    trim: Trim,
    turns: TurnMeter,
    counters: DaemonCounters,
    /// The address that processes know.
    address: NodeAddr,
    orders: Arc<Orders>,
    /// Buffer for one packet that comes in.
    packet: Vec<u8>,
    /// Buffer for the start of one that goes out.
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
        let reactor = Reactor::new()?;
        driver.watch(&reactor, true)?;
        let admission = Admission::new(&reactor, doorway, config.versions.unwrap_or(Greeting::OWN))?;
        let waker = reactor.waker();
        let disposal = Disposal::default();
        let descriptors = Descriptors::new(&reactor, disposal.clone())?;
        let dispatcher = Dispatcher {
            driver,
            reactor,
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
            releases: VecDeque::new(),
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
        let Self { lanes, driver, reactor, effects, .. } = self;
        let result = call(lanes, &mut Context { now, stack: &mut driver.stack, reactor, effects });
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
                Effect::Free(memory) => self.reclaim.drop_later(memory),
                Effect::Warn(text) => tracing::warn!("{text}"),
            }
        }
        self.effects = effects;
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
