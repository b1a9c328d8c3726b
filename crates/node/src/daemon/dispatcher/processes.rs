//! Processes: how they attach, where their requests go, and what is forgotten at their end. One packet of a process is
//! read for each event.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, Refusal, Reply, Request, decode};
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_core::quota::Resource;
use utipc_manage::Request as Managed;
use utipc_os::fdpass::Peer;

use super::Dispatcher;
use crate::daemon::attachments::{AttachmentId, EndReason, Handshake, Outgoing, Received, Refused};
use crate::daemon::manage::Answer;
use crate::daemon::quotas;
use crate::daemon::requests::Call;
use crate::daemon::sockets::Done;

/// Maximum number of connections that one turn accepts.
const BATCH: usize = 8;

impl Dispatcher {
    /// Takes new connections.
    pub(super) fn accept_processes(&mut self) {
        let now = self.sockets.now();
        for _ in 0..BATCH {
            let Some(channel) = self.admission.accept(now, &self.sockets.reactors_mut().main) else { return };
            // More connections without a handshake than fit are a flood; refused processes try again.
            let peer = channel.peer().ok();
            let uid = peer.as_ref().map_or(0, |peer| peer.uid);
            let is_full = self.sockets.attachments().is_full(uid);
            let Some(peer) = peer.filter(|peer| !is_full && self.has_place(peer)) else {
                let reason = if is_full { EndReason::Unclosed } else { EndReason::TooMany };
                self.sockets.attachments_mut().turn_away(uid, channel, reason);
                continue;
            };
            if self.sockets.connect(self.admission.next_id(), channel, peer) {
                self.admission.add(now, &peer, self.sockets.attachments());
            }
        }
    }

    /// Makes room for one more connection without a handshake, if necessary by closing the oldest one.
    fn has_place(&mut self, peer: &Peer) -> bool {
        if self.admission.is_full_for(peer) {
            return false;
        }
        if !self.admission.is_full() {
            return true;
        }
        if let Some(id) = self.admission.replaceable(self.sockets.now()) {
            self.end_silent(id);
        }
        !self.admission.is_full()
    }

    /// The time for the handshake is over. A handshake that has arrived and was not read yet still counts.
    fn end_silent(&mut self, id: AttachmentId) {
        self.serve(id);
        if self.admission.remove(id) {
            self.sockets.attachments_mut().end_later(id, EndReason::Silent);
        }
    }

    /// Ends connections that are overdue, and opens the doorway again.
    pub(super) fn expire_handshakes(&mut self, now: Time) {
        while let Some(id) = self.admission.overdue(now) {
            self.end_silent(id);
        }
        self.admission.reopen(now, &self.sockets.reactors_mut().main);
    }

    /// Ends the attachments that have ended in this turn.
    pub(super) fn end_attachments(&mut self) {
        for (id, reason) in self.sockets.attachments_mut().take_ended() {
            self.management.forget(id);
            self.requests.forget(id);
            self.tasks.end_process(&mut self.sockets, id, reason);
        }
    }

    /// Processes one packet of a process. One for each event, so that all processes of a user get the same number.
    pub(super) fn serve(&mut self, id: AttachmentId) {
        let mut packet = std::mem::take(&mut self.packet);
        let mut passed: Option<OwnedFd> = None;
        match self.sockets.attachments().receive(id, &mut packet, &mut passed) {
            Received::Request(len) => {
                self.execute(id, packet.get(..len).unwrap_or_default(), &mut passed);
            }
            Received::Handshake(len) => self.handshake(id, packet.get(..len).unwrap_or_default()),
            Received::Nothing => {}
            Received::End(reason) => {
                self.admission.remove(id);
                self.sockets.attachments_mut().end_later(id, reason);
            }
        }
        self.sockets.attachments().close_passed(id, passed);
        self.packet = packet;
    }

    /// Processes the first packet of a process.
    fn handshake(&mut self, id: AttachmentId, packet: &[u8]) {
        self.admission.remove(id);
        let checked = self.admission.check(self.sockets.attachments(), &self.policy, id, packet);
        let attached = checked.and_then(|handshake| {
            self.check_user(id)?;
            self.attach(id, handshake)
        });
        if let Err((reason, refusal)) = attached {
            let attachments = self.sockets.attachments_mut();
            if let Some(refusal) = refusal {
                attachments.refuse(id, &self.admission.refusal(refusal));
            }
            attachments.end_later(id, reason);
        }
    }

    /// Checks that the user of a process may have one more attachment.
    fn check_user(&mut self, id: AttachmentId) -> Result<(), Refused> {
        let user = self.sockets.user(id).map_err(|_| (EndReason::Closed, None))?;
        let ledger = self.sockets.stack_mut().ledger_mut();
        ledger.check(user, Resource::Processes, 1).map_err(|exceeded| {
            let _logged = quotas::refuse(ledger, exceeded);
            let refusal = if exceeded.is_of_user {
                Refusal::TooManyOfUser { uid: user.0, limit: exceeded.limit }
            } else {
                Refusal::TooMany
            };
            (EndReason::TooMany, Some(refusal))
        })
    }

    fn attach(&mut self, id: AttachmentId, handshake: Handshake) -> Result<(), Refused> {
        let stack = self.sockets.stack();
        let node = if stack.address_is_final() { stack.own_node() } else { NodeAddr::NONE };
        let answer = self.admission.welcome(id, handshake.version, node);
        self.sockets.add_process(id, handshake, &answer).map_err(|reason| (reason, None))
    }

    /// Carries out the request of a packet; the reply leaves at the end of the turn.
    fn execute(&mut self, id: AttachmentId, packet: &[u8], passed: &mut Option<OwnedFd>) {
        let decoded = decode::<Request>(packet).ok();
        let decoded = decoded.filter(|(request, payload)| payload.is_empty() || request.carries_payload());
        let Some((request, payload)) = decoded else {
            return self.sockets.attachments_mut().end_later(id, EndReason::Garbage);
        };
        if !self.sockets.attachments_mut().begin_request(id) {
            // The process no longer waits for this reply.
            return self.sockets.reply(id, Err(Failure::State));
        }
        if !self.requests.waits(&mut self.sockets, id, &request, packet) {
            self.carry_out(id, request, payload, passed);
        }
    }

    /// Hands a request to the component that it concerns.
    pub(super) fn carry_out(
        &mut self,
        id: AttachmentId,
        request: Request,
        payload: &[u8],
        passed: &mut Option<OwnedFd>,
    ) {
        match request {
            Request::Socket { port, call } => {
                self.call(id, |it| it.socket(port, call, payload, passed));
            }
            Request::Lane(call) => self.call(id, |it| it.lane(call)),
            Request::Process(call) => self.call(id, |it| it.process(call, passed)),
            Request::Manage { from } => self.manage(id, from, payload),
        }
    }

    fn call(&mut self, id: AttachmentId, act: impl FnOnce(&mut Call<'_>) -> Done) {
        let Self { requests, sockets, tasks, policy, .. } = self;
        let mut call = Call::new(id, requests, sockets, tasks, policy);
        let done = act(&mut call);
        call.finish(done);
    }

    /// Carries out a request of the management family.
    fn manage(&mut self, id: AttachmentId, from: u64, payload: &[u8]) {
        let peer = self.sockets.attachments().peer(id);
        let (Some(peer), Some((header, request))) = (peer, Managed::from_bytes(payload)) else {
            return self.sockets.reply(id, Err(Failure::State));
        };
        let counters = if request == Ok(Managed::Counters) { self.counters_as_text() } else { None };
        let mut access = self.sockets.access(&self.policy, counters);
        let answer = self.management.execute(&mut access, (id, &peer), from, (header, request));
        let Answer { bytes: payload, next, descriptor } = answer;
        let fds = descriptor.into_iter().collect();
        let reply = Outgoing { to: id, reply: Reply::Managed { next }, payload, fds };
        self.sockets.attachments_mut().reply(reply);
    }
}
