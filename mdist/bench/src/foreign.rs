//! A foreign server with data of its own: our client counts its updates and their latency.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::cpu::{Reading, Usage};
use utipc_bench_kit::interrupt;
use utipc_bench_kit::progress;
use utipc_bench_kit::stats::Summary;

use super::chain::{self, LOAD_TIME, faults, grown, is_loaded, not_loaded};
use super::options::Options;
use super::place::{Backbone, Place};
use super::throughput::setup;

/// The result for one mount or many.
#[derive(Clone, Debug)]
pub(super) struct ForeignServer {
    pub(super) mounts: usize,
    pub(super) counted: Result<Counted, String>,
}

/// The counts of a period.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) streams: u64,
    pub(super) startup_s: f64,
    pub(super) output: f64,
    /// Latency of the updates that carry their send time.
    pub(super) latency: Summary,
    pub(super) cpu: Usage,
}

impl ForeignServer {
    /// Measures with one mount, then with many.
    pub(super) fn run(options: &Options, target: &str) -> Vec<Self> {
        [("T3", 1), ("T5", options.mounts)]
            .into_iter()
            .take_while(|_| !interrupt::came())
            .map(|(test, mounts)| Self {
                mounts,
                counted: measure(options, target, test).map_err(|why| format!("{why:#}")),
            })
            .collect()
    }

    pub(super) fn json(&self) -> Value {
        match &self.counted {
            Ok(counted) => json!({
                "test": "target", "mounts": self.mounts, "item_streams": counted.streams, "startup_s": counted.startup_s,
                "out_per_s": counted.output, "latency_us": counted.latency, "cpu": counted.cpu.json(),
            }),
            Err(why) => json!({ "test": "target", "mounts": self.mounts, "failed": why }),
        }
    }
}

/// Longest time without progress in loading.
const STANDSTILL: Duration = Duration::from_secs(15);

fn measure(options: &Options, target: &str, test: &str) -> Result<Counted> {
    let place = Place::new(Backbone::None)?;
    let plan = setup(options, Backbone::None, test).plan;
    // The publisher is unknown: there are no counts to check, and times are in microseconds, as in the vendor's tools.
    let mut client = chain::clients(&place, target, &plan, &[])?;
    let (began, mut last_progress) = (Instant::now(), (Instant::now(), Value::Null));
    let first = loop {
        let seen = client.request("counts")?;
        if is_loaded(&seen) {
            break seen;
        }
        if seen["loaded"] != last_progress.1 {
            last_progress = (Instant::now(), seen["loaded"].clone());
        }
        ensure!(
            last_progress.0.elapsed() < STANDSTILL && began.elapsed() < LOAD_TIME,
            "{} (check its address, that its service is {} (--service) and that it accepts {} clients (--mounts))",
            not_loaded(&seen, began.elapsed()),
            plan.service,
            plan.mounts
        );
        interrupt::sleep(Duration::from_millis(50), || Ok(()))?;
    };
    progress(&format!("{target}: {} mounts loaded {} item streams", plan.mounts, first["loaded"]));
    interrupt::sleep(Duration::from_secs(1), || Ok(()))?;
    let processes = [(client.name.clone(), client.id())];
    client.request("mark")?;
    let (before, at, cpu) = (client.request("counts")?, Instant::now(), Reading::take(&processes)?);
    interrupt::sleep(options.window(), || client.check_alive())?;
    let (after, time) = (client.request("counts")?, at.elapsed().as_secs_f64());
    let cpu = Reading::take(&processes)?.since(&cpu);
    let faults = faults(&before, &after);
    ensure!(faults.is_empty(), "{}", faults.join(", "));
    Ok(Counted {
        streams: after["loaded"].as_u64().unwrap_or(0),
        startup_s: after["startup_s"].as_f64().unwrap_or(0.0),
        output: grown(&before, &after, "updates") as f64 / time,
        latency: serde_json::from_value(after["latency_us"].clone()).unwrap_or_default(),
        cpu,
    })
}
