//! Non-interactive publishers: they connect to the distributor.

use std::sync::Arc;
use std::time::Duration;

use rssl::transport::ServerOptions;

use super::tokens::FIRST_PUBLISHER;
use super::upstream::{Terms, Upstream};
use crate::dictionaries::Dictionaries;
use crate::hub::{HubTurn, UpstreamId};
use crate::metrics::Metrics;
use crate::net::{
    Connection, Event, LoginLimits, LoginPlace, Logins, Now, Pending, PendingLimits, Registry, Socket,
};
use crate::upstream::{Publisher, Session as _, SessionError};

/// The distributor's terms for publishers: options, dictionaries, accepted services.
pub(super) struct Acceptance {
    pub(super) transport: ServerOptions,
    /// Sent on request.
    pub(super) dictionaries: Arc<Dictionaries>,
    /// Services to accept, by name; empty: all.
    pub(super) services: Arc<[String]>,
    /// Limits of connections that have not logged in.
    pub(super) pending: PendingLimits,
    /// Longest time from connecting to the login.
    pub(super) login_timeout: Duration,
}

/// A connection, which is an upstream of the hub once it has logged in.
struct Slot {
    upstream: Upstream<Publisher>,
    /// Its entry among those that have not logged in.
    pending: Option<u64>,
}

/// The publishers of a distributor; each is an upstream of the hub while it is connected.
pub(super) struct Publishers {
    /// Upstream number of the first slot.
    first: u16,
    /// Slots, as many as publishers were ever connected at once.
    slots: Vec<Option<Slot>>,
    /// Limits of publishers that are logged in.
    limits: LoginLimits,
    logins: Arc<Logins>,
    /// Slots of connections that have not logged in.
    pending: Pending<usize>,
    /// Connections closed because newer ones had not logged in either.
    crowded: u64,
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
        let pending = Pending::new(acceptance.pending);
        let (slots, limits, logins) = (Vec::new(), LoginLimits::shares(max.into()), Arc::default());
        Self { first, slots, limits, logins, pending, crowded: 0, acceptance, registry, metrics }
    }

    /// Starts a session on an accepted connection. If too many have not logged in, the oldest of them is closed.
    pub(super) fn adopt(&mut self, socket: Socket, turn: &mut HubTurn<'_>) {
        let peer = socket.peer();
        let place = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let connection = match Connection::new(socket, FIRST_PUBLISHER + place as u64, &self.registry) {
            Ok(connection) => connection,
            Err(why) => return tracing::warn!(%peer, %why, "cannot accept a publisher"),
        };
        let Acceptance { transport, dictionaries, services, login_timeout, .. } = &self.acceptance;
        let place_of_login = LoginPlace::new(self.logins.clone(), self.limits, peer.ip());
        let session = Publisher::new(transport.clone(), dictionaries.clone(), turn.now)
            .with_login_timeout(*login_timeout)
            .with_place(place_of_login);
        let terms = Terms { id: self.id(place), services: services.clone() };
        let upstream = Upstream::new(terms, connection, session);
        let (entry, oldest) = self.pending.add(place, peer.ip());
        let slot = Some(Slot { upstream, pending: Some(entry) });
        match self.slots.get_mut(place) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        tracing::debug!(%peer, "a connection for publishers");
        if let Some(oldest) = oldest {
            self.lost(oldest, &SessionError::Evicted { newer: self.pending.len() }, turn);
        }
    }

    /// Takes a publisher that has logged in out of those that have not.
    fn logged_in(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else { return };
        if !slot.upstream.session.is_open() {
            return;
        }
        let Some(entry) = slot.pending.take() else { return };
        self.pending.remove(entry);
        let who = slot.upstream.session.identity();
        tracing::info!(
            peer = %slot.upstream.peer(), user = who.user, application = who.application, position = who.position,
            "a publisher logged in"
        );
    }

    /// Connections that have not logged in now, and those closed so far because newer ones had not either.
    pub(super) fn pending(&self) -> (u64, u64) {
        (self.pending.len() as u64, self.crowded)
    }

    /// Records how long a message of this upstream stayed in the program.
    pub(super) fn record_latency(&mut self, up: UpstreamId, took: Duration) {
        let place = up.0.checked_sub(self.first).map(usize::from);
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)).and_then(Option::as_mut) {
            slot.upstream.tally.latency.record(took);
        }
    }

    /// The connected publishers.
    pub(super) fn connected(&self) -> impl Iterator<Item = &Upstream<Publisher>> {
        self.slots.iter().flatten().map(|slot| &slot.upstream)
    }

    fn id(&self, place: usize) -> UpstreamId {
        UpstreamId(self.first + u16::try_from(place).unwrap_or(u16::MAX - self.first))
    }

    /// Handles readiness of the connection with this token.
    pub(super) fn ready(&mut self, event: Event, buffer: &mut [u8], turn: &mut HubTurn<'_>) {
        let place = usize::try_from(event.token.wrapping_sub(FIRST_PUBLISHER)).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(place).and_then(Option::as_mut) else { return };
        match slot.upstream.ready(event, buffer, turn) {
            Ok(()) => self.logged_in(place),
            Err(why) => self.lost(place, &why, turn),
        }
    }

    fn lost(&mut self, place: usize, why: &SessionError, turn: &mut HubTurn<'_>) {
        let Some(Slot { mut upstream, pending }) = self.slots.get_mut(place).and_then(Option::take) else {
            return;
        };
        if let Some(entry) = pending {
            self.pending.remove(entry);
        }
        if matches!(why, SessionError::Evicted { .. }) {
            // Without a line for each: a flood of connections must not become a flood of lines.
            self.crowded += 1;
            if self.crowded == 1 {
                let peer = upstream.peer();
                tracing::warn!(%peer, "connections that have not logged in are closed for newer ones; further ones are only counted (hub_publishers_crowded_out)");
            }
            return;
        }
        upstream.session.end_login(why);
        // The final message is written as far as the socket takes it.
        let _ = upstream.flush(turn.now);
        let who = upstream.session.identity();
        tracing::warn!(user = who.user, application = who.application, position = who.position, %why, "a publisher is lost");
        let what = serde_json::json!({
            "user": who.user, "application": who.application, "position": who.position, "reason": why.to_string(),
        });
        self.metrics.disconnect("publisher", why.label(), what);
        turn.upstream_down(self.id(place), why.for_consumers());
    }

    /// Queues a message of the hub, if it is for a publisher.
    pub(super) fn send(&mut self, to: UpstreamId, message: &[u8]) {
        let place = to.0.checked_sub(self.first).map(usize::from);
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)).and_then(Option::as_mut)
            && let Err(why) = slot.upstream.session.send(message)
        {
            tracing::warn!(%why, "cannot pass a post on to its publisher");
        }
    }

    /// Writes queued output.
    pub(super) fn flush(&mut self, turn: &mut HubTurn<'_>) {
        self.each(turn, Upstream::flush);
    }

    /// Runs the timers that are due: pings and timeouts.
    pub(super) fn tick(&mut self, turn: &mut HubTurn<'_>) {
        self.each(turn, |upstream, now| upstream.session.tick(now));
    }

    fn each(
        &mut self,
        turn: &mut HubTurn<'_>,
        f: impl Fn(&mut Upstream<Publisher>, Now) -> Result<(), SessionError>,
    ) {
        for place in 0..self.slots.len() {
            let slot = self.slots.get_mut(place).and_then(Option::as_mut);
            let result = slot.map_or(Ok(()), |slot| f(&mut slot.upstream, turn.now));
            if let Err(why) = result {
                self.lost(place, &why, turn);
            }
        }
    }

    /// Time when [`Publishers::tick`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.connected().filter_map(|upstream| upstream.session.deadline()).min()
    }
}
