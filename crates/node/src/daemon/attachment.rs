//! One process at the daemon: its connection, what it holds, and what it has not been told yet.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use utipc_attach::{LaneEnd, LaneId, Notice};
use utipc_core::socket::Readiness;
use utipc_os::fdpass::{Channel, Peer};

use super::bell::Bell;

/// Number of an attachment; never used again.
pub(super) type AttachmentId = u32;

/// No attachment has this number.
pub(super) const NOBODY: AttachmentId = 0;

/// Number of what a fork leaves; never used again.
pub(super) type HeritageId = u32;

/// Most notices in one reply.
const NOTICES_MAX: usize = 64;

/// How far an attachment has come.
#[derive(Debug)]
pub(super) enum Stage {
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
pub(super) struct Attachment {
    pub(super) channel: Channel,
    /// Readable when the process has ended, where the system can tell.
    pub(super) process: Option<OwnedFd>,
    pub(super) peer: Peer,
    pub(super) program: String,
    /// The agreed version of the protocol.
    pub(super) version: u16,
    /// Its new sockets are direct.
    pub(super) takes_lanes: bool,
    /// The version that it speaks knows of lanes between it and the node.
    pub(super) takes_node_lanes: bool,
    pub(super) stage: Stage,
    pub(super) ports: BTreeSet<u32>,
    /// Bindings of its sockets.
    pub(super) bindings: usize,
    /// Descriptors of its sockets.
    pub(super) descriptors: usize,
    /// Lanes that its sockets write, and read.
    pub(super) lanes_out: usize,
    pub(super) lanes_in: usize,
    /// Its sockets whose readiness has grown; each at most once, see [`Holding::noted`].
    ready: VecDeque<u32>,
    /// Other notices. Each names a lane, a pair or the node's address, of which there are as many as the limits allow.
    others: VecDeque<Notice>,
    /// It is in the list of those to be rung for.
    pub(super) rings: bool,
}

/// Who holds a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Process(AttachmentId),
    /// What a fork has left, until nobody has its descriptor any more.
    Heritage(HeritageId),
}

/// One who holds a socket that has an owner already, or none but heritages.
#[derive(Debug)]
pub(super) struct Sharer {
    pub(super) who: Holder,
    /// A notice about it waits.
    pub(super) noted: bool,
}

impl Sharer {
    pub(super) fn new(who: Holder) -> Self {
        Self { who, noted: false }
    }
}

/// A socket of the node that a process holds.
#[derive(Debug)]
pub(super) struct Holding {
    /// [`NOBODY`] if only heritages hold it.
    pub(super) owner: AttachmentId,
    /// Who else holds it. Then it is hosted.
    pub(super) sharers: Vec<Sharer>,
    /// What it could do when its process was last told, or did something with it.
    pub(super) seen: Readiness,
    /// A notice about it waits.
    pub(super) noted: bool,
    /// Somebody waits for more than there is: each change is told.
    pub(super) watched: bool,
    pub(super) bindings: usize,
    /// Its data may go by lanes: one process holds it.
    pub(super) direct: bool,
    /// Lanes that it writes or reads, until they are free.
    pub(super) lanes: BTreeSet<LaneId>,
    /// Lanes that its process is not to read yet: each with the number of messages to be received first, rising.
    pub(super) unopened: VecDeque<(u64, LaneId)>,
    /// Bytes of rings that those who write to it were granted.
    pub(super) granted: u64,
    /// Lanes from one port to another that ended because it was shared: they come back when it is direct again.
    pub(super) former: BTreeSet<(u32, u32)>,
}

impl Holding {
    pub(super) fn new(owner: AttachmentId, seen: Readiness, direct: bool) -> Self {
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
    pub(super) fn is_held_by(&self, id: AttachmentId) -> bool {
        self.owner == id || self.sharers.iter().any(|s| s.who == Holder::Process(id))
    }

    /// Takes the mark that a notice about it waits for this process.
    pub(super) fn take_noted(&mut self, id: AttachmentId) -> bool {
        if self.owner == id {
            return std::mem::take(&mut self.noted);
        }
        let sharer = self.sharers.iter_mut().find(|s| s.who == Holder::Process(id));
        sharer.is_some_and(|sharer| std::mem::take(&mut sharer.noted))
    }
}

impl Attachment {
    pub(super) fn new(channel: Channel, peer: Peer) -> Self {
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

    pub(super) fn is_served(&self) -> bool {
        matches!(self.stage, Stage::Served { .. })
    }

    /// The readiness of one of its sockets has grown; the caller sees to it that the socket is in here once.
    pub(super) fn note_ready(&mut self, port: u32) {
        self.ready.push_back(port);
    }

    pub(super) fn note(&mut self, notice: Notice) {
        self.others.push_back(notice);
    }

    /// What it has not been told of lanes that its sockets were to read is void.
    pub(super) fn forget_lanes_to_read(&mut self) {
        self.others.retain(|notice| {
            !matches!(
                notice,
                Notice::Lane { end: LaneEnd::Reader, .. } | Notice::NodeLane { end: LaneEnd::Reader, .. }
            )
        });
    }

    /// Takes what fits into one reply, oldest first; true if more waits. `fresh` says whether a socket still has news.
    pub(super) fn take_notices(
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

    pub(super) fn ring(&self) {
        if let Stage::Served { bell } = &self.stage {
            bell.ring();
        }
    }
}
