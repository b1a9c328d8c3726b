//! Attached processes: connections, notices, doorbells, admission and permissions.

mod admission;
mod attachment;
mod delayed;
mod doorbell;
mod ended;
mod policy;

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use utipc_attach::{Envelope, Notice, Reply, encode};
use utipc_core::addr::NodeAddr;
use utipc_core::quota::UserId;
use utipc_os::disposal::Disposal;
use utipc_os::fdpass::{Channel, Got, Peer, Put};
use utipc_os::heap::shrink_map;
use utipc_os::packets;
use utipc_os::reactor::Interest;

use super::reactors::Reactors;
use super::token;

pub use policy::{Policy, Users};

pub(super) use admission::{Admission, Handshake, Refused};
pub(super) use ended::{EndReason, Tally};

use attachment::{Attachment, Session};
use delayed::Delayed;
use doorbell::Doorbell;

/// Number of an attachment; used again after 2^32 others at the earliest. 0 is the daemon's.
pub(super) type AttachmentId = u32;

/// A reply that leaves at the end of the turn.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: AttachmentId,
    pub(super) reply: Reply,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

impl Outgoing {
    /// A reply without data and descriptors.
    pub(super) fn new(to: AttachmentId, reply: Reply) -> Self {
        Self { to, reply, payload: Vec::new(), fds: Vec::new() }
    }
}

/// The next packet of a process.
pub(super) enum Received {
    /// The handshake; its length.
    Handshake(usize),
    /// A request; its length.
    Request(usize),
    Nothing,
    /// The connection has ended.
    End(EndReason),
}

/// All attachments.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    all: HashMap<AttachmentId, Attachment>,
    /// Attachments that have completed the handshake.
    served: usize,
    /// Attachments whose doorbell is due.
    rung: Vec<AttachmentId>,
    /// Attachments with a reply that the system did not take.
    delayed: Vec<AttachmentId>,
    /// The replies of this turn.
    replies: Vec<Outgoing>,
    /// Attachments that have ended in this turn.
    ended: Vec<(AttachmentId, EndReason)>,
    /// The address of the node that processes know.
    address: NodeAddr,
    /// Buffer for the start of an outgoing packet.
    head: Vec<u8>,
    tally: Tally,
    /// Closes what processes have sent.
    disposal: Disposal,
}

/// Attachments for which the memory of the table stays in any case.
const SHRUNK: usize = 1024;

impl Attachments {
    /// Gives back the memory of a table that many attachments have left.
    pub(crate) fn shrink(&mut self) {
        shrink_map(&mut self.all, SHRUNK);
    }

    /// No attachments.
    pub(super) fn new(disposal: Disposal) -> Self {
        Self { disposal, ..Self::default() }
    }

    /// Adds a process that has connected; false if the system refuses that.
    pub(super) fn add(
        &mut self,
        reactors: &mut Reactors,
        id: AttachmentId,
        channel: Channel,
        peer: Peer,
    ) -> bool {
        let token = (token::ATTACHMENT | u64::from(id), Interest::Read);
        if reactors.watch(UserId(peer.uid), &channel, token).is_err() {
            self.turn_away(peer.uid, channel, EndReason::System);
            return false;
        }
        self.all.insert(id, Attachment::new(channel, peer));
        true
    }

    /// Closes a connection of a user that does not become an attachment.
    pub(super) fn turn_away(&mut self, uid: u32, channel: Channel, reason: EndReason) {
        self.tally.end(reason);
        self.disposal.end(uid, channel);
    }

    /// Whether too many descriptors that a user has passed are not closed yet.
    pub(super) fn is_full(&self, uid: u32) -> bool {
        self.disposal.is_full(uid)
    }

    /// Descriptors that processes have passed and that are not closed yet.
    pub(super) fn closing(&self) -> usize {
        self.disposal.waiting()
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Ends an attachment at the end of the turn.
    pub(super) fn end_later(&mut self, id: AttachmentId, reason: EndReason) {
        self.ended.push((id, reason));
    }

    /// Ends all attachments at the end of the turn.
    pub(super) fn end_all(&mut self, reason: EndReason) {
        self.ended.extend(self.all.keys().map(|id| (*id, reason)));
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The attachments that have ended in this turn; each goes to [`Self::end`].
    pub(super) fn take_ended(&mut self) -> Vec<(AttachmentId, EndReason)> {
        std::mem::take(&mut self.ended)
    }

    /// Attachments that have completed the handshake.
    pub(super) fn served(&self) -> usize {
        self.served
    }

    pub(super) fn contains(&self, id: AttachmentId) -> bool {
        self.all.contains_key(&id)
    }

    /// The user and process behind an attachment, as the kernel names them.
    pub(super) fn peer(&self, id: AttachmentId) -> Option<Peer> {
        self.all.get(&id).map(|attachment| attachment.peer)
    }

    /// Name of its program.
    pub(super) fn program(&self, id: AttachmentId) -> Option<&str> {
        self.session(id).map(|session| &*session.program)
    }

    fn session(&self, id: AttachmentId) -> Option<&Session> {
        self.all.get(&id).and_then(|attachment| attachment.session.as_ref())
    }

    /// Receives one packet of a process, and the descriptor that came with it.
    pub(super) fn receive(
        &self,
        id: AttachmentId,
        packet: &mut [u8],
        passed: &mut Option<OwnedFd>,
    ) -> Received {
        let Some(attachment) = self.all.get(&id) else { return Received::Nothing };
        // Its unread packets are closed together with its connection, which counts as one descriptor.
        if self.disposal.is_full(attachment.peer.uid) {
            return Received::End(EndReason::Unclosed);
        }
        let mut descriptors = Vec::new();
        let is_served = attachment.session.is_some();
        let received = attachment.channel.receive_all(packet, &mut descriptors);
        if !descriptors.is_empty() {
            *passed = is_served.then(|| descriptors.swap_remove(0));
            self.disposal.close(attachment.peer.uid, descriptors);
        }
        match received {
            Ok(Got::Packet(len)) if is_served => Received::Request(len),
            Ok(Got::Packet(len)) => Received::Handshake(len),
            Ok(Got::Nothing) => Received::Nothing,
            Ok(Got::End) => Received::End(EndReason::Closed),
            Err(_) => Received::End(EndReason::Garbage),
        }
    }

    /// Closes a descriptor that came with a request and is not needed.
    pub(super) fn close_passed(&self, id: AttachmentId, passed: Option<OwnedFd>) {
        let uid = self.all.get(&id).map_or(0, |attachment| attachment.peer.uid);
        self.disposal.close(uid, passed);
    }

    /// Called before a request is carried out; false if its process has cancelled it.
    pub(super) fn begin_request(&mut self, id: AttachmentId) -> bool {
        let session = self.all.get_mut(&id).and_then(|attachment| attachment.session.as_mut());
        session.is_none_or(|session| session.doorbell.begin_request(&mut session.requests))
    }

    /// Answers the handshake of a process that may not attach; its connection ends anyway.
    pub(super) fn refuse(&self, id: AttachmentId, answer: &[u8]) {
        if let Some(attachment) = self.all.get(&id) {
            let _ = attachment.channel.send(&[IoSlice::new(answer)], &[], false);
        }
    }

    /// Completes the handshake of a process: sends the answer with its doorbell, and serves it from now on.
    pub(super) fn serve(
        &mut self,
        reactors: &mut Reactors,
        id: AttachmentId,
        handshake: Handshake,
        answer: &[u8],
    ) -> Result<(), EndReason> {
        let attachment = self.all.get_mut(&id).ok_or(EndReason::Closed)?;
        let (doorbell, doorbell_fd) = Doorbell::new().map_err(|_| EndReason::System)?;
        match attachment.channel.send(&[IoSlice::new(answer)], &[doorbell_fd.as_fd()], false) {
            Ok(Put::Sent) => {}
            Ok(Put::Full) => return Err(EndReason::Unread),
            Ok(Put::Gone) => return Err(EndReason::Closed),
            // The process tries again.
            Ok(Put::Busy) | Err(_) => return Err(EndReason::System),
        }
        let process = attachment.channel.peer_process();
        if let Some(process) = &process {
            let token = (token::PROCESS | u64::from(id), Interest::Read);
            let watched = reactors.watch(UserId(attachment.peer.uid), process, token);
            watched.map_err(|_| EndReason::System)?;
        }
        let program = handshake.hello.program;
        attachment.session = Some(Session { doorbell, process, program, requests: 1 });
        self.served += 1;
        self.tally.attached_ever += 1;
        Ok(())
    }

    /// Queues a notice for a process; its doorbell rings at the end of the turn.
    pub(super) fn notify(&mut self, id: AttachmentId, notice: Notice) {
        if let Some(attachment) = self.all.get_mut(&id) {
            attachment.push(notice);
            mark_due(&mut self.rung, id, attachment);
        }
    }

    /// Queues a notice about the readiness of a socket, unless one waits already (`noted`).
    pub(super) fn notify_ready(&mut self, id: AttachmentId, port: u32, noted: &mut bool) {
        let Some(attachment) = self.all.get_mut(&id) else { return };
        if !std::mem::replace(noted, true) {
            attachment.push_ready(port);
        }
        // Even if a notice waits: it may be sent with a reply that does not include this change.
        mark_due(&mut self.rung, id, attachment);
    }

    /// Notifies all processes of the node's address, if it is new.
    pub(super) fn notify_address(&mut self, address: NodeAddr) {
        if std::mem::replace(&mut self.address, address) == address {
            return;
        }
        for (id, attachment) in self.all.iter_mut().filter(|(_, attachment)| attachment.session.is_some()) {
            attachment.push(Notice::Address(address));
            mark_due(&mut self.rung, *id, attachment);
        }
    }

    /// Drops waiting notices about lanes that the process was to read.
    pub(super) fn forget_lanes_to_read(&mut self, id: AttachmentId) {
        if let Some(attachment) = self.all.get_mut(&id) {
            attachment.forget_lanes_to_read();
        }
    }

    /// Rings the doorbell of a process at once.
    pub(super) fn ring(&self, id: AttachmentId) {
        if let Some(attachment) = self.all.get(&id) {
            attachment.ring();
        }
    }

    /// Rings all doorbells that are due.
    pub(super) fn ring_due(&mut self) {
        for id in self.rung.drain(..) {
            if let Some(attachment) = self.all.get_mut(&id) {
                attachment.rings = false;
                attachment.ring();
            }
        }
    }

    /// Queues a reply.
    pub(super) fn reply(&mut self, outgoing: Outgoing) {
        self.replies.push(outgoing);
    }

    /// Sends the replies of this turn, each with the notices that wait for its receiver. `is_due`: a notice about this
    /// socket is still needed by this process.
    pub(super) fn send_replies(&mut self, mut is_due: impl FnMut(u32, AttachmentId) -> bool) {
        let mut replies = std::mem::take(&mut self.replies);
        for outgoing in replies.drain(..) {
            let to = outgoing.to;
            match self.send(outgoing, |port| is_due(port, to)) {
                Ok(sent) => self.tally.answered += u64::from(sent),
                Err(reason) => self.end_later(to, reason),
            }
        }
        self.replies = replies;
    }

    /// Sends a reply; false if its receiver is gone.
    fn send(&mut self, outgoing: Outgoing, is_due: impl FnMut(u32) -> bool) -> Result<bool, EndReason> {
        let to = outgoing.to;
        let Some(attachment) = self.all.get_mut(&to) else { return Ok(false) };
        if let Some(delayed) = &mut attachment.delayed {
            return delayed.push(outgoing).map(|()| true);
        }
        let Outgoing { reply, payload, fds, .. } = outgoing;
        // Descriptors in flight count against the daemon's user, for whom the kernel limits them: no process may keep
        // more in flight than one reply has. A process reads a reply before its next request.
        if !fds.is_empty() && packets::has_unread(&attachment.channel) {
            return Err(EndReason::Unread);
        }
        let mut notices = Vec::new();
        let more = attachment.take_notices(&mut notices, is_due);
        let head = &mut self.head;
        head.clear();
        encode(&Envelope { notices, more, reply }, &[], head);
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let parts = [IoSlice::new(head), IoSlice::new(&payload)];
        match attachment.channel.send(&parts, &borrowed, false) {
            Ok(Put::Sent) => Ok(true),
            Ok(Put::Busy) => {
                attachment.delayed = Some(Delayed::new([head, &*payload].concat(), fds));
                self.delayed.push(to);
                Ok(true)
            }
            Ok(Put::Full) => Err(EndReason::Unread),
            Ok(Put::Gone) => Err(EndReason::Closed),
            Err(_) => Err(EndReason::System),
        }
    }

    /// Removes an attachment that has ended and closes the connection to its process. `Some(true)` if it had
    /// completed the handshake; `None` if there is none.
    pub(super) fn end(
        &mut self,
        reactors: &mut Reactors,
        id: AttachmentId,
        reason: EndReason,
    ) -> Option<bool> {
        let attachment = self.all.remove(&id)?;
        self.tally.end(reason);
        let user = UserId(attachment.peer.uid);
        // A process that it forked may have its end too: closing ours would not take it out of the event loop.
        reactors.unwatch(user, &attachment.channel);
        let Attachment { channel, peer, session, .. } = attachment;
        let Some(session) = session else {
            self.disposal.end(peer.uid, channel);
            return Some(false);
        };
        if let Some(process) = &session.process {
            reactors.unwatch(user, process);
        }
        let pid = peer.pid;
        tracing::debug!(id, pid, program = session.program, "a process is gone: {}", reason.name());
        self.disposal.end(peer.uid, channel);
        session.doorbell.ring();
        self.served -= 1;
        Some(true)
    }
}

/// The doorbell of an attachment rings at the end of the turn.
fn mark_due(rung: &mut Vec<AttachmentId>, id: AttachmentId, attachment: &mut Attachment) {
    if !std::mem::replace(&mut attachment.rings, true) {
        rung.push(id);
    }
}
