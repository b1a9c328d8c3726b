//! One end of a measurement, in a process of its own.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::transport::Channel;
use super::{Mode, Transport};

/// What a process is to do.
#[derive(Clone, Debug, Args)]
pub(crate) struct Job {
    #[arg(long, value_enum)]
    pub(crate) test: Test,
    #[arg(long, value_enum)]
    pub(crate) transport: Transport,
    #[arg(long, value_enum)]
    pub(crate) mode: Mode,
    #[arg(long, value_enum)]
    pub(crate) role: Role,
    #[arg(long)]
    pub(crate) size: u32,
    #[arg(long)]
    pub(crate) messages: u64,
    /// Own address.
    #[arg(long)]
    pub(crate) local: IpAddr,
    /// The other end's.
    #[arg(long)]
    pub(crate) remote: IpAddr,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Test {
    Latency,
    Throughput,
    /// Time from the start of a node to its first link.
    Link,
    /// Memory of a node that does nothing.
    Idle,
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Waits for the other.
    Serve,
    /// Drives the test.
    Drive,
}

/// Round-trip times, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// What came out of it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Ok { elapsed_s: f64, rtt_us: Option<Rtt>, cpu_s: f64 },
    Failed { error: String },
}

/// The word by which a server says that it may be called.
pub(crate) const READY: &str = "ready";

/// Longest that one end waits for the other, beyond which something is broken.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Link => "link",
            Self::Idle => "idle",
        }
    }
}

impl Job {
    pub(crate) fn new(test: Test, transport: Transport, mode: Mode, size: u32, messages: u64) -> Self {
        let nowhere = IpAddr::from([0, 0, 0, 0]);
        Self { test, transport, mode, role: Role::Drive, size, messages, local: nowhere, remote: nowhere }
    }

    pub(crate) fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The command line that makes a process do this.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let pairs: [(&str, String); 8] = [
            ("test", word(&self.test)),
            ("transport", word(&self.transport)),
            ("mode", word(&self.mode)),
            ("role", word(&self.role)),
            ("size", self.size.to_string()),
            ("messages", self.messages.to_string()),
            ("local", self.local.to_string()),
            ("remote", self.remote.to_string()),
        ];
        let options = pairs.into_iter().map(|(name, value)| format!("--{name}={value}"));
        std::iter::once("bench-peer".to_owned()).chain(options).collect()
    }
}

impl Outcome {
    pub(crate) fn from_json(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line).with_context(|| format!("read the result {line:?}"))?;
        if let Some(error) = value["error"].as_str() {
            return Ok(Self::Failed { error: error.to_owned() });
        }
        let number = |value: &Value| value.as_f64();
        let rtt = &value["rtt_us"];
        let rtt_us = number(&rtt["mean"]).map(|mean| Rtt {
            mean,
            p50: number(&rtt["p50"]).unwrap_or(0.0),
            p99: number(&rtt["p99"]).unwrap_or(0.0),
            max: number(&rtt["max"]).unwrap_or(0.0),
        });
        match (number(&value["elapsed_s"]), number(&value["cpu_s"])) {
            (Some(elapsed_s), Some(cpu_s)) => Ok(Self::Ok { elapsed_s, rtt_us, cpu_s }),
            _ => bail!("read the result {line:?}: a number is missing"),
        }
    }
}

/// Does the job and prints the result as one line.
pub(crate) fn run(job: &Job) -> Result<()> {
    let result = match job.test {
        Test::Latency | Test::Throughput => traffic(job),
        Test::Link => super::node::link(job),
        Test::Idle => super::node::idle(job),
    };
    let line = match &result {
        Ok(value) => value.clone(),
        Err(error) => json!({ "error": format!("{error:#}") }),
    };
    println!("{line}");
    Ok(())
}

/// Tells the parent that the other end may start.
pub(crate) fn say_ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).context("tell the parent that the server is ready")
}

fn traffic(job: &Job) -> Result<Value> {
    let mut channel = Channel::open(job)?;
    let size = job.size as usize;
    let before = cpu_s();
    let start = Instant::now();
    let mut times = Vec::new();
    match (job.test, job.role) {
        (Test::Latency, Role::Serve) => serve_echo(&mut channel, size, job.messages)?,
        (Test::Latency, Role::Drive) => times = drive_echo(&mut channel, size, job.messages)?,
        (_, Role::Serve) => serve_sink(&mut channel, size, job.messages)?,
        (_, Role::Drive) => drive_sink(&mut channel, size, job.messages)?,
    }
    let elapsed_s = start.elapsed().as_secs_f64();
    let cpu = cpu_s() - before;
    channel.linger();
    Ok(json!({ "elapsed_s": elapsed_s, "cpu_s": cpu, "rtt_us": rtt(times) }))
}

fn serve_echo(channel: &mut Channel, size: usize, messages: u64) -> Result<()> {
    let mut buffer = vec![0; size];
    for _ in 0..messages {
        channel.receive_exact(&mut buffer).context("receive a request")?;
        channel.send(&buffer).context("send an answer")?;
    }
    Ok(())
}

fn drive_echo(channel: &mut Channel, size: usize, messages: u64) -> Result<Vec<f64>> {
    let mut buffer = vec![7; size];
    let mut times = Vec::with_capacity(usize::try_from(messages).unwrap_or(0));
    for _ in 0..messages {
        let start = Instant::now();
        channel.send(&buffer).context("send a request")?;
        channel.receive_exact(&mut buffer).context("receive an answer")?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

fn serve_sink(channel: &mut Channel, size: usize, messages: u64) -> Result<()> {
    channel.drain(size, messages).context("receive")?;
    channel.send(b"k").context("confirm")
}

fn drive_sink(channel: &mut Channel, size: usize, messages: u64) -> Result<()> {
    let message = vec![7; size];
    for _ in 0..messages {
        channel.send(&message).context("send")?;
    }
    channel.receive_exact(&mut [0]).context("receive the confirmation")
}

fn rtt(mut times: Vec<f64>) -> Option<Value> {
    times.sort_by(f64::total_cmp);
    let last = times.len().checked_sub(1)?;
    // Quantiles of a sorted list: the value that this share of the others does not exceed.
    let at = |share: f64| times[(share * last as f64).round() as usize];
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    Some(json!({ "mean": mean, "p50": at(0.5), "p99": at(0.99), "max": at(1.0) }))
}

/// CPU time of all threads of this process so far, seconds.
pub(crate) fn cpu_s() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let nanos = |task: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().filter_map(nanos).sum::<f64>() / 1e9
}
