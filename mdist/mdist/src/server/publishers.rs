//! Publishers that dialled us: non-interactive providers.

use std::sync::Arc;
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::link::Link;
use crate::dictionaries::Dictionaries;
use crate::hub::{Batch, Hub, UpstreamId};
use crate::metrics::Metrics;
use crate::net::{Interest, Now, Registry, Socket};
use crate::upstream::{Publisher, Session as _, SessionError};

/// What every publisher finds here.
pub(super) struct Welcome {
    pub(super) transport: ServerOptions,
    /// Given out on request.
    pub(super) dictionaries: Arc<Dictionaries>,
}

/// The publishers of a distributor; each is an upstream of the hub while it is connected.
pub(super) struct Publishers {
    /// Number of the first as an upstream.
    first: u16,
    /// Token of the first in the poller.
    token: u64,
    /// As many as were ever there at once.
    links: Vec<Option<Link<Publisher>>>,
    most: u16,
    welcome: Welcome,
    /// Services that are taken, by name; empty: all.
    services: Vec<String>,
    registry: Registry,
    metrics: Metrics,
}

impl Publishers {
    /// For at most `most` at a time.
    pub(super) fn new(
        first: u16,
        most: u16,
        token: u64,
        welcome: Welcome,
        services: Vec<String>,
        registry: Registry,
        metrics: Metrics,
    ) -> Self {
        Self { first, token, links: Vec::new(), most, welcome, services, registry, metrics }
    }

    /// Serves a connection from now on.
    pub(super) fn adopt(&mut self, socket: Socket, now: Now) {
        let peer = socket.peer();
        let place = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        if place >= self.most.into() {
            return tracing::warn!(%peer, "a publisher is sent away: there are {place} already");
        }
        let token = self.token + place as u64;
        match self.registry.add(&socket, token, Interest::Read) {
            Ok(()) => {
                let Welcome { transport, dictionaries } = &self.welcome;
                let session = Publisher::new(transport.clone(), dictionaries.clone(), now);
                let link = Link::new(socket, session, token, &self.registry);
                match self.links.get_mut(place) {
                    Some(free) => *free = Some(link),
                    None => self.links.push(Some(link)),
                }
                tracing::info!(%peer, "a publisher connected");
            }
            Err(why) => tracing::warn!(%peer, %why, "a publisher could not be accepted"),
        }
    }

    /// A message of this upstream stayed here for so long.
    pub(super) fn measured(&mut self, up: UpstreamId, took: Duration) {
        let place = up.0.checked_sub(self.first).map(usize::from);
        if let Some(link) = place.and_then(|place| self.links.get_mut(place)).and_then(Option::as_mut) {
            link.tally.latency.record(took);
        }
    }

    /// The publishers that are there now.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link<Publisher>> {
        self.links.iter().flatten()
    }

    fn id(&self, place: usize) -> UpstreamId {
        UpstreamId(self.first + u16::try_from(place).unwrap_or(u16::MAX - self.first))
    }

    /// Something is ready at the socket of this token.
    pub(super) fn ready(
        &mut self,
        token: u64,
        (readable, writable): (bool, bool),
        now: Now,
        buffer: &mut [u8],
        hub: &mut Hub,
        out: &mut Batch,
    ) {
        let place = usize::try_from(token.wrapping_sub(self.token)).unwrap_or(usize::MAX);
        let id = self.id(place);
        let Some(link) = self.links.get_mut(place).and_then(Option::as_mut) else { return };
        if let Err(why) = link.ready(readable, writable, now, id, &self.services, buffer, hub, out) {
            self.lost(place, now, &why, hub, out);
        }
    }

    fn lost(&mut self, place: usize, now: Now, why: &SessionError, hub: &mut Hub, out: &mut Batch) {
        let Some(mut link) = self.links.get_mut(place).and_then(Option::take) else { return };
        link.session.farewell(why);
        // The last words, as far as there is room for them.
        let _ = link.flush(now);
        let who = link.session.who();
        tracing::warn!(user = who.user, application = who.application, position = who.position, %why, "a publisher is lost");
        let what = serde_json::json!({
            "user": who.user, "application": who.application, "position": who.position, "reason": why.to_string(),
        });
        self.metrics.disconnect("publisher", why.label(), what);
        hub.upstream_down(now, self.id(place), &why.to_string(), out);
    }

    /// Frames an order of the hub, if it is for a publisher.
    pub(super) fn send(&mut self, to: UpstreamId, message: &[u8]) {
        let place = to.0.checked_sub(self.first).map(usize::from);
        if let Some(link) = place.and_then(|place| self.links.get_mut(place)).and_then(Option::as_mut)
            && let Err(why) = link.session.send(message)
        {
            tracing::warn!(%why, "a post could not be passed on to its publisher");
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        self.each(now, hub, out, Link::flush);
    }

    /// Does what is due: pings, an end of patience.
    pub(super) fn tick(&mut self, now: Now, hub: &mut Hub, out: &mut Batch) {
        self.each(now, hub, out, |link, now| link.session.tick(now));
    }

    fn each(
        &mut self,
        now: Now,
        hub: &mut Hub,
        out: &mut Batch,
        f: impl Fn(&mut Link<Publisher>, Now) -> Result<(), SessionError>,
    ) {
        for place in 0..self.links.len() {
            let result =
                self.links.get_mut(place).and_then(Option::as_mut).map_or(Ok(()), |link| f(link, now));
            if let Err(why) = result {
                self.lost(place, now, &why, hub, out);
            }
        }
    }

    /// When [`Publishers::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.links.iter().flatten().filter_map(|link| link.session.deadline()).min()
    }
}
