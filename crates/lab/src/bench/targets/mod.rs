//! `utipc bench targets`: the performance targets of utipc, each measured and compared.

mod absolute;
mod loops;
mod relative;
mod versus;
mod zeromq;

use anyhow::{Context, Result, ensure};
use clap::Args;
use utipc_bench_kit::Verdict;
use utipc_bench_kit::table::{markdown_head, markdown_row};

pub(super) use relative::fragment;

use relative::Comparison;

use super::loops::Ends as Loop;
use super::place::Place;
use super::run::Name::{Latency, Multicast, Throughput};
use super::run::{self, Case, Name};
use super::variant::{Engine, Scope, Variant};
use How::By;
use versus::Ends::{self, Host, Inter, Intra, NoOffloads};
use versus::Limit::{Any, AtMost, Times};
use versus::{
    DATAGRAMS, ICEORYX, Limit, MEMBERS, NAGLE, OWN, OWN_BUSY, OWN_PARKED, SEALED, SEALED_BUSY, SEALED_STREAM,
    STREAM, TCP, TCP_BUSY, UDP, UDP_BUSY, UNIX, Versus,
};

/// Options of `bench targets`.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Names of the rows to measure [default: all]
    #[arg(long, value_delimiter = ',')]
    row: Vec<String>,
    /// List the rows and exit
    #[arg(long)]
    list: bool,
    /// Rounds of each row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of a round, seconds
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Engine of the nodes on this host
    #[arg(long, value_enum, default_value_t = Engine::Daemon)]
    engine: Engine,
    /// Number of messages of a round instead of its duration: a quick test of the tool, without valid figures
    #[arg(long)]
    messages: Option<u64>,
}

/// A row of the table.
struct Row {
    name: &'static str,
    measure: &'static str,
    target: &'static str,
    how: How,
}

/// How a row is measured.
enum How {
    Versus(Versus),
    By(fn(&Bench) -> Result<Verdict>),
}

/// Settings of the measurement of rows.
struct Bench {
    rounds: u32,
    seconds: f64,
    messages: Option<u64>,
    engine: Engine,
}

impl Bench {
    fn intra(&self) -> Result<Place> {
        Place::new(Scope::Intra, self.engine)
    }

    /// This host, with embedded nodes.
    fn host() -> Result<Place> {
        Place::new(Scope::Intra, Engine::Embedded)
    }

    fn inter(engine: Engine) -> Result<Place> {
        Place::new(Scope::Inter, engine)
    }

    /// Measures cases in turn.
    fn compare(&self, place: &Place, cases: impl IntoIterator<Item = Case>) -> Result<Comparison> {
        let settle = |case: Case| Case {
            messages: case.messages.or(self.messages),
            seconds: if case.rate.is_none() { self.seconds } else { case.seconds },
            ..case
        };
        let cases = cases.into_iter().map(settle).collect();
        run::compare(place, &[cases], self.rounds, |_| ()).map(Comparison)
    }

    /// Repetitions of a measurement without rounds.
    fn repetitions(&self, times: u64) -> u64 {
        self.messages.map_or(times, |messages| messages.min(times))
    }
}

/// Defines the rows: name, measure, target, and how it is measured.
macro_rules! rows {
    ($($name:literal: $measure:expr; $target:expr; $how:expr,)*) => {
        const ROWS: &[Row] = &[$(Row { name: $name, measure: $measure, target: $target, how: $how },)*];
    };
}

const fn beside(
    (ends, name, size): (Ends, Name, u32),
    ours: &'static [Variant],
    others: &'static [(Variant, Limit)],
) -> How {
    How::Versus(Versus { ends, name, size, ours, others })
}

/// The ends and the load of rows.
const RTT: (Ends, Name, u32) = (Intra, Latency, 64);
const HOST_RTT: (Ends, Name, u32) = (Host, Latency, 64);
const INTER_RTT: (Ends, Name, u32) = (Inter(Engine::Embedded), Latency, 64);
const INTER_STREAM: (Ends, Name, u32) = (Inter(Engine::Embedded), Throughput, 65_536);

rows! {
    "rtt-busy": "intra RTT 64 B, busy"; "≥ 20 × faster than TCP loopback";
        beside(RTT, &[OWN_BUSY], &[(TCP, Times(20.0)), (TCP_BUSY, Any)]),
    "rtt-adaptive": "intra RTT 64 B, default (adaptive) ping-pong"; "≥ 12 ×";
        beside(RTT, &[OWN], &[(TCP, Times(12.0)), (TCP_BUSY, Any)]),
    "rtt-parked": "intra RTT 64 B, parked"; "≥ 1.5 ×";
        beside(RTT, &[OWN_PARKED], &[(TCP, Times(1.5)), (TCP_BUSY, Any)]),
    "open-loop": "intra RTT 64 B, one request per ms, open loop from the scheduled send time, default mode";
        "p50 ≤ 0.7 × TCP, p99.9 ≤ TCP's, CPU of both ≤ TCP's";
        By(relative::open_loop),
    "epoll-shim": loops::MEASURE_SHIM; loops::TARGET; By(|bench| loops::row(bench, Loop::Shim)),
    "epoll-c": loops::MEASURE_C; loops::TARGET; By(|bench| loops::row(bench, Loop::Library)),
    "tokio": loops::MEASURE_TOKIO; loops::TARGET; By(|bench| loops::row(bench, Loop::Tokio)),
    "asyncio": loops::MEASURE_ASYNCIO; loops::TARGET; By(|bench| loops::row(bench, Loop::Asyncio)),
    "rtt-64k": "intra RTT 65,536 B"; "≥ 2.5 ×";
        beside((Intra, Latency, 65_536), &[OWN], &[(TCP, Times(2.5)), (TCP_BUSY, Any)]),
    "iceoryx2": "busy RTT beside iceoryx2 in the same run"; "≤ 2.5 × its";
        beside(RTT, &[OWN_BUSY], &[(ICEORYX, AtMost(2.5))]),
    "rate-64": "intra messages/s 64 B (SEQPACKET and RDM)"; "≥ 20 × TCP (NODELAY) and ≥ 8 × Unix seqpacket";
        beside((Intra, Throughput, 64), &[OWN, DATAGRAMS], &[(TCP, Times(20.0)), (UNIX, Times(8.0))]),
    "throughput-64k": "intra throughput 65,536 B"; "≥ 4 × TCP";
        beside((Intra, Throughput, 65_536), &[OWN], &[(TCP, Times(4.0))]),
    "multicast": "multicast 1 → 8 local, 256 B"; "deliveries/s ≥ 8 × eight TCP connections";
        beside((Intra, Multicast, 256), &[DATAGRAMS], &[(TCP, Times(8.0))]),
    "group": "group broadcast 1 → 8 local, 256 B"; "deliveries/s ≥ 0.8 × multicast";
        beside((Intra, Multicast, 256), &[MEMBERS], &[(DATAGRAMS, Times(0.8))]),
    "anycast": "anycasts 1 → 4 local, 64 B"; "messages/s ≥ 2 × four TCP connections in turn"; By(relative::anycast),
    "host-rtt-busy": "RTT 64 B between two embedded nodes of one host, both busy-polling"; "≥ 10 ×";
        beside(HOST_RTT, &[OWN_BUSY], &[(TCP, Times(10.0)), (TCP_BUSY, Any)]),
    "host-rtt": "the same, default mode"; "≥ 8 ×"; beside(HOST_RTT, &[OWN], &[(TCP, Times(8.0)), (TCP_BUSY, Any)]),
    "host-rtt-64k": "the same, 65,536 B"; "≥ 2.5 ×";
        beside((Host, Latency, 65_536), &[OWN], &[(TCP, Times(2.5)), (TCP_BUSY, Any)]),
    "host-rate-64": "messages/s 64 B between two embedded nodes of one host"; "≥ 8 ×";
        beside((Host, Throughput, 64), &[OWN], &[(TCP, Times(8.0))]),
    "host-kill": "kill(2) returns → recv of an embedded node of the host returns"; "p99 ≤ 5 ms";
        By(|bench| absolute::kill(bench, &Bench::host()?, 5.0)),
    "host-start": "start of an embedded node → its first message is answered by another node of the host"; "≤ 50 ms";
        By(absolute::host_start),
    "zeromq-rtt": "ZeroMQ REQ/REP 64 B, tipc:// under the shim"; "≥ 1.5 × tcp://"; By(zeromq::round_trip),
    "zeromq-rate": "ZeroMQ PUSH/PULL 64 B, tipc:// under the shim"; "≥ the faster of tcp:// and ipc://";
        By(zeromq::rate),
    "zeromq-close": "ZeroMQ: PUSH closes after its last message, PULL receives all"; "100 of 100 runs";
        By(zeromq::close),
    "inter-rtt-busy": "inter RTT 64 B, embedded, UDP bearer, veth, both sides busy-polling (TCP too)"; "≤ 0.85 × TCP";
        beside(INTER_RTT, &[OWN_BUSY], &[(TCP_BUSY, AtMost(0.85)), (UDP_BUSY, Any)]),
    "inter-rtt-blocking": "the same, both blocking"; "≤ 1.0 × TCP and ≤ 1.15 × bare UDP in the same run";
        beside(INTER_RTT, &[OWN_PARKED], &[(TCP, AtMost(1.0)), (UDP, AtMost(1.15))]),
    "inter-rtt-daemon": "the same through two daemons"; "≤ 1.3 × TCP";
        beside((Inter(Engine::Daemon), Latency, 64), &[OWN], &[(TCP, AtMost(1.3)), (UDP, Any)]),
    "inter-throughput": "inter throughput 65,536 B STREAM, UDP bearer, embedded"; "≥ 1.2 × TCP";
        beside(INTER_STREAM, &[STREAM], &[(TCP, Times(1.2))]),
    "inter-throughput-daemon": "the same through daemons"; "≥ 0.8 × TCP";
        beside((Inter(Engine::Daemon), Throughput, 65_536), &[STREAM], &[(TCP, Times(0.8))]),
    "inter-no-offloads": "the same with offloads off (both), MTU 1500, embedded"; "≥ 0.9 × TCP";
        beside((NoOffloads, Throughput, 65_536), &[STREAM], &[(TCP, Times(0.9))]),
    "inter-rate-64": "inter messages/s 64 B"; "≥ 3 × TCP NODELAY, ≥ 1 × TCP with Nagle";
        beside((Inter(Engine::Embedded), Throughput, 64), &[OWN], &[(TCP, Times(3.0)), (NAGLE, Times(1.0))]),
    "encrypted-stream": "inter throughput 65,536 B STREAM, embedded, all packets encrypted (AES-256)";
        "≥ 0.6 × clear text";
        beside(INTER_STREAM, &[SEALED_STREAM], &[(STREAM, Times(0.6))]),
    "encrypted-rtt": "inter RTT 64 B, embedded, all packets encrypted, default mode"; "≤ 1.2 × clear";
        beside(INTER_RTT, &[SEALED], &[(OWN, AtMost(1.2))]),
    "encrypted-rtt-busy": "the same, both busy-polling"; "≤ 1.2 × clear";
        beside(INTER_RTT, &[SEALED_BUSY], &[(OWN_BUSY, AtMost(1.2))]),
    "stream-sizes": "STREAM at k × fragment size + 1 byte beside k × fragment size, k = 1 to 15"; "≥ 0.95 ×";
        By(relative::stream_sizes),
    "cpu": "CPU, 25 Mbit/s of 1 KB messages, intra, default mode, user + sys of both processes and the daemon";
        "≤ 0.6 × TCP";
        By(|bench| relative::load(bench, &bench.intra()?, Some(0.6))),
    "cpu-inter": "the same between nodes, embedded"; "reported";
        By(|bench| relative::load(bench, &Bench::inter(Engine::Embedded)?, None)),
    "neighbours": "8 default-mode receivers beside one busy process on 2 cores";
        "it loses ≤ 5 % against parked receivers";
        By(absolute::neighbours),
    "burst": "200 multicasts of 66,000 B to 2 and 8 readers, then beside one that never reads; one host and two nodes";
        "all arrive in 100 of 100 bursts; the silent one costs ≤ 50 ms";
        By(absolute::burst),
    "kill": "kill(2) returns → local peer's recv returns"; "p99 ≤ 2 ms";
        By(|bench| absolute::kill(bench, &bench.intra()?, 2.0)),
    "bind-local": "bind → visible to local lookup"; "≤ 50 µs"; By(absolute::bind_local),
    "bind-remote": "bind → visible on a remote node"; "≤ 1 ms + network"; By(absolute::bind_remote),
    "idle-daemon": "idle daemon"; "≤ 0.5 % of a core, ≤ 10 MB resident, ≤ 4 KB per idle socket";
        By(absolute::idle_daemon),
    "many-clients": "10,000 client sockets to one server socket";
        "≤ 256 MB in all; cost per message ≤ 1.5 × of 10 clients; max ÷ min served ≤ 2";
        By(absolute::many_clients),
    "many-bindings": "10,000 sockets, 100,000 bindings on one daemon"; "works; lookup ≤ 150 ns";
        By(absolute::many_bindings),
}

pub(super) fn run(options: &Options) -> Result<()> {
    if options.list {
        for row in ROWS {
            println!("{:<24} {} ({})", row.name, row.measure, row.target);
        }
        return Ok(());
    }
    for name in &options.row {
        ensure!(ROWS.iter().any(|row| row.name == *name), "unknown row {name} (see --list)");
    }
    let &Options { rounds, seconds, messages, engine, .. } = options;
    ensure!(
        engine != Engine::Kernel,
        "the targets do not apply to the kernel (use --engine embedded or daemon)"
    );
    let bench = Bench { rounds, seconds, messages, engine };
    print!("{}", markdown_head("row | measure | target | got | met"));
    for row in
        ROWS.iter().filter(|row| options.row.is_empty() || options.row.iter().any(|name| name == row.name))
    {
        // A failed row does not end the others.
        let verdict = match &row.how {
            How::Versus(versus) => versus.measure(&bench),
            By(run) => run(&bench),
        };
        let verdict = verdict.with_context(|| format!("row {}", row.name));
        let verdict = verdict.unwrap_or_else(|why| Verdict::new(format!("failed: {why:#}"), false));
        print!("{}", markdown_row([row.name, row.measure, row.target, &verdict.got, verdict.word()]));
    }
    if let Some(messages) = messages {
        println!("\nWith {messages} messages per round the figures are not valid: a test of the tool only.");
    }
    let host = if engine == Engine::Daemon { "one daemon" } else { "two embedded nodes" };
    println!(
        "\nMedians of {rounds} rounds of {seconds} s; on this host: {host}, in the host-* rows two embedded nodes."
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_unique() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
