//! Requests of processes about their sockets, their lanes and themselves.
//!
//! | Question | File |
//! |---|---|
//! | Which requests wait, and what do requests about lanes and processes do? | here |
//! | What does a call on a socket do? | `socket.rs` |

mod socket;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use utipc_attach::{Failure, LaneCall, MAX_AWAITED, ProcessCall, Reply, Request, SocketCall};
use utipc_core::quota::UserId;
use utipc_lanes::daemon::{Work, is_datagram};

use super::attachments::{AttachmentId, Outgoing, Policy};
use super::barriers::{Barriers, MAX_BARRIERS};
use super::sockets::{Done, Sockets};
use super::tasks::{Task, Tasks, Then};

/// A request that waits until what its process has written into the lane of its socket is carried out.
#[derive(Debug)]
pub(super) struct Waiting {
    id: AttachmentId,
    work: Work,
    packet: Vec<u8>,
}

impl Waiting {
    /// Its attachment.
    pub(super) fn id(&self) -> AttachmentId {
        self.id
    }

    /// The packet with the request.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// Carries out some of what the process has written; false if the request is next.
    pub(super) fn step(&mut self, sockets: &mut Sockets) -> bool {
        sockets.with_lanes(|lanes, context| lanes.step(context, &mut self.work))
    }
}

/// What requests of processes leave at the daemon.
#[derive(Debug, Default)]
pub(super) struct Requests {
    barriers: Barriers,
    /// Requests that have begun to wait, with their users.
    waiting: VecDeque<(UserId, Waiting)>,
    /// Bindings that the policy did not allow.
    bindings_refused: u64,
}

impl Requests {
    /// Forgets a process that is gone.
    pub(super) fn forget(&mut self, id: AttachmentId) {
        self.barriers.forget(id);
    }

    pub(super) fn bindings_refused(&self) -> u64 {
        self.bindings_refused
    }

    /// A request that has begun to wait, and its user.
    pub(super) fn next_waiting(&mut self) -> Option<(UserId, Waiting)> {
        self.waiting.pop_front()
    }

    /// Whether a request waits until what the process has written into the lane of its socket is carried out: options
    /// must not apply to it, and a message must not overtake it.
    pub(super) fn waits(
        &mut self,
        sockets: &mut Sockets,
        id: AttachmentId,
        request: &Request,
        packet: &[u8],
    ) -> bool {
        let Request::Socket { port, call } = request else { return false };
        let port = *port;
        if !sockets.holders().is_held_by(port, id) {
            return false;
        }
        let Ok(user) = sockets.user(id) else { return false };
        let follows_lane = match call {
            SocketCall::SetOption { .. } | SocketCall::Look => true,
            SocketCall::Send { .. } | SocketCall::SendFound { .. } => is_datagram(sockets.stack(), port),
            _ => false,
        };
        if !follows_lane || !sockets.lanes().has_written(port) {
            return false;
        }
        let mut waiting = Waiting { id, work: Work::carry(port), packet: Vec::new() };
        if !waiting.step(sockets) {
            return false;
        }
        waiting.packet = packet.to_vec();
        self.waiting.push_back((user, waiting));
        true
    }
}

/// A request in execution, and its reply so far.
pub(super) struct Call<'a> {
    id: AttachmentId,
    requests: &'a mut Requests,
    sockets: &'a mut Sockets,
    tasks: &'a mut Tasks,
    policy: &'a Policy,
    /// Data that follows the reply.
    payload: Vec<u8>,
    /// Descriptors that follow the reply.
    fds: Vec<OwnedFd>,
    /// The reply is sent in a later turn.
    comes_later: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        id: AttachmentId,
        requests: &'a mut Requests,
        sockets: &'a mut Sockets,
        tasks: &'a mut Tasks,
        policy: &'a Policy,
    ) -> Self {
        let (payload, fds) = (Vec::new(), Vec::new());
        Self { id, requests, sockets, tasks, policy, payload, fds, comes_later: false }
    }

    /// Queues the reply, unless it is sent later.
    pub(super) fn finish(self, done: Done) {
        if !self.comes_later {
            let reply = done.unwrap_or_else(Reply::Failed);
            let Self { id: to, payload, fds, sockets, .. } = self;
            sockets.attachments_mut().reply(Outgoing { to, reply, payload, fds });
        }
    }

    /// The reply is sent later.
    fn later(&mut self) -> Done {
        self.comes_later = true;
        Ok(Reply::Done)
    }

    /// Begins a task of the process, which answers the request.
    fn begin(&mut self, task: Task) -> Done {
        let user = self.sockets.user(self.id)?;
        self.tasks.begin(self.sockets, user, task);
        self.later()
    }

    /// Does work on lanes, which answers the request.
    fn work(&mut self, work: Work, then: Then) -> Done {
        self.begin(Task::lanes(work, then))
    }

    /// A call about lanes: `lanes` checks that the attachment has this end of them.
    pub(super) fn lane(&mut self, call: LaneCall) -> Done {
        let (id, sockets) = (self.id, &mut *self.sockets);
        match call {
            LaneCall::FetchPair { pair } => {
                let fetched = sockets.with_lanes(|lanes, _| lanes.fetch_pair(id, pair));
                self.fds = fetched.ok_or(Failure::State)?;
                Ok(Reply::Done)
            }
            LaneCall::Grow { lane, log2, importance } => {
                sockets.with_lanes(|lanes, context| lanes.grow(context.stack, id, lane, log2, importance))
            }
            LaneCall::LaneDone { lane, end } => {
                sockets.with_lanes(|lanes, context| lanes.done(context, id, lane, end))
            }
            LaneCall::Report { lane } => sockets.with_lanes(|lanes, context| lanes.report(context, id, lane)),
            LaneCall::Wake { lane } => sockets.with_lanes(|lanes, context| lanes.wake(context, id, lane)),
            LaneCall::FarEnd { lane } => {
                self.fds.push(sockets.far_end_of_reader(id, lane)?);
                Ok(Reply::Done)
            }
        }
    }

    /// A call of the process; `passed` is the descriptor that came with the request.
    pub(super) fn process(&mut self, call: ProcessCall, passed: &mut Option<OwnedFd>) -> Done {
        let id = self.id;
        match call {
            ProcessCall::Open { kind } => self.sockets.open(id, kind),
            ProcessCall::Claim => self.claim(passed.as_ref()),
            ProcessCall::Fork => {
                self.tasks.fork(self.sockets, id)?;
                self.later()
            }
            ProcessCall::Inherit { inheritance, nonce } => {
                self.tasks.inherit(self.sockets, id, (inheritance, nonce))?;
                self.later()
            }
            ProcessCall::Notices => Ok(Reply::Done),
            ProcessCall::FetchTable => {
                self.fds = self.sockets.replica().descriptors()?;
                Ok(Reply::Done)
            }
            ProcessCall::Lookup { to, domain } => {
                Ok(Reply::Found(self.sockets.stack_mut().lookup(to, domain)))
            }
            ProcessCall::Barrier { number, last } => self.barrier(number, last),
        }
    }

    /// A process that has the descriptor of a socket becomes a holder of the socket.
    fn claim(&mut self, passed: Option<&OwnedFd>) -> Done {
        let id = self.id;
        let port = passed.and_then(|passed| self.sockets.find(passed)).ok_or(Failure::NoSocket(0))?;
        if self.sockets.holders().is_held_by(port, id) {
            return Ok(Reply::Claimed { port });
        }
        self.sockets.check_limit(id)?;
        if self.sockets.claim(port, id) {
            return self.work(Work::share(port), Then::Reply(id, Reply::Claimed { port }));
        }
        Ok(Reply::Claimed { port })
    }

    fn barrier(&mut self, number: Option<u32>, last: bool) -> Done {
        let (now, id, barriers) = (self.sockets.now(), self.id, &mut self.requests.barriers);
        let number = match number {
            Some(number) => number,
            None if barriers.is_full(id) => {
                return Err(Failure::Limit(format!("{MAX_BARRIERS} barriers of one process at a time")));
            }
            None => barriers.insert(id, self.sockets.stack_mut().begin_barrier(now)),
        };
        let barrier = barriers.get_mut(id, number).ok_or(Failure::State)?;
        let mut nodes = self.sockets.stack_mut().awaited(now, barrier);
        if last || nodes.is_empty() {
            barriers.remove(id, number);
        }
        nodes.truncate(MAX_AWAITED);
        Ok(Reply::Awaited { number, nodes })
    }
}
