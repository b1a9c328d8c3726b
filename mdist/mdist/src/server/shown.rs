//! What a program shows of its hub and of the backbone.

use std::time::Duration;

use crate::backbone::sink_side::SinkSide;
use crate::backbone::source_side::{Farewell, SourceSide};
use crate::config::LatencyCalc;
use crate::metrics::{Metrics, Published, SOURCE, components};
use crate::net::Now;
use crate::upstream::Session as _;

use super::core::Core;
use super::dialled::Dialled;
use super::publishers::Publishers;
use super::side::Side;

/// Between two looks at the counters.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Where the counters of the holder of the hub are published.
pub(super) struct Shown {
    hub: Published<components::Hub>,
    source: Option<Published<components::Source>>,
    sink: Option<Published<components::Sink>>,
    backbone: Option<Published<components::Backbone>>,
    due: Now,
    metrics: Metrics,
    name: String,
    /// How long messages stay in a distributor is shown for each server as well.
    each_server: bool,
}

impl Shown {
    /// For the program `name`, which has these ends of the backbone.
    pub(super) fn new(metrics: &Metrics, name: &str, source: bool, sink: bool) -> Self {
        Self {
            hub: metrics.component(name),
            source: source.then(|| metrics.component(name)),
            sink: sink.then(|| metrics.component(name)),
            backbone: (source || sink).then(|| metrics.component(name)),
            due: Now::ZERO,
            metrics: metrics.clone(),
            name: name.to_owned(),
            each_server: false,
        }
    }

    /// What is shown of the time that messages take.
    pub(super) fn measuring(self, settings: LatencyCalc) -> Self {
        Self { each_server: settings.per_connection, ..self }
    }

    /// The time that messages take in a distributor, if that is measured.
    fn latency(&self, sinks: &SourceSide, dialled: &[Dialled], publishers: Option<&Publishers>) {
        let Some(whole) = sinks.latency() else { return };
        let dialled = dialled.iter().map(|server| (server.label(), server.tally().latency));
        let publishers = publishers.into_iter().flat_map(Publishers::links);
        let publishers = publishers.map(|link| (link.peer().to_string(), link.tally.latency));
        let each = dialled.chain(publishers).filter(|_| self.each_server);
        self.metrics.set_latency(&SOURCE, &self.name, *whole, each);
    }

    /// Records that a sink went, or was cut.
    pub(super) fn farewell(&self, farewell: &Farewell) {
        let Farewell { sink, name, reason } = farewell;
        let what = serde_json::json!({ "sink": sink.0, "name": name, "reason": reason.to_string() });
        self.metrics.disconnect("sink", reason.label(), what);
    }
}

impl Core {
    /// Publishes what was counted, if it is time.
    pub(super) fn show(&mut self, now: Now) {
        let Self { shown, hub, side, sources, mend, dialled, publishers, .. } = self;
        if now < shown.due {
            return;
        }
        shown.due = now + EVERY;
        let above = sources.iter().flat_map(SinkSide::sessions).map(|(name, seen)| ("backbone", name, seen));
        let beside = publishers.iter().flat_map(Publishers::links).map(|link| {
            let open = u64::from(link.session.is_open());
            ("publisher", link.peer().to_string(), link.tally.shown(1 + open))
        });
        let upstreams = dialled.iter().map(Dialled::shown).chain(above).chain(beside);
        shown.metrics.set_upstreams(&shown.name, upstreams);
        let stats = hub.stats();
        shown.hub.publish(&components::Hub {
            services: hub.services().services.len() as u64,
            items: hub.items() as u64,
            updates: stats.updates,
            refreshes: stats.refreshes,
            statuses: stats.statuses,
            late: stats.late,
            early: stats.early,
            requests: stats.requests,
            timeouts: stats.timeouts,
            refused: stats.refused,
            cached_images: stats.cached_images,
            cache_errors: stats.cache_errors,
        });
        if let Some(place) = &shown.backbone {
            let (away, held) = match side {
                Side::Backbone(sinks) => (sinks.is_away(), sinks.held()),
                Side::Mounts(_) => (sources.as_ref().is_some_and(SinkSide::is_away), 0),
            };
            let held = held as u64;
            place.publish(&components::Backbone { away: away.into(), lost: mend.lost, held });
        }
        if let (Some(place), Side::Backbone(sinks)) = (&shown.source, &*side) {
            shown.latency(sinks, dialled, publishers.as_ref());
            let stats = sinks.stats();
            place.publish(&components::Source {
                packets: stats.packets,
                messages: stats.entries,
                bytes: stats.bytes,
                images: stats.images,
                left: stats.left,
                cuts: stats.cuts,
                waits: stats.waits,
            });
        }
        if let (Some(place), Some(sources)) = (&shown.sink, &*sources) {
            let stats = sources.stats();
            place.publish(&components::Sink {
                packets: stats.packets,
                messages: stats.messages,
                bytes: stats.bytes,
                lost: stats.sources_lost,
                cuts: stats.cuts,
                gaps: stats.gaps,
                asked_again: stats.asked_again,
            });
        }
    }
}
