//! One process at the daemon: its connection, what it holds, and what it has not been told yet.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::socket::Readiness;
use utipc_os::fdpass::{Channel, Peer};

use crate::daemon::attachments::doorbell::Bell;

/// Number of an attachment; never used again.
pub(in crate::daemon) type AttachmentId = u32;

/// No attachment has this number.
pub(in crate::daemon) const NOBODY: AttachmentId = 0;

/// Number of what a fork leaves; never used again.
pub(in crate::daemon) type HeritageId = u32;

/// Most notices in one reply.
const NOTICES_MAX: usize = 64;

/// How far an attachment has come.
#[derive(Debug)]
pub(in crate::daemon) enum Stage {
    /// It has connected and said nothing yet.
    Silent,
    /// It is served.
    Served {
        /// What wakes it.
        bell: Bell,
    },
}

/// A process.
#[derive(Debug)]
pub(in crate::daemon) struct Attachment {
    pub(in crate::daemon) channel: Channel,
    /// Readable when the process has ended, where the system can tell.
    pub(in crate::daemon) process: Option<OwnedFd>,
    pub(in crate::daemon) peer: Peer,
    pub(in crate::daemon) program: String,
    /// The agreed version of the protocol.
    pub(in crate::daemon) version: u16,
    /// Its new sockets are direct.
    pub(in crate::daemon) takes_lanes: bool,
    /// The version that it speaks knows of lanes between it and the node.
    pub(in crate::daemon) takes_node_lanes: bool,
    pub(in crate::daemon) stage: Stage,
    pub(in crate::daemon) ports: BTreeSet<u32>,
    /// Bindings of its sockets.
    pub(in crate::daemon) bindings: usize,
    /// Descriptors of its sockets.
    pub(in crate::daemon) descriptors: usize,
    /// Lanes that its sockets write, and read.
    pub(in crate::daemon) lanes_out: usize,
    pub(in crate::daemon) lanes_in: usize,
    /// Its sockets whose readiness has grown; each at most once, see [`Holding::noted`].
    ready: VecDeque<u32>,
    /// Other notices. Each names a lane, a pair or the node's address, of which there are as many as the limits allow.
    others: VecDeque<Notice>,
    /// It is in the list of those to be rung for.
    pub(in crate::daemon) rings: bool,
}

/// Who holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Holder {
    Process(AttachmentId),
    /// What a fork has left, until nobody has its descriptor any more.
    Heritage(HeritageId),
}

/// One who holds a socket that has an owner already, or none but heritages.
#[derive(Debug)]
pub(in crate::daemon) struct Sharer {
    pub(in crate::daemon) who: Holder,
    /// A notice about it waits.
    pub(in crate::daemon) noted: bool,
}

impl Sharer {
    pub(in crate::daemon) fn new(who: Holder) -> Self {
        Self { who, noted: false }
    }
}

/// A socket of the node that a process holds.
#[derive(Debug)]
pub(in crate::daemon) struct Holding {
    /// [`NOBODY`] if only heritages hold it.
    pub(in crate::daemon) owner: AttachmentId,
    /// Who else holds it. Then it is hosted.
    pub(in crate::daemon) sharers: Vec<Sharer>,
    /// What it could do when its process was last told, or did something with it.
    pub(in crate::daemon) seen: Readiness,
    /// A notice about it waits.
    pub(in crate::daemon) noted: bool,
    /// Somebody waits for more than there is: each change is told.
    pub(in crate::daemon) watched: bool,
    pub(in crate::daemon) bindings: usize,
    /// Its data may go by lanes: one process holds it.
    pub(in crate::daemon) direct: bool,
    /// Lanes that it writes or reads, until they are free.
    pub(in crate::daemon) lanes: BTreeSet<LaneId>,
    /// Lanes that its process is not to read yet: each with the number of messages to be received first, rising.
    pub(in crate::daemon) unopened: VecDeque<(u64, LaneId)>,
    /// Bytes of rings that those who write to it were granted.
    pub(in crate::daemon) granted: u64,
    /// Lanes from one port to another that ended because it was shared: they come back when it is direct again.
    pub(in crate::daemon) former: BTreeSet<(u32, u32)>,
}

impl Holding {
    pub(in crate::daemon) fn new(owner: AttachmentId, seen: Readiness, direct: bool) -> Self {
        Self {
            owner,
            seen,
            noted: false,
            watched: false,
            bindings: 0,
            direct,
            lanes: BTreeSet::new(),
            unopened: VecDeque::new(),
            granted: 0,
            former: BTreeSet::new(),
            sharers: Vec::new(),
        }
    }

    /// Whether this process holds it.
    pub(in crate::daemon) fn is_held_by(&self, id: AttachmentId) -> bool {
        self.owner == id || self.sharers.iter().any(|s| s.who == Holder::Process(id))
    }

    /// Takes the mark that a notice about it waits for this process.
    pub(in crate::daemon) fn take_noted(&mut self, id: AttachmentId) -> bool {
        if self.owner == id {
            return std::mem::take(&mut self.noted);
        }
        let sharer = self.sharers.iter_mut().find(|s| s.who == Holder::Process(id));
        sharer.is_some_and(|sharer| std::mem::take(&mut sharer.noted))
    }
}

impl Attachment {
    pub(in crate::daemon) fn new(channel: Channel, peer: Peer) -> Self {
        Self {
            channel,
            process: None,
            peer,
            program: String::new(),
            version: 0,
            takes_lanes: false,
            takes_node_lanes: false,
            stage: Stage::Silent,
            ports: BTreeSet::new(),
            bindings: 0,
            descriptors: 0,
            lanes_out: 0,
            lanes_in: 0,
            ready: VecDeque::new(),
            others: VecDeque::new(),
            rings: false,
        }
    }

    pub(in crate::daemon) fn is_served(&self) -> bool {
        matches!(self.stage, Stage::Served { .. })
    }

    /// The readiness of one of its sockets has grown; the caller sees to it that the socket is in here once.
    pub(in crate::daemon) fn note_ready(&mut self, port: u32) {
        self.ready.push_back(port);
    }

    pub(in crate::daemon) fn note(&mut self, notice: Notice) {
        self.others.push_back(notice);
    }

    /// What it has not been told of lanes that its sockets were to read is void.
    pub(in crate::daemon) fn forget_lanes_to_read(&mut self) {
        self.others.retain(|notice| {
            !matches!(
                notice,
                Notice::Lane { end: LaneEnd::Reader, .. } | Notice::NodeLane { end: LaneEnd::Reader, .. }
            )
        });
    }

    /// Takes what fits into one reply, oldest first; true if more waits. `fresh` says whether a socket still has news.
    pub(in crate::daemon) fn take_notices(
        &mut self,
        notices: &mut Vec<Notice>,
        mut fresh: impl FnMut(u32) -> bool,
    ) -> bool {
        while notices.len() < NOTICES_MAX
            && let Some(notice) = self.others.pop_front()
        {
            notices.push(notice);
        }
        while notices.len() < NOTICES_MAX
            && let Some(port) = self.ready.pop_front()
        {
            if fresh(port) {
                notices.push(Notice::Readiness { port });
            }
        }
        !self.others.is_empty() || !self.ready.is_empty()
    }

    pub(in crate::daemon) fn ring(&self) {
        if let Stage::Served { bell } = &self.stage {
            bell.ring();
        }
    }
}
