//! `stall`: one of two servers does not run for a second. How late are the updates of the other, and is an item lost?

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use utipc_bench_kit::interrupt;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::progress;
use utipc_bench_kit::stats::{Spread, Summary};

use super::chain::{Chain, Plan, faults, grown, is_loaded, serve, start_clients};
use super::options::Options;
use super::place::{Backbone, Place};
use super::throughput::setup;

/// Updates per second, unless the options name another rate.
const RATE: u64 = 200_000;
/// Maximum number of items.
const ITEMS: usize = 10_000;
/// Updates per second that carry their send time: every stop of a millisecond is seen.
const STAMPS: u64 = 2_000;
/// Time for which the server does not run.
const STOP: Duration = Duration::from_secs(1);
/// Time before the measurement, and time after the stop that is part of it: the server catches up.
const WARM_UP: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(1);
/// Time without an update after which the second client has received its last one, or never loads its items.
const STANDSTILL: Duration = Duration::from_secs(5);

/// Results over one backbone.
#[derive(Clone, Debug)]
pub(super) struct StallTest {
    pub(super) backbone: Backbone,
    pub(super) rate: u64,
    pub(super) stalls: Vec<Stall>,
}

/// One stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Stall {
    /// Latency at the other server during as much time without a stop.
    pub(super) before: Summary,
    /// Latency at the other server while the first did not run and caught up.
    pub(super) during: Summary,
    /// Faults at both servers, suspect items among them, as text.
    pub(super) faults: Vec<String>,
}

impl Stall {
    /// Milliseconds by which the other server's latest update was later than the latest one without a stop.
    pub(super) fn delay_ms(&self) -> f64 {
        (self.during.max - self.before.max).max(0.0) / 1e3
    }
}

impl StallTest {
    /// Measures some stops. Fails if the programs do not start or end.
    pub(super) fn run(options: &Options, backbone: Backbone) -> Result<Self> {
        // Two nodes of their own would need two addresses in one namespace.
        let has_daemons = matches!(backbone, Backbone::Lanes | Backbone::Udp);
        ensure!(has_daemons, "it needs a backbone with utipcd (use --backbone lanes or udp)");
        let rate = options.rate.unwrap_or(RATE);
        let base = setup(options, backbone, "stall", true).plan;
        let items = options.items.min(ITEMS);
        let plan = Plan { prompt: true, stamps: STAMPS, items, ..base };
        let place = Place::new(backbone)?;
        let mut chain = Chain::start(&place, &plan)?;
        let mut second = Second::start(&place, &plan)?;
        let mut stalls = Vec::new();
        for _ in 0..options.repeat() {
            let stall = measure(&mut chain, &mut second, rate)?;
            progress(&format!(
                "stall: {rate}/s: the other server's slowest update {:.1} ms, {:.1} ms without a stop; {}",
                stall.during.max / 1e3,
                stall.before.max / 1e3,
                if stall.faults.is_empty() { "nothing lost".into() } else { stall.faults.join(", ") }
            ));
            stalls.push(stall);
        }
        Ok(Self { backbone, rate, stalls })
    }

    /// The delays in milliseconds.
    pub(super) fn delays(&self) -> Spread {
        self.stalls.iter().map(Stall::delay_ms).collect()
    }

    /// All faults, as text.
    pub(super) fn faults(&self) -> Vec<&str> {
        self.stalls.iter().flat_map(|stall| &stall.faults).map(String::as_str).collect()
    }

    pub(super) fn json(&self) -> Value {
        let each = self.stalls.iter().map(|stall| {
            json!({ "before_us": stall.before, "during_us": stall.during, "delay_ms": stall.delay_ms(), "faults": stall.faults })
        });
        json!({ "backbone": self.backbone, "rate": self.rate, "stopped_s": STOP.as_secs_f64(), "each": each.collect::<Value>() })
    }
}

/// The server that is stopped, and its client.
struct Second {
    client: Process,
    server: Process,
}

impl Second {
    /// Starts them, and waits until the client has loaded its items.
    fn start(place: &Place, plan: &Plan) -> Result<Self> {
        let more = plan.settings.as_deref();
        let upstream = format!("kind = \"backbone\"\n{}", place.node_settings(super::place::Side::Sink));
        let cache = plan.server == Some(true);
        let (server, at) = serve(place, "p2ps-stopped", cache, "timed-writes = false\n", &upstream, more)?;
        let client = start_clients(place, &at, plan)?;
        let mut second = Self { client, server };
        let seen = second.wait(is_loaded)?;
        ensure!(is_loaded(&seen), "the second server does not load its items: {seen}");
        Ok(second)
    }

    fn counts(&mut self) -> Result<Value> {
        self.client.request("counts")
    }

    /// Waits until the client's counts satisfy `done`, or do not change for [`STANDSTILL`]; returns them.
    fn wait(&mut self, done: impl Fn(&Value) -> bool) -> Result<Value> {
        let (mut last, mut since) = (Value::Null, Instant::now());
        loop {
            self.server.check_alive()?;
            let seen = self.counts()?;
            if done(&seen) || (seen["counts"] == last && since.elapsed() >= STANDSTILL) {
                return Ok(seen);
            }
            if seen["counts"] != last {
                (last, since) = (seen["counts"].clone(), Instant::now());
            }
            interrupt::sleep(Duration::from_millis(50), || Ok(()))?;
        }
    }
}

/// Measures one stop.
fn measure(chain: &mut Chain, second: &mut Second, rate: u64) -> Result<Stall> {
    let (idle, idle_second) = (chain.counts()?, second.counts()?);
    chain.publish(rate)?;
    interrupt::sleep(WARM_UP, || Ok(()))?;
    chain.mark()?;
    interrupt::sleep(STOP + AFTER, || Ok(()))?;
    let before = chain.latency()?;
    chain.mark()?;
    second.server.signal(Signal::STOP)?;
    let slept = interrupt::sleep(STOP, || Ok(()));
    second.server.signal(Signal::CONT)?;
    slept?;
    interrupt::sleep(AFTER, || Ok(()))?;
    let during = chain.latency()?;
    let done = chain.stop()?;
    let made = grown(&idle.publisher, &done.publisher, "updates");
    let done_second = second.wait(|seen| grown(&idle_second, seen, "updates") >= made)?;
    let mut all = Vec::new();
    let clients = [
        ("the other server", &idle.client, &done.client),
        ("the stopped server", &idle_second, &done_second),
    ];
    for (which, idle, done) in clients {
        let lost = i128::from(made) - i128::from(grown(idle, done, "updates"));
        let lost = (lost != 0).then(|| format!("{lost} updates lost"));
        all.extend(faults(idle, done).into_iter().chain(lost).map(|what| format!("{which}: {what}")));
    }
    let missed = grown(&idle.publisher, &done.publisher, "missed");
    all.extend((missed > 0).then(|| format!("the publisher made {missed} updates too late")));
    Ok(Stall { before, during, faults: all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_that_of_the_latest_update() {
        let at = |max: f64| Summary { max, ..Summary::default() };
        let stall = |max| Stall { before: at(200.0), during: at(max), faults: Vec::new() };
        let mut test = StallTest {
            backbone: Backbone::Lanes,
            rate: RATE,
            stalls: [2_200.0, 128_200.0, 4_200.0].map(stall).into(),
        };
        assert!((test.delays().median - 4.0).abs() < 1e-9);
        assert!(test.faults().is_empty());
        test.stalls[1].faults.push("the stopped server: 10000 suspect".into());
        assert_eq!(test.faults().len(), 1);
        assert_eq!(test.json()["each"][1]["delay_ms"], 128.0);
    }
}
