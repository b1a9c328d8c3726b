//! Handling of the daemon's notices: events are queued for sockets, tasks for the attachment.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use utipc_attach::{LaneEnd, LaneId, Notice, PairId, Reply};
use utipc_core::addr::NodeAddr;
use utipc_os::lock;

use crate::attachment::registry::Registry;
use crate::state::SocketState;

/// Work that a notice demands and that must be done without the connection's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Send `LaneDone` for a lane that a closed socket has written.
    AnswerLaneEnd(LaneId),
    /// Unmap an arena that is not used any more.
    DropPair(PairId),
    /// Make the socket with this port hosted: another process holds it too.
    Share(u32),
    /// Request the data path of the socket with this port: this process is its sole holder again.
    Unshare(u32),
}

/// The state that notices change.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    registry: Mutex<Registry>,
    tasks: Mutex<Vec<Task>>,
    /// Address of the node.
    address: AtomicU32,
}

impl Notices {
    pub(crate) fn address(&self) -> NodeAddr {
        NodeAddr(self.address.load(Relaxed))
    }

    pub(crate) fn set_address(&self, node: NodeAddr) {
        self.address.store(node.0, Relaxed);
    }

    /// Processes the notices that came with `reply`; returns false if they leave tasks to be done.
    pub(crate) fn process(&self, notices: &[Notice], reply: &Reply) -> bool {
        if let Reply::Accepted { port, .. } | Reply::Claimed { port } = *reply {
            lock(&self.registry).expect(port);
        }
        let mut tasks = Vec::new();
        for notice in notices {
            match *notice {
                Notice::Address(node) => self.set_address(node),
                Notice::PairOver(pair) => tasks.push(Task::DropPair(pair)),
                Notice::Share { port } => tasks.push(Task::Share(port)),
                Notice::SoleHolder { port } => tasks.push(Task::Unshare(port)),
                Notice::Readiness { port }
                | Notice::Lane { port, .. }
                | Notice::GroupLane { port, .. }
                | Notice::GroupChanged { port }
                | Notice::NodeLane { port, .. } => {
                    let _ = self.deliver(port, *notice);
                }
                // The socket is closed, but the daemon waits for an answer.
                Notice::LaneOver { port, lane, end, .. }
                    if !self.deliver(port, *notice) && end == LaneEnd::Writer =>
                {
                    tasks.push(Task::AnswerLaneEnd(lane));
                }
                // Delivered by the guard above.
                Notice::LaneOver { .. } => {}
            }
        }
        let done = tasks.is_empty();
        lock(&self.tasks).extend(tasks);
        done
    }

    /// Queues a notice for its socket, or keeps it for one that is expected; false if there is no such socket.
    fn deliver(&self, port: u32, notice: Notice) -> bool {
        let mut registry = lock(&self.registry);
        let Some(socket) = registry.get(port) else { return registry.keep(port, notice) };
        drop(registry);
        socket.queue_event(notice);
        true
    }

    /// Makes the next [`Attachment::fetch_notices`](crate::attachment::Attachment::fetch_notices) answer the end of a
    /// lane that a closed socket has written.
    pub(crate) fn answer_lane_end(&self, lane: LaneId) {
        lock(&self.tasks).push(Task::AnswerLaneEnd(lane));
    }

    pub(crate) fn has_tasks(&self) -> bool {
        !lock(&self.tasks).is_empty()
    }

    pub(crate) fn take_tasks(&self) -> Vec<Task> {
        std::mem::take(&mut *lock(&self.tasks))
    }

    /// Registers a new socket to receive its notices.
    pub(crate) fn register(&self, socket: &Arc<SocketState>) {
        // Locked until the notices kept for the socket are queued, so that later ones follow them.
        let mut registry = lock(&self.registry);
        for notice in registry.register(socket) {
            socket.queue_event(notice);
        }
    }

    /// Removes a closed socket.
    pub(crate) fn unregister(&self, port: u32) {
        lock(&self.registry).unregister(port);
    }

    pub(crate) fn socket(&self, port: u32) -> Option<Arc<SocketState>> {
        lock(&self.registry).get(port)
    }

    pub(crate) fn sockets(&self) -> Vec<Arc<SocketState>> {
        lock(&self.registry).all()
    }

    /// Before a fork: drops notices about lanes of expected sockets, which end with the fork.
    pub(crate) fn forget_lanes(&self) {
        lock(&self.registry).forget_lanes();
    }
}
