//! Commands of processes about their sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Reply, Request, SocketView, decode};
use utipc_core::Time;
use utipc_core::addr::{Scope, ServiceRange};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{
    AcceptError, BindError, Destination, Endpoint, OptionError, RecvError, RecvOptions, SendError, SocketKind,
};

use crate::daemon::attachments::attachment::{AttachmentId, Holder, Holding};
use crate::daemon::counters::Cut;
use crate::daemon::dispatcher::{Dispatcher, Outgoing};
use crate::daemon::lanes::end::Why;
use crate::daemon::lanes::node_lanes::End;

/// The first version of the protocol in which processes read the binding table themselves.
const TABLE_VERSION: u16 = 2;

/// What a command leads to.
#[derive(Default)]
pub(in crate::daemon) struct Answer {
    /// Data that follows the reply.
    pub(in crate::daemon) payload: Vec<u8>,
    pub(in crate::daemon) fds: Vec<OwnedFd>,
}

type Done = Result<Reply, Failure>;

impl Dispatcher {
    /// Does what a packet asks; the reply leaves at the end of the turn.
    pub(in crate::daemon) fn execute(&mut self, now: Time, id: AttachmentId, packet: &[u8]) {
        let Ok((request, payload)) = decode::<Request>(packet) else {
            return self.ended.push((id, Cut::Garbage));
        };
        let with_payload =
            matches!(request, Request::Send { .. } | Request::SendFound { .. } | Request::Manage { .. });
        if !payload.is_empty() && !with_payload {
            return self.ended.push((id, Cut::Garbage));
        }
        let mut answer = Answer::default();
        let reply = self.command(now, id, request, payload, &mut answer).unwrap_or_else(Reply::Failed);
        let Answer { payload, fds } = answer;
        self.replies.push(Outgoing { to: id, reply, payload, fds });
    }

    fn command(
        &mut self,
        now: Time,
        id: AttachmentId,
        request: Request,
        payload: &[u8],
        answer: &mut Answer,
    ) -> Done {
        let stack = &mut self.driver.stack;
        match request {
            Request::Open { kind } => self.open(now, id, kind),
            Request::Close { port } => self.held(id, port).map(|()| self.close(now, id, port)),
            Request::Bind { port, range, scope } => self.bind(now, id, port, range, scope),
            Request::Unbind { port, which } => self.unbind(now, id, port, which),
            Request::Listen { port } => {
                self.held(id, port)?;
                self.driver.stack.listen(now, port).map_err(Failure::Call).map(done)
            }
            Request::Connect { port, to } => {
                self.held(id, port)?;
                self.driver.stack.connect(now, port, to).map_err(Failure::Connect).map(done)
            }
            Request::Accept { port } => self.accept(now, id, port),
            Request::Shutdown { port } => {
                self.held(id, port)?;
                if self.driver.stack.endpoint(port).is_some_and(|e| e.kind().is_connection_oriented()) {
                    self.end_lanes(now, port, Why::Shut);
                }
                if self.node_lanes.has_unsent(port) && !self.is_datagram(port) {
                    self.end_socket(now, port, End::Shut);
                    return Ok(Reply::Done);
                }
                self.driver.stack.shutdown(now, port).map_err(Failure::Call).map(done)
            }
            Request::SetOption { port, option, value } => {
                self.held(id, port)?;
                // What was sent before was sent without it.
                self.carry_out(now, port, usize::MAX);
                self.driver.stack.set_option(now, port, option, value).map_err(Failure::Option).map(done)
            }
            Request::GetOption { port, option } => {
                let endpoint = self.endpoint(id, port, Failure::Option(OptionError::NoSuchOption))?;
                let value = endpoint.option(option).map_err(Failure::Option)?;
                Ok(Reply::Number(value.saturating_add(self.unopened(port, option))))
            }
            Request::Send { port, to } => self.send(now, id, port, to, payload),
            Request::SendFound { port, to, found } => {
                self.held(id, port)?;
                self.send_what_is_before(now, port)?;
                let sent = self.driver.stack.send_found(now, port, payload, to, found);
                self.sent(port, sent, false)
            }
            Request::Receive { port, room, options } => self.receive(now, id, port, room, options, answer),
            Request::Look { port } => {
                self.carry_out(now, port, usize::MAX);
                self.look(id, port)
            }
            Request::TakeError { port } => {
                self.held(id, port)?;
                Ok(Reply::Error(self.driver.stack.take_error(port)))
            }
            Request::Lookup { to, domain } => Ok(Reply::Found(stack.lookup(to, domain))),
            Request::IsLocal { port } => {
                let here = port.node.is_none() || port.node == stack.own_node();
                Ok(Reply::Number(u32::from(here && stack.endpoint(port.port).is_some())))
            }
            Request::Notices => Ok(Reply::Done),
            Request::WantLane { port, to } => self.want_lane(id, port, to),
            Request::FetchPair { pair } => {
                answer.fds = self.broker.pairs.fetch(pair, id).ok_or(Failure::State)?;
                Ok(Reply::Done)
            }
            Request::FetchTable => self.fetch_table(id, answer),
            Request::Descriptor { port } => self.descriptor(id, port, &mut answer.fds),
            Request::Keep { port } => self.keep(id, port, &mut answer.fds),
            Request::Claim { .. } => {
                let passed = self.passed.take();
                self.claim(now, id, passed)
            }
            Request::Rearm { port } => self.rearm(id, port).map(|_| Reply::Done),
            Request::Settle { port, more } => self.settle(id, port, more),
            Request::Wake { lane } => self.wake(id, lane),
            Request::Grow { lane, log2, importance } => self.grow(id, lane, log2, importance),
            Request::LaneDone { lane, end } => self.lane_done(now, id, lane, end),
            Request::Report { lane } => self.report(now, id, lane),
            Request::MakeHosted { port, partly } => {
                self.held(id, port)?;
                self.end_lanes(now, port, Why::Hosted(partly));
                self.holding(port, |h| h.direct = false);
                Ok(Reply::Done)
            }
            Request::Lend { port } => self.lend(id, port),
            Request::Fork => self.fork(now, id, &mut answer.fds),
            Request::Inherit { heritage, nonce } => self.inherit(id, heritage, nonce),
            Request::Manage { from } => self.manage(now, id, from, payload, answer),
            question => self.question(now, id, question),
        }
    }

    /// Whether the attachment holds the socket.
    pub(in crate::daemon) fn held(&self, id: AttachmentId, port: u32) -> Result<(), Failure> {
        let holds = self.sockets.get(&port).is_some_and(|h| h.is_held_by(id));
        if holds { Ok(()) } else { Err(Failure::NoSocket(port)) }
    }

    fn holding(&mut self, port: u32, change: impl FnOnce(&mut Holding)) {
        if let Some(holding) = self.sockets.get_mut(&port) {
            change(holding);
        }
    }

    fn endpoint(&self, id: AttachmentId, port: u32, gone: Failure) -> Result<&Endpoint, Failure> {
        self.held(id, port)?;
        self.driver.stack.endpoint(port).ok_or(gone)
    }

    /// The attachment may hold one more socket.
    pub(in crate::daemon) fn room_for_socket(&self, id: AttachmentId) -> Result<(), Failure> {
        let limit = self.limits.sockets_per_attachment;
        let held = self.attachments.get(&id).map_or(limit, |a| a.ports.len());
        if held < limit { Ok(()) } else { Err(Failure::Limit(format!("{limit} sockets of one process"))) }
    }

    fn hold(&mut self, id: AttachmentId, port: u32) {
        let seen = self.readiness(port);
        if let Some(attachment) = self.attachments.get_mut(&id) {
            self.sockets.insert(port, Holding::new(id, seen, attachment.takes_lanes));
            attachment.ports.insert(port);
        }
    }

    fn open(&mut self, now: Time, id: AttachmentId, kind: SocketKind) -> Done {
        self.room_for_socket(id)?;
        let port = self.driver.stack.open(now, kind).map_err(|e| Failure::Limit(e.to_string()))?;
        self.hold(id, port);
        Ok(Reply::Opened { port })
    }

    fn send(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        to: Option<Destination>,
        payload: &[u8],
    ) -> Done {
        self.held(id, port)?;
        self.send_what_is_before(now, port)?;
        let endpoint = self.endpoint(id, port, Failure::Send(SendError::Broken))?;
        // What is sent on a connection with a lane would overtake what is in it.
        let peer = endpoint.peer().map_or(0, |p| p.port);
        if self.node_lanes.is_ending(port) {
            return Err(Failure::Send(SendError::Broken));
        }
        if self.broker.between.contains_key(&(port, peer))
            || self.node_lanes.holds_back(port) && endpoint.kind().is_connection_oriented()
        {
            self.holding(port, |h| h.seen.writable = false);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        let sent = self.driver.stack.send(now, port, payload, to);
        self.sent(port, sent, matches!(to, Some(Destination::Range(_))))
    }

    /// A command to send without a connection must not overtake what was sent by the lane.
    fn send_what_is_before(&mut self, now: Time, port: u32) -> Result<(), Failure> {
        if !self.node_lanes.holds_back(port) || !self.is_datagram(port) {
            return Ok(());
        }
        self.carry_out(now, port, usize::MAX);
        if self.node_lanes.has_unsent(port) {
            self.holding(port, |h| h.seen.writable = false);
            return Err(Failure::Send(SendError::WouldBlock));
        }
        Ok(())
    }

    /// What became of a message, `elsewhere` if it was not for those alone to whom lanes lead.
    fn sent(&mut self, port: u32, sent: Result<usize, SendError>, elsewhere: bool) -> Done {
        if sent == Err(SendError::WouldBlock) {
            self.holding(port, |h| h.seen.writable = false);
        }
        let lanes = self.driver.stack.take_diverted();
        let bytes = sent.map_err(Failure::Send)?;
        self.consider_node_lanes(port);
        Ok(Reply::Sent { bytes: if elsewhere || lanes.is_empty() { bytes as u32 } else { 0 }, lanes })
    }

    /// The table where it is now. Who speaks version 1 asks for each lookup.
    fn fetch_table(&self, id: AttachmentId, answer: &mut Answer) -> Done {
        if self.attachments.get(&id).is_none_or(|a| a.version < TABLE_VERSION) {
            return Err(Failure::State);
        }
        let publisher = self.table.as_ref().ok_or(Failure::State)?.publisher();
        for descriptor in publisher.descriptors() {
            answer.fds.push(descriptor.try_clone_to_owned().map_err(|_| Failure::State)?);
        }
        Ok(Reply::Done)
    }

    fn close(&mut self, now: Time, id: AttachmentId, port: u32) -> Reply {
        if self.release(now, port, Holder::Process(id)) {
            return Reply::Done;
        }
        self.end_lanes(now, port, Why::Closed);
        self.drop_far(port);
        if let Some(holding) = self.sockets.remove(&port)
            && let Some(attachment) = self.attachments.get_mut(&id)
        {
            attachment.ports.remove(&port);
            attachment.bindings -= holding.bindings;
        }
        self.end_socket(now, port, End::Close);
        Reply::Done
    }

    fn bind(&mut self, now: Time, id: AttachmentId, port: u32, range: ServiceRange, scope: Scope) -> Done {
        self.held(id, port)?;
        let Some(attachment) = self.attachments.get_mut(&id) else { return Err(Failure::State) };
        let peer = attachment.peer;
        if !self.policy.may_bind(&peer, self.own_user, range) {
            let what = format!("bind service type {}", range.service);
            return Err(Failure::NotAllowed { uid: peer.uid, what });
        }
        if attachment.bindings >= self.limits.bindings_per_attachment {
            return Err(Failure::Bind(BindError::TooMany));
        }
        self.driver.stack.bind(now, port, range, scope).map_err(Failure::Bind)?;
        attachment.bindings += 1;
        self.holding(port, |h| h.bindings += 1);
        Ok(Reply::Done)
    }

    fn unbind(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Done {
        self.held(id, port)?;
        self.driver.stack.unbind(now, port, which).map_err(Failure::Bind)?;
        if let Some(holding) = self.sockets.get_mut(&port)
            && let Some(attachment) = self.attachments.get_mut(&id)
        {
            let gone = if which.is_some() { holding.bindings.min(1) } else { holding.bindings };
            holding.bindings -= gone;
            attachment.bindings -= gone;
        }
        Ok(Reply::Done)
    }

    fn accept(&mut self, now: Time, id: AttachmentId, port: u32) -> Done {
        self.held(id, port)?;
        self.room_for_socket(id)?;
        let accepted = self.driver.stack.accept(now, port);
        if accepted == Err(AcceptError::WouldBlock) {
            self.holding(port, |h| h.seen.readable = false);
        }
        let (new, peer) = accepted.map_err(Failure::Accept)?;
        self.hold(id, new);
        if self.sockets.contains_key(&peer.port) {
            self.connect_lanes(new, peer.port);
        }
        Ok(Reply::Accepted { port: new, peer })
    }

    fn receive(
        &mut self,
        now: Time,
        id: AttachmentId,
        port: u32,
        room: u32,
        options: RecvOptions,
        answer: &mut Answer,
    ) -> Done {
        let endpoint = self.endpoint(id, port, Failure::Receive(RecvError::NotConnected))?;
        if self.node_lanes.is_ending(port) {
            return Err(Failure::Receive(RecvError::NotConnected));
        }
        if self.comes_by_lane(port) {
            return Err(Failure::Receive(RecvError::WouldBlock));
        }
        if self.follows_a_lane(port) || self.is_behind_a_lane(port) {
            self.holding(port, |h| h.seen.readable = false);
            return Err(Failure::Receive(RecvError::WouldBlock));
        }
        // No more than there is: an idle look costs no memory. One byte at least, for an empty buffer is an error.
        let room = (room as usize).min(endpoint.available().clamp(1, MAX_USER_DATA));
        answer.payload.resize(room, 0);
        let received = self.driver.stack.recv(now, port, &mut answer.payload, options);
        answer.payload.truncate(received.as_ref().map_or(0, |r| r.len));
        let blocks = received == Err(RecvError::WouldBlock);
        self.holding(port, |h| {
            if blocks {
                h.seen.readable = false;
            }
            // Whoever waits for a longer look has seen what is there.
            h.watched |= options.peek;
        });
        self.consider_node_lanes(port);
        received.map(Reply::Received).map_err(Failure::Receive)
    }

    fn look(&self, id: AttachmentId, port: u32) -> Done {
        self.endpoint(id, port, Failure::State)?;
        self.view(port).map(|view| Reply::Socket(Box::new(view))).ok_or(Failure::State)
    }

    /// A socket of the node, as anybody may see it.
    pub(in crate::daemon) fn view(&self, port: u32) -> Option<SocketView> {
        let endpoint = self.driver.stack.endpoint(port)?;
        let owner = self.sockets.get(&port).and_then(|h| self.attachments.get(&h.owner));
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
            pid: owner.map_or(0, |a| a.peer.pid),
            uid: owner.map_or(0, |a| a.peer.uid),
        })
    }
}

fn done(_: ()) -> Reply {
    Reply::Done
}
