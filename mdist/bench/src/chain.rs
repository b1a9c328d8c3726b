//! The programs of a test: publisher, distributor, servers and clients, connected to each other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mdist_load::items::Shares;
use serde_json::{Value, json};
use utipc_bench_kit::cpu::{Reading, Usage};
use utipc_bench_kit::interrupt;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::stats::Summary;

use super::between::Between;
use super::place::{Place, Side};

/// The programs of a test and their settings.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whether the distributor has a cache; `None`: no distributor, the server connects to the publisher.
    pub(super) distributor: Option<bool>,
    /// Whether the server has a cache; `None`: no server, clients connect to the publisher.
    pub(super) server: Option<bool>,
    /// Whether the POP has a cache; `None`: no POP.
    pub(super) pop: Option<bool>,
    /// Address of a foreign server, which the test does not start.
    pub(super) foreign: Option<String>,
    pub(super) mounts: usize,
    /// Items of a single mount.
    pub(super) items: usize,
    /// Number of items that each of many mounts alone opens ("producer 50/50").
    pub(super) own: usize,
    /// Whether output is sent at once and clients decode every field, as in the latency tests of the report.
    /// Otherwise output is collected for up to 20 ms, as in its throughput tests.
    pub(super) prompt: bool,
    /// Whether the thread that reads the feed of the server polls without a pause.
    pub(super) busy: bool,
    /// Updates per second that carry their send time.
    pub(super) stamps: u64,
    /// Name of the service.
    pub(super) service: String,
    /// Address at which the publisher listens; `None`: no publisher, the foreign server has data of its own.
    pub(super) source: Option<String>,
    /// A file with settings for our programs; they override those of the test.
    pub(super) settings: Option<PathBuf>,
    /// Updates per second that the publisher makes while clients load their items.
    pub(super) loading_rate: u64,
    /// Time limit for loading the items.
    pub(super) load_time: Duration,
}

/// Settings of the distributor and of servers: with `prompt` output is sent at once.
fn flushing(prompt: bool) -> (&'static str, &'static str) {
    if prompt {
        ("flush-interval-ms = 0\n", "timed-writes = false\n")
    } else {
        ("flush-interval-ms = 20\n", "timed-writes = true\nflush-interval-ms = 20\n")
    }
}

impl Plan {
    pub(super) fn shares(&self) -> Shares {
        if self.mounts == 1 { Shares::one(self.items) } else { Shares::half(self.mounts, self.own) }
    }
}

/// The running programs. Dropped: they end, clients first.
pub(super) struct Chain {
    client: Process,
    servers: Vec<Process>,
    publisher: Option<Process>,
    fan_out: f64,
    load_time: Duration,
    /// The counts of the client once it was loaded.
    loaded: Value,
}

/// The counts of a period at one rate.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) rate: u64,
    /// Updates per second that the publisher made, and that all clients received.
    pub(super) input: f64,
    pub(super) output: f64,
    /// Expected output updates for each input update.
    pub(super) fan_out: f64,
    /// Updates that never arrived, by the totals after the last one has arrived.
    pub(super) lost: i64,
    /// Updates that the publisher made too late.
    pub(super) missed: u64,
    /// Gaps, disconnects, suspect items and other faults, as text.
    pub(super) faults: Vec<String>,
    pub(super) cpu: Usage,
    pub(super) latency: Summary,
}

impl Window {
    /// Whether no update was lost.
    pub(super) fn is_whole(&self) -> bool {
        self.lost == 0 && self.faults.is_empty()
    }

    /// Whether no update was lost and the rate was kept.
    pub(super) fn is_clean(&self) -> bool {
        self.is_whole()
            && self.missed == 0
            && self.input >= 0.99 * self.rate as f64
            && self.output >= 0.98 * self.input * self.fan_out
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "rate": self.rate, "in_per_s": self.input, "out_per_s": self.output, "lost": self.lost,
            "latency_us": self.latency, "cpu": self.cpu.json(),
        })
    }

    /// Reason why the window is not clean, as text.
    pub(super) fn problems(&self) -> String {
        let mut all = self.faults.clone();
        if self.lost != 0 {
            all.push(format!("{} of the updates are lost", self.lost));
        }
        if !self.is_clean() {
            all.push(format!(
                "{:.0}/s in and {:.0}/s out of {} wanted, {} made too late",
                self.input, self.output, self.rate, self.missed
            ));
        }
        all.join(", ")
    }
}

#[cfg(test)]
impl Window {
    /// A second at a rate that was kept.
    pub(super) fn lossless(rate: u64) -> Self {
        Self {
            rate,
            input: rate as f64,
            output: rate as f64,
            fan_out: 1.0,
            lost: 0,
            missed: 0,
            faults: Vec::new(),
            cpu: Usage { elapsed: Duration::from_secs(1), ..Usage::default() },
            latency: Summary::default(),
        }
    }
}

/// The counts of publisher and clients at one moment.
pub(super) struct Counts {
    at: Instant,
    pub(super) publisher: Value,
    pub(super) client: Value,
}

fn number(value: &Value, name: &str) -> u64 {
    value["counts"][name].as_u64().unwrap_or(0)
}

/// Counts of the client that make a window unclean.
const FAULTS: [&str; 8] =
    ["gaps", "backwards", "early", "unknown", "suspect", "closed", "closed_recover", "cuts"];
/// Time limit for loading the item streams, unless a plan has another one.
pub(super) const LOAD_TIME: Duration = Duration::from_secs(120);
/// Time in which the programs of a chain find each other.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest time without progress at a foreign server.
const STANDSTILL: Duration = Duration::from_secs(15);
/// Time limit for updates that arrive after the publisher has stopped.
const REST_TIME: Duration = Duration::from_secs(60);

impl Chain {
    pub(super) fn start(place: &Place, plan: &Plan) -> Result<Self> {
        let (mut publisher, mut at) = (None, String::new());
        if let Some(source) = &plan.source {
            let (process, address) = start_publisher(place, plan, source)?;
            (publisher, at) = (Some(process), address);
        }
        let mut servers = Vec::new();
        let (flush, writes) = flushing(plan.prompt);
        let more = plan.settings.as_deref();
        if let Some(cache) = plan.distributor {
            servers.push(distribute(place, cache, flush, &at, more)?);
        }
        if let Some(cache) = plan.server {
            let mut upstream = match plan.distributor {
                Some(_) => "kind = \"backbone\"".to_owned(),
                None => format!("kind = \"provider\"\nhosts = [\"{at}\"]"),
            };
            if plan.busy {
                upstream += "\n[threads.feed]\nbusy-poll = true";
            }
            if plan.distributor.is_some() {
                upstream = format!("{upstream}\n{}", place.node_settings(Side::Sink));
            }
            let (server, address) = serve(place, "p2ps", cache, writes, &upstream, more)?;
            servers.push(server);
            at = address;
        }
        if let Some(cache) = plan.pop {
            let upstream = format!("kind = \"p2ps\"\nhosts = [\"{at}\"]");
            let (server, address) = serve(place, "pop", cache, writes, &upstream, more)?;
            servers.push(server);
            at = address;
        }
        if plan.loading_rate > 0 {
            // The load begins when all programs have found each other.
            interrupt::sleep(SETTLE, || Ok(()))?;
        }
        let client = start_clients(place, plan.foreign.as_ref().unwrap_or(&at), plan)?;
        let fan_out = plan.shares().fan_out();
        let load_time = plan.load_time;
        let mut chain = Self { client, servers, publisher, fan_out, load_time, loaded: Value::Null };
        chain.loaded = chain.wait_until_loaded().with_context(|| match plan.source {
            Some(_) => "load the item streams".to_owned(),
            None => format!(
                "load the item streams (check its address, that its service is {} (--service) and that it \
                 accepts {} clients (--mounts))",
                plan.service, plan.mounts
            ),
        })?;
        Ok(chain)
    }

    /// Our programs.
    fn programs(&mut self) -> impl Iterator<Item = &mut Process> {
        self.publisher.iter_mut().chain([&mut self.client]).chain(&mut self.servers)
    }

    /// Fails if one of the programs has ended.
    fn check_alive(&mut self) -> Result<()> {
        self.programs().try_for_each(Process::check_alive)
    }

    /// (name, process id) of all programs and daemons.
    pub(super) fn processes(&mut self, place: &Place) -> Vec<(String, u32)> {
        self.programs().map(|process| (process.name.clone(), process.id())).chain(place.daemons()).collect()
    }

    /// Item streams that the clients have loaded.
    pub(super) fn streams(&self) -> u64 {
        self.loaded["loaded"].as_u64().unwrap_or(0)
    }

    /// Seconds from the start until all item streams were loaded.
    pub(super) fn startup_s(&self) -> f64 {
        self.loaded["startup_s"].as_f64().unwrap_or(0.0)
    }

    /// Waits until every item stream is loaded; returns the counts of the client.
    fn wait_until_loaded(&mut self) -> Result<Value> {
        let began = Instant::now();
        let limit = self.load_time;
        let standstill = if self.publisher.is_some() { limit } else { STANDSTILL };
        let (mut loaded, mut progress) = (Value::Null, began);
        loop {
            self.check_alive()?;
            let seen = self.client.request("counts")?;
            if is_loaded(&seen) {
                return Ok(seen);
            }
            if seen["loaded"] != loaded {
                (loaded, progress) = (seen["loaded"].clone(), Instant::now());
            }
            ensure!(
                progress.elapsed() < standstill && began.elapsed() < limit,
                "{}",
                not_loaded(&seen, began.elapsed())
            );
            interrupt::sleep(Duration::from_millis(50), || Ok(()))?;
        }
    }

    /// Sets the rate of the publisher.
    pub(super) fn publish(&mut self, rate: u64) -> Result<()> {
        let publisher = self.publisher.as_mut();
        publisher.map_or(Ok(()), |publisher| publisher.request(&format!("rate {rate}")).map(drop))
    }

    pub(super) fn counts(&mut self) -> Result<Counts> {
        let publisher = self.publisher.as_mut().map(|publisher| publisher.request("counts"));
        let publisher = publisher.transpose()?.unwrap_or_default();
        let client = self.client.request("counts")?;
        Ok(Counts { at: Instant::now(), publisher, client })
    }

    /// Begins a measurement of latencies.
    pub(super) fn mark(&mut self) -> Result<()> {
        self.client.request("mark").map(drop)
    }

    /// The latencies since [`Chain::mark`].
    pub(super) fn latency(&mut self) -> Result<Summary> {
        let seen = self.client.request("counts")?;
        let latency: Summary = serde_json::from_value(seen["latency_us"].clone()).context("latencies")?;
        ensure!(latency.points > 0, "no update carried its send time");
        Ok(latency)
    }

    /// Stops the publisher, which finishes a round over its items, and waits until no more updates arrive.
    pub(super) fn stop(&mut self) -> Result<Counts> {
        if self.publisher.is_none() {
            return self.counts();
        }
        self.publish(0)?;
        let end = Instant::now() + REST_TIME;
        let mut last = (0, 0);
        loop {
            interrupt::sleep(Duration::from_millis(150), || Ok(()))?;
            let counts = self.counts()?;
            let now = (number(&counts.publisher, "updates"), number(&counts.client, "updates"));
            if now == last {
                return Ok(counts);
            }
            ensure!(
                Instant::now() < end,
                "updates still arrive {REST_TIME:?} after the publisher has stopped"
            );
            last = now;
        }
    }

    /// Measures at `rate` for `time`, after `warm_up`. The publisher is stopped before and after; without one, losses
    /// cannot be detected.
    pub(super) fn measure(
        &mut self,
        place: &Place,
        rate: u64,
        warm_up: Duration,
        time: Duration,
    ) -> Result<Window> {
        self.wait_until_loaded()?;
        let idle = self.counts()?;
        let processes = self.processes(place);
        self.publish(rate)?;
        interrupt::sleep(warm_up, || Ok(()))?;
        self.mark()?;
        let (before, cpu) = (self.counts()?, Reading::take(&processes)?);
        interrupt::sleep(time, || self.check_alive().and_then(|()| place.check_alive()))?;
        let (after, cpu) = (self.counts()?, Reading::take(&processes)?.since(&cpu));
        let done = self.stop()?;

        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let made = grown(&idle.publisher, &done.publisher, "updates") as f64 * self.fan_out;
        let arrived = grown(&idle.client, &done.client, "updates");
        let lost = made.round() as i64 - i64::try_from(arrived).unwrap_or(i64::MAX);
        Ok(Window {
            rate,
            input: grown(&before.publisher, &after.publisher, "updates") as f64 / seconds,
            output: grown(&before.client, &after.client, "updates") as f64 / seconds,
            fan_out: self.fan_out,
            lost: if self.publisher.is_some() { lost } else { 0 },
            missed: grown(&idle.publisher, &done.publisher, "missed"),
            faults: faults(&idle.client, &done.client),
            cpu,
            latency: serde_json::from_value(after.client["latency_us"].clone()).unwrap_or_default(),
        })
    }
}

/// Whether all requested item streams are loaded.
pub(super) fn is_loaded(seen: &Value) -> bool {
    seen["loaded"] == seen["wanted"] && seen["wanted"].as_u64() > Some(0)
}

/// An error message for a client that is not loaded.
fn not_loaded(seen: &Value, after: Duration) -> String {
    let counts = seen["counts"].as_object().into_iter().flatten();
    let counts: Vec<String> = counts
        .filter(|(_, count)| count.as_u64() > Some(0))
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    format!(
        "{} of {} items are loaded after {:.0} s: {}; {}",
        seen["loaded"],
        seen["wanted"],
        after.as_secs_f64(),
        counts.join(", "),
        seen["cut"]
    )
}

/// The faults of the client between two counts, as text.
pub(super) fn faults(before: &Value, after: &Value) -> Vec<String> {
    FAULTS
        .iter()
        .map(|name| (*name, grown(before, after, name)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .chain(after["cut"].as_array().into_iter().flatten().map(Value::to_string))
        .collect()
}

/// The growth of a count.
pub(super) fn grown(before: &Value, after: &Value, name: &str) -> u64 {
    number(after, name).saturating_sub(number(before, name))
}

/// Starts the publisher of a plan; returns it and its address.
fn start_publisher(place: &Place, plan: &Plan, source: &str) -> Result<(Process, String)> {
    let (host, port) = source
        .rsplit_once(':')
        .context("the address of the publisher has no port (--source ADDRESS:PORT)")?;
    let mut command = place.command(Side::Source, "sink_driven_src")?;
    command.args(["--control", "--nano-time", "--address", host, "--port", port]);
    command.args(["--update-rate", &plan.loading_rate.to_string()]);
    command.args(["--latency-update-rate", &plan.stamps.to_string()]);
    let mut publisher = Process::start("sink_driven_src", command)?;
    let greeting = publisher.line()?;
    let listening: Value = serde_json::from_str(&greeting).with_context(|| greeting.clone())?;
    let at = listening["listening"].as_str().context("the publisher has not printed its address")?;
    Ok((publisher, at.to_owned()))
}

/// Starts the clients of a plan, connected `to` a server.
pub(super) fn start_clients(place: &Place, to: &str, plan: &Plan) -> Result<Process> {
    let (host, port) = to.rsplit_once(':').unwrap_or((to, "14002"));
    let mut command = place.command(Side::Sink, "rmdstestclient")?;
    command.args(["--control", "--host", host, "--port", port, "--service", &plan.service]);
    if plan.source.is_some() {
        // An unknown publisher has no counts to check, and its times are in microseconds, as in the vendor's tools.
        command.args(["--check", "--nano-time"]);
    }
    command.args(["--mounts", &plan.mounts.to_string(), "--item-count", &plan.items.to_string()]);
    if plan.mounts > 1 {
        command.args(["--half", &plan.own.to_string()]);
    }
    if plan.prompt {
        command.arg("--decode");
    }
    Process::start("rmdstestclient", command)
}

fn start(
    place: &Place,
    side: Side,
    program: &str,
    name: &str,
    settings: &str,
    more: Option<&Path>,
) -> Result<Process> {
    let file = place.settings(name, settings)?;
    let mut command = place.command(side, program)?;
    // Clients that connect and disconnect are normal in a test: log warnings only.
    command.env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into()));
    command.arg("--config").arg(file);
    if let Some(more) = more {
        command.arg("--config").arg(more);
    }
    Process::start(name, command)
}

/// Starts a distributor that connects to the provider `at`.
fn distribute(place: &Place, cache: bool, flush: &str, at: &str, more: Option<&Path>) -> Result<Process> {
    let text = format!(
        "[src-dist]\nlisten = [\"127.0.0.1:0\"]\n[[src-dist.provider]]\nhosts = [\"{at}\"]\n\
         [src-dist.defaults]\ncache = {cache}\n{flush}{}",
        place.node_settings(Side::Source)
    );
    start(place, Side::Source, "src_dist", "src_dist", &text, more)
}

/// Starts our programs between a foreign publisher at `provider` and its consumers; returns them and the address for
/// consumers.
pub(super) fn serve_between(
    place: &Place,
    between: Between,
    cache: bool,
    prompt: bool,
    provider: &str,
) -> Result<(Vec<Process>, String)> {
    let (flush, writes) = flushing(prompt);
    let (mut servers, upstream) = match between {
        Between::Nothing => return Ok((Vec::new(), provider.to_owned())),
        Between::P2ps => (Vec::new(), format!("kind = \"provider\"\nhosts = [\"{provider}\"]")),
        Between::Chain => {
            let upstream = format!("kind = \"backbone\"\n{}", place.node_settings(Side::Sink));
            (vec![distribute(place, cache, flush, provider, None)?], upstream)
        }
    };
    let (server, address) = serve(place, "p2ps", cache, writes, &upstream, None)?;
    servers.push(server);
    Ok((servers, address))
}

/// Starts a server; returns it and its address.
pub(super) fn serve(
    place: &Place,
    name: &str,
    cache: bool,
    writes: &str,
    upstream: &str,
    more: Option<&Path>,
) -> Result<(Process, String)> {
    let text = format!(
        "[p2ps]\nlisten = [\"127.0.0.1:0\"]\ncache = {cache}\n{writes}[[p2ps.upstream]]\n{upstream}\n"
    );
    let mut server = start(place, Side::Sink, "p2ps", name, &text, more)?;
    let address = server.word_after(" at ")?;
    Ok((server, address))
}
