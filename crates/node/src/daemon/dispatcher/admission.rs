//! Admission of processes, and reading one packet of a process per turn.

use std::os::fd::OwnedFd;

use utipc_attach::Refusal;
use utipc_core::Time;
use utipc_core::addr::NodeAddr;
use utipc_core::quota::Resource;
use utipc_os::fdpass::Peer;

use super::Dispatcher;
use crate::daemon::attachments::{AttachmentId, Handshake, Received, Refused};
use crate::daemon::counters::EndReason;
use crate::daemon::quotas;

/// Maximum number of connections that one turn accepts.
const BATCH: usize = 8;

impl Dispatcher {
    /// Takes new connections.
    pub(super) fn accept_processes(&mut self, now: Time) {
        for _ in 0..BATCH {
            let Some(channel) = self.admission.accept(now, &self.reactors.main) else { return };
            // More connections without a handshake than fit are a flood; refused processes try again.
            let peer = channel.peer().ok();
            let uid = peer.as_ref().map_or(0, |peer| peer.uid);
            let is_full = self.disposal.is_full(uid);
            let Some(peer) = peer.filter(|peer| !is_full && self.has_place(now, peer)) else {
                let reason = if is_full { EndReason::Unclosed } else { EndReason::TooMany };
                self.counters.count_end(reason);
                self.disposal.end(uid, channel);
                continue;
            };
            let id = self.admission.next_id();
            if self.attachments.add(&mut self.reactors, id, channel, peer).is_err() {
                self.counters.count_end(EndReason::System);
                continue;
            }
            self.admission.add(now, &peer, &self.attachments);
        }
    }

    /// Makes room for one more connection without a handshake, if necessary by closing the oldest one.
    fn has_place(&mut self, now: Time, peer: &Peer) -> bool {
        if self.admission.is_full_for(peer, &self.rules) {
            return false;
        }
        if !self.admission.is_full() {
            return true;
        }
        if let Some(id) = self.admission.replaceable(now) {
            self.end_silent(now, id);
        }
        !self.admission.is_full()
    }

    /// The time for the handshake is over. A handshake that has arrived and was not read yet still counts.
    fn end_silent(&mut self, now: Time, id: AttachmentId) {
        self.serve(now, id);
        if self.admission.remove(id) {
            self.end_attachment(id, EndReason::Silent);
        }
    }

    /// Ends connections that are overdue, and opens the doorway again.
    pub(super) fn expire_handshakes(&mut self, now: Time) {
        while let Some(id) = self.admission.overdue(now) {
            self.end_silent(now, id);
        }
        self.admission.reopen(now, &self.reactors.main);
    }

    /// Processes one packet of a process. One for each event, so that all processes of a user get the same number.
    pub(super) fn serve(&mut self, now: Time, id: AttachmentId) {
        let mut packet = std::mem::take(&mut self.packet);
        let mut passed: Option<OwnedFd> = None;
        match self.attachments.receive(id, &mut packet, &mut passed) {
            Received::Request(len) => {
                self.execute(now, id, packet.get(..len).unwrap_or_default(), &mut passed);
            }
            Received::Handshake(len) => self.handshake(id, packet.get(..len).unwrap_or_default()),
            Received::Nothing => {}
            Received::End(reason) => {
                self.admission.remove(id);
                self.end_attachment(id, reason);
            }
        }
        self.attachments.close_passed(id, passed);
        self.packet = packet;
    }

    /// Processes the first packet of a process.
    fn handshake(&mut self, id: AttachmentId, packet: &[u8]) {
        self.admission.remove(id);
        match self.admission.check(&self.attachments, &self.rules, id, packet) {
            Ok(handshake) => {
                let attached = self.check_user(id).and_then(|()| self.attach(id, handshake));
                if let Err(refused) = attached {
                    self.refuse(id, refused);
                }
            }
            Err(refused) => self.refuse(id, refused),
        }
    }

    fn refuse(&mut self, id: AttachmentId, (reason, refusal): Refused) {
        if let Some(refusal) = refusal {
            self.attachments.refuse(id, &self.admission.refusal(refusal));
        }
        self.end_attachment(id, reason);
    }

    /// Checks that the user of a process may have one more attachment.
    fn check_user(&mut self, id: AttachmentId) -> Result<(), Refused> {
        let user = self.user(id).map_err(|_| (EndReason::Closed, None))?;
        let ledger = self.driver.stack.ledger_mut();
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
        let stack = &self.driver.stack;
        let node = if stack.address_is_final() { stack.own_node() } else { NodeAddr::NONE };
        let answer = self.admission.welcome(id, handshake.version, node);
        let takes_lanes = handshake.hello.takes_lanes;
        let user = self.user(id).map_err(|_| (EndReason::Closed, None))?;
        self.attachments
            .serve(&mut self.reactors, id, handshake, &answer)
            .map_err(|reason| (reason, None))?;
        self.driver.stack.ledger_mut().charge(user, Resource::Processes, 1);
        self.sockets.add_process(id);
        self.lanes.add_process(id, takes_lanes);
        self.counters.attached_ever += 1;
        Ok(())
    }
}
