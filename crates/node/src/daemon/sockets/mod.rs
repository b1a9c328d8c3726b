//! The sockets of processes: their endpoints in the node, their holders, their lanes and their descriptors. What one of
//! these does reaches the others here.
//!
//! | Question | File |
//! |---|---|
//! | What follows from a call of the lanes? | here |
//! | What happens to sockets in which order of a turn? | `turn.rs` |
//! | When does a process learn that a socket is ready? | `readiness.rs` |
//! | Which descriptor does a program poll in place of a socket? | `polled.rs` |
//! | How does a message enter the node, and leave it? | `transfer.rs` |
//! | How do sockets, their bindings and their holders come and go? | `life.rs` |

mod life;
mod polled;
mod readiness;
mod transfer;
mod turn;

use std::collections::{BTreeMap, VecDeque};

use utipc_attach::{Failure, Reply};
use utipc_core::quota::{Resource, UserId};
use utipc_core::socket::Endpoint;
use utipc_core::stack::Stack;
use utipc_core::{Origin, SubscriberWork, Time};
use utipc_lanes::daemon::{Context, Effect, Job as LaneJob, Lanes, Watch};
use utipc_os::disposal::{Disposal, Reclaim};
use utipc_os::fdpass::own_user;
use utipc_os::reactor::{Interest, Waker};

use super::attachments::{AttachmentId, Attachments, Outgoing, Policy};
use super::config::Limits;
use super::descriptors::Descriptors;
use super::holders::Holders;
use super::inheritance::Orphans;
use super::manage::Access;
use super::quotas;
use super::reactors::Reactors;
use super::table::Replica;
use super::token;
use crate::driver::NodeDriver;

pub(super) use transfer::Sent;

/// The reply to a request.
pub(super) type Done = Result<Reply, Failure>;

/// A job of a user: a bounded step of work of its sockets.
#[derive(Debug)]
pub(super) enum SocketJob {
    /// Continue with its lanes.
    Lanes(LaneJob),
    /// Hang up descriptors that have waited for the user's events.
    HangUp,
    /// Collect receivers of multicasts of its socket, or of another node, or make copies for them.
    Spread(Origin),
    /// Continue with work of the topology server.
    Subscriber(SubscriberWork),
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

/// The refusal of a request for which the system or the node has no room.
fn limit(error: impl ToString) -> Failure {
    Failure::Limit(error.to_string())
}

/// Makes the node apply limits.
fn apply(limits: &Limits, stack: &mut Stack) {
    stack.set_binding_limit(limits.bindings);
    stack.ledger_mut().set_quotas(quotas::quotas(limits, own_user()));
}

/// The node, and the sockets that it has for processes; see the module.
pub(super) struct Sockets {
    /// The time of this turn.
    now: Time,
    driver: NodeDriver,
    reactors: Reactors,
    limits: Limits,
    attachments: Attachments,
    holders: Holders,
    lanes: Lanes,
    descriptors: Descriptors,
    orphans: Orphans,
    replica: Replica,
    /// Effects of the lanes; empty between two calls of them.
    effects: Vec<Effect>,
    /// Frees memory that processes have shared.
    reclaim: Reclaim,
    /// Jobs that have come up, with their users.
    due: VecDeque<(UserId, SocketJob)>,
    /// Sockets that no process reaches and whose lanes have not ended yet: their bindings still exist.
    ending: usize,
    /// By socket: the attachment that waits until the receivers of its multicast are known, and the number of bytes
    /// that it has sent.
    collecting: BTreeMap<u32, (AttachmentId, u32)>,
}

impl Sockets {
    pub(super) fn new(
        mut driver: NodeDriver,
        reactors: Reactors,
        limits: Limits,
        disposal: &Disposal,
    ) -> Self {
        apply(&limits, &mut driver.stack);
        let replica = Replica::new(&mut driver.stack);
        driver.stack.watch_groups();
        Self {
            now: Time::ZERO,
            driver,
            reactors,
            limits,
            attachments: Attachments::new(disposal.clone()),
            holders: Holders::default(),
            lanes: Lanes::new(token::LANES),
            descriptors: Descriptors::new(disposal.clone()),
            orphans: Orphans::default(),
            replica,
            effects: Vec::new(),
            reclaim: Reclaim::default(),
            due: VecDeque::new(),
            ending: 0,
            collecting: BTreeMap::new(),
        }
    }

    /// The time of this turn.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Sets the time, at the beginning of a turn and before the wait at its end.
    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Replaces the limits, for later requests.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        apply(&limits, &mut self.driver.stack);
    }

    pub(super) fn driver_mut(&mut self) -> &mut NodeDriver {
        &mut self.driver
    }

    pub(super) fn stack(&self) -> &Stack {
        &self.driver.stack
    }

    pub(super) fn stack_mut(&mut self) -> &mut Stack {
        &mut self.driver.stack
    }

    pub(super) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(super) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(super) fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    pub(super) fn attachments_mut(&mut self) -> &mut Attachments {
        &mut self.attachments
    }

    pub(super) fn reactors_mut(&mut self) -> &mut Reactors {
        &mut self.reactors
    }

    /// What a management request may touch.
    pub(super) fn access<'a>(&'a mut self, policy: &'a Policy, counters: Option<Vec<u8>>) -> Access<'a> {
        Access {
            now: self.now,
            driver: &mut self.driver,
            reactor: &self.reactors.main,
            policy,
            holders: &self.holders,
            attachments: &self.attachments,
            lanes: &self.lanes,
            counters,
        }
    }

    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The endpoint of a socket; `gone` if it has ended.
    pub(super) fn endpoint(&self, port: u32, gone: Failure) -> Result<&Endpoint, Failure> {
        self.driver.stack.endpoint(port).ok_or(gone)
    }

    /// Queues a reply, which leaves at the end of the turn.
    pub(super) fn reply(&mut self, to: AttachmentId, reply: Done) {
        self.attachments.reply(Outgoing::new(to, reply.unwrap_or_else(Reply::Failed)));
    }

    /// The user of a process, to whom what it creates is charged.
    pub(super) fn user(&self, id: AttachmentId) -> Result<UserId, Failure> {
        self.attachments.peer(id).map(|peer| UserId(peer.uid)).ok_or(Failure::State)
    }

    /// The user who owns a socket.
    pub(super) fn owner_of(&self, port: u32) -> UserId {
        self.driver.stack.user_of(port).unwrap_or_else(|| UserId(own_user()))
    }

    /// Checks that a user may use more of a resource.
    pub(super) fn check_quota(
        &mut self,
        user: UserId,
        resource: Resource,
        amount: u64,
    ) -> Result<(), Failure> {
        let ledger = self.driver.stack.ledger_mut();
        ledger.check(user, resource, amount).map_err(|exceeded| quotas::refuse(ledger, exceeded))
    }

    /// Runs a call of the lanes and executes its effects.
    pub(super) fn with_lanes<T>(&mut self, call: impl FnOnce(&mut Lanes, &mut Context<'_>) -> T) -> T {
        let Self { now, lanes, driver, reactors, attachments, effects, .. } = self;
        let watch = &mut Watcher { reactors, attachments };
        let result = call(lanes, &mut Context { now: *now, stack: &mut driver.stack, watch, effects });
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
                Effect::Run(user, job) => {
                    let user = user.unwrap_or_else(|| UserId(own_user()));
                    self.due.push_back((user, SocketJob::Lanes(job)));
                }
                Effect::Free(memory) => self.reclaim.drop_later(memory),
                Effect::Warn(text) => tracing::warn!("{text}"),
            }
        }
        self.effects = effects;
    }

    /// The next job that has come up, and its user.
    pub(super) fn next_job(&mut self) -> Option<(UserId, SocketJob)> {
        let Self { due, descriptors, driver, .. } = self;
        due.pop_front()
            .or_else(|| descriptors.next_waiting().map(|user| (user, SocketJob::HangUp)))
            .or_else(|| driver.stack.take_spread().map(|(origin, user)| (user, SocketJob::Spread(origin))))
            .or_else(|| {
                driver.stack.take_subscriber().map(|(user, work)| (user, SocketJob::Subscriber(work)))
            })
    }

    /// Does a job; returns it if there is more to do.
    pub(super) fn run(&mut self, user: UserId, job: SocketJob) -> Option<SocketJob> {
        let has_more = match job {
            SocketJob::Lanes(job) => {
                self.with_lanes(|lanes, context| lanes.run(context, job));
                false
            }
            SocketJob::HangUp => self.hang_up_some(user),
            SocketJob::Spread(origin) => self.continue_spread(origin),
            SocketJob::Subscriber(work) => self.driver.stack.continue_subscriber(self.now, work),
        };
        has_more.then_some(job)
    }
}
