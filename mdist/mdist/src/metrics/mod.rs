//! Counters and gauges of every component, in the open format, over HTTP; mounts and disconnects as JSON.
//!
//! A component counts in plain integers that belong to one thread ([`components`]), and publishes them once a second:
//! some relaxed stores, no lock. Readers see values that are that old. Names and meanings:
//! docs/operating/mdist-metrics.md.

pub mod components;
mod http;
mod latency;
mod line;
mod process;
mod published;
mod upstreams;

pub use http::Server;
pub use latency::{LatencyHistogram, MOUNTS, Measured, SOURCE};
pub use line::{Line, Lines};
pub use published::{Component, Counting, Definition, Published};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which components publish their counters.
pub const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Number of disconnects that `/disconnects` shows.
pub const DISCONNECTS: usize = 1_000;

type Labels = Vec<(&'static str, String)>;

/// Everything a program shows of itself. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    /// By metric name.
    families: Mutex<BTreeMap<&'static str, published::AnyFamily>>,
    /// What was last published of each component, for the statistics line.
    components: Mutex<Vec<line::Source>>,
    /// Ends of connections by kind of connection and reason.
    ends: Family<Labels, Counter>,
    latencies: latency::LatencyCollector,
    upstreams: upstreams::Upstreams,
    /// Somebody can ask for the mounts.
    served: AtomicBool,
    /// JSON of each worker's mounts.
    mounts: Mutex<BTreeMap<u16, Vec<serde_json::Value>>>,
    disconnects: Mutex<VecDeque<serde_json::Value>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is valid after every single statement, so a thread that died with the lock left nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// For the program `name`, which becomes a label of every metric.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let labels = [("program".into(), name.to_owned().into())];
        let mut registry = Registry::with_prefix_and_labels("mdist", labels.into_iter());
        let ends = Family::<Labels, Counter>::default();
        registry.register("disconnects", "Ended connections by reason", ends.clone());
        registry.register_collector(Box::new(process::Process));
        let latencies = latency::LatencyCollector::default();
        registry.register_collector(Box::new(latencies.clone()));
        let upstreams = upstreams::Upstreams::default();
        registry.register_collector(Box::new(upstreams.clone()));
        Self {
            inner: Arc::new(Inner {
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

    /// A place for the counters of one component; `which` tells it from others of its kind ("0", "feed1:14002").
    #[must_use]
    pub fn component<C: Component>(&self, which: &str) -> Published<C> {
        let mut registry = held(&self.inner.registry);
        let mut families = held(&self.inner.families);
        let labels: Labels = vec![(C::LABEL, which.to_owned())];
        let cells = C::DEFINITIONS
            .iter()
            .map(|definition| {
                families
                    .entry(definition.name)
                    .or_insert_with(|| published::AnyFamily::register(&mut registry, definition))
                    .cell(&labels)
            })
            .collect();
        let published = Published::new(cells);
        held(&self.inner.components).push(published.source());
        published
    }

    /// Says which sessions with upstreams a program has now: of each its kind ("provider", "p2ps", "publisher",
    /// "backbone"), its name and its counters; replaces what was said before.
    pub fn set_upstreams(
        &self,
        program: &str,
        all: impl IntoIterator<Item = (&'static str, String, components::Upstream)>,
    ) {
        self.inner.upstreams.set(program, all);
    }

    /// Says how long messages stayed in a component, and of each of the connections that it has now; replaces what it
    /// said before.
    pub fn set_latency(
        &self,
        kind: &'static Measured,
        component: &str,
        whole: LatencyHistogram,
        each: impl IntoIterator<Item = (String, LatencyHistogram)>,
    ) {
        self.inner.latencies.set(kind, component, whole, each);
    }

    /// Says what mounts a worker has now; called about once a second, replaces what it said before. Without a
    /// [`Server`] nobody can ask, and nothing is taken from the iterator.
    pub fn set_mounts<M: Serialize>(&self, worker: u16, mounts: impl IntoIterator<Item = M>) {
        if !self.inner.served.load(Ordering::Relaxed) {
            return;
        }
        let mounts = mounts.into_iter().filter_map(|m| serde_json::to_value(m).ok()).collect();
        held(&self.inner.mounts).insert(worker, mounts);
    }

    /// Records the end of a connection. `kind` is "mount", "provider", "sink" …; `reason` one word of few; `what` is
    /// shown under `/disconnects`, of which the newest [`DISCONNECTS`] are kept.
    pub fn disconnect(&self, kind: &'static str, reason: &'static str, what: impl Serialize) {
        self.inner.ends.get_or_create(&vec![("kind", kind.to_owned()), ("reason", reason.to_owned())]).inc();
        let at_unix_s = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |since| (since.as_secs_f64() * 1e3).round() / 1e3);
        let entry =
            serde_json::json!({ "at_unix_s": at_unix_s, "kind": kind, "reason": reason, "what": what });
        let mut disconnects = held(&self.inner.disconnects);
        if disconnects.len() >= DISCONNECTS {
            disconnects.pop_front();
        }
        disconnects.push_back(entry);
    }

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &held(&self.inner.registry)) {
            Ok(()) => text,
            Err(why) => format!("# cannot be written: {why}\n# EOF\n"),
        }
    }

    /// The mounts of all workers as a JSON array.
    #[must_use]
    pub fn mounts_json(&self) -> String {
        let mounts = held(&self.inner.mounts);
        json(&mounts.values().flatten().collect::<Vec<_>>())
    }

    /// The newest disconnects as a JSON array, the latest first.
    #[must_use]
    pub fn disconnects_json(&self) -> String {
        json(&held(&self.inner.disconnects).iter().rev().collect::<Vec<_>>())
    }
}

fn json(values: &[&serde_json::Value]) -> String {
    serde_json::to_string_pretty(values).unwrap_or_else(|_| "[]".into())
}

#[cfg(test)]
mod tests {
    use super::components::{Hub, Mounts};
    use super::*;

    #[test]
    fn what_is_published_is_shown_with_its_labels() {
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
    fn disconnects_are_counted_and_the_newest_kept() {
        let metrics = Metrics::new("p2ps");
        for n in 0..DISCONNECTS + 5 {
            metrics.disconnect("mount", "overflow", serde_json::json!({ "mount": n }));
        }
        let kept: Vec<serde_json::Value> = serde_json::from_str(&metrics.disconnects_json()).unwrap();
        assert_eq!(kept.len(), DISCONNECTS);
        assert_eq!(kept[0]["what"]["mount"], DISCONNECTS + 4);
        let line = "mdist_disconnects_total{program=\"p2ps\",kind=\"mount\",reason=\"overflow\"} 1005";
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.set_mounts(0, ["unasked"]);
        assert_eq!(metrics.mounts_json(), "[]");
        let _server = Server::start("127.0.0.1:0", &metrics).unwrap();
        metrics.set_mounts(0, ["a", "b"]);
        metrics.set_mounts(1, ["c"]);
        metrics.set_mounts(0, ["d"]);
        assert_eq!(serde_json::from_str::<Vec<String>>(&metrics.mounts_json()).unwrap(), ["d", "c"]);
    }
}
