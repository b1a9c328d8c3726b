//! Metrics of upstream sessions.
//!
//! Unlike other components, sessions come and go. The metrics of a session disappear when it ends, so that
//! there are never more sets of metrics than sessions.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::components::Upstream;
use super::published::{Component, Counting, Labels, lock};

/// The present upstream sessions by program.
#[derive(Clone, Debug, Default)]
pub(super) struct Upstreams(Arc<Mutex<BTreeMap<String, BTreeMap<Labels, Upstream>>>>);

impl Upstreams {
    /// The sessions, as the web page shows them.
    pub(super) fn list(&self) -> Vec<serde_json::Value> {
        let all = lock(&self.0);
        let sessions = all.values().flatten().map(|(labels, upstream)| {
            let label = |name| labels.iter().find(|(at, _)| *at == name).map(|(_, value)| value);
            serde_json::json!({
                "kind": label("kind"), "name": label(Upstream::LABEL), "state": upstream.state,
                "messages": upstream.messages, "bytes": upstream.bytes, "reconnects": upstream.reconnects,
            })
        });
        sessions.collect()
    }

    /// Replaces the sessions of a program.
    pub(super) fn set(&self, program: &str, all: impl IntoIterator<Item = (&'static str, String, Upstream)>) {
        let labels = |kind: &str, name| {
            vec![("hub", program.to_owned()), ("kind", kind.to_owned()), (Upstream::LABEL, name)]
        };
        let all = all.into_iter().map(|(kind, name, upstream)| (labels(kind, name), upstream)).collect();
        lock(&self.0).insert(program.to_owned(), all);
    }
}

impl Collector for Upstreams {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = lock(&self.0);
        let all = || all.values().flatten();
        if all().next().is_none() {
            return Ok(());
        }
        for (at, definition) in Upstream::DEFINITIONS.iter().enumerate() {
            let counter = definition.counting == Counting::Counter;
            let kind = if counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(definition.name, definition.help, None, kind)?;
            for (labels, upstream) in all() {
                let mut values = Vec::new();
                upstream.each(|value| values.push(value));
                let value = values.get(at).copied().unwrap_or(0);
                let mut member = metric.encode_family(labels)?;
                if counter {
                    member.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
                } else {
                    member.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn only_present_sessions_are_shown() {
        let metrics = Metrics::new("p2ps");
        assert!(!metrics.text().contains("mdist_upstream"));
        let some = Upstream { state: 2, messages: 5, bytes: 400, reconnects: 1 };
        metrics.set_upstreams("p2ps", [("publisher", "a:1".to_owned(), Upstream::default())]);
        metrics.set_upstreams("p2ps", [("provider", "b:2".to_owned(), some)]);
        let text = metrics.text();
        let labels = "{program=\"p2ps\",hub=\"p2ps\",kind=\"provider\",upstream=\"b:2\"}";
        for line in [
            "# TYPE mdist_upstream_messages_in counter".to_owned(),
            format!("mdist_upstream_state{labels} 2"),
            format!("mdist_upstream_messages_in_total{labels} 5"),
            format!("mdist_upstream_bytes_in_total{labels} 400"),
            format!("mdist_upstream_reconnects_total{labels} 1"),
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(!text.contains("publisher"), "{text}");
    }
}
