//! `utipc bench targets`: the performance targets of utipc, each measured and compared.

mod absolute;
mod loops;
mod relative;
mod zeromq;

use anyhow::{Context, Result, ensure};
use clap::Args;
use utipc_bench_kit::Verdict;
use utipc_bench_kit::table::{markdown_head, markdown_row};

pub(super) use relative::fragment;

use relative::Comparison;

use super::loops::Ends;
use super::place::Place;
use super::run::{self, Case};
use super::variant::{Engine, Mode, Scope};

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
    run: fn(&Bench) -> Result<Verdict>,
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

const fn row(
    name: &'static str,
    measure: &'static str,
    target: &'static str,
    run: fn(&Bench) -> Result<Verdict>,
) -> Row {
    Row { name, measure, target, run }
}

const ROWS: &[Row] = &[
    row("rtt-busy", "intra RTT 64 B, busy", "≥ 20 × faster than TCP loopback", |bench| {
        relative::rtt(bench, &bench.intra()?, Mode::Busy, 64, 20.0)
    }),
    row("rtt-adaptive", "intra RTT 64 B, default (adaptive) ping-pong", "≥ 12 ×", |bench| {
        relative::rtt(bench, &bench.intra()?, Mode::Adaptive, 64, 12.0)
    }),
    row("rtt-parked", "intra RTT 64 B, parked", "≥ 1.5 ×", |bench| {
        relative::rtt(bench, &bench.intra()?, Mode::Parked, 64, 1.5)
    }),
    row(
        "open-loop",
        "intra RTT 64 B, one request per ms, open loop from the scheduled send time, default mode",
        "p50 ≤ 0.7 × TCP, p99.9 ≤ TCP's, CPU of both ≤ TCP's",
        relative::open_loop,
    ),
    row("epoll-shim", loops::MEASURE_SHIM, loops::TARGET, |bench| loops::row(bench, Ends::Shim)),
    row("epoll-c", loops::MEASURE_C, loops::TARGET, |bench| loops::row(bench, Ends::Library)),
    row("tokio", loops::MEASURE_TOKIO, loops::TARGET, |bench| loops::row(bench, Ends::Tokio)),
    row("asyncio", loops::MEASURE_ASYNCIO, loops::TARGET, |bench| loops::row(bench, Ends::Asyncio)),
    row("rtt-64k", "intra RTT 65,536 B", "≥ 2.5 ×", |bench| {
        relative::rtt(bench, &bench.intra()?, Mode::Adaptive, 65_536, 2.5)
    }),
    row("iceoryx2", "busy RTT beside iceoryx2 in the same run", "≤ 2.5 × its", relative::iceoryx),
    row(
        "rate-64",
        "intra messages/s 64 B (SEQPACKET and RDM)",
        "≥ 20 × TCP (NODELAY) and ≥ 8 × Unix seqpacket",
        relative::rate_small,
    ),
    row("throughput-64k", "intra throughput 65,536 B", "≥ 4 × TCP", relative::throughput_large),
    row(
        "multicast",
        "multicast 1 → 8 local, 256 B",
        "deliveries/s ≥ 8 × eight TCP connections",
        relative::multicast,
    ),
    row("group", "group broadcast 1 → 8 local, 256 B", "deliveries/s ≥ 0.8 × multicast", relative::group),
    row(
        "anycast",
        "anycasts 1 → 4 local, 64 B",
        "messages/s ≥ 2 × four TCP connections in turn",
        relative::anycast,
    ),
    row(
        "host-rtt-busy",
        "RTT 64 B between two embedded nodes of one host, both busy-polling",
        "≥ 10 ×",
        |bench| relative::rtt(bench, &Bench::host()?, Mode::Busy, 64, 10.0),
    ),
    row("host-rtt", "the same, default mode", "≥ 8 ×", |bench| {
        relative::rtt(bench, &Bench::host()?, Mode::Adaptive, 64, 8.0)
    }),
    row("host-rtt-64k", "the same, 65,536 B", "≥ 2.5 ×", |bench| {
        relative::rtt(bench, &Bench::host()?, Mode::Adaptive, 65_536, 2.5)
    }),
    row(
        "host-rate-64",
        "messages/s 64 B between two embedded nodes of one host",
        "≥ 8 ×",
        relative::host_rate,
    ),
    row(
        "host-kill",
        "kill(2) returns → recv of an embedded node of the host returns",
        "p99 ≤ 5 ms",
        |bench| absolute::kill(bench, &Bench::host()?, 5.0),
    ),
    row(
        "host-start",
        "start of an embedded node → its first message is answered by another node of the host",
        "≤ 50 ms",
        absolute::host_start,
    ),
    row("zeromq-rtt", "ZeroMQ REQ/REP 64 B, tipc:// under the shim", "≥ 1.5 × tcp://", zeromq::round_trip),
    row(
        "zeromq-rate",
        "ZeroMQ PUSH/PULL 64 B, tipc:// under the shim",
        "≥ the faster of tcp:// and ipc://",
        zeromq::rate,
    ),
    row(
        "zeromq-close",
        "ZeroMQ: PUSH closes after its last message, PULL receives all",
        "100 of 100 runs",
        zeromq::close,
    ),
    row(
        "inter-rtt-busy",
        "inter RTT 64 B, embedded, UDP bearer, veth, both sides busy-polling (TCP too)",
        "≤ 0.85 × TCP",
        |bench| relative::inter_rtt(bench, Engine::Embedded, Mode::Busy, 0.85, None),
    ),
    row(
        "inter-rtt-blocking",
        "the same, both blocking",
        "≤ 1.0 × TCP and ≤ 1.15 × bare UDP in the same run",
        |bench| relative::inter_rtt(bench, Engine::Embedded, Mode::Parked, 1.0, Some(1.15)),
    ),
    row("inter-rtt-daemon", "the same through two daemons", "≤ 1.3 × TCP", |bench| {
        relative::inter_rtt(bench, Engine::Daemon, Mode::Adaptive, 1.3, None)
    }),
    row(
        "inter-throughput",
        "inter throughput 65,536 B STREAM, UDP bearer, embedded",
        "≥ 1.2 × TCP",
        |bench| relative::inter_stream(bench, &Bench::inter(Engine::Embedded)?, 1.2),
    ),
    row("inter-throughput-daemon", "the same through daemons", "≥ 0.8 × TCP", |bench| {
        relative::inter_stream(bench, &Bench::inter(Engine::Daemon)?, 0.8)
    }),
    row(
        "inter-no-offloads",
        "the same with offloads off (both), MTU 1500, embedded",
        "≥ 0.9 × TCP",
        relative::inter_no_offloads,
    ),
    row(
        "inter-rate-64",
        "inter messages/s 64 B",
        "≥ 3 × TCP NODELAY, ≥ 1 × TCP with Nagle",
        relative::inter_rate_small,
    ),
    row(
        "encrypted-stream",
        "inter throughput 65,536 B STREAM, embedded, all packets encrypted (AES-256)",
        "≥ 0.6 × clear text",
        relative::encrypted_stream,
    ),
    row(
        "encrypted-rtt",
        "inter RTT 64 B, embedded, all packets encrypted, default mode",
        "≤ 1.2 × clear",
        |bench| relative::encrypted_rtt(bench, Mode::Adaptive),
    ),
    row("encrypted-rtt-busy", "the same, both busy-polling", "≤ 1.2 × clear", |bench| {
        relative::encrypted_rtt(bench, Mode::Busy)
    }),
    row(
        "stream-sizes",
        "STREAM at k × fragment size + 1 byte beside k × fragment size, k = 1 to 15",
        "≥ 0.95 ×",
        relative::stream_sizes,
    ),
    row(
        "cpu",
        "CPU, 25 Mbit/s of 1 KB messages, intra, default mode, user + sys of both processes and the daemon",
        "≤ 0.6 × TCP",
        |bench| {
            let (got, ratio) = relative::load(bench, &bench.intra()?)?;
            Ok(Verdict::new(got, ratio <= 0.6))
        },
    ),
    row("cpu-inter", "the same between nodes, embedded", "reported", |bench| {
        relative::load(bench, &Bench::inter(Engine::Embedded)?).map(|(got, _)| Verdict::uncounted(got))
    }),
    row(
        "neighbours",
        "8 default-mode receivers beside one busy process on 2 cores",
        "it loses ≤ 5 % against parked receivers",
        absolute::neighbours,
    ),
    row(
        "burst",
        "200 multicasts of 66,000 B to 2 and 8 readers, then beside one that never reads; one host and two nodes",
        "all arrive in 100 of 100 bursts; the silent one costs ≤ 50 ms",
        absolute::burst,
    ),
    row("kill", "kill(2) returns → local peer's recv returns", "p99 ≤ 2 ms", |bench| {
        absolute::kill(bench, &bench.intra()?, 2.0)
    }),
    row("bind-local", "bind → visible to local lookup", "≤ 50 µs", absolute::bind_local),
    row("bind-remote", "bind → visible on a remote node", "≤ 1 ms + network", absolute::bind_remote),
    row(
        "idle-daemon",
        "idle daemon",
        "≤ 0.5 % of a core, ≤ 10 MB resident, ≤ 4 KB per idle socket",
        absolute::idle_daemon,
    ),
    row(
        "many-clients",
        "10,000 client sockets to one server socket",
        "≤ 256 MB in all; cost per message ≤ 1.5 × of 10 clients; max ÷ min served ≤ 2",
        absolute::many_clients,
    ),
    row(
        "many-bindings",
        "10,000 sockets, 100,000 bindings on one daemon",
        "works; lookup ≤ 150 ns",
        absolute::many_bindings,
    ),
];

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
        let verdict = (row.run)(&bench).with_context(|| format!("row {}", row.name));
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
