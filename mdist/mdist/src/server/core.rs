//! The hub with everything that is plugged into it: one turn after the other, by whoever has read something.

use anyhow::Result;
use rssl::rdm::directory::{Action, Service};

use crate::backbone::POLL_EVERY;
use crate::backbone::sink_side::{SinkSide, Upstreams};
use crate::hub::{Batch, Hub, HubRequest, UpstreamId};
use crate::net::{Event, Now, Registry, Socket};

use super::clients::FIRST_CLIENT;
use super::dialled::Dialled;
use super::listeners::Listeners;
use super::mend::Mend;
use super::publishers::Publishers;
use super::shown::Shown;
use super::side::Side;
use super::workers::Workers;

/// Token of the backbone's descriptor; listeners are below.
pub(super) const BACKBONE: u64 = (1 << 16) - 1;
/// Tokens of upstreams in the poller begin here; above are the clients.
pub(super) const FIRST_UPSTREAM: u64 = 1 << 16;

/// Tokens of publishers.
pub(super) const FIRST_PUBLISHER: u64 = 1 << 24;
/// Bytes that one read of an upstream takes at most: many updates share a turn.
pub(super) const READ: usize = 256 * 1024;

/// Rounds of questions and answers in one turn: what is left waits for the next, so that sockets have theirs.
const ROUNDS: usize = 64;

/// Whoever holds this may take a turn.
pub(super) struct Core {
    pub(super) registry: Registry,
    pub(super) mend: Mend,
    pub(super) hub: Hub,
    /// The log of the turn that is going on.
    pub(super) batch: Batch,
    /// By upstream number.
    pub(super) dialled: Vec<Dialled>,
    /// Publishers that dial us; their numbers are above the others'.
    pub(super) publishers: Option<Publishers>,
    /// The backbone, where it is above us.
    pub(super) sources: Option<SinkSide>,
    pub(super) listeners: Listeners,
    pub(super) side: Side,
    /// Threads that serve mounts besides this one.
    pub(super) workers: Workers,
    pub(super) asks: Vec<HubRequest>,
    /// When the backbone is looked at next: at once when it has something to say.
    pub(super) look_at_backbone: Now,
    /// What is read from upstreams.
    pub(super) buffer: Vec<u8>,
    /// When the thread that keeps time looks again by itself.
    pub(super) looks_again: Now,
    pub(super) shown: Shown,
}

impl Core {
    /// Takes what a poller reported; a turn has to follow.
    pub(super) fn ready(&mut self, event: Event, now: Now) {
        let Event { token, readable, writable } = event;
        let ready = (readable, writable);
        if token >= FIRST_CLIENT {
            if let Side::Mounts(clients) = &mut self.side {
                clients.ready(token, readable, writable, now);
            }
        } else if token >= FIRST_PUBLISHER {
            if let Some(publishers) = &mut self.publishers {
                publishers.ready(token, ready, now, &mut self.buffer, &mut self.hub, &mut self.batch);
            }
        } else if let Some(place) = token.checked_sub(FIRST_UPSTREAM) {
            if let Some(dialled) = self.dialled.get_mut(place as usize) {
                dialled.ready(ready, now, &mut self.buffer, &mut self.hub, &mut self.batch);
            }
        } else if token == BACKBONE {
            self.look_at_backbone = now;
        } else {
            while let Some(socket) = self.listeners.accept(token, now) {
                self.adopt(socket, now);
            }
        }
    }

    fn adopt(&mut self, socket: Socket, now: Now) {
        match (&mut self.publishers, &mut self.side) {
            (Some(publishers), _) => publishers.adopt(socket, now),
            (None, Side::Mounts(clients)) => {
                if let Some(socket) = self.workers.offer(socket) {
                    clients.adopt(socket, now);
                }
            }
            (None, Side::Backbone(_)) => {}
        }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The backbone is over.
    pub(super) fn tick(&mut self, now: Now) -> Result<()> {
        self.hub.tick(now, &mut self.batch);
        self.listeners.tick(now);
        for dialled in &mut self.dialled {
            dialled.tick(now, &mut self.hub, &mut self.batch);
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.tick(now, &mut self.hub, &mut self.batch);
        }
        let look = self.look_at_backbone <= now;
        if look {
            self.look_at_backbone = now + POLL_EVERY;
            if let Some(sources) = &mut self.sources {
                sources.poll(now, &mut Above { hub: &mut self.hub, out: &mut self.batch })?;
            }
        }
        self.side.tick(now, look)?;
        self.mend(now)
    }

    /// Takes everything on to where it belongs: asks to the hub, the log to the side, orders to the upstreams, bytes to the
    /// sockets. Whether something is left for the next turn.
    ///
    /// # Errors
    /// The backbone is over.
    pub(super) fn turn(&mut self, now: Now) -> Result<bool> {
        self.show(now);
        for _ in 0..ROUNDS {
            self.side.asks(&mut self.asks);
            self.workers.asks(&mut self.asks);
            for ask in self.asks.drain(..) {
                self.hub.handle(now, ask, &mut self.batch);
            }
            self.orders(now);
            if self.batch.is_empty() {
                self.flush(now)?;
                self.side.asks(&mut self.asks);
                if self.asks.is_empty() {
                    return Ok(false);
                }
                continue;
            }
            self.side.apply(&self.batch, self.hub.services())?;
            if self.workers.is_empty() {
                self.batch.clear();
            } else {
                self.workers.apply(&mut self.batch, self.hub.services());
            }
        }
        self.flush(now)?;
        Ok(true)
    }

    /// Writes, or sends, what came of it, and notes how long that took.
    fn flush(&mut self, now: Now) -> Result<()> {
        self.side.flush(now)?;
        if let Side::Backbone(sinks) = &mut self.side {
            for farewell in sinks.farewells() {
                self.shown.farewell(&farewell);
            }
            for (up, took) in sinks.measured() {
                if let Some(dialled) = self.dialled.get_mut(usize::from(up.0)) {
                    dialled.measured(took);
                } else if let Some(publishers) = &mut self.publishers {
                    publishers.measured(up, took);
                }
            }
        }
        Ok(())
    }

    /// Takes a packet of a feed; a turn has to follow.
    pub(super) fn feed(&mut self, packet: &mut [u8], now: Now) {
        if let Some(sources) = &mut self.sources {
            sources.feed(now, packet, &mut Above { hub: &mut self.hub, out: &mut self.batch });
        }
    }

    fn orders(&mut self, now: Now) {
        for (up, order) in self.hub.outgoing() {
            if let Some(sources) = self.sources.as_mut().filter(|sources| sources.owns(up)) {
                sources.order(up, order);
            } else if let Some(dialled) = self.dialled.get_mut(usize::from(up.0)) {
                dialled.send(&order);
            } else if let Some(publishers) = &mut self.publishers {
                publishers.send(up, &order);
            }
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.flush(now, &mut self.hub, &mut self.batch);
        }
        for dialled in &mut self.dialled {
            dialled.flush(now, &mut self.hub, &mut self.batch);
        }
        if let Some(sources) = &mut self.sources {
            sources.flush();
        }
    }

    /// When [`Core::tick`], or a turn, has something to do.
    pub(super) fn deadline(&self) -> Option<Now> {
        let dialled = self.dialled.iter().filter_map(Dialled::deadline);
        let publishers = self.publishers.as_ref().and_then(Publishers::deadline);
        let backbone = self.sources.is_some() || matches!(self.side, Side::Backbone(_));
        let polled = backbone.then_some(self.look_at_backbone);
        [self.hub.deadline(), self.listeners.deadline(), self.side.deadline(), publishers, polled]
            .into_iter()
            .flatten()
            .chain(dialled)
            .min()
    }
}

/// The hub as the backbone's sources see it.
pub(super) struct Above<'a> {
    pub(super) hub: &'a mut Hub,
    pub(super) out: &'a mut Batch,
}

impl Upstreams for Above<'_> {
    fn message(&mut self, now: Now, up: UpstreamId, message: &[u8]) -> std::result::Result<(), String> {
        self.hub.message(now, up, message, self.out).map_err(|why| why.to_string())
    }

    fn up(&mut self, now: Now, up: UpstreamId) {
        self.hub.upstream_up(now, up, false, self.out);
    }

    fn services(&mut self, now: Now, up: UpstreamId, services: Vec<(Action, Service)>) {
        self.hub.upstream_services(now, up, services, true, self.out);
    }

    fn down(&mut self, now: Now, up: UpstreamId, why: &str) {
        self.hub.upstream_down(now, up, why, self.out);
    }
}
