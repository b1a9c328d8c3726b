//! The hub in one turn of the event loop.

use rssl::rdm::directory::{Action, Service};

use super::batch::Batch;
use super::error::UpstreamError;
use super::ids::{Now, UpstreamId};
use super::request::HubRequest;
use super::state::Hub;

/// A hub, the log that takes its reactions, and the time of the turn: one argument for all that the hub needs.
#[derive(Debug)]
pub struct HubTurn<'a> {
    /// The hub.
    pub hub: &'a mut Hub,
    /// Its log of the turn.
    pub log: &'a mut Batch,
    /// The time of the turn.
    pub now: Now,
}

impl HubTurn<'_> {
    /// See [`Hub::message`].
    ///
    /// # Errors
    /// As [`Hub::message`].
    #[inline]
    pub fn message(&mut self, up: UpstreamId, message: &[u8]) -> Result<(), UpstreamError> {
        self.hub.message(self.now, up, message, self.log)
    }

    /// See [`Hub::upstream_up`].
    pub fn upstream_up(&mut self, up: UpstreamId, publishes: bool) {
        self.hub.upstream_up(self.now, up, publishes, self.log);
    }

    /// See [`Hub::upstream_services`].
    pub fn upstream_services(&mut self, up: UpstreamId, changes: Vec<(Action, Service)>, replaces: bool) {
        self.hub.upstream_services(self.now, up, changes, replaces, self.log);
    }

    /// See [`Hub::upstream_down`].
    pub fn upstream_down(&mut self, up: UpstreamId, why: &str) {
        self.hub.upstream_down(self.now, up, why, self.log);
    }

    /// See [`Hub::handle`].
    pub fn handle(&mut self, request: HubRequest) {
        self.hub.handle(self.now, request, self.log);
    }

    /// See [`Hub::tick`].
    pub fn tick(&mut self) {
        self.hub.tick(self.now, self.log);
    }
}
