//! The vendor's own performance programs, ConsPerf and ProvPerf, if they are installed: alone and with p2ps in between.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::net::{TcpNetEntry, TcpState};
use serde_json::{Value, json};
use utipc_bench_kit::cpu::{Reading, Usage};
use utipc_bench_kit::interrupt;
use utipc_bench_kit::plot::Curve;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::progress;
use utipc_bench_kit::stats::{Spread, median};

use super::options::Options;
use super::place::{Backbone, Place, marked};
use super::{chain, latency, search};

/// The environment variable that names their folder.
pub(super) const FOLDER: &str = "UTIPC_RTSDK_BIN";
/// Files that they need in their working directory.
const FILES: [&str; 4] = ["RDMFieldDictionary", "enumtype.def", "MsgData.xml", "350k.xml"];
/// Time in which ConsPerf loads all items; part of its steady-state time.
const LOADING: Duration = Duration::from_secs(3);

/// The figures of ConsPerf, and CPU time measured meanwhile.
#[derive(Clone, Debug)]
pub(super) struct VendorRun {
    pub(super) rate: u64,
    pub(super) output: f64,
    /// Microseconds from when an update was made (not when it was due): mean, deviation, shortest, longest.
    pub(super) latency: [f64; 4],
    pub(super) cpu: Usage,
    pub(super) clean: bool,
}

/// All measurements of the pair.
#[derive(Clone, Debug, Default)]
pub(super) struct VendorPair {
    /// Runs without p2ps, by rate; the first rates several times.
    pub(super) latencies: Vec<VendorRun>,
    /// At the highest rate, directly and through p2ps, in turn.
    pub(super) direct: Vec<VendorRun>,
    pub(super) through: Vec<VendorRun>,
    /// The error that ended the measurements, if one did.
    pub(super) failed: Option<String>,
}

/// The folder of both programs, if the environment names one that has them.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    ["ConsPerf", "ProvPerf"].iter().all(|name| folder.join(name).exists()).then_some(folder)
}

/// Runs the pair at a rate for `time`; with `through`, a server of ours is in between, with a cache if it is `true`.
fn run(
    folder: &Path,
    place: &Place,
    through: Option<bool>,
    items: usize,
    rate: u64,
    time: Duration,
) -> Result<VendorRun> {
    let work = working_folder(folder, place)?;
    let (mut publisher, mut port) = start_publisher(folder, &work, rate)?;
    let mut processes = vec![("ProvPerf".to_owned(), publisher.id())];
    let mut server = None;
    if let Some(cache) = through {
        let upstream = format!("kind = \"provider\"\nhosts = [\"127.0.0.1:{port}\"]");
        let (process, address) =
            chain::serve(place, "p2ps", cache, "timed-writes = true\n", &upstream, None)?;
        processes.push(("p2ps".to_owned(), process.id()));
        port = address.rsplit_once(':').context("the server's address has no port")?.1.to_owned();
        server = Some(process);
        // Until it has connected: ConsPerf does not wait for a service that appears later.
        interrupt::sleep(Duration::from_secs(1), || Ok(()))?;
    }
    let mut command = marked(folder.join("ConsPerf"), None)?;
    command.current_dir(&work).args(["-h", "127.0.0.1", "-p", &port, "-serviceName", "DIRECT_FEED"]);
    command.args(["-itemCount", &items.to_string()]);
    command.args(["-steadyStateTime", &(LOADING + time).as_secs().to_string()]);
    let mut client = Process::start("ConsPerf", command)?;
    processes.push(("ConsPerf".to_owned(), client.id()));
    let cpu = match measure_cpu(&mut publisher, &mut client, &processes, time) {
        Ok(cpu) => cpu,
        // ConsPerf ends by itself if its items are not loaded in time.
        Err(_) if client.has_succeeded() => Usage::default(),
        Err(why) => return Err(why),
    };
    let text = client.remaining_output(time + Duration::from_secs(30))?;
    publisher.check_alive()?;
    let output_end = client.last_lines();
    drop((client, server, publisher));
    let (run, loaded) = evaluate(&text, rate, items, cpu).with_context(|| format!("ConsPerf{output_end}"))?;
    progress(&format!(
        "sdk {}: {rate}/s: {}",
        if through.is_some() { "through p2ps" } else { "direct" },
        if loaded == items {
            format!("{:.0}/s arrived, mean {:.0} µs", run.output, run.latency[0])
        } else {
            format!("{loaded} of {items} images arrived")
        }
    ));
    Ok(run)
}

/// A folder with links to the files that the programs need.
fn working_folder(folder: &Path, place: &Place) -> Result<PathBuf> {
    let work = place.settings("stock", "")?.with_file_name("stock");
    std::fs::create_dir_all(&work).context("make a folder for the vendor's programs")?;
    for name in FILES {
        let link = work.join(name);
        if !link.exists() && folder.join(name).exists() {
            std::os::unix::fs::symlink(folder.join(name), link).context("link the vendor's files")?;
        }
    }
    Ok(work)
}

/// Starts ProvPerf and waits until it listens; returns its port.
fn start_publisher(folder: &Path, work: &Path, rate: u64) -> Result<(Process, String)> {
    let port = TcpListener::bind("127.0.0.1:0").context("find a free port")?.local_addr()?.port();
    let mut command = marked(folder.join("ProvPerf"), None)?;
    command.current_dir(work).args(["-p", &port.to_string(), "-serviceName", "DIRECT_FEED"]);
    command.args(["-updateRate", &rate.to_string(), "-latencyUpdateRate", "100", "-runTime", "3600"]);
    // It checks the clock after each burst of images; with the default of 10, a full load of updates leaves no time to
    // load.
    command.args(["-refreshBurstSize", "500"]);
    let mut publisher = Process::start("ProvPerf", command)?;
    wait_for(port, &mut publisher)?;
    Ok((publisher, port.to_string()))
}

/// CPU time of the processes after ConsPerf has loaded its items.
fn measure_cpu(
    publisher: &mut Process,
    client: &mut Process,
    processes: &[(String, u32)],
    time: Duration,
) -> Result<Usage> {
    let mut check = || publisher.check_alive().and_then(|()| client.check_alive());
    interrupt::sleep(LOADING, &mut check)?;
    let before = Reading::take(processes)?;
    interrupt::sleep(time.saturating_sub(Duration::from_millis(500)), &mut check)?;
    Ok(Reading::take(processes)?.since(&before))
}

/// The figures in the output of ConsPerf, and the number of loaded items.
fn evaluate(text: &str, rate: u64, items: usize, cpu: Usage) -> Result<(VendorRun, usize)> {
    let steady = text.split("Steady State Statistics").nth(1).unwrap_or_default();
    let steady = steady.split("Overall Statistics").next().unwrap_or_default();
    let loaded = figure(text.split("Test Statistics").nth(1).unwrap_or_default(), "Refreshes received");
    let loaded = loaded.unwrap_or(0.0) as usize;
    // An overloaded publisher never answers all requests: the rate counts as not kept.
    let is_loaded = loaded == items;
    let output = if is_loaded { figure(steady, "Avg update rate") } else { Some(0.0) };
    let output = output.context("it printed no update rate")?;
    let latency = ["Latency avg", "Latency std dev", "Latency min", "Latency max"]
        .map(|name| figure(steady, &format!("{name} (usec)")).unwrap_or(f64::NAN));
    let clean = is_loaded && output >= 0.99 * rate as f64;
    Ok((VendorRun { rate, output, latency, cpu, clean }, loaded))
}

/// The number after `name` in the output of a program.
fn figure(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    rest.trim_start_matches([':', ' ']).split_whitespace().next()?.parse().ok()
}

/// Waits until a program listens at a port, by the kernel's tables of sockets: it is not disturbed by a connection.
fn wait_for(port: u16, publisher: &mut Process) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    let listens =
        |socket: &TcpNetEntry| socket.local_address.port() == port && socket.state == TcpState::Listen;
    while !procfs::net::tcp()?.iter().chain(&procfs::net::tcp6()?).any(listens) {
        publisher.check_alive()?;
        ensure!(Instant::now() < end, "ProvPerf does not listen{}", publisher.last_lines());
        interrupt::sleep(Duration::from_millis(20), || Ok(()))?;
    }
    Ok(())
}

/// More rates at which the latency of the direct pair is plotted.
const DRAWN: [u64; 3] = [10_000, 500_000, 1_000_000];
/// Duration of each measurement in the search for the highest rate.
const TRY: Duration = Duration::from_secs(3);
const NEAR: f64 = 1.08;
const TRIES: usize = 7;

impl VendorPair {
    /// Runs all measurements.
    pub(super) fn run(options: &Options, folder: &Path) -> Self {
        let mut pair = Self::default();
        pair.failed = pair.measure(options, folder).err().map(|why| format!("{why:#}"));
        pair
    }

    fn measure(&mut self, options: &Options, folder: &Path) -> Result<()> {
        let place = Place::new(Backbone::None)?;
        let run = |through, rate, time| run(folder, &place, through, options.items, rate, time);
        let short = options.window().min(Duration::from_secs(5));
        for rate in latency::TARGET_RATES {
            for _ in 0..options.repeat() {
                self.latencies.push(run(None, rate, options.window())?);
            }
        }
        if !options.quick {
            for rate in DRAWN {
                self.latencies.push(run(None, rate, short)?);
            }
        }
        let highest =
            |through, guess| search::highest(guess, NEAR, TRIES, |rate| Ok(run(through, rate, TRY)?.clean));
        let mut rates = [highest(None, 2_000_000)?, highest(Some(false), 1_200_000)?];
        // In turn, so that both find the machine in the same state.
        for _ in 0..options.repeat() {
            for (through, rate) in [None, Some(false)].into_iter().zip(&mut rates) {
                let seen = if through.is_none() { &mut self.direct } else { &mut self.through };
                seen.push(loop {
                    ensure!(*rate > 1_000, "no rate arrives in full");
                    let seen = run(through, *rate, options.window())?;
                    if seen.clean {
                        break seen;
                    }
                    *rate = *rate * 24 / 25;
                });
            }
        }
        Ok(())
    }

    /// The mean latency of the direct pair at a rate, microseconds.
    pub(super) fn mean_us(&self, rate: u64) -> Option<f64> {
        let at = self.latencies.iter().filter(|run| run.rate == rate && run.clean);
        let means: Vec<f64> = at.map(|run| run.latency[0]).filter(|mean| mean.is_finite()).collect();
        (!means.is_empty()).then(|| median(means))
    }

    /// The highest rates: directly, through p2ps.
    pub(super) fn rates(&self) -> Option<(Spread, Spread)> {
        let of = |runs: &[VendorRun]| -> Option<Spread> {
            let rates = runs.iter().map(|run| run.output);
            (!runs.is_empty()).then(|| rates.collect())
        };
        Some((of(&self.direct)?, of(&self.through)?))
    }

    /// The mean latency of the direct pair against rate.
    pub(super) fn curve(&self) -> Curve {
        let mut rates: Vec<u64> = self.latencies.iter().map(|run| run.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let points = rates.into_iter().filter_map(|rate| Some((rate as f64, self.mean_us(rate)?))).collect();
        Curve { label: "mean, the vendor's pair directly".into(), points, ..Curve::default() }
    }

    pub(super) fn json(&self) -> Value {
        let each = |runs: &[VendorRun]| runs.iter().map(VendorRun::json).collect::<Value>();
        json!({
            "test": "sdk", "latency_direct": each(&self.latencies), "highest_direct": each(&self.direct),
            "highest_through_p2ps": each(&self.through), "failed": self.failed,
        })
    }
}

impl VendorRun {
    fn json(&self) -> Value {
        let [mean, stddev, min, max] = self.latency;
        json!({
            "rate": self.rate, "out_per_s": self.output, "clean": self.clean,
            "latency_us": { "mean": mean, "stddev": stddev, "min": min, "max": max },
            "cpu": self.cpu.json(),
        })
    }

    /// Nanoseconds of CPU time that each program uses for an update.
    pub(super) fn costs(&self) -> String {
        let updates = self.output * self.cpu.elapsed.as_secs_f64();
        let each = |(name, used): &(String, f64)| format!("{name} {:.0}", used * 1e9 / updates);
        self.cpu.components().iter().map(each).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_output_of_consperf() {
        let text = "Steady State Statistics:\n  Latency avg (usec): 64.100\n  Avg update rate: 99624\n";
        assert_eq!(figure(text, "Latency avg (usec)"), Some(64.1));
        assert_eq!(figure(text, "Avg update rate"), Some(99_624.0));
        assert_eq!(figure(text, "Latency max (usec)"), None);
    }

    #[test]
    fn medians_count_clean_runs_only() {
        let run = |rate, mean, clean| VendorRun {
            rate,
            output: rate as f64,
            latency: [mean, 0.0, 0.0, 0.0],
            cpu: Usage::default(),
            clean,
        };
        let pair = VendorPair {
            latencies: vec![
                run(1_000, 60.0, true),
                run(1_000, 20.0, true),
                run(1_000, 70.0, true),
                run(5_000, 1.0, false),
            ],
            direct: vec![run(3_000_000, 80.0, true)],
            ..VendorPair::default()
        };
        assert_eq!((pair.mean_us(1_000), pair.mean_us(5_000)), (Some(60.0), None));
        assert!(pair.rates().is_none() && pair.curve().points.len() == 1);
    }
}
