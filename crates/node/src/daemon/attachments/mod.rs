//! Attached processes: connections, notices, doorbells, admission and permissions.

mod admission;
mod attachment;
mod doorbell;
mod policy;

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use utipc_attach::{Envelope, Notice, Reply, encode};
use utipc_core::addr::NodeAddr;
use utipc_os::fdpass::{Channel, Got, Peer, Put};
use utipc_os::reactor::{Interest, Reactor};

use super::counters::EndReason;
use super::token;

pub use policy::{Policy, Users};

pub(super) use admission::{Admission, Handshake};
pub(super) use policy::Rules;

use attachment::{Attachment, Session};
use doorbell::Doorbell;

/// Number of an attachment; never used again. 0 is the daemon's.
pub(super) type AttachmentId = u32;

/// The first version of the protocol in which processes read the binding table themselves.
const TABLE_VERSION: u16 = 2;

/// The first version in which a process can become the sole holder of a socket again.
const SOLE_HOLDER_VERSION: u16 = 2;

/// A reply that leaves at the end of the turn.
pub(super) struct Outgoing {
    pub(super) to: AttachmentId,
    pub(super) reply: Reply,
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// The next packet of a process.
pub(super) enum Received {
    /// The handshake, of this length.
    Handshake(usize),
    /// A request, of this length.
    Request(usize),
    Nothing,
    /// The connection has ended.
    End(EndReason),
}

/// All attachments.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    all: HashMap<AttachmentId, Attachment>,
    /// Attachments of each user that have completed the handshake.
    users: BTreeMap<u32, usize>,
    /// Attachments whose doorbell is due.
    rung: Vec<AttachmentId>,
}

impl Attachments {
    /// Adds a process that has connected.
    pub(super) fn add(
        &mut self,
        reactor: &Reactor,
        id: AttachmentId,
        channel: Channel,
        peer: Peer,
    ) -> utipc_os::Result<()> {
        reactor.add(&channel, token::ATTACHMENT | u64::from(id), Interest::Read)?;
        self.all.insert(id, Attachment::new(channel, peer));
        Ok(())
    }

    /// Attachments that have completed the handshake.
    pub(super) fn served(&self) -> usize {
        self.users.values().sum()
    }

    /// Attachments of one user that have completed the handshake.
    pub(super) fn served_of(&self, uid: u32) -> usize {
        self.users.get(&uid).copied().unwrap_or(0)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = AttachmentId> {
        self.all.keys().copied()
    }

    /// The user and process behind an attachment, as the kernel names them.
    pub(super) fn peer(&self, id: AttachmentId) -> Option<Peer> {
        self.all.get(&id).map(|attachment| attachment.peer)
    }

    /// Name of its program.
    pub(super) fn program(&self, id: AttachmentId) -> Option<&str> {
        self.session(id).map(|session| &*session.program)
    }

    /// Whether a process reads the binding table itself.
    pub(super) fn reads_table(&self, id: AttachmentId) -> bool {
        self.session(id).is_some_and(|session| session.version >= TABLE_VERSION)
    }

    /// Whether a process supports the notice that it is the sole holder of a socket again.
    pub(super) fn knows_sole_holder(&self, id: AttachmentId) -> bool {
        self.session(id).is_some_and(|session| session.version >= SOLE_HOLDER_VERSION)
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
        let mut descriptors = Vec::new();
        let is_served = attachment.session.is_some();
        let received = attachment.channel.receive(packet, &mut descriptors, usize::from(is_served), false);
        *passed = descriptors.pop();
        match received {
            Ok(Got::Packet(len)) if is_served => Received::Request(len),
            Ok(Got::Packet(len)) => Received::Handshake(len),
            Ok(Got::Nothing) => Received::Nothing,
            Ok(Got::End) => Received::End(EndReason::Closed),
            Err(_) => Received::End(EndReason::Garbage),
        }
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
        reactor: &Reactor,
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
            Err(_) => return Err(EndReason::System),
        }
        let process = attachment.channel.peer_process();
        if let Some(process) = &process {
            let watched = reactor.add(process, token::PROCESS | u64::from(id), Interest::Read);
            watched.map_err(|_| EndReason::System)?;
        }
        let Handshake { version, hello } = handshake;
        attachment.session = Some(Session { doorbell, process, program: hello.program, version });
        *self.users.entry(attachment.peer.uid).or_default() += 1;
        Ok(())
    }

    /// Queues a notice for a process; its doorbell rings at the end of the turn.
    pub(super) fn notify(&mut self, id: AttachmentId, notice: Notice) {
        if let Some(attachment) = self.all.get_mut(&id) {
            attachment.push(notice);
            mark_due(&mut self.rung, id, attachment);
        }
    }

    /// Queues a notice about the readiness of a socket, unless `noted`: one waits already.
    pub(super) fn notify_ready(&mut self, id: AttachmentId, port: u32, noted: &mut bool) {
        let Some(attachment) = self.all.get_mut(&id) else { return };
        if !std::mem::replace(noted, true) {
            attachment.push_ready(port);
        }
        // Even if a notice waits: it may be sent with a reply that does not include this change.
        mark_due(&mut self.rung, id, attachment);
    }

    /// Notifies all processes of the node's address.
    pub(super) fn notify_address(&mut self, address: NodeAddr) {
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

    /// Sends a reply with the notices that wait for its receiver; false if the receiver is gone. `head` is a
    /// buffer. `is_due`: a notice about this socket is still needed.
    pub(super) fn send(
        &mut self,
        outgoing: Outgoing,
        head: &mut Vec<u8>,
        is_due: impl FnMut(u32) -> bool,
    ) -> Result<bool, EndReason> {
        let Outgoing { to, reply, payload, fds } = outgoing;
        let Some(attachment) = self.all.get_mut(&to) else { return Ok(false) };
        let mut notices = Vec::new();
        let more = attachment.take_notices(&mut notices, is_due);
        encode(&Envelope { notices, more, reply }, &[], head);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let parts = [IoSlice::new(head), IoSlice::new(&payload)];
        match attachment.channel.send(&parts, &fds, false) {
            Ok(Put::Sent) => Ok(true),
            Ok(Put::Full) => Err(EndReason::Unread),
            Ok(Put::Gone) => Err(EndReason::Closed),
            Err(_) => Err(EndReason::System),
        }
    }

    /// Removes an attachment that has ended and closes the connection to its process. `Some(true)` if it had
    /// completed the handshake; `None` if there is none.
    pub(super) fn end(&mut self, reactor: &Reactor, id: AttachmentId, reason: EndReason) -> Option<bool> {
        let attachment = self.all.remove(&id)?;
        // A process that it forked may have its end too: closing ours would not take it out of the event loop.
        let _ = reactor.remove(&attachment.channel);
        let Some(session) = &attachment.session else { return Some(false) };
        if let Some(process) = &session.process {
            let _ = reactor.remove(process);
        }
        let pid = attachment.peer.pid;
        tracing::debug!(id, pid, program = session.program, "a process is gone: {}", reason.name());
        attachment.channel.shut();
        attachment.ring();
        let user = attachment.peer.uid;
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
        Some(true)
    }
}

/// The doorbell of an attachment rings at the end of the turn.
fn mark_due(rung: &mut Vec<AttachmentId>, id: AttachmentId, attachment: &mut Attachment) {
    if !std::mem::replace(&mut attachment.rings, true) {
        rung.push(id);
    }
}
