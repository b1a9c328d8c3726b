//! The hub as the backbone's sources see it.

use rssl::rdm::directory::{Action, Service};

use crate::backbone::sink_side::UpstreamEvents;
use crate::hub::{Batch, Hub, UpstreamId};
use crate::net::Now;

/// Passes what sources send to the hub; the hub's reactions go into `out`.
pub(super) struct HubInput<'a> {
    pub(super) hub: &'a mut Hub,
    pub(super) out: &'a mut Batch,
}

impl UpstreamEvents for HubInput<'_> {
    fn message(&mut self, now: Now, up: UpstreamId, message: &[u8]) -> Result<(), String> {
        self.hub.message(now, up, message, self.out).map_err(|why| why.to_string())
    }

    fn up(&mut self, now: Now, up: UpstreamId) {
        self.hub.upstream_up(now, up, false, self.out);
        self.hub.upstream_recovers(up);
    }

    fn services(&mut self, now: Now, up: UpstreamId, services: Vec<(Action, Service)>) {
        self.hub.upstream_services(now, up, services, true, self.out);
    }

    fn down(&mut self, now: Now, up: UpstreamId, why: &str) {
        self.hub.upstream_down(now, up, why, self.out);
    }
}
