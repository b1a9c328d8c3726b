//! A running test: its programs, which are started again after a failure, and its measurements.

use std::time::Duration;

use anyhow::{Result, ensure};
use utipc_bench_kit::progress;

use super::chain::{Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place};

pub(super) struct Runner<'a> {
    pub(super) options: &'a Options,
    pub(super) plan: Plan,
    backbone: Backbone,
    /// The name of the test in progress messages.
    label: String,
    running: Option<(Chain, Place)>,
}

const WARM_UP: Duration = Duration::from_secs(1);

impl<'a> Runner<'a> {
    /// Starts the programs of a plan.
    pub(super) fn start(options: &'a Options, backbone: Backbone, label: String, plan: Plan) -> Result<Self> {
        let mut runner = Self { options, plan, backbone, label, running: None };
        runner.running()?;
        Ok(runner)
    }

    /// The programs and their place; they are started if they do not run.
    pub(super) fn running(&mut self) -> Result<&mut (Chain, Place)> {
        let running = match self.running.take() {
            Some(running) => running,
            None => {
                let place = Place::new(self.backbone)?;
                let chain = Chain::start(&place, &self.plan)?;
                let (label, streams, seconds) = (&self.label, chain.streams(), chain.startup_s());
                progress(&format!("{label}: {streams} item streams loaded in {seconds:.1} s"));
                (chain, place)
            }
        };
        Ok(self.running.insert(running))
    }

    /// Measures at a rate for `time`, after a warm-up.
    pub(super) fn measure(&mut self, rate: u64, time: Duration) -> Result<Window> {
        self.measure_after(WARM_UP, rate, time)
    }

    pub(super) fn measure_after(&mut self, warm_up: Duration, rate: u64, time: Duration) -> Result<Window> {
        let (chain, place) = self.running()?;
        let seen = chain.measure(place, rate, warm_up, time);
        if seen.is_err() {
            self.running = None;
        }
        let window = seen?;
        let mut result = vec![format!("{:.0} out/s", window.output)];
        if self.plan.prompt {
            let seen = &window.latency;
            ensure!(
                seen.impossible == 0,
                "updates arrived before they were sent: sender and receiver do not share a clock"
            );
            ensure!(seen.points > 0, "no update carried its send time");
            result = vec![format!("mean {:.0} µs, p99 {:.0}, p99.9 {:.0}", seen.mean, seen.p99, seen.p999)];
        }
        result.extend((!window.is_clean()).then(|| window.problems()));
        let (label, seconds) = (&self.label, time.as_secs_f64());
        progress(&format!("{label}: {rate}/s for {seconds:.1} s: {}", result.join("; ")));
        Ok(window)
    }

    /// Measures until `count` windows are clean. `retries` may be unclean, because the machine may have been busy
    /// elsewhere, but must not lose an update.
    pub(super) fn clean(
        &mut self,
        rate: u64,
        time: Duration,
        count: usize,
        mut retries: usize,
    ) -> Result<Vec<Window>> {
        let mut clean = Vec::new();
        while clean.len() < count {
            let window = self.measure(rate, time)?;
            if window.is_clean() {
                clean.push(window);
            } else {
                ensure!(window.is_whole() && retries > 0, "at {rate}/s: {}", window.problems());
                retries -= 1;
            }
        }
        Ok(clean)
    }
}
