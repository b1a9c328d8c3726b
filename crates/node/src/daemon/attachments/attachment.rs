//! One attachment: the connection of a process, and the notices that wait for it.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use utipc_attach::{LaneEnd, Notice};
use utipc_os::fdpass::{Channel, Peer};

use super::delayed::Delayed;
use super::doorbell::Doorbell;

/// Maximum number of notices in one reply.
const NOTICES_MAX: usize = 64;

/// A process that has completed the handshake.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) doorbell: Doorbell,
    /// Readable when the process has ended, where the system can tell.
    pub(super) process: Option<OwnedFd>,
    pub(super) program: String,
    /// Number of its last request; the handshake is 1.
    pub(super) requests: u32,
}

/// Kinds of notices of which at most one waits for each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Single {
    SoleHolder,
    GroupChanged,
}

/// Kind and socket of a notice that waits at most once.
fn single(notice: Notice) -> Option<(Single, u32)> {
    match notice {
        Notice::SoleHolder { port } => Some((Single::SoleHolder, port)),
        Notice::GroupChanged { port } => Some((Single::GroupChanged, port)),
        _ => None,
    }
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
    /// Other notices. Each names a lane, a pair, a socket or the node's address; the limits bound their number.
    others: VecDeque<Notice>,
    /// The sockets with waiting notices of these kinds, each at most once, because other processes can cause any
    /// number.
    single: BTreeSet<(Single, u32)>,
    /// Whether its doorbell rings at the end of the turn.
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
            single: BTreeSet::new(),
            rings: false,
            delayed: None,
        }
    }

    /// Queues a notice about the readiness of a socket; the caller makes sure that each socket is queued once.
    pub(super) fn push_ready(&mut self, port: u32) {
        self.ready.push_back(port);
    }

    pub(super) fn push(&mut self, notice: Notice) {
        if let Some(single) = single(notice)
            && !self.single.insert(single)
        {
            match single.0 {
                // The later one counts: a notice that the socket is shared may lie between them.
                Single::SoleHolder => self.others.retain(|other| *other != notice),
                Single::GroupChanged => return,
            }
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
            if let Some(single) = single(notice) {
                self.single.remove(&single);
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
