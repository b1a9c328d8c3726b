//! Drives the hub: passes received messages to the hub, the hub's log to its sides, and its messages to the
//! upstreams.
//!
//! Threads share the driver behind a lock. A thread that has read something takes the lock and runs a whole
//! turn.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;

use crate::backbone::POLL_EVERY;
use crate::backbone::sink_side::SinkSide;
use crate::dictionaries::Half;
use crate::hub::{Batch, Hub, HubRequest};
use crate::net::{Event, Now, Registry, Socket, now as clock};

use super::connector::Connector;
use super::hub_input::HubInput;
use super::hub_metrics::{HubMetrics, Sources};
use super::known_dictionary::KnownDictionary;
use super::listeners::{ACCEPTS_PER_TURN, Listeners};
use super::news::News;
use super::publishers::Publishers;
use super::reconnect::Reconnect;
use super::side::Side;
use super::tokens::{BACKBONE, FIRST_CLIENT, FIRST_CONNECTOR, FIRST_PUBLISHER};
use super::turns::TurnMeter;
use super::workers::Workers;

/// Maximum number of bytes that one read of an upstream takes, so that many updates share a turn.
pub(super) const READ: usize = 256 * 1024;

/// Maximum number of rounds of requests and log entries in one turn. The rest waits for the next turn, so that sockets
/// are served in between.
const ROUNDS: usize = 64;

/// Requests of sides that the hub handles before the time is looked at, each in 1 to 3 µs.
const REQUESTS: usize = 512;
/// Time after which a turn leaves requests and log entries for the next one. Ours: as for sockets.
const TIME: Duration = Duration::from_millis(5);

/// The hub, its sides and its upstreams.
pub(super) struct Driver {
    pub(super) registry: Registry,
    pub(super) reconnect: Reconnect,
    pub(super) hub: Hub,
    pub(super) dictionary: KnownDictionary,
    /// The hub's log of the current turn.
    pub(super) batch: Batch,
    /// Connections that this program makes, by upstream number.
    pub(super) connectors: Vec<Connector>,
    /// Publishers that connect to this program; their upstream numbers are above the connectors'.
    pub(super) publishers: Option<Publishers>,
    /// The sources of the backbone, if it is upstream.
    pub(super) sources: Option<SinkSide>,
    pub(super) listeners: Listeners,
    pub(super) side: Side,
    /// Threads besides the main one that serve mounts.
    pub(super) workers: Workers,
    pub(super) requests: VecDeque<HubRequest>,
    /// Time at which to poll the backbone next. Set to the present time when its descriptor is ready.
    pub(super) poll_backbone_at: Now,
    /// Buffer for reads of upstreams.
    pub(super) buffer: Vec<u8>,
    /// Time at which the main thread wakes by itself.
    pub(super) main_wakes_at: Now,
    pub(super) hub_metrics: HubMetrics,
    pub(super) news: News,
    pub(super) turns: TurnMeter,
}

impl Driver {
    /// Handles an event of the main poller; a turn has to follow.
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
        } else if let Some(place) = token.checked_sub(FIRST_CONNECTOR) {
            if let Some(connector) = self.connectors.get_mut(place as usize) {
                connector.ready(ready, now, &mut self.buffer, &mut self.hub, &mut self.batch);
                let received = connector.take_dictionaries();
                self.learn(received);
            }
        } else if token == BACKBONE {
            self.poll_backbone_at = now;
        } else {
            // The poller reports the listener again if more connections wait.
            for _ in 0..ACCEPTS_PER_TURN {
                let Some(socket) = self.listeners.accept(token, now) else { break };
                self.adopt(socket, now);
            }
        }
    }

    fn adopt(&mut self, socket: Socket, now: Now) {
        match (&mut self.publishers, &mut self.side) {
            (Some(publishers), _) => publishers.adopt(socket, now, &mut self.hub, &mut self.batch),
            (None, Side::Mounts(clients)) => {
                if let Some(socket) = self.workers.assign(socket) {
                    clients.adopt(socket, now);
                }
            }
            (None, Side::Backbone(_)) => {}
        }
    }

    /// Runs the timers that are due.
    ///
    /// # Errors
    /// The system refuses a thread or a watch that the backbone needs.
    pub(super) fn tick(&mut self, now: Now) -> Result<()> {
        self.hub.tick(now, &mut self.batch);
        self.listeners.tick(now);
        for connector in &mut self.connectors {
            connector.tick(now, &mut self.hub, &mut self.batch);
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.tick(now, &mut self.hub, &mut self.batch);
        }
        let poll_backbone = self.poll_backbone_at <= now;
        if poll_backbone {
            self.poll_backbone_at = now + POLL_EVERY;
            if let Some(sources) = &mut self.sources {
                sources.poll(now, &mut HubInput { hub: &mut self.hub, out: &mut self.batch })?;
                let received = sources.take_dictionaries();
                self.learn(received);
            }
        }
        if !self.hub.services().services.is_empty() {
            self.dictionary.warn_if_built_in();
        }
        self.side.tick(now, poll_backbone)?;
        let mut hub = HubInput { hub: &mut self.hub, out: &mut self.batch };
        self.reconnect.run(now, &self.registry, self.sources.as_mut(), &mut self.side, &mut hub)
    }

    /// Takes dictionaries of sources, each with the name of its source.
    fn learn(&mut self, received: Vec<(String, Half)>) {
        let mut changed = false;
        for (from, half) in received {
            changed |= self.dictionary.learn(&from, half, &mut self.hub);
        }
        if changed {
            self.side.dictionaries(&self.dictionary);
            self.workers.wake();
        }
    }

    /// Passes requests of the sides to the hub, its log to the sides, its messages to the upstreams, and bytes
    /// to the sockets. Returns whether something is left for the next turn.
    ///
    /// # Errors
    /// The backbone refuses a packet.
    pub(super) fn turn(&mut self, now: Now) -> Result<bool> {
        self.publish_metrics(now);
        let until = clock() + TIME;
        for _ in 0..ROUNDS {
            self.side.take_hub_requests(&mut self.requests);
            self.workers.take_hub_requests(&mut self.requests);
            for _ in 0..REQUESTS {
                let Some(request) = self.requests.pop_front() else { break };
                self.hub.handle(now, request, &mut self.batch);
            }
            self.send_orders(now);
            if self.batch.is_empty() {
                self.flush(now)?;
                self.side.take_hub_requests(&mut self.requests);
                if self.requests.is_empty() {
                    return Ok(false);
                }
                if clock() > until {
                    return Ok(true);
                }
                continue;
            }
            self.side.apply(&self.batch, self.hub.services())?;
            if self.workers.is_empty() {
                self.batch.clear();
            } else {
                self.workers.apply(&mut self.batch, self.hub.services());
            }
            if clock() > until {
                break;
            }
        }
        self.flush(now)?;
        Ok(true)
    }

    fn publish_metrics(&mut self, now: Now) {
        if !self.hub_metrics.is_due(now) {
            return;
        }
        self.news.report(now, &self.hub);
        let lost_ends = self.reconnect.lost;
        let denied = self.listeners.denied();
        let turns = self.turns.counts();
        let Self { hub_metrics, hub, side, sources, connectors, publishers, dictionary, .. } = self;
        hub_metrics.publish(
            now,
            &Sources {
                hub,
                side,
                sources: sources.as_ref(),
                connectors,
                publishers: publishers.as_ref(),
                lost_ends,
                denied,
                turns,
            },
        );
        hub_metrics.publish_market(hub, dictionary.dictionary());
    }

    /// Sends the output that the side has collected, and records the disconnects and latencies that the side
    /// reports.
    fn flush(&mut self, now: Now) -> Result<()> {
        self.side.flush(now)?;
        if let Side::Backbone(sinks) = &mut self.side {
            for farewell in sinks.farewells() {
                self.hub_metrics.record_disconnect(&farewell);
            }
            for (up, took) in sinks.measured() {
                if let Some(connector) = self.connectors.get_mut(usize::from(up.0)) {
                    connector.record_latency(took);
                } else if let Some(publishers) = &mut self.publishers {
                    publishers.record_latency(up, took);
                }
            }
        }
        Ok(())
    }

    /// Handles a packet of a feed; a turn has to follow.
    pub(super) fn feed(&mut self, packet: &mut [u8], now: Now) {
        if let Some(sources) = &mut self.sources {
            sources.feed(now, packet, &mut HubInput { hub: &mut self.hub, out: &mut self.batch });
        }
    }

    fn send_orders(&mut self, now: Now) {
        for (up, order) in self.hub.outgoing() {
            if let Some(sources) = self.sources.as_mut().filter(|sources| sources.owns(up)) {
                sources.order(up, order);
            } else if let Some(connector) = self.connectors.get_mut(usize::from(up.0)) {
                connector.send(&order);
            } else if let Some(publishers) = &mut self.publishers {
                publishers.send(up, &order);
            }
        }
        if let Some(publishers) = &mut self.publishers {
            publishers.flush(now, &mut self.hub, &mut self.batch);
        }
        for connector in &mut self.connectors {
            connector.flush(now, &mut self.hub, &mut self.batch);
        }
        if let Some(sources) = &mut self.sources {
            sources.flush();
        }
    }

    /// Time when [`Driver::tick`] or a turn is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        let connectors = self.connectors.iter().filter_map(Connector::deadline);
        let publishers = self.publishers.as_ref().and_then(Publishers::deadline);
        let has_backbone = self.sources.is_some() || matches!(self.side, Side::Backbone(_));
        let backbone = has_backbone.then_some(self.poll_backbone_at);
        [self.hub.deadline(), self.listeners.deadline(), self.side.deadline(), publishers, backbone]
            .into_iter()
            .flatten()
            .chain(connectors)
            .min()
    }
}
