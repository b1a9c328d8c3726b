//! Latency histograms of fixed classes: how long messages stay inside a component.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::published::{Labels, lock};

/// Upper ends of the classes, nanoseconds: 1 µs to 1 s. Longer times have a class of their own.
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

/// Latency of one component or connection.
///
/// Has the number of samples, their sum, the extremes, and the number of samples in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// Number of samples.
    pub count: u64,
    /// Sum of all samples, nanoseconds.
    pub sum_ns: u64,
    /// The shortest sample, nanoseconds; 0 without samples.
    pub min_ns: u64,
    /// The longest sample, nanoseconds.
    pub max_ns: u64,
    classes: [u64; CLASSES.len() + 1],
}

impl LatencyHistogram {
    /// Adds a sample.
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

    /// The statistics for `/mounts` and `/disconnects`, microseconds; `None` without samples.
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

/// The latency metrics of one kind of component.
#[derive(Debug)]
pub struct Measured {
    /// Label that distinguishes components of this kind.
    pub label: &'static str,
    /// The histogram of the whole component.
    pub whole: Family,
    /// Label that distinguishes its connections.
    pub connection: &'static str,
    /// The histogram of each connection.
    pub each: Family,
}

/// Names of a histogram and of the gauges of its extremes.
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

/// Latency from the read of a message to the write to the mount.
pub static MOUNTS: Measured = Measured {
    label: "worker",
    whole: family!("mounts", "Time from the read that delivered a message to its write to a mount's socket"),
    connection: "mount",
    each: family!(
        "mount",
        "Time from the read that delivered a message to its write to the socket of this mount"
    ),
};

/// Latency from the read of a message to the multicast on the backbone.
pub static SOURCE: Measured = Measured {
    label: "source",
    whole: family!(
        "backbone",
        "Time from the read that delivered a message to its multicast on the backbone"
    ),
    connection: "server",
    each: family!(
        "server",
        "Time from the read that delivered a message of this source server to its multicast on the backbone"
    ),
};

/// The latest histograms of one component.
#[derive(Debug, Default)]
struct Histograms {
    whole: LatencyHistogram,
    each: BTreeMap<String, LatencyHistogram>,
}

/// Collects the latest histograms of all components, by kind and component.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencyCollector(Arc<Mutex<BTreeMap<(&'static str, String), Histograms>>>);

impl LatencyCollector {
    /// Replaces the histograms of a component.
    pub(super) fn set(
        &self,
        kind: &'static Measured,
        component: &str,
        whole: LatencyHistogram,
        each: impl IntoIterator<Item = (String, LatencyHistogram)>,
    ) {
        let histograms = Histograms { whole, each: each.into_iter().collect() };
        lock(&self.0).insert((kind.whole.name, component.to_owned()), histograms);
    }

    /// Number and sum in nanoseconds of all samples of a kind.
    pub(super) fn sum(&self, kind: &Measured) -> (u64, u64) {
        lock(&self.0)
            .iter()
            .filter(|((name, _), _)| *name == kind.whole.name)
            .fold((0, 0), |(count, sum), (_, latest)| (count + latest.whole.count, sum + latest.whole.sum_ns))
    }

    fn of(&self, kind: &Measured) -> [Vec<(Labels, LatencyHistogram)>; 2] {
        let all = lock(&self.0);
        let latest = || all.iter().filter(|((name, _), _)| *name == kind.whole.name);
        let component = |name: &String| (kind.label, name.clone());
        let whole = latest().map(|((_, name), latest)| (vec![component(name)], latest.whole)).collect();
        let each = latest().flat_map(|((_, name), latest)| {
            latest.each.iter().map(move |(connection, latency)| {
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
    // A family without members is omitted.
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
    fn samples_are_counted_in_their_class() {
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
    fn page_shows_the_latest_histograms() {
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
