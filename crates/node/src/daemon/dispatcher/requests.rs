//! Requests of processes about their sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Reply, Request, SocketView, decode};
use utipc_core::Time;
use utipc_core::addr::{Importance, Scope, ServiceRange};
use utipc_core::group::{GroupPolicy, GroupRequest};
use utipc_core::quota::Resource;
use utipc_core::socket::{Endpoint, OptionError, SocketKind, WaitReason};
use utipc_lanes::daemon::{EndCause, Work};

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
        let with_payload = matches!(
            request,
            Request::Send { .. }
                | Request::SendFound { .. }
                | Request::SendKeyed { .. }
                | Request::Manage { .. }
        );
        if !payload.is_empty() && !with_payload {
            return self.end_attachment(id, EndReason::Garbage);
        }
        if !self.attachments.begin_request(id) {
            // The process does not wait for this reply any more.
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
            Request::Send { .. }
            | Request::SendFound { .. }
            | Request::SendKeyed { .. }
            | Request::Receive { .. }
            | Request::ReceivePolled { .. } => self.transfer(now, id, request, payload, &mut answer),
            Request::Fork
            | Request::Inherit { .. }
            | Request::Keep { .. }
            | Request::Claim { .. }
            | Request::Adopt { .. } => self.share(now, id, request, passed, &mut answer),
            Request::Manage { from } => self.manage(now, id, from, payload, &mut answer),
            request => self.carry_out_request(now, id, request, &mut answer),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        let Answer { payload, fds, comes_later } = answer;
        if !comes_later {
            self.replies.push(Outgoing { to: id, reply, payload, fds });
        }
    }

    /// Requests about one socket.
    fn carry_out_request(
        &mut self,
        now: Time,
        id: AttachmentId,
        request: Request,
        answer: &mut Answer,
    ) -> Done {
        match request {
            Request::Open { kind } => self.open(now, id, kind),
            Request::Close { port } => self.check_holds(id, port).map(|()| self.close(now, id, port, answer)),
            Request::Bind { port, range, scope } => {
                self.bind(now, id, port, range, scope)?;
                self.answer_when_told(id, port, answer)
            }
            Request::Unbind { port, which } => self.unbind(now, id, port, which, answer),
            Request::Join { port, request } => {
                self.join(now, id, port, (request, GroupPolicy::LINUX))?;
                self.answer_when_told(id, port, answer)
            }
            Request::JoinWith { port, request, policy } => {
                self.join(now, id, port, (request, policy))?;
                self.answer_when_told(id, port, answer)
            }
            Request::Leave { port } => {
                self.check_holds(id, port)?;
                if !self.in_group(port) {
                    return self.leave_group(now, port);
                }
                // For a process that has not made it hosted first.
                let work = Work::end(port, EndCause::Hosted(None));
                self.work_for_request(now, id, (work, Then::Leave(id, port)), answer)
            }
            Request::Listen { port } => {
                self.check_holds(id, port)?;
                self.driver.stack.listen(now, port).map_err(Failure::Call).map(done)
            }
            Request::Connect { port, to } => {
                self.check_holds(id, port)?;
                self.driver.stack.connect(now, port, to).map_err(Failure::Connect).map(done)
            }
            Request::Accept { port } => self.accept(now, id, port),
            Request::Shutdown { port } => self.shut_down(now, id, port, answer),
            Request::SetOption { port, option, value } => {
                self.check_holds(id, port)?;
                self.driver.stack.set_option(now, port, option, value).map_err(Failure::Option).map(done)
            }
            Request::GetOption { port, option } => {
                let endpoint = self.endpoint(id, port, Failure::Option(OptionError::NoSuchOption))?;
                let value = endpoint.option(option).map_err(Failure::Option)?;
                self.count_option(now, id, (port, option, value), answer)
            }
            Request::Look { port } => {
                self.endpoint(id, port, Failure::State)?;
                self.view(id, port).map(|view| Reply::Socket(Box::new(view))).ok_or(Failure::State)
            }
            Request::TakeError { port } => {
                self.check_holds(id, port)?;
                Ok(Reply::Error(self.driver.stack.take_error(port)))
            }
            Request::Descriptor { port } => {
                let near = self.open_descriptor(id, port)?;
                let given = self.descriptors.give_to_library(port);
                given.map_err(|e| Failure::Limit(e.to_string()))?;
                answer.fds.push(near);
                Ok(Reply::Done)
            }
            Request::Rearm { port } => self.rearm(now, id, port).map(|_| Reply::Done),
            Request::Drained { port, more } => self.acknowledge_poll(now, id, port, more),
            Request::FarEnd { port, lane } => {
                answer.fds.push(self.far_end(id, port, lane)?);
                Ok(Reply::Done)
            }
            Request::Notices => Ok(Reply::Done),
            request => self.lane_request(now, id, request, answer),
        }
    }

    /// Requests about lanes.
    fn lane_request(&mut self, now: Time, id: AttachmentId, request: Request, answer: &mut Answer) -> Done {
        match request {
            Request::WantLane { port, to } => {
                self.check_holds(id, port)?;
                self.with_lanes(now, |lanes, context| lanes.want(context, id, port, to))
            }
            Request::FetchPair { pair } => {
                answer.fds = self.lanes.fetch_pair(id, pair).ok_or(Failure::State)?;
                Ok(Reply::Done)
            }
            Request::Wake { lane } => self.with_lanes(now, |lanes, context| lanes.wake(context, id, lane)),
            Request::Grow { lane, log2, importance } => {
                self.lanes.grow(&mut self.driver.stack, id, lane, log2, importance)
            }
            Request::AwaitRoom { port, millis } => {
                self.check_holds(id, port)?;
                self.lanes.await_room(now, port, millis);
                Ok(Reply::Done)
            }
            Request::LaneDone { lane, end } => {
                self.with_lanes(now, |lanes, context| lanes.done(context, id, lane, end))
            }
            Request::Report { lane } => {
                self.with_lanes(now, |lanes, context| lanes.report(context, id, lane))
            }
            Request::MakeHosted { port, partly } => {
                self.check_holds(id, port)?;
                let work = Work::end(port, EndCause::Hosted(partly));
                self.work_for_request(now, id, (work, Then::Reply(id, Reply::Done)), answer)
            }
            Request::Lend { port } => {
                self.check_holds(id, port)?;
                if !self.sockets.is_sole(port) || self.in_group(port) {
                    return Err(Failure::State);
                }
                let then = Then::Reply(id, Reply::Done);
                self.work_for_request(now, id, (Work::lend(port, id), then), answer)
            }
            Request::GroupLanes { port } => {
                self.check_holds(id, port)?;
                if !self.sockets.is_sole(port) {
                    return Err(Failure::State);
                }
                let (reply, others) =
                    self.with_lanes(now, |lanes, context| lanes.want_for_group(context, id, port));
                for other in others {
                    self.report_group(other);
                }
                reply
            }
            request => self.query(now, id, request, answer),
        }
    }

    /// Whether a socket is in a group.
    pub(super) fn in_group(&self, port: u32) -> bool {
        self.driver.stack.endpoint(port).is_some_and(|endpoint| endpoint.group().is_some())
    }

    /// The endpoint of a socket that the attachment holds; `gone` if it has ended.
    pub(super) fn endpoint(&self, id: AttachmentId, port: u32, gone: Failure) -> Result<&Endpoint, Failure> {
        self.check_holds(id, port)?;
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
        self.check_holds(id, port)?;
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
        self.check_holds(id, port)?;
        if self.lanes.is_direct(port) {
            return Err(Failure::State);
        }
        self.check_binding(id, port, request.member.into())?;
        self.driver.stack.join_with(now, port, request, policy).map_err(Failure::Join)?;
        self.sockets.add_binding(port);
        Ok(Reply::Done)
    }

    fn bind(&mut self, now: Time, id: AttachmentId, port: u32, range: ServiceRange, scope: Scope) -> Done {
        self.check_holds(id, port)?;
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
            // A user who tries again and again must not fill the log.
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
        self.check_holds(id, port)?;
        if which.is_none() && self.sockets.bindings(port) > STEP_ITEMS {
            self.unbind_all(now, port, false, (id, answer));
            return Ok(Reply::Done);
        }
        let in_group = self.in_group(port);
        self.driver.stack.unbind(now, port, which).map_err(Failure::Bind)?;
        if in_group {
            // It may have left the group by that.
            self.with_lanes(now, |lanes, context| lanes.stop_group_lanes(context, port));
        }
        self.sockets.remove_bindings(port, which.is_none());
        Ok(Reply::Done)
    }

    /// A socket of the node, as every process may see it, for the process `id`.
    pub(super) fn view(&self, id: AttachmentId, port: u32) -> Option<SocketView> {
        let endpoint = self.driver.stack.endpoint(port)?;
        let wait = endpoint.wait_reason().map(|reason| match reason {
            // As for one full receiver.
            WaitReason::ReceiversFull { .. } if !self.attachments.knows_receivers_full(id) => {
                let (node, importance) = (self.driver.stack.own_node(), Importance::Low);
                WaitReason::LinkCongested { node, importance }
            }
            reason => reason,
        });
        let owner = self.sockets.owner(port).and_then(|owner| self.attachments.peer(owner));
        Some(SocketView {
            kind: endpoint.kind(),
            state: endpoint.state(),
            peer: endpoint.peer(),
            service: endpoint.connected_service(),
            readiness: endpoint.readiness(),
            wait,
            error: endpoint.error(),
            stats: endpoint.stats(),
            available: u32::try_from(endpoint.available()).unwrap_or(u32::MAX),
            pid: owner.map_or(0, |peer| peer.pid),
            uid: owner.map_or(0, |peer| peer.uid),
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
        let mut access = manage::Access {
            now,
            driver: &mut self.driver,
            reactor: &self.reactors.main,
            rules: &self.rules,
            sockets: &self.sockets,
            attachments: &self.attachments,
            lanes: &self.lanes,
        };
        let (payload, next) = self.management.execute(&mut access, (id, &peer), from, payload)?;
        answer.payload = payload;
        answer.fds.extend(self.management.descriptor.take());
        Ok(Reply::Managed { next })
    }
}
