//! Waiting for frames without the bearer, so that another thread may use it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use utipc_lanes::{Doorbell, Incoming};
use utipc_os::lock;

use super::peer::Peer;
use crate::bearers::Idle;

/// The memory where the peers of a host bearer report frames.
#[derive(Debug, Default)]
pub(super) struct HostIdle {
    links: Mutex<Vec<(Incoming, Doorbell)>>,
    /// The last reading has left frames behind.
    more: AtomicBool,
}

impl HostIdle {
    /// Replaces the peers.
    pub(super) fn set(&self, peers: &[Peer]) {
        *lock(&self.links) = peers.iter().map(Peer::reports).collect();
    }

    pub(super) fn set_more(&self, more: bool) {
        self.more.store(more, Ordering::Release);
    }
}

impl Idle for HostIdle {
    fn has_frames(&self) -> bool {
        self.more.load(Ordering::Acquire) || lock(&self.links).iter().any(|(reports, _)| reports.has_ready())
    }

    fn prepare_sleep(&self) -> bool {
        let links = lock(&self.links);
        links.iter().for_each(|(_, bell)| bell.tell_daemon(true));
        self.more.load(Ordering::Acquire) || links.iter().any(|(reports, _)| reports.has_ready())
    }
}
