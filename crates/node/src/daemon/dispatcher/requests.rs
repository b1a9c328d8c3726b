//! Requests of processes about their sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Reply, Request, SocketView, decode};
use utipc_core::Time;
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::socket::{BindError, Endpoint, OptionError, SocketKind};
use utipc_lanes::daemon::{EndCause, SocketEnd, is_datagram};

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
    pub(super) fn execute(&mut self, now: Time, id: AttachmentId, packet: &[u8], passed: Option<OwnedFd>) {
        let Ok((request, payload)) = decode::<Request>(packet) else {
            return self.end_attachment(id, EndReason::Garbage);
        };
        let with_payload =
            matches!(request, Request::Send { .. } | Request::SendFound { .. } | Request::Manage { .. });
        if !payload.is_empty() && !with_payload {
            return self.end_attachment(id, EndReason::Garbage);
        }
        let mut answer = Answer::default();
        let reply = match request {
            Request::Send { .. } | Request::SendFound { .. } | Request::Receive { .. } => {
                self.transfer(now, id, request, payload, &mut answer)
            }
            Request::Fork | Request::Inherit { .. } | Request::Keep { .. } | Request::Claim { .. } => {
                self.share(now, id, request, passed, &mut answer)
            }
            Request::Manage { from } => self.manage(now, id, from, payload, &mut answer),
            request => self.carry_out_request(now, id, request, &mut answer),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        let Answer { payload, fds } = answer;
        self.replies.push(Outgoing { to: id, reply, payload, fds });
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
            Request::Close { port } => self.check_holds(id, port).map(|()| self.close(now, id, port)),
            Request::Bind { port, range, scope } => self.bind(now, id, port, range, scope),
            Request::Unbind { port, which } => self.unbind(now, id, port, which),
            Request::Listen { port } => {
                self.check_holds(id, port)?;
                self.driver.stack.listen(now, port).map_err(Failure::Call).map(done)
            }
            Request::Connect { port, to } => {
                self.check_holds(id, port)?;
                self.driver.stack.connect(now, port, to).map_err(Failure::Connect).map(done)
            }
            Request::Accept { port } => self.accept(now, id, port),
            Request::Shutdown { port } => self.shut_down(now, id, port),
            Request::SetOption { port, option, value } => {
                self.check_holds(id, port)?;
                // The option must not apply to messages that were sent before it was set.
                self.with_lanes(now, |lanes, context| lanes.carry_out_all(context, port));
                self.driver.stack.set_option(now, port, option, value).map_err(Failure::Option).map(done)
            }
            Request::GetOption { port, option } => {
                let endpoint = self.endpoint(id, port, Failure::Option(OptionError::NoSuchOption))?;
                let value = endpoint.option(option).map_err(Failure::Option)?;
                Ok(Reply::Number(value.saturating_add(self.lanes.unopened(port, option))))
            }
            Request::Look { port } => {
                self.with_lanes(now, |lanes, context| lanes.carry_out_all(context, port));
                self.endpoint(id, port, Failure::State)?;
                self.view(port).map(|view| Reply::Socket(Box::new(view))).ok_or(Failure::State)
            }
            Request::TakeError { port } => {
                self.check_holds(id, port)?;
                Ok(Reply::Error(self.driver.stack.take_error(port)))
            }
            Request::Descriptor { port } => {
                answer.fds.push(self.open_descriptor(id, port)?);
                Ok(Reply::Done)
            }
            Request::Rearm { port } => self.rearm(id, port).map(|_| Reply::Done),
            Request::Drained { port, more } => self.acknowledge_poll(id, port, more),
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
                self.lanes.grow(&self.driver.stack, id, lane, log2, importance)
            }
            Request::LaneDone { lane, end } => {
                self.with_lanes(now, |lanes, context| lanes.done(context, id, lane, end))
            }
            Request::Report { lane } => {
                self.with_lanes(now, |lanes, context| lanes.report(context, id, lane))
            }
            Request::MakeHosted { port, partly } => {
                self.check_holds(id, port)?;
                self.with_lanes(now, |lanes, context| lanes.host(context, port, partly));
                Ok(Reply::Done)
            }
            Request::Lend { port } => {
                self.check_holds(id, port)?;
                if !self.sockets.is_sole(port) {
                    return Err(Failure::State);
                }
                self.with_lanes(now, |lanes, context| lanes.lend(context, id, port));
                Ok(Reply::Done)
            }
            request => self.query(now, id, request, answer),
        }
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
            Err(Failure::Limit(format!("{limit} sockets of one process")))
        }
    }

    /// Assigns a new socket to an attachment.
    pub(super) fn add_socket(&mut self, id: AttachmentId, port: u32) {
        let seen = self.readiness(port);
        self.sockets.add(port, id, seen);
        self.lanes.add_socket(port, id);
    }

    fn open(&mut self, now: Time, id: AttachmentId, kind: SocketKind) -> Done {
        self.check_socket_limit(id, 1)?;
        let port = self.driver.stack.open(now, kind).map_err(|e| Failure::Limit(e.to_string()))?;
        self.add_socket(id, port);
        Ok(Reply::Opened { port })
    }

    fn close(&mut self, now: Time, id: AttachmentId, port: u32) -> Reply {
        if !self.release(now, port, Holder::Process(id)) {
            self.close_socket(now, port);
        }
        Reply::Done
    }

    /// Closes a socket that its last holder has closed.
    pub(super) fn close_socket(&mut self, now: Time, port: u32) {
        self.with_lanes(now, |lanes, context| lanes.end(context, port, EndCause::Closed));
        self.close_descriptor(port);
        self.remove_socket(port);
        self.with_lanes(now, |lanes, context| lanes.end_socket(context, port, SocketEnd::Close));
    }

    /// Removes a socket whose lanes have ended.
    pub(super) fn remove_socket(&mut self, port: u32) {
        self.sockets.remove(port);
        self.lanes.remove_socket(port);
    }

    fn shut_down(&mut self, now: Time, id: AttachmentId, port: u32) -> Done {
        self.check_holds(id, port)?;
        if self.driver.stack.endpoint(port).is_some_and(|e| e.kind().is_connection_oriented()) {
            self.with_lanes(now, |lanes, context| lanes.end(context, port, EndCause::Shutdown));
        }
        if self.lanes.has_unsent(port) && !is_datagram(&self.driver.stack, port) {
            self.with_lanes(now, |lanes, context| lanes.end_socket(context, port, SocketEnd::Shutdown));
            return Ok(Reply::Done);
        }
        self.driver.stack.shutdown(now, port).map_err(Failure::Call).map(done)
    }

    fn bind(&mut self, now: Time, id: AttachmentId, port: u32, range: ServiceRange, scope: Scope) -> Done {
        self.check_holds(id, port)?;
        let Some(peer) = self.attachments.peer(id) else { return Err(Failure::State) };
        if !self.rules.may_bind(&peer, range) {
            let what = format!("bind service type {}", range.service);
            return Err(Failure::NotAllowed { uid: peer.uid, what });
        }
        let owner = self.sockets.owner(port).unwrap_or(id);
        if self.sockets.bindings_of(owner) >= self.rules.limits().bindings_per_attachment {
            return Err(Failure::Bind(BindError::TooMany));
        }
        self.driver.stack.bind(now, port, range, scope).map_err(Failure::Bind)?;
        self.sockets.add_binding(port);
        Ok(Reply::Done)
    }

    fn unbind(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Done {
        self.check_holds(id, port)?;
        self.driver.stack.unbind(now, port, which).map_err(Failure::Bind)?;
        self.sockets.remove_bindings(port, which.is_none());
        Ok(Reply::Done)
    }

    /// A socket of the node, as every process may see it.
    pub(super) fn view(&self, port: u32) -> Option<SocketView> {
        let endpoint = self.driver.stack.endpoint(port)?;
        let owner = self.sockets.owner(port).and_then(|owner| self.attachments.peer(owner));
        Some(SocketView {
            kind: endpoint.kind(),
            state: endpoint.state(),
            peer: endpoint.peer(),
            service: endpoint.connected_service(),
            readiness: endpoint.readiness(),
            wait: endpoint.wait_reason(),
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
            reactor: &self.reactor,
            rules: &self.rules,
            sockets: &self.sockets,
            attachments: &self.attachments,
        };
        let (payload, next) = self.management.execute(&mut access, &peer, from, payload)?;
        answer.payload = payload;
        Ok(Reply::Managed { next })
    }
}
