//! One attachment: the connection of a process, and the notices that wait for it.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use utipc_attach::{LaneEnd, Notice};
use utipc_os::fdpass::{Channel, Peer};

use super::delayed::Delayed;
use super::doorbell::Doorbell;

/// Most notices in one reply.
const NOTICES_MAX: usize = 64;

/// A process that has completed the handshake.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) doorbell: Doorbell,
    /// Readable when the process has ended, where the system can tell.
    pub(super) process: Option<OwnedFd>,
    pub(super) program: String,
    /// The agreed version of the protocol.
    pub(super) version: u16,
    /// Number of its last request; the handshake is 1.
    pub(super) requests: u32,
}

/// A process.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) channel: Channel,
    pub(super) peer: Peer,
    /// Absent until the handshake.
    pub(super) session: Option<Session>,
    /// Sockets with a waiting notice about their readiness; each at most once (see `noted` in `sockets`).
    ready: VecDeque<u32>,
    /// Other notices. Each names a lane, a pair, a socket or the node's address, of which there are as many as the
    /// limits allow.
    others: VecDeque<Notice>,
    /// Sockets with a waiting [`Notice::SoleHolder`]; each at most once, because another process can cause any number.
    sole: BTreeSet<u32>,
    /// Those with a waiting [`Notice::GroupChanged`], for the same reason.
    changed: BTreeSet<u32>,
    /// Its doorbell rings at the end of the turn.
    pub(super) rings: bool,
    /// A reply that the system did not take, and those behind it.
    pub(super) delayed: Option<Delayed>,
}

impl Attachment {
    pub(super) fn new(channel: Channel, peer: Peer) -> Self {
        Self {
            channel,
            peer,
            session: None,
            ready: VecDeque::new(),
            others: VecDeque::new(),
            sole: BTreeSet::new(),
            changed: BTreeSet::new(),
            rings: false,
            delayed: None,
        }
    }

    /// Queues a notice about the readiness of a socket; the caller makes sure that each socket is queued once.
    pub(super) fn push_ready(&mut self, port: u32) {
        self.ready.push_back(port);
    }

    pub(super) fn push(&mut self, notice: Notice) {
        if let Notice::SoleHolder { port } = notice
            && !self.sole.insert(port)
        {
            // The later one counts: a notice that the socket is shared may be between them.
            self.others.retain(|other| *other != notice);
        }
        if let Notice::GroupChanged { port } = notice
            && !self.changed.insert(port)
        {
            return;
        }
        self.others.push_back(notice);
    }

    /// Drops waiting notices about lanes that its sockets were to read.
    pub(super) fn forget_lanes_to_read(&mut self) {
        self.others.retain(|notice| {
            !matches!(
                notice,
                Notice::Lane { end: LaneEnd::Reader, .. }
                    | Notice::GroupLane { end: LaneEnd::Reader, .. }
                    | Notice::NodeLane { end: LaneEnd::Reader, .. }
            )
        });
    }

    /// Takes the notices that fit into one reply, oldest first; true if more wait. `is_due`: a notice about
    /// this socket is still needed.
    pub(super) fn take_notices(
        &mut self,
        notices: &mut Vec<Notice>,
        mut is_due: impl FnMut(u32) -> bool,
    ) -> bool {
        while notices.len() < NOTICES_MAX
            && let Some(notice) = self.others.pop_front()
        {
            if let Notice::SoleHolder { port } = notice {
                self.sole.remove(&port);
            }
            if let Notice::GroupChanged { port } = notice {
                self.changed.remove(&port);
            }
            notices.push(notice);
        }
        while notices.len() < NOTICES_MAX
            && let Some(port) = self.ready.pop_front()
        {
            if is_due(port) {
                notices.push(Notice::Readiness { port });
            }
        }
        !self.others.is_empty() || !self.ready.is_empty()
    }

    pub(super) fn ring(&self) {
        if let Some(session) = &self.session {
            session.doorbell.ring();
        }
    }
}
