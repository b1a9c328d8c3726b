//! A foreign server that has data of its own: our client counts what comes, and how long it took.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::chain::{self, LOAD_TIME, faults, grown, is_loaded, not_loaded};
use super::cpu::{Reading, Table};
use super::interrupt;
use super::options::Options;
use super::place::{Backbone, Place};
use super::table;
use super::throughput::plan;
use mdist_load::stats::Summary;

/// What came from it to one mount or to many.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pub(super) mounts: usize,
    pub(super) seen: Result<Seen, String>,
}

/// What was counted over some time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) streams: u64,
    pub(super) startup_s: f64,
    pub(super) output: f64,
    /// From the time in those updates that have one, microseconds.
    pub(super) latency: Summary,
    pub(super) cpu: Table,
}

impl Foreign {
    /// The client with one mount, then with many.
    pub(super) fn run(options: &Options, target: &str) -> Vec<Self> {
        [("T3", 1), ("T5", options.mounts)]
            .into_iter()
            .take_while(|_| !interrupt::came())
            .map(|(test, mounts)| Self {
                mounts,
                seen: measure(options, target, test).map_err(|why| format!("{why:#}")),
            })
            .collect()
    }

    pub(super) fn json(&self) -> Value {
        match &self.seen {
            Ok(seen) => json!({
                "test": "target", "mounts": self.mounts, "item_streams": seen.streams, "startup_s": seen.startup_s,
                "out_per_s": seen.output, "latency_us": seen.latency, "cpu": table::cpu_json(&seen.cpu),
            }),
            Err(why) => json!({ "test": "target", "mounts": self.mounts, "failed": why }),
        }
    }
}

/// How long loading may make no progress.
const STANDSTILL: Duration = Duration::from_secs(15);

fn measure(options: &Options, target: &str, test: &str) -> Result<Seen> {
    let place = Place::new(Backbone::None)?;
    let (plan, ..) = plan(options, Backbone::None, test);
    // Whoever publishes there is not known: no counts to check, and times in microseconds as the vendor's tools have them.
    let mut client = chain::clients(&place, target, &plan, &[])?;
    let (began, mut progress) = (Instant::now(), (Instant::now(), Value::Null));
    let first = loop {
        let seen = client.order("counts")?;
        if is_loaded(&seen) {
            break seen;
        }
        if seen["loaded"] != progress.1 {
            progress = (Instant::now(), seen["loaded"].clone());
        }
        ensure!(
            progress.0.elapsed() < STANDSTILL && began.elapsed() < LOAD_TIME,
            "{} (does it listen there, is its service {}, does it take {} clients? see --service, --mounts)",
            not_loaded(&seen, began.elapsed()),
            plan.service,
            plan.mounts
        );
        interrupt::sleep(Duration::from_millis(50), || Ok(()))?;
    };
    table::say(&format!("{target}: {} mounts loaded {} item streams", plan.mounts, first["loaded"]));
    interrupt::sleep(Duration::from_secs(1), || Ok(()))?;
    let processes = [(client.name.clone(), client.id())];
    client.order("mark")?;
    let (before, at, cpu) = (client.order("counts")?, Instant::now(), Reading::take(&processes)?);
    interrupt::sleep(options.window(), || client.alive())?;
    let (after, time) = (client.order("counts")?, at.elapsed().as_secs_f64());
    let cpu = Reading::take(&processes)?.since(&cpu);
    let faults = faults(&before, &after);
    ensure!(faults.is_empty(), "{}", faults.join(", "));
    Ok(Seen {
        streams: after["loaded"].as_u64().unwrap_or(0),
        startup_s: after["startup_s"].as_f64().unwrap_or(0.0),
        output: grown(&before, &after, "updates") as f64 / time,
        latency: serde_json::from_value(after["latency_us"].clone()).unwrap_or_default(),
        cpu,
    })
}
