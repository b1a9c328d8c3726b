//! The members of a socket's group, as far as messages go to them by lanes. Decision 50.

use utipc_core::addr::ServiceAddr;

/// Messages that go through the node before the lanes that were refused are requested again.
const MESSAGES_BY_NODE: u32 = 256;

/// A member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) port: u32,
    pub(super) addr: ServiceAddr,
}

/// How the messages of a socket to its group travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Path {
    /// The daemon has to be asked.
    #[default]
    Unknown,
    /// There is a lane to each member.
    Lanes,
    /// Through the node; the daemon is asked again after this many messages.
    Node(u32),
}

/// The members, and how messages go to them.
#[derive(Debug, Default)]
pub(super) struct Members {
    path: Path,
    /// With [`Path::Lanes`]: all members, by port.
    pub(super) all: Vec<Member>,
    /// The member that got the last anycast.
    pub(super) last_anycast: u32,
}

impl Members {
    /// The members have changed.
    pub(super) fn forget(&mut self) {
        self.path = Path::Unknown;
    }

    /// A lane has ended. If it was in use, its reader has left, or does not take lanes any more.
    pub(super) fn lane_is_over(&mut self) {
        if self.path == Path::Lanes {
            self.forget();
        }
    }

    /// Whether the next message uses lanes; `None`: the daemon has to be asked.
    pub(super) fn next_uses_lanes(&mut self) -> Option<bool> {
        match self.path {
            Path::Lanes => Some(true),
            Path::Node(left @ 1..) => {
                self.path = Path::Node(left - 1);
                Some(false)
            }
            Path::Node(0) | Path::Unknown => None,
        }
    }

    /// There are lanes to all members, unless the next events say otherwise.
    pub(super) fn use_lanes(&mut self) {
        self.path = Path::Lanes;
    }

    pub(super) fn uses_lanes(&self) -> bool {
        self.path == Path::Lanes
    }

    /// The next messages go through the node.
    pub(super) fn use_node(&mut self) {
        self.path = Path::Node(MESSAGES_BY_NODE);
    }
}
