//! Publishes the counters of the hub, its upstreams and the backbone.

use rssl::dictionary::Dictionary;

use crate::backbone::sink_side::SinkSide;
use crate::backbone::source_side::{Farewell, SourceSide};
use crate::hub::Hub;
use crate::metrics::{LISTED, Market, Metrics, PUBLISH_INTERVAL, Published, SOURCE, components, list};
use crate::net::Now;
use crate::upstream::Session as _;

use super::connector::Connector;
use super::publishers::Publishers;
use super::side::Side;
use super::upstreams::Upstreams;

/// The metrics in which the counters are published.
pub(super) struct HubMetrics {
    hub: Published<components::Hub>,
    source: Option<Published<components::Source>>,
    sink: Option<Published<components::Sink>>,
    backbone: Option<Published<components::Backbone>>,
    due: Now,
    metrics: Metrics,
    program: String,
    /// Whether the latency in a distributor is also published for each server.
    latency_per_server: bool,
}

/// The parts of a program whose counters are published.
pub(super) struct Sources<'a> {
    pub(super) hub: &'a Hub,
    pub(super) side: &'a Side,
    pub(super) upstreams: &'a Upstreams,
    /// Endpoints of the backbone lost so far.
    pub(super) lost_ends: u64,
    /// Connections refused because their host is in no allowed network.
    pub(super) denied: u64,
    /// The longest turn of the main thread and that of the feeds, microseconds, and the number of long ones.
    pub(super) turns: (u64, u64),
}

impl HubMetrics {
    /// The metrics of `program`, which has these ends of the backbone.
    pub(super) fn new(metrics: &Metrics, program: &str, source_end: bool, sink_end: bool) -> Self {
        Self {
            hub: metrics.component(program),
            source: source_end.then(|| metrics.component(program)),
            sink: sink_end.then(|| metrics.component(program)),
            backbone: (source_end || sink_end).then(|| metrics.component(program)),
            due: Now::ZERO,
            metrics: metrics.clone(),
            program: program.to_owned(),
            latency_per_server: false,
        }
    }

    /// Publishes the latency in a distributor for each server as well if `enabled`.
    pub(super) fn with_latency_per_server(self, enabled: bool) -> Self {
        Self { latency_per_server: enabled, ..self }
    }

    /// Records that a sink has left or was disconnected.
    pub(super) fn record_disconnect(&self, farewell: &Farewell) {
        let Farewell { sink, name, reason } = farewell;
        let what = serde_json::json!({ "sink": sink.0, "name": name, "reason": reason.to_string() });
        self.metrics.disconnect("sink", reason.label(), what);
    }

    /// Whether [`HubMetrics::publish`] is due.
    pub(super) fn is_due(&self, now: Now) -> bool {
        self.due <= now
    }

    /// Publishes all counters.
    pub(super) fn publish(&mut self, now: Now, from: &Sources<'_>) {
        self.due = now + PUBLISH_INTERVAL;
        self.publish_upstreams(from.upstreams);
        self.publish_hub(from);
        self.publish_backbone(from);
        if let (Some(place), Side::Backbone(sinks)) = (&self.source, from.side) {
            self.publish_latency(sinks, from);
            place.publish(&sinks.stats());
        }
        if let (Some(place), Some(sources)) = (&self.sink, &from.upstreams.sources) {
            place.publish(&sources.stats());
        }
    }

    /// Publishes what the web page shows, while one is open.
    pub(super) fn publish_market(&self, hub: &mut Hub, dictionary: &Dictionary) {
        let Some(wanted) = self.metrics.wanted() else { return };
        let values = wanted.into_iter().map(|(service, item)| {
            let values = match hub.view_values(&service, &item, dictionary) {
                Ok(fields) => list(&fields),
                Err(why) => why.into(),
            };
            ((service, item), values)
        });
        let values = values.collect();
        let (services, items) = (list(&hub.view_services()), list(&hub.view_items(LISTED)));
        self.metrics.set_market(&self.program, Market { services, items, values });
    }

    fn publish_upstreams(&self, Upstreams { connectors, publishers, sources, .. }: &Upstreams) {
        let sources = sources.iter().flat_map(|sources| sources.sessions());
        let sources = sources.map(|(name, counters)| ("backbone", name, counters));
        let publishers = publishers.iter().flat_map(Publishers::connected);
        let publishers = publishers.map(|upstream| {
            let open = u64::from(upstream.session.is_open());
            ("publisher", upstream.peer().to_string(), upstream.tally.counters(1 + open))
        });
        let connectors = connectors.iter().map(Connector::counters);
        self.metrics.set_upstreams(&self.program, connectors.chain(sources).chain(publishers));
    }

    fn publish_hub(&self, from: &Sources<'_>) {
        let hub = from.hub;
        let (pending, crowded) = from.upstreams.publishers.as_ref().map_or((0, 0), Publishers::pending);
        self.hub.publish(&components::Hub {
            services: hub.services().services.len() as u64,
            items: hub.items() as u64,
            cache_bytes: hub.cache_bytes() as u64,
            denied: from.denied,
            pending,
            crowded,
            turn_longest: from.turns.0,
            turns_long: from.turns.1,
            ..*hub.stats()
        });
    }

    fn publish_backbone(&self, from: &Sources<'_>) {
        let Some(place) = &self.backbone else { return };
        let (away, held) = match from.side {
            Side::Backbone(sinks) => (sinks.is_away(), sinks.held()),
            Side::Mounts(_) => (from.upstreams.sources.as_ref().is_some_and(SinkSide::is_away), 0),
        };
        let held = held as u64;
        place.publish(&components::Backbone { away: away.into(), lost: from.lost_ends, held });
    }

    /// Publishes the latency of messages in a distributor, if it is measured.
    fn publish_latency(&self, sinks: &SourceSide, from: &Sources<'_>) {
        let Some(whole) = sinks.latency() else { return };
        let Upstreams { connectors, publishers, .. } = from.upstreams;
        let connectors = connectors.iter().map(|connector| (connector.label(), connector.tally().latency));
        let publishers = publishers.iter().flat_map(Publishers::connected);
        let publishers = publishers.map(|upstream| (upstream.peer().to_string(), upstream.tally.latency));
        let each = connectors.chain(publishers).filter(|_| self.latency_per_server);
        self.metrics.set_latency(&SOURCE, &self.program, *whole, each);
    }
}
