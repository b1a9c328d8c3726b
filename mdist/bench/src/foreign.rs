//! A foreign server with data of its own: our client counts its updates and their latency.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::{interrupt, progress};

use super::chain::{Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place};
use super::throughput::setup;

/// The result for one mount or many.
#[derive(Clone, Debug)]
pub(super) struct ForeignServer {
    pub(super) mounts: usize,
    pub(super) counted: Result<Counted, String>,
}

/// The counts of a period; latencies by the send time in those updates that carry one.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) streams: u64,
    pub(super) startup_s: f64,
    pub(super) window: Window,
}

impl ForeignServer {
    /// Measures with one mount, then with many.
    pub(super) fn run(options: &Options) -> Vec<Self> {
        let plans = ["T3", "T5"].map(|test| setup(options, Backbone::None, test, false).plan);
        let counted = |plan: &Plan| measure(options, plan).map_err(|why| format!("{why:#}"));
        let plans = plans.iter().take_while(|_| !interrupt::came());
        plans.map(|plan| Self { mounts: plan.mounts, counted: counted(plan) }).collect()
    }

    pub(super) fn json(&self) -> Value {
        match &self.counted {
            Ok(Counted { streams, startup_s, window }) => json!({
                "test": "target", "mounts": self.mounts, "item_streams": streams, "startup_s": startup_s,
                "out_per_s": window.output, "latency_us": window.latency, "cpu": window.cpu.json(),
            }),
            Err(why) => json!({ "test": "target", "mounts": self.mounts, "failed": why }),
        }
    }
}

fn measure(options: &Options, plan: &Plan) -> Result<Counted> {
    let place = Place::new(Backbone::None)?;
    let mut chain = Chain::start(&place, plan)?;
    let (streams, startup_s) = (chain.streams(), chain.startup_s());
    progress(&format!("{} mounts loaded {streams} item streams", plan.mounts));
    let window = chain.measure(&place, 0, Duration::from_secs(1), options.window())?;
    ensure!(window.is_whole(), "{}", window.faults.join(", "));
    Ok(Counted { streams, startup_s, window })
}
