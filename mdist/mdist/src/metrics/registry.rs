//! All metrics of a program, and their pages.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::latency::{LatencyCollector, LatencyHistogram, Measured};
use super::market::Viewed;
use super::published::{AnyFamily, Component, Labels, Published, Source, lock};
use super::upstreams::Upstreams;
use super::{components, process};

/// Interval at which components publish their counters.
pub const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of disconnects that `/disconnects` shows.
pub const DISCONNECTS: usize = 1_000;

/// The metrics of a program. Clones are handles on the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// Name of the program.
    pub(super) program: String,
    pub(super) viewed: Viewed,
    registry: Mutex<Registry>,
    /// By metric name.
    families: Mutex<BTreeMap<&'static str, AnyFamily>>,
    /// Published values of each component, for the statistics line.
    pub(super) components: Mutex<Vec<Source>>,
    /// Ended connections by kind and reason.
    ends: Family<Labels, Counter>,
    pub(super) latencies: LatencyCollector,
    pub(super) upstreams: Upstreams,
    /// Whether a [`Server`](super::Server) was started, from which the mounts can be requested.
    pub(super) served: AtomicBool,
    /// JSON of each worker's mounts.
    mounts: Mutex<BTreeMap<u16, Vec<serde_json::Value>>>,
    disconnects: Mutex<VecDeque<serde_json::Value>>,
}

impl Metrics {
    /// Metrics of the program `name`, which is a label of every metric.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let labels = [("program".into(), name.to_owned().into())];
        let mut registry = Registry::with_prefix_and_labels("mdist", labels.into_iter());
        let ends = Family::<Labels, Counter>::default();
        registry.register("disconnects", "Ended connections by reason", ends.clone());
        registry.register_collector(Box::new(process::Process));
        let latencies = LatencyCollector::default();
        registry.register_collector(Box::new(latencies.clone()));
        let upstreams = Upstreams::default();
        registry.register_collector(Box::new(upstreams.clone()));
        Self {
            inner: Arc::new(Inner {
                program: name.to_owned(),
                viewed: Viewed::default(),
                registry: Mutex::new(registry),
                families: Mutex::default(),
                components: Mutex::default(),
                ends,
                latencies,
                upstreams,
                served: AtomicBool::new(false),
                mounts: Mutex::default(),
                disconnects: Mutex::default(),
            }),
        }
    }

    /// Registers a component; `which` distinguishes it from others of its kind ("0", "feed1:14002").
    #[must_use]
    pub fn component<C: Component>(&self, which: &str) -> Published<C> {
        let mut registry = lock(&self.inner.registry);
        let mut families = lock(&self.inner.families);
        let labels: Labels = vec![(C::LABEL, which.to_owned())];
        let cells = C::DEFINITIONS
            .iter()
            .map(|definition| {
                families
                    .entry(definition.name)
                    .or_insert_with(|| AnyFamily::register(&mut registry, definition))
                    .cell(&labels)
            })
            .collect();
        let published = Published::new(cells);
        lock(&self.inner.components).push(published.source());
        published
    }

    /// Replaces the upstream sessions of a program: kind ("provider", "p2ps", "publisher", "backbone"), name and
    /// counters of each.
    pub fn set_upstreams(
        &self,
        program: &str,
        all: impl IntoIterator<Item = (&'static str, String, components::Upstream)>,
    ) {
        self.inner.upstreams.set(program, all);
    }

    /// Replaces the latency histograms of a component and of each of its present connections.
    pub fn set_latency(
        &self,
        kind: &'static Measured,
        component: &str,
        whole: LatencyHistogram,
        each: impl IntoIterator<Item = (String, LatencyHistogram)>,
    ) {
        self.inner.latencies.set(kind, component, whole, each);
    }

    /// Replaces the mounts of a worker; called about once a second. Without a [`Server`](super::Server) the iterator is
    /// not used.
    pub fn set_mounts<M: Serialize>(&self, worker: u16, mounts: impl IntoIterator<Item = M>) {
        if !self.inner.served.load(Ordering::Relaxed) {
            return;
        }
        let mounts = mounts.into_iter().filter_map(|m| serde_json::to_value(m).ok()).collect();
        lock(&self.inner.mounts).insert(worker, mounts);
    }

    /// Records the end of a connection. `kind`: "mount", "provider", "sink" and so on; `reason`: one word from a small
    /// set; `what`: details for `/disconnects`, which shows the newest [`DISCONNECTS`].
    pub fn disconnect(&self, kind: &'static str, reason: &'static str, what: impl Serialize) {
        self.inner.ends.get_or_create(&vec![("kind", kind.to_owned()), ("reason", reason.to_owned())]).inc();
        let at_unix_s = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |since| (since.as_secs_f64() * 1e3).round() / 1e3);
        let entry =
            serde_json::json!({ "at_unix_s": at_unix_s, "kind": kind, "reason": reason, "what": what });
        let mut disconnects = lock(&self.inner.disconnects);
        if disconnects.len() >= DISCONNECTS {
            disconnects.pop_front();
        }
        disconnects.push_back(entry);
    }

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &lock(&self.inner.registry)) {
            Ok(()) => text,
            Err(why) => format!("# cannot encode the metrics: {why}\n# EOF\n"),
        }
    }

    /// The mounts of all workers as a JSON array.
    #[must_use]
    pub fn mounts_json(&self) -> String {
        let mounts = lock(&self.inner.mounts);
        json(&mounts.values().flatten().collect::<Vec<_>>())
    }

    /// The first `most` mounts.
    pub(super) fn mounts(&self, most: usize) -> Vec<serde_json::Value> {
        lock(&self.inner.mounts).values().flatten().take(most).cloned().collect()
    }

    /// The newest `most` disconnects, the latest first.
    pub(super) fn disconnects(&self, most: usize) -> Vec<serde_json::Value> {
        lock(&self.inner.disconnects).iter().rev().take(most).cloned().collect()
    }

    /// The newest disconnects as a JSON array, the latest first.
    #[must_use]
    pub fn disconnects_json(&self) -> String {
        json(&lock(&self.inner.disconnects).iter().rev().collect::<Vec<_>>())
    }
}

fn json(values: &[&serde_json::Value]) -> String {
    serde_json::to_string_pretty(values).unwrap_or_else(|_| "[]".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Server;
    use crate::metrics::components::{Hub, Mounts};

    #[test]
    fn published_values_are_shown_with_their_labels() {
        let metrics = Metrics::new("p2ps");
        let (first, second) = (metrics.component::<Mounts>("0"), metrics.component::<Mounts>("1"));
        first.publish(&Mounts { messages_out: 5, mounts: 2, ..Mounts::default() });
        second.publish(&Mounts { messages_out: 7, ..Mounts::default() });
        first.publish(&Mounts { messages_out: 6, mounts: 1, ..Mounts::default() });
        metrics.component::<Hub>("p2ps").publish(&Hub { items: 3, ..Hub::default() });
        let text = metrics.text();
        for line in [
            "mdist_mounts_messages_out_total{program=\"p2ps\",worker=\"0\"} 6",
            "mdist_mounts_messages_out_total{program=\"p2ps\",worker=\"1\"} 7",
            "mdist_mounts_open{program=\"p2ps\",worker=\"0\"} 1",
            "mdist_hub_items{program=\"p2ps\",hub=\"p2ps\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(text.contains("mdist_process_cpu_seconds_total"), "{text}");
        assert_eq!(text.matches("# TYPE mdist_mounts_messages_out counter").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn disconnects_are_counted_and_the_newest_shown() {
        let metrics = Metrics::new("p2ps");
        for n in 0..DISCONNECTS + 5 {
            metrics.disconnect("mount", "overflow", serde_json::json!({ "mount": n }));
        }
        let shown: Vec<serde_json::Value> = serde_json::from_str(&metrics.disconnects_json()).unwrap();
        assert_eq!(shown.len(), DISCONNECTS);
        assert_eq!(shown[0]["what"]["mount"], DISCONNECTS + 4);
        let line = "mdist_disconnects_total{program=\"p2ps\",kind=\"mount\",reason=\"overflow\"} 1005";
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.set_mounts(0, ["without a server"]);
        assert_eq!(metrics.mounts_json(), "[]");
        let _server = Server::start("127.0.0.1:0", &[], &metrics).unwrap();
        metrics.set_mounts(0, ["a", "b"]);
        metrics.set_mounts(1, ["c"]);
        metrics.set_mounts(0, ["d"]);
        assert_eq!(serde_json::from_str::<Vec<String>>(&metrics.mounts_json()).unwrap(), ["d", "c"]);
    }
}
