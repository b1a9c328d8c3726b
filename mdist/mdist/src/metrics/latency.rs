//! How long messages stay inside a component: histograms of fixed classes, and where their owners publish them.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Labels, held};

/// Upper ends of the classes, nanoseconds: 1 µs to 1 s. What is longer has a class of its own.
const CLASSES: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// Times of one component or connection: their number, sum and extremes, and how many were in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// How many.
    pub count: u64,
    /// All together, nanoseconds.
    pub sum_ns: u64,
    /// The shortest, nanoseconds; 0 of none.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    classes: [u64; CLASSES.len() + 1],
}

impl LatencyHistogram {
    /// Takes one.
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        if let Some(class) = self.classes.get_mut(CLASSES.partition_point(|end| *end < ns)) {
            *class += 1;
        }
    }

    /// For `/mounts` and `/disconnects`, microseconds; `None` of none.
    #[must_use]
    pub fn figures(&self) -> Option<serde_json::Value> {
        (self.count > 0).then(|| {
            serde_json::json!({
                "count": self.count, "mean": self.sum_ns as f64 / self.count as f64 / 1e3,
                "min": self.min_ns as f64 / 1e3, "max": self.max_ns as f64 / 1e3,
            })
        })
    }
}

/// What is measured in one kind of component.
#[derive(Debug)]
pub struct Measured {
    /// Label that tells components of this kind apart.
    pub label: &'static str,
    /// Of the component as a whole.
    pub whole: Family,
    /// Label that tells its connections apart.
    pub connection: &'static str,
    /// Of each connection.
    pub each: Family,
}

/// Names of the histogram and of the gauges of its extremes.
#[derive(Debug)]
pub struct Family {
    pub(super) name: &'static str,
    min: &'static str,
    max: &'static str,
    help: &'static str,
}

macro_rules! family {
    ($name:literal, $help:literal) => {
        Family {
            name: concat!($name, "_latency_seconds"),
            min: concat!($name, "_latency_min_seconds"),
            max: concat!($name, "_latency_max_seconds"),
            help: $help,
        }
    };
}

/// From the read that brought a message to the write to the mount.
pub static MOUNTS: Measured = Measured {
    label: "worker",
    whole: family!("mounts", "Time of messages from the read that brought them to a mount's socket"),
    connection: "mount",
    each: family!("mount", "Time of messages from the read that brought them to the socket of this mount"),
};

/// From the read that brought a message to the multicast on the backbone.
pub static SOURCE: Measured = Measured {
    label: "source",
    whole: family!("backbone", "Time of messages from the read that brought them to the backbone"),
    connection: "server",
    each: family!("server", "Time of messages from the read of this source server to the backbone"),
};

/// What one component has said last.
#[derive(Debug, Default)]
struct Said {
    whole: LatencyHistogram,
    each: BTreeMap<String, LatencyHistogram>,
}

/// What all components have said last: by kind and component.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencyCollector(Arc<Mutex<BTreeMap<(&'static str, String), Said>>>);

impl LatencyCollector {
    /// Replaces what the component has said before.
    pub(super) fn set(
        &self,
        kind: &'static Measured,
        component: &str,
        whole: LatencyHistogram,
        each: impl IntoIterator<Item = (String, LatencyHistogram)>,
    ) {
        let said = Said { whole, each: each.into_iter().collect() };
        held(&self.0).insert((kind.whole.name, component.to_owned()), said);
    }

    /// How many times there are of a kind, and their sum in nanoseconds.
    pub(super) fn sum(&self, kind: &Measured) -> (u64, u64) {
        held(&self.0)
            .iter()
            .filter(|((name, _), _)| *name == kind.whole.name)
            .fold((0, 0), |(count, sum), (_, said)| (count + said.whole.count, sum + said.whole.sum_ns))
    }

    fn of(&self, kind: &Measured) -> [Vec<(Labels, LatencyHistogram)>; 2] {
        let all = held(&self.0);
        let said = || all.iter().filter(|((name, _), _)| *name == kind.whole.name);
        let component = |name: &String| (kind.label, name.clone());
        let whole = said().map(|((_, name), said)| (vec![component(name)], said.whole)).collect();
        let each = said().flat_map(|((_, name), said)| {
            said.each.iter().map(move |(connection, latency)| {
                (vec![component(name), (kind.connection, connection.clone())], *latency)
            })
        });
        [whole, each.collect()]
    }
}

impl Collector for LatencyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for kind in [&MOUNTS, &SOURCE] {
            let [whole, each] = self.of(kind);
            family(&mut encoder, &kind.whole, &whole)?;
            family(&mut encoder, &kind.each, &each)?;
        }
        Ok(())
    }
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    all: &[(Labels, LatencyHistogram)],
) -> Result<(), std::fmt::Error> {
    // A family without members is not shown at all.
    if all.is_empty() {
        return Ok(());
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut metric = encoder.encode_descriptor(family.name, family.help, None, MetricType::Histogram)?;
    for (labels, latency) in all {
        let ends = CLASSES.iter().map(|end| seconds(*end)).chain([f64::INFINITY]);
        let classes: Vec<_> = ends.zip(latency.classes).collect();
        let mut member = metric.encode_family(labels)?;
        member.encode_histogram::<NoLabelSet>(seconds(latency.sum_ns), latency.count, &classes, None)?;
    }
    let extremes =
        [(family.min, "The shortest since the start"), (family.max, "The longest since the start")];
    for (at, (name, help)) in extremes.into_iter().enumerate() {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, latency) in all {
            metric.encode_family(labels)?.encode_gauge(&seconds(if at == 0 {
                latency.min_ns
            } else {
                latency.max_ns
            }))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn of(times_us: &[u64]) -> LatencyHistogram {
        let mut all = LatencyHistogram::default();
        times_us.iter().for_each(|time| all.record(Duration::from_micros(*time)));
        all
    }

    #[test]
    fn every_time_has_its_class() {
        let mut all = of(&[1, 2, 3, 1_000_000, 5_000_000]);
        all.record(Duration::from_nanos(1_001));
        assert_eq!((all.count, all.min_ns, all.max_ns), (6, 1_000, 5_000_000_000));
        assert_eq!(all.sum_ns, 6_000_006_000 + 1_001);
        assert_eq!(all.classes[..3], [1, 2, 1]);
        assert_eq!(all.classes[18..], [1, 1]);
        assert_eq!(all.classes.iter().sum::<u64>(), all.count);
        assert_eq!(LatencyHistogram::default().figures(), None);
        assert_eq!(of(&[10, 30]).figures().unwrap()["mean"], 20.0);
    }

    #[test]
    fn the_page_has_what_was_said_last() {
        let metrics = Metrics::new("p2ps");
        assert!(!metrics.text().contains("latency"));
        metrics.set_latency(&MOUNTS, "0", of(&[3]), [("a:1".to_owned(), of(&[3]))]);
        metrics.set_latency(&MOUNTS, "1", of(&[7]), []);
        metrics.set_latency(&MOUNTS, "0", of(&[3, 40]), [("b:2".to_owned(), of(&[40]))]);
        let text = metrics.text();
        for line in [
            "# TYPE mdist_mounts_latency_seconds histogram",
            "mdist_mounts_latency_seconds_count{program=\"p2ps\",worker=\"0\"} 2",
            "mdist_mounts_latency_seconds_sum{program=\"p2ps\",worker=\"0\"} 0.000043",
            "mdist_mounts_latency_seconds_bucket{program=\"p2ps\",le=\"0.000002\",worker=\"0\"} 0",
            "mdist_mounts_latency_seconds_bucket{program=\"p2ps\",le=\"0.00005\",worker=\"0\"} 2",
            "mdist_mounts_latency_seconds_bucket{program=\"p2ps\",le=\"+Inf\",worker=\"0\"} 2",
            "mdist_mounts_latency_seconds_count{program=\"p2ps\",worker=\"1\"} 1",
            "mdist_mounts_latency_min_seconds{program=\"p2ps\",worker=\"0\"} 0.000003",
            "mdist_mount_latency_seconds_count{program=\"p2ps\",worker=\"0\",mount=\"b:2\"} 1",
            "mdist_mount_latency_max_seconds{program=\"p2ps\",worker=\"0\",mount=\"b:2\"} 0.00004",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(!text.contains("a:1") && !text.contains("backbone"), "{text}");
        assert_eq!(text.matches("# TYPE mdist_mounts_latency_seconds ").count(), 1, "{text}");
    }
}
