//! What a program shows of its hub and of the backbone.

use std::time::Duration;

use crate::backbone::sink_side::SinkSide;
use crate::hub::Engine;
use crate::metrics::{Metrics, Published, components};
use crate::net::Now;

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
        }
    }

    /// Publishes what was counted, if it is time.
    pub(super) fn show(
        &mut self,
        now: Now,
        hub: &Engine,
        side: &Side,
        sources: Option<&SinkSide>,
        ends_lost: u64,
    ) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        let stats = hub.stats();
        self.hub.publish(&components::Hub {
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
        if let Some(shown) = &self.backbone {
            let (away, held) = match side {
                Side::Backbone(sinks) => (sinks.is_away(), sinks.held()),
                Side::Mounts(_) => (sources.is_some_and(SinkSide::is_away), 0),
            };
            let held = held as u64;
            shown.publish(&components::Backbone { away: away.into(), lost: ends_lost, held });
        }
        if let (Some(shown), Side::Backbone(sinks)) = (&self.source, side) {
            let stats = sinks.stats();
            shown.publish(&components::Source {
                packets: stats.packets,
                messages: stats.entries,
                bytes: stats.bytes,
                images: stats.images,
                left: stats.left,
                cuts: stats.cuts,
                waits: stats.waits,
            });
        }
        if let (Some(shown), Some(sources)) = (&self.sink, sources) {
            let stats = sources.stats();
            shown.publish(&components::Sink {
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
