//! Runs as JSON objects, one per line. Scripts rely on their shape.

use serde_json::{Value, json};
use utipc_bench_kit::Named as _;

use super::run::{Name, Run};
use super::variant::Engine;

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Run {
    /// The run with all that distinguishes it from other runs.
    pub(super) fn to_json(&self) -> Value {
        let (case, measured) = (&self.case, &self.measured);
        let mut line = json!({
            "test": case.name.name(),
            "scope": self.scope.name(),
            "transport": case.variant.transport.name(),
            "mode": case.variant.mode.name(),
            "kind": case.variant.kind.name(),
            "size": case.size,
            "connections": case.connections,
            "round": self.round,
            "messages": self.messages(),
            // Rounded to nanoseconds: a short run in busy mode takes microseconds.
            "elapsed_s": (self.elapsed_s() * 1e9).round() / 1e9,
            "cpu_s": { "tx": round(measured.client.cpu_s), "rx": round(measured.server.cpu_s) },
        });
        if case.variant.transport.is_own() {
            line["engine"] = json!(self.engine.name());
        }
        if self.engine == Engine::Daemon {
            line["cpu_s"]["daemon"] = json!(round(measured.daemons_cpu_s));
        }
        match case.name {
            Name::Multicast => line["receivers"] = json!(case.servers),
            Name::Pairs => line["pairs"] = json!(case.pairs),
            _ => {}
        }
        if let Some(rate) = case.rate {
            line["rate"] = json!(round(rate));
        }
        match measured.rtt() {
            Some(rtt) => {
                line["rtt_us"] = json!({
                    "mean": round(rtt.mean), "p50": round(rtt.p50), "p99": round(rtt.p99),
                    "p999": round(rtt.p999), "max": round(rtt.max),
                });
            }
            None => {
                line["msgs_per_s"] = json!(measured.messages_per_s().round());
                line["mbit_per_s"] = json!(round(self.mbit_per_s()));
            }
        }
        if measured.lost() > 0 {
            line["lost"] = json!(measured.lost());
        }
        let (out, back) = measured.packets_per_message();
        if out.is_finite() {
            line["packets_per_message"] = json!({ "tx": round(out), "rx": round(back) });
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::EndResult;
    use super::super::run::{Case, Measured};
    use super::super::variant::{Scope, Variant};
    use super::*;

    fn run(name: Name, variant: Variant, measured: Measured) -> Run {
        let case = Case::new(name, variant, 1000);
        Run { case, scope: Scope::Inter, engine: Engine::Embedded, round: 2, measured }
    }

    #[test]
    fn rate_is_that_of_the_receiver() {
        let server =
            EndResult { messages: 2000, began: 5, ended: 2_000_000_005, cpu_s: 0.25, ..EndResult::default() };
        let client =
            EndResult { messages: 2100, ended: 9, cpu_s: 0.5, packets: Some(4200), ..EndResult::default() };
        let server = EndResult { packets: Some(210), ..server };
        let measured = Measured { client, server, daemons_cpu_s: 0.0 };
        let object = run(Name::Throughput, Variant::TCP, measured).to_json();
        assert_eq!(
            object,
            json!({
                "test": "throughput", "scope": "inter", "transport": "tcp", "mode": "blocking", "kind": "stream",
                "size": 1000, "connections": 1, "round": 2, "messages": 2000, "elapsed_s": 2.0,
                "msgs_per_s": 1000.0, "mbit_per_s": 8.0, "cpu_s": { "tx": 0.5, "rx": 0.25 },
                "packets_per_message": { "tx": 2.0, "rx": 0.1 },
            })
        );
    }

    #[test]
    fn round_trips_have_percentiles() {
        let client = EndResult {
            messages: 2,
            ended: 9_000,
            times: vec![(3_000, 1), (6_000, 1)],
            ..EndResult::default()
        };
        let measured = Measured { client, ..Measured::default() };
        let object = run(Name::Latency, Variant::TCP, measured).to_json();
        let rtt = &object["rtt_us"];
        assert_eq!((rtt["p50"].as_f64(), rtt["max"].as_f64()), (Some(3.001), Some(6.003)));
        assert!(rtt["p999"].is_number() && rtt["mean"].is_number() && object.get("msgs_per_s").is_none());
    }
}
