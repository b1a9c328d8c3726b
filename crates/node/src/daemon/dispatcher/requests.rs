//! Requests of processes about their sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, LaneCall, ProcessCall, Reply, Request, SocketCall, SocketView, decode};
use utipc_core::Time;
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::quota::Resource;
use utipc_core::socket::{Endpoint, OptionError, SocketKind};
use utipc_lanes::daemon::{EndCause, Work};
use utipc_manage::Request as Managed;

use super::lane_tasks::Then;
use super::tasks::STEP_ITEMS;
use super::{Answer, Dispatcher, manage};
use crate::daemon::attachments::{AttachmentId, Outgoing};
use crate::daemon::counters::EndReason;
use crate::daemon::sockets::Holder;

pub(super) type Done = Result<Reply, Failure>;

fn done(_: ()) -> Reply {
    Reply::Done
}

impl Dispatcher {
    /// Carries out the request of a packet; the reply leaves at the end of the turn.
    pub(super) fn execute(
        &mut self,
        now: Time,
        id: AttachmentId,
        packet: &[u8],
        passed: &mut Option<OwnedFd>,
    ) {
        let Ok((request, payload)) = decode::<Request>(packet) else {
            return self.end_attachment(id, EndReason::Garbage);
        };
        if !payload.is_empty() && !request.carries_payload() {
            return self.end_attachment(id, EndReason::Garbage);
        }
        if !self.attachments.begin_request(id) {
            // The process no longer waits for this reply.
            let reply = Reply::Failed(Failure::State);
            return self.replies.push(Outgoing { to: id, reply, payload: Vec::new(), fds: Vec::new() });
        }
        if !self.carries_out_first(now, id, &request, packet) {
            self.answer_request(now, id, (request, payload), passed);
        }
    }

    /// Carries out a request that has begun before; see [`Self::execute`].
    pub(super) fn execute_begun(
        &mut self,
        now: Time,
        id: AttachmentId,
        packet: &[u8],
        passed: &mut Option<OwnedFd>,
    ) {
        if let Ok(request) = decode::<Request>(packet) {
            self.answer_request(now, id, request, passed);
        }
    }

    fn answer_request(
        &mut self,
        now: Time,
        id: AttachmentId,
        (request, payload): (Request, &[u8]),
        passed: &mut Option<OwnedFd>,
    ) {
        let mut answer = Answer::default();
        let reply = match request {
            Request::Socket { port, call } => self
                .check_holds(id, port)
                .and_then(|()| self.socket_call(now, (id, port), call, (payload, passed), &mut answer)),
            Request::Lane(call) => self.lane_call(now, id, call, &mut answer),
            Request::Process(call) => self.process_call(now, id, call, passed, &mut answer),
            Request::Manage { from } => self.manage(now, id, from, payload, &mut answer),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        let Answer { payload, fds, comes_later } = answer;
        if !comes_later {
            self.replies.push(Outgoing { to: id, reply, payload, fds });
        }
    }

    /// A call on a socket that the attachment holds.
    fn socket_call(
        &mut self,
        now: Time,
        (id, port): (AttachmentId, u32),
        call: SocketCall,
        (payload, passed): (&[u8], &mut Option<OwnedFd>),
        answer: &mut Answer,
    ) -> Done {
        match call {
            SocketCall::Close => Ok(self.close(now, id, port, answer)),
            SocketCall::Bind { range, scope } => {
                self.bind(now, id, port, range, scope)?;
                self.answer_when_told(id, port, answer)
            }
            SocketCall::Unbind { which } => self.unbind(now, id, port, which, answer),
            SocketCall::Listen => self.driver.stack.listen(now, port).map_err(Failure::Call).map(done),
            SocketCall::Connect { to } => {
                self.driver.stack.connect(now, port, to).map_err(Failure::Connect).map(done)
            }
            SocketCall::Accept => self.accept(now, id, port),
            SocketCall::Shutdown => self.shut_down(now, id, port, answer),
            SocketCall::SetOption { option, value } => {
                self.driver.stack.set_option(now, port, option, value).map_err(Failure::Option).map(done)
            }
            SocketCall::GetOption { option } => {
                let endpoint = self.endpoint(port, Failure::Option(OptionError::NoSuchOption))?;
                let value = endpoint.option(option).map_err(Failure::Option)?;
                self.count_option(now, id, (port, option, value), answer)
            }
            SocketCall::Send { to } => self.send(now, (id, port), to, payload, answer),
            SocketCall::SendFound { to, found } => self.send_found(now, port, (to, found), payload),
            SocketCall::SendKeyed { to, key } => self.send_keyed(now, (id, port), (to, key), payload, answer),
            SocketCall::Receive { room, options } => self.receive(now, port, room, options, answer),
            SocketCall::ReceivePolled { room, options } => {
                let received = self.receive(now, port, room, options, answer);
                self.rearm(now, port);
                received
            }
            SocketCall::Look => {
                self.view(port).map(|view| Reply::Socket(Box::new(view))).ok_or(Failure::State)
            }
            SocketCall::TakeError => Ok(Reply::Error(self.driver.stack.take_error(port))),
            SocketCall::Descriptor => {
                let near = self.open_descriptor(id, port)?;
                let given = self.descriptors.give_to_library(port);
                given.map_err(|e| Failure::Limit(e.to_string()))?;
                answer.fds.push(near);
                Ok(Reply::Done)
            }
            SocketCall::Keep => {
                answer.fds.push(self.give_descriptor(id, port)?);
                Ok(Reply::Done)
            }
            SocketCall::Rearm => {
                self.rearm(now, port);
                Ok(Reply::Done)
            }
            SocketCall::Drained { more } => self.acknowledge_poll(now, port, more),
            SocketCall::FarEnd => {
                answer.fds.push(self.descriptors.share(port).ok_or(Failure::State)?);
                Ok(Reply::Done)
            }
            SocketCall::Adopt { near } => self.adopt(id, port, near, passed),
            SocketCall::MakeHosted { partly } => {
                let work = Work::end(port, EndCause::Hosted(partly));
                self.work_for_request(now, id, (work, Then::Reply(id, Reply::Done)), answer)
            }
            SocketCall::Lend => {
                if !self.sockets.is_sole(port) || self.in_group(port) {
                    return Err(Failure::State);
                }
                let then = Then::Reply(id, Reply::Done);
                self.work_for_request(now, id, (Work::lend(port, id), then), answer)
            }
            SocketCall::WantLane { to } => {
                self.with_lanes(now, |lanes, context| lanes.want(context, id, port, to))
            }
            SocketCall::AwaitRoom { millis } => {
                self.lanes.await_room(now, port, millis);
                Ok(Reply::Done)
            }
            SocketCall::Join { request, policy } => {
                self.join(now, id, port, (request, policy))?;
                self.answer_when_told(id, port, answer)
            }
            SocketCall::Leave => {
                if !self.in_group(port) {
                    return self.leave_group(now, port);
                }
                // Hosts the socket first if the process has not done so.
                let work = Work::end(port, EndCause::Hosted(None));
                self.work_for_request(now, id, (work, Then::Leave(id, port)), answer)
            }
            SocketCall::GroupMembers { after } => self.group_members(port, after),
            SocketCall::GroupLanes => self.group_lanes(now, id, port),
        }
    }

    /// A call about lanes: `lanes` checks that the attachment has this end of them.
    fn lane_call(&mut self, now: Time, id: AttachmentId, call: LaneCall, answer: &mut Answer) -> Done {
        match call {
            LaneCall::FetchPair { pair } => {
                answer.fds = self.lanes.fetch_pair(id, pair).ok_or(Failure::State)?;
                Ok(Reply::Done)
            }
            LaneCall::Grow { lane, log2, importance } => {
                self.lanes.grow(&mut self.driver.stack, id, lane, log2, importance)
            }
            LaneCall::LaneDone { lane, end } => {
                self.with_lanes(now, |lanes, context| lanes.done(context, id, lane, end))
            }
            LaneCall::Report { lane } => {
                self.with_lanes(now, |lanes, context| lanes.report(context, id, lane))
            }
            LaneCall::Wake { lane } => self.with_lanes(now, |lanes, context| lanes.wake(context, id, lane)),
            LaneCall::FarEnd { lane } => {
                answer.fds.push(self.far_end_of_reader(id, lane)?);
                Ok(Reply::Done)
            }
        }
    }

    /// A call of the process; `passed` is the descriptor that came with the request.
    fn process_call(
        &mut self,
        now: Time,
        id: AttachmentId,
        call: ProcessCall,
        passed: &mut Option<OwnedFd>,
        answer: &mut Answer,
    ) -> Done {
        match call {
            ProcessCall::Open { kind } => self.open(now, id, kind),
            ProcessCall::Claim => self.claim(now, id, passed.as_ref(), answer),
            ProcessCall::Fork => self.fork(now, id, answer),
            ProcessCall::Inherit { inheritance, nonce } => {
                self.inherit(now, id, (inheritance, nonce), answer)
            }
            ProcessCall::Notices => Ok(Reply::Done),
            ProcessCall::FetchTable => {
                answer.fds = self.replica.descriptors()?;
                Ok(Reply::Done)
            }
            ProcessCall::Lookup { to, domain } => Ok(Reply::Found(self.driver.stack.lookup(to, domain))),
            ProcessCall::Barrier { number, last } => self.barrier(now, id, number, last),
        }
    }

    /// Opens lanes to the members of a socket's group.
    fn group_lanes(&mut self, now: Time, id: AttachmentId, port: u32) -> Done {
        if !self.sockets.is_sole(port) {
            return Err(Failure::State);
        }
        let (reply, others) = self.with_lanes(now, |lanes, context| lanes.want_for_group(context, id, port));
        for other in others {
            self.report_group(other);
        }
        reply
    }

    /// Whether a socket is in a group.
    pub(super) fn in_group(&self, port: u32) -> bool {
        self.driver.stack.endpoint(port).is_some_and(|endpoint| endpoint.group().is_some())
    }

    /// The endpoint of a socket; `gone` if it has ended.
    pub(super) fn endpoint(&self, port: u32, gone: Failure) -> Result<&Endpoint, Failure> {
        self.driver.stack.endpoint(port).ok_or(gone)
    }

    /// Checks that the attachment may hold this many more sockets.
    pub(super) fn check_socket_limit(&self, id: AttachmentId, more: usize) -> Result<(), Failure> {
        let limit = self.rules.limits().sockets_per_attachment;
        if self.sockets.count_of(id) + more <= limit {
            Ok(())
        } else {
            Err(Failure::Limit(format!(
                "{limit} sockets of one process (close some, or raise `limits.sockets_per_process`)"
            )))
        }
    }

    /// Checks that the attachment, and its user, may have one more socket.
    pub(super) fn check_new_socket(&mut self, id: AttachmentId) -> Result<(), Failure> {
        self.check_socket_limit(id, 1)?;
        let user = self.user(id)?;
        self.check_quota(user, Resource::Sockets, 1)
    }

    /// Assigns a new socket to an attachment; its user is charged for it, also when others hold it later.
    pub(super) fn add_socket(&mut self, id: AttachmentId, port: u32) {
        if let Ok(user) = self.user(id) {
            self.driver.stack.set_user(port, user);
        }
        let seen = self.readiness(port);
        self.sockets.add(port, id, seen);
        self.lanes.add_socket(port, id);
    }

    fn open(&mut self, now: Time, id: AttachmentId, kind: SocketKind) -> Done {
        self.check_new_socket(id)?;
        let port = self.driver.stack.open(now, kind).map_err(|e| Failure::Limit(e.to_string()))?;
        self.add_socket(id, port);
        Ok(Reply::Opened { port })
    }

    fn close(&mut self, now: Time, id: AttachmentId, port: u32, answer: &mut Answer) -> Reply {
        if !self.release(now, port, Holder::Process(id)) {
            self.unbind_all(now, port, true, (id, answer));
        }
        Reply::Done
    }

    fn shut_down(&mut self, now: Time, id: AttachmentId, port: u32, answer: &mut Answer) -> Done {
        if self.driver.stack.endpoint(port).is_some_and(|e| e.kind().is_connection_oriented()) {
            let work = Work::end(port, EndCause::Shutdown);
            return self.work_for_request(now, id, (work, Then::ShutDown(id, port)), answer);
        }
        self.shut_down_endpoint(now, port)
    }

    /// Joins a group. The socket is hosted: lanes of a group are requested afterwards.
    fn join(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        (request, policy): (GroupRequest, GroupPolicy),
    ) -> Done {
        if self.lanes.is_direct(port) {
            return Err(Failure::State);
        }
        self.check_binding(id, port, request.member.into())?;
        self.driver.stack.join_with(now, port, request, policy).map_err(Failure::Join)?;
        self.sockets.add_binding(port);
        Ok(Reply::Done)
    }

    fn bind(&mut self, now: Time, id: AttachmentId, port: u32, range: ServiceRange, scope: Scope) -> Done {
        self.check_binding(id, port, range)?;
        self.driver.stack.bind(now, port, range, scope).map_err(Failure::Bind)?;
        self.sockets.add_binding(port);
        Ok(Reply::Done)
    }

    /// Checks that the policy and the limits allow a binding.
    fn check_binding(&mut self, id: AttachmentId, port: u32, range: ServiceRange) -> Result<(), Failure> {
        let Some(peer) = self.attachments.peer(id) else { return Err(Failure::State) };
        if !self.rules.may_bind(&peer, range) {
            let what = format!("bind service type {}", range.service);
            self.counters.bindings_refused += 1;
            // A user who keeps trying must not fill the log.
            if self.counters.bindings_refused.is_power_of_two() {
                let refused = self.counters.bindings_refused;
                tracing::warn!(
                    uid = peer.uid,
                    service = range.service,
                    refused,
                    "binding refused by the policy"
                );
            }
            return Err(Failure::NotAllowed { uid: peer.uid, what });
        }
        let owner = self.sockets.owner(port).unwrap_or(id);
        let limit = self.rules.limits().bindings_per_attachment;
        if self.sockets.bindings_of(owner) >= limit {
            return Err(Failure::Limit(format!(
                "{limit} bindings of one process (withdraw some, or raise `limits.bindings_per_process`)"
            )));
        }
        if let Some(user) = self.driver.stack.user_of(port) {
            self.check_quota(user, Resource::Bindings, 1)?;
        }
        Ok(())
    }

    fn unbind(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
        answer: &mut Answer,
    ) -> Done {
        if which.is_none() && self.sockets.bindings(port) > STEP_ITEMS {
            self.unbind_all(now, port, false, (id, answer));
            return Ok(Reply::Done);
        }
        let in_group = self.in_group(port);
        self.driver.stack.unbind(now, port, which).map_err(Failure::Bind)?;
        if in_group {
            // By this it may have left the group.
            self.with_lanes(now, |lanes, context| lanes.stop_group_lanes(context, port));
        }
        self.sockets.remove_bindings(port, which.is_none());
        Ok(Reply::Done)
    }

    /// A socket of the node, as every process may see it.
    pub(super) fn view(&self, port: u32) -> Option<SocketView> {
        let endpoint = self.driver.stack.endpoint(port)?;
        Some(SocketView {
            kind: endpoint.kind(),
            state: endpoint.state(),
            peer: endpoint.peer(),
            service: endpoint.connected_service(),
            wait: endpoint.wait_reason(),
            error: endpoint.error(),
            stats: endpoint.stats(),
        })
    }

    /// Carries out a request of the management family.
    fn manage(
        &mut self,
        now: Time,
        id: AttachmentId,
        from: u64,
        payload: &[u8],
        answer: &mut Answer,
    ) -> Done {
        let Some(peer) = self.attachments.peer(id) else { return Err(Failure::State) };
        let (header, request) = Managed::from_bytes(payload).ok_or(Failure::State)?;
        let counters = if request == Ok(Managed::Counters) { self.counters_as_text() } else { None };
        let (payload, next) = self.with_management(now, |management, access| {
            access.counters = counters;
            management.execute(access, (id, &peer), from, (header, request))
        });
        answer.payload = payload;
        answer.fds.extend(self.management.descriptor.take());
        Ok(Reply::Managed { next })
    }

    /// Calls `act` with the management, and the state of the daemon that it may touch.
    pub(super) fn with_management<T>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut manage::Management, &mut manage::Access<'_>) -> T,
    ) -> T {
        let mut access = manage::Access {
            now,
            driver: &mut self.driver,
            reactor: &self.reactors.main,
            rules: &self.rules,
            sockets: &self.sockets,
            attachments: &self.attachments,
            lanes: &self.lanes,
            counters: None,
        };
        act(&mut self.management, &mut access)
    }
}
