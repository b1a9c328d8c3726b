//! Admission of processes, and reading one packet of a process per turn.

use std::os::fd::OwnedFd;

use utipc_core::Time;
use utipc_core::addr::NodeAddr;

use super::Dispatcher;
use crate::daemon::attachments::{AttachmentId, Handshake, Received};
use crate::daemon::counters::EndReason;

/// Connections that one turn takes.
const BATCH: usize = 8;

impl Dispatcher {
    /// Takes new connections.
    pub(super) fn accept_processes(&mut self, now: Time) {
        for _ in 0..BATCH {
            let Some(channel) = self.admission.accept(now, &self.reactor) else { return };
            // More connections without a handshake than fit are a flood; processes that are turned away try again.
            let Some(peer) = channel.peer().ok().filter(|_| self.has_place(now)) else {
                self.counters.count_end(EndReason::TooMany);
                continue;
            };
            let id = self.admission.next_id();
            if self.attachments.add(&self.reactor, id, channel, peer).is_err() {
                self.counters.count_end(EndReason::System);
                continue;
            }
            self.admission.add(now);
        }
    }

    /// Makes room for one more connection without a handshake, if necessary by closing the oldest one.
    fn has_place(&mut self, now: Time) -> bool {
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
        self.admission.reopen(now, &self.reactor);
    }

    /// Processes one packet of a process. One per turn, so that all processes get the same number of turns.
    pub(super) fn serve(&mut self, now: Time, id: AttachmentId) {
        let mut packet = std::mem::take(&mut self.packet);
        let mut passed: Option<OwnedFd> = None;
        match self.attachments.receive(id, &mut packet, &mut passed) {
            Received::Request(len) => {
                self.execute(now, id, packet.get(..len).unwrap_or_default(), passed);
            }
            Received::Handshake(len) => self.handshake(id, packet.get(..len).unwrap_or_default()),
            Received::Nothing => {}
            Received::End(reason) => {
                self.admission.remove(id);
                self.end_attachment(id, reason);
            }
        }
        self.packet = packet;
    }

    /// Processes the first packet of a process.
    fn handshake(&mut self, id: AttachmentId, packet: &[u8]) {
        self.admission.remove(id);
        match self.admission.check(&self.attachments, &self.rules, id, packet) {
            Ok(handshake) => {
                if let Err(reason) = self.attach(id, handshake) {
                    self.end_attachment(id, reason);
                }
            }
            Err((reason, refusal)) => {
                if let Some(refusal) = refusal {
                    self.attachments.refuse(id, &self.admission.refusal(refusal));
                }
                self.end_attachment(id, reason);
            }
        }
    }

    fn attach(&mut self, id: AttachmentId, handshake: Handshake) -> Result<(), EndReason> {
        let stack = &self.driver.stack;
        let node = if stack.address_is_final() { stack.own_node() } else { NodeAddr::NONE };
        let answer = self.admission.welcome(id, handshake.version, node);
        let (takes_lanes, takes_node_lanes) = (handshake.hello.takes_lanes, handshake.takes_node_lanes());
        self.attachments.serve(&self.reactor, id, handshake, &answer)?;
        self.sockets.add_process(id);
        self.lanes.add_process(id, takes_lanes, takes_node_lanes);
        self.counters.attached_ever += 1;
        Ok(())
    }
}
