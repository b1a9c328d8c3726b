//! Drives the hub: passes received messages to the hub, the hub's log to its sides, and its messages to the
//! upstreams.
//!
//! Threads share the driver behind a lock. A thread that has read something takes the lock and runs a whole
//! turn.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;

use crate::backbone::POLL_EVERY;
use crate::hub::{Batch, Hub, HubRequest, HubTurn};
use crate::net::{Event, Now, Registry, Socket, now as clock};

use super::hub_log::HubLog;
use super::hub_metrics::{HubMetrics, Sources};
use super::known_dictionary::KnownDictionary;
use super::listeners::{ACCEPTS_PER_TURN, Listeners};
use super::reconnect::Reconnect;
use super::side::Side;
use super::tokens::{BACKBONE, FIRST_CLIENT, FIRST_CONNECTOR};
use super::turns::TurnMeter;
use super::upstreams::{Received, Upstreams};
use super::workers::Workers;

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
    pub(super) log: Batch,
    pub(super) upstreams: Upstreams,
    pub(super) listeners: Listeners,
    pub(super) side: Side,
    /// Threads besides the main one that serve mounts.
    pub(super) workers: Workers,
    pub(super) requests: VecDeque<HubRequest>,
    /// Time at which to poll the backbone next. Set to the present time when its descriptor is ready.
    pub(super) poll_backbone_at: Now,
    /// Time at which the main thread wakes by itself.
    pub(super) main_wakes_at: Now,
    pub(super) hub_metrics: HubMetrics,
    pub(super) hub_log: HubLog,
    pub(super) turns: TurnMeter,
}

impl Driver {
    /// Handles an event of the main poller; a turn has to follow.
    pub(super) fn ready(&mut self, event: Event, now: Now) {
        if event.token >= FIRST_CLIENT {
            if let Side::Mounts(clients) = &mut self.side {
                clients.ready(event, now);
            }
        } else if event.token >= FIRST_CONNECTOR {
            let mut turn = HubTurn { hub: &mut self.hub, log: &mut self.log, now };
            let received = self.upstreams.ready(event, &mut turn);
            self.learn(received);
        } else if event.token == BACKBONE {
            self.poll_backbone_at = now;
        } else {
            // The poller reports the listener again if more connections wait.
            for _ in 0..ACCEPTS_PER_TURN {
                let Some(socket) = self.listeners.accept(event.token, now) else { break };
                self.adopt(socket, now);
            }
        }
    }

    fn adopt(&mut self, socket: Socket, now: Now) {
        match (&mut self.upstreams.publishers, &mut self.side) {
            (Some(publishers), _) => {
                publishers.adopt(socket, &mut HubTurn { hub: &mut self.hub, log: &mut self.log, now });
            }
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
        let mut turn = HubTurn { hub: &mut self.hub, log: &mut self.log, now };
        turn.tick();
        self.listeners.tick(now);
        self.upstreams.tick(&mut turn);
        let poll_backbone = self.poll_backbone_at <= now;
        if poll_backbone {
            self.poll_backbone_at = now + POLL_EVERY;
            let received = self.upstreams.poll_sources(&mut turn)?;
            self.learn(received);
        }
        if !self.hub.services().services.is_empty() {
            self.dictionary.warn_if_built_in();
        }
        self.side.tick(now, poll_backbone)?;
        let mut turn = HubTurn { hub: &mut self.hub, log: &mut self.log, now };
        self.reconnect.run(&self.registry, self.upstreams.sources.as_mut(), &mut self.side, &mut turn)
    }

    fn learn(&mut self, received: Received) {
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
                self.hub.handle(now, request, &mut self.log);
            }
            self.upstreams.send(&mut HubTurn { hub: &mut self.hub, log: &mut self.log, now });
            if self.log.is_empty() {
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
            self.side.apply(&self.log, self.hub.services())?;
            if self.workers.is_empty() {
                self.log.clear();
            } else {
                self.workers.apply(&mut self.log, self.hub.services());
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
        self.hub_log.report(now, &self.hub);
        let lost_ends = self.reconnect.lost;
        let denied = self.listeners.denied();
        let turns = self.turns.counts();
        let Self { hub_metrics, hub, side, upstreams, dictionary, .. } = self;
        hub_metrics.publish(now, &Sources { hub, side, upstreams, lost_ends, denied, turns });
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
                self.upstreams.record_latency(up, took);
            }
        }
        Ok(())
    }

    /// Handles a packet of a feed; a turn has to follow.
    pub(super) fn feed(&mut self, packet: &mut [u8], now: Now) {
        if let Some(sources) = &mut self.upstreams.sources {
            sources.feed(packet, &mut HubTurn { hub: &mut self.hub, log: &mut self.log, now });
        }
    }

    /// Time when [`Driver::tick`] or a turn is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        let has_backbone = self.upstreams.sources.is_some() || matches!(self.side, Side::Backbone(_));
        let backbone = has_backbone.then_some(self.poll_backbone_at);
        let (hub, upstreams) = (self.hub.deadline(), self.upstreams.deadline());
        [hub, upstreams, self.listeners.deadline(), self.side.deadline(), backbone]
            .into_iter()
            .flatten()
            .min()
    }
}
