//! The programs of one test, joined: publisher, distributor, servers, clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::child::Process;
use super::cpu::{Reading, Table};
use super::interrupt;
use super::place::{Place, Side};
use mdist_load::items::Shares;
use mdist_load::stats::Summary;

/// What a test is made of.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The distributor's cache; `None`: there is no distributor, the server dials the publisher.
    pub(super) distributor: Option<bool>,
    /// The server's cache; `None`: no server, clients dial the publisher.
    pub(super) server: Option<bool>,
    /// The POP's cache; `None`: no POP.
    pub(super) pop: Option<bool>,
    /// A server that is not ours; the publisher listens where it dials.
    pub(super) foreign: Option<String>,
    pub(super) mounts: usize,
    /// Item streams of a single mount.
    pub(super) items: usize,
    /// Items of its own for each of many mounts ("producer 50/50").
    pub(super) own: usize,
    /// What the report had for its latency tests: everything is sent at once, every field is looked at. Otherwise what it had
    /// for throughput: output is gathered for up to 20 ms.
    pub(super) prompt: bool,
    /// The thread on which the server reads its feed looks for work without a pause.
    pub(super) busy: bool,
    /// Updates a second that have the time in them.
    pub(super) stamps: u64,
    /// The service's name.
    pub(super) service: String,
    /// Where the publisher listens.
    pub(super) source: String,
    /// More settings for our programs: a file that goes before what the test sets.
    pub(super) settings: Option<PathBuf>,
}

impl Plan {
    /// Settings that the kind of test asks for, of the distributor and of servers.
    fn flushing(&self) -> (&'static str, &'static str) {
        if self.prompt {
            ("flush-interval-ms = 0\n", "timed-writes = false\n")
        } else {
            ("flush-interval-ms = 20\n", "timed-writes = true\nflush-interval-ms = 20\n")
        }
    }

    pub(super) fn shares(&self) -> Shares {
        if self.mounts == 1 { Shares::one(self.items) } else { Shares::half(self.mounts, self.own) }
    }
}

/// The running programs. Dropped: they end, clients first.
pub(super) struct Chain {
    client: Process,
    servers: Vec<Process>,
    publisher: Process,
    fan_out: f64,
    startup_s: f64,
}

/// What was counted over some time at one rate.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) rate: u64,
    /// Updates a second made by the publisher, and received by all clients.
    pub(super) input: f64,
    pub(super) output: f64,
    /// Output updates that each input update should become.
    pub(super) fan_out: f64,
    /// Updates that never came, from the totals once everything is quiet.
    pub(super) lost: i64,
    /// Updates that the publisher could not send in time.
    pub(super) missed: u64,
    /// Gaps, cuts, stale items and the like, in words.
    pub(super) faults: Vec<String>,
    pub(super) cpu: Table,
    pub(super) latency: Summary,
}

impl Window {
    /// Nothing was lost on the way, late or not.
    pub(super) fn is_whole(&self) -> bool {
        self.lost == 0 && self.faults.is_empty()
    }

    /// Nothing was lost, and the rate was kept.
    pub(super) fn is_clean(&self) -> bool {
        self.is_whole()
            && self.missed == 0
            && self.input >= 0.99 * self.rate as f64
            && self.output >= 0.98 * self.input * self.fan_out
    }

    /// What was not clean, in words.
    pub(super) fn why(&self) -> String {
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

/// Counts of both ends at one moment.
struct Counts {
    at: Instant,
    publisher: Value,
    client: Value,
}

fn number(value: &Value, name: &str) -> u64 {
    value["counts"][name].as_u64().unwrap_or(0)
}

/// What makes a rate unclean, by its name among the client's counts.
const FAULTS: [&str; 8] =
    ["gaps", "backwards", "early", "unknown", "suspect", "closed", "closed_recover", "cuts"];
/// How long all item streams may take to load.
pub(super) const LOAD_TIME: Duration = Duration::from_secs(120);
/// How long updates may still come once the publisher rests.
const REST_TIME: Duration = Duration::from_secs(60);

impl Chain {
    pub(super) fn start(place: &Place, plan: &Plan) -> Result<Self> {
        let mut command = place.command(Side::Source, "sink_driven_src")?;
        let (host, port) = plan.source.rsplit_once(':').context("the publisher's address has no port")?;
        command.args(["--control", "--update-rate", "0", "--nano-time", "--address", host, "--port", port]);
        command.args(["--latency-update-rate", &plan.stamps.to_string()]);
        let mut publisher = Process::start("sink_driven_src", command)?;
        let greeting = publisher.line()?;
        let listening: Value = serde_json::from_str(&greeting).with_context(|| greeting.clone())?;
        let mut at = listening["listening"]
            .as_str()
            .context("the publisher does not say where it listens")?
            .to_owned();

        let mut servers = Vec::new();
        let (flush, writes) = plan.flushing();
        let more = plan.settings.as_deref();
        if let Some(cache) = plan.distributor {
            let text = format!(
                "[src-dist]\nlisten = [\"127.0.0.1:0\"]\n[[src-dist.provider]]\nhosts = [\"{at}\"]\n\
                 [src-dist.defaults]\ncache = {cache}\n{flush}{}",
                place.node(Side::Source)
            );
            servers.push(start(place, Side::Source, "src_dist", "src_dist", &text, more)?);
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
                upstream = format!("{upstream}\n{}", place.node(Side::Sink));
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
        if let Some(foreign) = &plan.foreign {
            at = foreign.clone();
        }
        let client = clients(place, &at, plan, &["--check", "--nano-time"])?;
        let fan_out = plan.shares().fan_out();
        let mut chain = Self { client, servers, publisher, fan_out, startup_s: 0.0 };
        let seen = chain.loaded()?;
        chain.startup_s = seen["startup_s"].as_f64().unwrap_or(0.0);
        Ok(chain)
    }

    /// An error if one of the programs has ended.
    fn alive(&mut self) -> Result<()> {
        let own = [&mut self.publisher, &mut self.client].into_iter().chain(&mut self.servers);
        own.into_iter().try_for_each(Process::alive)
    }

    /// (name, process id) of all, the measured ones last.
    pub(super) fn processes(&self, place: &Place) -> Vec<(String, u32)> {
        let own = [&self.publisher, &self.client].into_iter().chain(&self.servers);
        own.map(|process| (process.name.clone(), process.id())).chain(place.daemons()).collect()
    }

    /// Seconds until all item streams were loaded.
    pub(super) fn startup_s(&self) -> f64 {
        self.startup_s
    }

    /// Waits until every item stream is loaded.
    fn loaded(&mut self) -> Result<Value> {
        let end = Instant::now() + LOAD_TIME;
        loop {
            self.alive()?;
            let seen = self.client.order("counts")?;
            if is_loaded(&seen) {
                return Ok(seen);
            }
            ensure!(Instant::now() < end, "{}", not_loaded(&seen, LOAD_TIME));
            interrupt::sleep(Duration::from_millis(50), || Ok(()))?;
        }
    }

    fn counts(&mut self) -> Result<Counts> {
        let publisher = self.publisher.order("counts")?;
        let client = self.client.order("counts")?;
        Ok(Counts { at: Instant::now(), publisher, client })
    }

    /// Waits until nothing moves any more. The publisher ends with a whole round over its items.
    fn quiet(&mut self) -> Result<Counts> {
        self.publisher.order("rate 0")?;
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
                "updates still come {REST_TIME:?} after the publisher was told to rest"
            );
            last = now;
        }
    }

    /// Runs at `rate` for `time`, after `warm_up`. It begins and ends with everything at rest.
    pub(super) fn measure(
        &mut self,
        place: &mut Place,
        rate: u64,
        warm_up: Duration,
        time: Duration,
    ) -> Result<Window> {
        self.loaded()?;
        let quiet = self.counts()?;
        let processes = self.processes(place);
        self.publisher.order(&format!("rate {rate}"))?;
        interrupt::sleep(warm_up, || Ok(()))?;
        self.client.order("mark")?;
        let (before, cpu) = (self.counts()?, Reading::take(&processes)?);
        interrupt::sleep(time, || self.alive().and_then(|()| place.alive()))?;
        let (after, cpu) = (self.counts()?, Reading::take(&processes)?.since(&cpu));
        let done = self.quiet()?;

        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let made = grown(&quiet.publisher, &done.publisher, "updates");
        let came = grown(&quiet.client, &done.client, "updates");
        Ok(Window {
            rate,
            input: grown(&before.publisher, &after.publisher, "updates") as f64 / seconds,
            output: grown(&before.client, &after.client, "updates") as f64 / seconds,
            fan_out: self.fan_out,
            lost: (made as f64 * self.fan_out).round() as i64 - i64::try_from(came).unwrap_or(i64::MAX),
            missed: grown(&quiet.publisher, &done.publisher, "missed"),
            faults: faults(&quiet.client, &done.client),
            cpu,
            latency: serde_json::from_value(after.client["latency_us"].clone()).unwrap_or_default(),
        })
    }
}

/// Whether all that was asked for is there.
pub(super) fn is_loaded(seen: &Value) -> bool {
    seen["loaded"] == seen["wanted"] && seen["wanted"].as_u64() > Some(0)
}

/// Why a client is not loaded.
pub(super) fn not_loaded(seen: &Value, after: Duration) -> String {
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

/// The client's gaps, cuts, stale items and the like between two counts, in words.
pub(super) fn faults(before: &Value, after: &Value) -> Vec<String> {
    FAULTS
        .iter()
        .map(|name| (*name, grown(before, after, name)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .chain(after["cut"].as_array().into_iter().flatten().map(Value::to_string))
        .collect()
}

/// By how much a count has grown.
pub(super) fn grown(before: &Value, after: &Value, name: &str) -> u64 {
    number(after, name).saturating_sub(number(before, name))
}

/// Starts the clients of a plan, `to` a server.
pub(super) fn clients(place: &Place, to: &str, plan: &Plan, more: &[&str]) -> Result<Process> {
    let (host, port) = to.rsplit_once(':').unwrap_or((to, "14002"));
    let mut command = place.command(Side::Sink, "rmdstestclient")?;
    command.args(["--control", "--host", host, "--port", port, "--service", &plan.service]).args(more);
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
    // Clients that come and go are what a test is made of: only what is wrong is of interest.
    command.env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into()));
    command.arg("--config").arg(file);
    if let Some(more) = more {
        command.arg("--config").arg(more);
    }
    Process::start(name, command)
}

/// Starts a server; returns it with its address.
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
    let address = server.after(" at ")?;
    Ok((server, address))
}
