//! Non-interactive publishers: they connect to the distributor.

use std::sync::Arc;
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::connection::Connection;
use super::tokens::FIRST_PUBLISHER;
use crate::dictionaries::Dictionaries;
use crate::hub::{Batch, Hub, UpstreamId};
use crate::metrics::Metrics;
use crate::net::{Interest, Now, Registry, Socket};
use crate::upstream::{Publisher, Session as _, SessionError};

/// The distributor's terms for publishers: options, dictionaries, accepted services.
pub(super) struct Acceptance {
    pub(super) transport: ServerOptions,
    /// Sent on request.
    pub(super) dictionaries: Arc<Dictionaries>,
    /// Services to accept, by name; empty: all.
    pub(super) services: Vec<String>,
}

/// The publishers of a distributor; each is an upstream of the hub while it is connected.
pub(super) struct Publishers {
    /// Upstream number of the first slot.
    first: u16,
    /// Slots, as many as publishers were ever connected at once.
    connections: Vec<Option<Connection<Publisher>>>,
    max: u16,
    acceptance: Acceptance,
    registry: Registry,
    metrics: Metrics,
}

impl Publishers {
    /// Accepts at most `max` publishers at a time; they are the upstreams `first`, `first + 1` and so on.
    pub(super) fn new(
        first: u16,
        max: u16,
        acceptance: Acceptance,
        registry: Registry,
        metrics: Metrics,
    ) -> Self {
        Self { first, connections: Vec::new(), max, acceptance, registry, metrics }
    }

    /// Starts a session on an accepted connection.
    pub(super) fn adopt(&mut self, socket: Socket, now: Now) {
        let peer = socket.peer();
        let place = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        if place >= self.max.into() {
            return tracing::warn!(%peer, "a publisher is refused: {place} are connected already");
        }
        let token = FIRST_PUBLISHER + place as u64;
        match self.registry.add(&socket, token, Interest::Read) {
            Ok(()) => {
                let Acceptance { transport, dictionaries, .. } = &self.acceptance;
                let session = Publisher::new(transport.clone(), dictionaries.clone(), now);
                let connection = Connection::new(socket, session, token, &self.registry);
                match self.connections.get_mut(place) {
                    Some(free) => *free = Some(connection),
                    None => self.connections.push(Some(connection)),
                }
                tracing::info!(%peer, "a publisher connected");
            }
            Err(why) => tracing::warn!(%peer, %why, "cannot accept a publisher"),
        }
    }

    /// Records how long a message of this upstream stayed in the program.
    pub(super) fn record_latency(&mut self, up: UpstreamId, took: Duration) {
        let place = up.0.checked_sub(self.first).map(usize::from);
        if let Some(connection) =
            place.and_then(|place| self.connections.get_mut(place)).and_then(Option::as_mut)
        {
            connection.tally.latency.record(took);
        }
    }

    /// The connected publishers.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection<Publisher>> {
        self.connections.iter().flatten()
    }

    fn id(&self, place: usize) -> UpstreamId {
        UpstreamId(self.first + u16::try_from(place).unwrap_or(u16::MAX - self.first))
    }

    /// Handles readiness of the socket with this token.
    pub(super) fn ready(
        &mut self,
        token: u64,
        (readable, writable): (bool, bool),
        now: Now,
        buffer: &mut [u8],
        hub: &mut Hub,
        out: &mut Batch,
    ) {
        let place = usize::try_from(token.wrapping_sub(FIRST_PUBLISHER)).unwrap_or(usize::MAX);
        let id = self.id(place);
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else { return };
        if let Err(why) =
            connection.ready(readable, writable, now, id, &self.acceptance.services, buffer, hub, out)
        {
            self.lost(place, now, &why, hub, out);
        }
    }

    fn lost(&mut self, place: usize, now: Now, why: &SessionError, hub: &mut Hub, out: &mut Batch) {
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else { return };
        connection.session.end_login(why);
        // The final message is written as far as the socket takes it.
        let _ = connection.flush(now);
        let who = connection.session.identity();
        tracing::warn!(user = who.user, application = who.application, position = who.position, %why, "a publisher is lost");
        let what = serde_json::json!({
            "user": who.user, "application": who.application, "position": who.position, "reason": why.to_string(),
        });
        self.metrics.disconnect("publisher", why.label(), what);
        hub.upstream_down(now, self.id(place), &why.to_string(), out);
    }

    /// Queues a message of the hub, if it is for a publisher.
    pub(super) fn send(&mut self, to: UpstreamId, message: &[u8]) {
        let place = to.0.checked_sub(self.first).map(usize::from);
        if let Some(connection) =
            place.and_then(|place| self.connections.get_mut(place)).and_then(Option::as_mut)
            && let Err(why) = connection.session.send(message)
        {
            tracing::warn!(%why, "cannot pass a post on to its publisher");
        }
    }

    /// Writes queued output.
    pub(super) fn flush(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        self.each(now, hub, out, Connection::flush);
    }

    /// Runs the timers that are due: pings and timeouts.
    pub(super) fn tick(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        self.each(now, hub, out, |connection, now| connection.session.tick(now));
    }

    fn each(
        &mut self,
        now: Now,
        hub: &mut Hub,
        out: &mut Batch,
        f: impl Fn(&mut Connection<Publisher>, Now) -> Result<(), SessionError>,
    ) {
        for place in 0..self.connections.len() {
            let result = self
                .connections
                .get_mut(place)
                .and_then(Option::as_mut)
                .map_or(Ok(()), |connection| f(connection, now));
            if let Err(why) = result {
                self.lost(place, now, &why, hub, out);
            }
        }
    }

    /// Time when [`Publishers::tick`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.connections.iter().flatten().filter_map(|connection| connection.session.deadline()).min()
    }
}
