//! One run of ProvPerf and ConsPerf, with programs of ours in between or without.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::net::{TcpNetEntry, TcpState};
use serde_json::{Value, json};
use utipc_bench_kit::cpu::{Reading, Usage};
use utipc_bench_kit::interrupt;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::progress;

use crate::between::Between;
use crate::chain;
use crate::place::{Place, marked};

/// The environment variable that names their folder.
pub(crate) const FOLDER: &str = "UTIPC_RTSDK_BIN";
/// Files that they need in their working directory.
const FILES: [&str; 4] = ["RDMFieldDictionary", "enumtype.def", "MsgData.xml", "350k.xml"];
/// Updates per second that carry their send time, if the rate is not lower.
const STAMPS: u64 = 1_000;

/// The folder of both programs, if the environment names one that has them.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    ["ConsPerf", "ProvPerf"].iter().all(|name| folder.join(name).exists()).then_some(folder)
}

/// The terms of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) between: Between,
    /// Whether our programs have caches.
    pub(crate) cache: bool,
    /// Whether they send output at once; otherwise it is gathered for up to 20 ms.
    pub(crate) prompt: bool,
    pub(crate) items: usize,
    pub(crate) rate: u64,
    /// Time in which ConsPerf loads all items.
    pub(crate) loading: Duration,
    /// Time of the measurement after that.
    pub(crate) time: Duration,
}

/// The figures of ConsPerf, and CPU time measured meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct VendorRun {
    pub(crate) rate: u64,
    pub(crate) output: f64,
    /// Images that arrived, and the seconds from the first request until all had arrived.
    pub(crate) loaded: usize,
    pub(crate) images_s: Option<f64>,
    /// Microseconds from when an update was made (not when it was due): mean, deviation, shortest, longest.
    pub(crate) latency: [f64; 4],
    /// The 99.9th percentile of the same, once all items were loaded.
    pub(crate) p999: f64,
    pub(crate) cpu: Usage,
    pub(crate) clean: bool,
}

impl VendorRun {
    pub(crate) fn json(&self) -> Value {
        let [mean, stddev, min, max] = self.latency;
        json!({
            "rate": self.rate, "out_per_s": self.output, "clean": self.clean,
            "images": self.loaded, "images_s": self.images_s,
            "latency_us": { "mean": mean, "stddev": stddev, "min": min, "max": max, "p999": self.p999 },
            "cpu": self.cpu.json(),
        })
    }

    /// Nanoseconds of CPU time that each program uses for an update.
    pub(crate) fn costs(&self) -> String {
        let updates = self.output * self.cpu.elapsed.as_secs_f64();
        let each = |(name, used): &(String, f64)| format!("{name} {:.0}", used * 1e9 / updates);
        self.cpu.components().iter().map(each).collect::<Vec<_>>().join(", ")
    }
}

/// Runs the pair.
pub(crate) fn run(folder: &Path, place: &Place, job: &Job) -> Result<VendorRun> {
    let work = working_folder(folder, place)?;
    let (mut publisher, port) = start_publisher(folder, &work, job.rate)?;
    let provider = format!("127.0.0.1:{port}");
    let (servers, address) = chain::serve_between(place, job.between, job.cache, job.prompt, &provider)?;
    if job.between != Between::Nothing {
        // Until they have connected: ConsPerf does not wait for a service that appears later.
        interrupt::sleep(Duration::from_secs(2), || Ok(()))?;
    }
    let port = address.rsplit_once(':').context("the server's address has no port")?.1;
    let mut client = start_client(folder, &work, port, job)?;
    let named = |process: &Process| (process.name.clone(), process.id());
    let ours = servers.iter().map(named).chain(place.daemons());
    let processes: Vec<_> = [named(&publisher), named(&client)].into_iter().chain(ours).collect();
    let cpu = match measure_cpu(&mut publisher, &mut client, &processes, job) {
        Ok(cpu) => cpu,
        // ConsPerf ends by itself if its items are not loaded in time.
        Err(_) if client.has_succeeded() => Usage::default(),
        Err(why) => return Err(why),
    };
    let text = client.remaining_output(job.time + Duration::from_secs(30))?;
    publisher.check_alive()?;
    let output_end = client.last_lines();
    drop((client, servers, publisher));
    let latencies = std::fs::read_to_string(work.join("latency1.csv")).unwrap_or_default();
    let run = evaluate(&text, &latencies, job, cpu).with_context(|| format!("ConsPerf{output_end}"))?;
    progress(&format!("sdk {}: {}/s: {}", job.between.name(), job.rate, outcome(&run, job)));
    Ok(run)
}

fn outcome(run: &VendorRun, job: &Job) -> String {
    let Some(seconds) = run.images_s.filter(|_| run.loaded == job.items) else {
        let within = (job.loading + job.time).as_secs();
        return format!("{} of {} images arrived within {within} s", run.loaded, job.items);
    };
    let [mean, ..] = run.latency;
    format!(
        "all images after {seconds:.2} s, then {:.0}/s, mean {mean:.0} µs, p99.9 {:.0} µs",
        run.output, run.p999
    )
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
fn start_publisher(folder: &Path, work: &Path, rate: u64) -> Result<(Process, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").context("find a free port")?.local_addr()?.port();
    let mut command = marked(folder.join("ProvPerf"), None)?;
    command.current_dir(work).args(["-p", &port.to_string(), "-serviceName", "DIRECT_FEED"]);
    let stamps = STAMPS.min(rate).to_string();
    command.args(["-updateRate", &rate.to_string(), "-latencyUpdateRate", &stamps, "-runTime", "3600"]);
    // It checks the clock after each burst of images; with the default of 10, a full load of updates leaves no time to
    // load.
    command.args(["-refreshBurstSize", "500"]);
    let mut publisher = Process::start("ProvPerf", command)?;
    wait_for(port, &mut publisher)?;
    Ok((publisher, port))
}

/// Starts ConsPerf, which requests its items at once.
fn start_client(folder: &Path, work: &Path, port: &str, job: &Job) -> Result<Process> {
    let mut command = marked(folder.join("ConsPerf"), None)?;
    command.current_dir(work).args(["-h", "127.0.0.1", "-p", port, "-serviceName", "DIRECT_FEED"]);
    command.args(["-itemCount", &job.items.to_string(), "-latencyFile", "latency"]);
    command.args(["-steadyStateTime", &(job.loading + job.time).as_secs().to_string()]);
    Process::start("ConsPerf", command)
}

/// CPU time of the processes after ConsPerf has loaded its items.
fn measure_cpu(
    publisher: &mut Process,
    client: &mut Process,
    processes: &[(String, u32)],
    job: &Job,
) -> Result<Usage> {
    let mut check = || publisher.check_alive().and_then(|()| client.check_alive());
    interrupt::sleep(job.loading, &mut check)?;
    let before = Reading::take(processes)?;
    interrupt::sleep(job.time.saturating_sub(Duration::from_millis(500)), &mut check)?;
    Ok(Reading::take(processes)?.since(&before))
}

/// The figures in the output of ConsPerf.
fn evaluate(text: &str, latencies: &str, job: &Job, cpu: Usage) -> Result<VendorRun> {
    let steady = text.split("Steady State Statistics").nth(1).unwrap_or_default();
    let steady = steady.split("Overall Statistics").next().unwrap_or_default();
    let totals = text.split("Test Statistics").nth(1).unwrap_or_default();
    let loaded = figure(totals, "Refreshes received").unwrap_or(0.0) as usize;
    // An overloaded publisher never answers all requests: the rate counts as not kept.
    let is_loaded = loaded == job.items;
    let images_s = figure(totals, "Image retrieval time (sec)").filter(|_| is_loaded);
    let output = if is_loaded { figure(steady, "Avg update rate") } else { Some(0.0) };
    let output = output.context("it printed no update rate")?;
    let latency = ["Latency avg", "Latency std dev", "Latency min", "Latency max"]
        .map(|name| figure(steady, &format!("{name} (usec)")).unwrap_or(f64::NAN));
    let clean = is_loaded && output >= 0.99 * job.rate as f64;
    let p999 = percentile_999(latencies, job.loading);
    Ok(VendorRun { rate: job.rate, output, loaded, images_s, latency, p999, cpu, clean })
}

/// The 99.9th percentile of the latencies that ConsPerf has written, without those of the time in which it loads.
fn percentile_999(lines: &str, loading: Duration) -> f64 {
    let mut records = lines.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("Upd,")?.split(',').map(|cell| cell.trim().parse::<u64>());
        let (_sent, received, took) = (cells.next()?, cells.next()?.ok()?, cells.next()?.ok()?);
        Some((received, took))
    });
    let Some(first) = records.next() else { return f64::NAN };
    let from = first.0 + u64::try_from(loading.as_micros()).unwrap_or(u64::MAX);
    let mut all: Vec<u64> = records.filter(|record| record.0 >= from).map(|record| record.1).collect();
    all.sort_unstable();
    let place = (all.len() * 999).div_ceil(1_000).saturating_sub(1);
    all.get(place).map_or(f64::NAN, |took| *took as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job {
        between: Between::Chain,
        cache: true,
        prompt: false,
        items: 1_000,
        rate: 100_000,
        loading: Duration::from_secs(3),
        time: Duration::from_secs(10),
    };

    #[test]
    fn figures_are_read_from_the_output_of_consperf() {
        let text = "Steady State Statistics:\n  Latency avg (usec): 64.100\n  Avg update rate: 99624\n\
                    Overall Statistics:\nTest Statistics:\n  Refreshes received: 1000\n  Updates received: 7\n\
                    Image retrieval time (sec): 0.250\n";
        assert_eq!(figure(text, "Latency avg (usec)"), Some(64.1));
        assert_eq!(figure(text, "Latency max (usec)"), None);
        let run = evaluate(text, "", &JOB, Usage::default()).unwrap();
        assert!(run.clean && (run.loaded, run.images_s) == (1_000, Some(0.25)), "{run:?}");
        let few = Job { items: 1_001, ..JOB };
        let run = evaluate(text, "", &few, Usage::default()).unwrap();
        assert!(!run.clean && (run.loaded, run.images_s) == (1_000, None), "{run:?}");
        assert!(outcome(&run, &few).starts_with("1000 of 1001 images arrived within 13 s"));
    }

    #[test]
    fn percentile_leaves_out_the_time_of_loading() {
        let mut text = String::from("Message type, Send time, Receive time, Latency (usec)\n");
        for number in 0..2_000_u64 {
            let at = 5_000_000 + number * 1_000;
            let took = if number < 1_000 { 90_000 } else { number - 999 };
            text += &format!("Upd, {}, {at}, {took}\n", at - took);
        }
        let second = Duration::from_secs(1);
        assert!((percentile_999(&text, second) - 999.0).abs() < 1e-9, "{}", percentile_999(&text, second));
        assert!(percentile_999("", second).is_nan());
    }
}
