//! Rows that measure ZeroMQ under the shim: `tipc://` beside `tcp://` and `ipc://`.
//!
//! Both ends are a C program, which is compiled when a row runs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use utipc_bench_kit::compiler::compile;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::stats::median;
use utipc_bench_kit::{Verdict, in_turn};
use utipc_tools::preload;

use super::super::place::Place;
use super::super::variant::{Engine, Scope};
use super::Bench;

const SOURCE: &str = include_str!("../../../../../bench/zeromq/ends.c");
/// Compiles if libzmq is here.
const PROBE: &str = "#include <zmq.h>\nint main(void) { return zmq_errno(); }\n";
/// Message size, bytes.
const SIZE: &str = "64";
/// Messages of a round: of round trips, and in one direction.
const ROUND_TRIPS: u64 = 10_000;
const FLOW: u64 = 1_000_000;
/// Runs of `zeromq-close`, and the messages of each.
const CLOSES: (u64, u64) = (100, 2000);
/// Longest duration of a run.
const LIMIT: Duration = Duration::from_secs(120);
/// Service type of the ends.
const SERVICE: u32 = 19_621;

/// The ends on this host, with the daemon and the library that serves `tipc://`.
struct Ends {
    program: PathBuf,
    preload: String,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Tipc,
    Tcp,
    Ipc,
}

impl Ends {
    /// The ends, or why they cannot run here.
    fn new() -> Result<std::result::Result<Self, String>> {
        let preload = match preload::shim(None) {
            Ok(preload) => preload,
            Err(why) => return Ok(Err(format!("{why:#}"))),
        };
        let place = Place::new(Scope::Intra, Engine::Daemon)?;
        let folder = place.folder()?;
        if compile(folder, "probe", PROBE, &["-lzmq"]).is_err() {
            return Ok(Err("no libzmq found (apt-get install libzmq3-dev)".to_owned()));
        }
        let compiled = compile(folder, "ends", SOURCE, &["-lzmq"])?;
        Ok(compiled.map(|program| Self { program, preload, place }))
    }

    /// Addresses to bind and to connect to.
    fn addresses(&self, carrier: Carrier) -> Result<[String; 2]> {
        Ok(match carrier {
            Carrier::Tipc => [format!("tipc://{{{SERVICE},0,0}}"), format!("tipc://{{{SERVICE},0}}@0.0.0")],
            Carrier::Tcp => {
                let free = std::net::TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
                let address = format!("tcp://{}", free.local_addr().context("find a free port")?);
                [address.clone(), address]
            }
            Carrier::Ipc => {
                let address = format!("ipc://{}", self.place.folder()?.join("ipc").display());
                [address.clone(), address]
            }
        })
    }

    fn start(&self, carrier: Carrier, role: &str, address: &str, messages: u64) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command.args([role, address, &messages.to_string(), SIZE]);
        if carrier == Carrier::Tipc {
            self.place.attach(&mut command)?;
            command.env("LD_PRELOAD", &self.preload);
        }
        let mut end = Process::start(role, command)?;
        end.word_after("ready")?;
        Ok(end)
    }

    /// Runs a pair of ends; returns what both have printed.
    fn pair(&self, carrier: Carrier, roles: [&str; 2], messages: u64) -> Result<String> {
        let [bound, connected] = self.addresses(carrier)?;
        let mut server = self.start(carrier, roles[0], &bound, messages)?;
        let mut client = self.start(carrier, roles[1], &connected, messages)?;
        let said = client.remaining_output(LIMIT)?;
        client.close_and_wait()?;
        Ok(said + &server.remaining_output(LIMIT)?)
    }

    /// Medians of the rounds of TIPC, TCP and Unix sockets, nanoseconds.
    fn compare(&self, bench: &Bench, roles: [&str; 2], messages: u64, mark: &str) -> Result<[f64; 3]> {
        let mut found = [Carrier::Tipc, Carrier::Tcp, Carrier::Ipc].map(|carrier| (carrier, Vec::new()));
        in_turn(bench.rounds, &mut found, |_, (carrier, values)| {
            let said = self.pair(*carrier, roles, messages).with_context(|| format!("over {carrier:?}"))?;
            values.push(value(&said, mark).with_context(|| format!("over {carrier:?}"))?);
            Ok(())
        })?;
        Ok(found.map(|(_, values)| median(values)))
    }
}

/// The number after `mark` in the output of an end.
fn value(said: &str, mark: &str) -> Result<f64> {
    let number = said.lines().find_map(|line| line.strip_prefix(mark)?.trim().parse().ok());
    number.with_context(|| format!("an end has not printed its {mark}: {said:?}"))
}

/// Calls `row` with the ends, or gives the reason why they cannot run.
fn with_ends(row: impl FnOnce(&Ends) -> Result<Verdict>) -> Result<Verdict> {
    match Ends::new()? {
        Ok(ends) => row(&ends),
        Err(why) => Ok(Verdict::uncounted(format!("not measured: {why}"))),
    }
}

pub(super) fn round_trip(bench: &Bench) -> Result<Verdict> {
    with_ends(|ends| {
        let messages = bench.repetitions(ROUND_TRIPS).max(20);
        let times = ends.compare(bench, ["rep", "req"], messages, "median")?;
        let [own, tcp, ipc] = times.map(|ns| ns / 1e3);
        let got = format!("{:.2} ×: {own:.1} µs, tcp:// {tcp:.1}, ipc:// {ipc:.1}", tcp / own);
        Ok(Verdict::new(got, tcp / own >= 1.5))
    })
}

pub(super) fn rate(bench: &Bench) -> Result<Verdict> {
    with_ends(|ends| {
        let messages = bench.repetitions(FLOW).max(20);
        let times = ends.compare(bench, ["pull", "push"], messages, "each")?;
        let [own, tcp, ipc] = times.map(|ns| 1e3 / ns);
        let best = tcp.max(ipc);
        let got = format!("{:.2} ×: {own:.2} M/s, tcp:// {tcp:.2}, ipc:// {ipc:.2}", own / best);
        Ok(Verdict::new(got, own >= best))
    })
}

/// Runs in which the sender closes right after its last message; a run is complete if all messages arrive.
pub(super) fn close(bench: &Bench) -> Result<Verdict> {
    with_ends(|ends| {
        let (runs, messages) = CLOSES;
        let runs = bench.repetitions(runs);
        let mut complete = 0;
        for _ in 0..runs {
            let said = ends.pair(Carrier::Tipc, ["pull", "push"], messages)?;
            let received = value(&said, "received")?;
            ensure!(received <= messages as f64, "{received} of {messages} messages were received");
            complete += u64::from(received == messages as f64);
        }
        Ok(Verdict::new(format!("{complete} of {runs} complete"), complete == runs))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_the_number_after_its_mark() {
        assert_eq!(value("ready\nmedian 75443\nreceived 3\n", "median").unwrap(), 75_443.0);
        assert!(value("ready\n", "median").is_err());
    }
}
