//! `utipc bench targets`: the performance targets of utipc, each measured and compared.

mod absolute;
mod relative;

use anyhow::{Context, Result, ensure};
use clap::Args;

pub(super) use relative::fragment;

use super::place::{Place, has_daemon};
use super::run::{self, Case, Run};
use super::variant::{Engine, Scope};

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
    /// Engine of the nodes on this host [default: daemon, if this build has one]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Messages of a round instead of its duration: a quick test of the tool, without valid figures
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

/// The result of a row.
#[derive(Clone, Debug, PartialEq)]
struct Verdict {
    got: String,
    /// Whether the target is met; `None`: it does not count, for the reason in `got`.
    met: Option<bool>,
}

impl Verdict {
    fn new(got: impl Into<String>, met: bool) -> Self {
        Self { got: got.into(), met: Some(met) }
    }

    fn uncounted(got: impl Into<String>) -> Self {
        Self { got: got.into(), met: None }
    }
}

fn no_daemon() -> Verdict {
    Verdict::uncounted("not measured: this build has no daemon")
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

    fn inter(engine: Engine) -> Result<Place> {
        Place::new(Scope::Inter, engine)
    }

    /// Measures cases in turn.
    fn compare(&self, place: &Place, mut cases: Vec<Case>) -> Result<Vec<Run>> {
        for case in &mut cases {
            case.messages = case.messages.or(self.messages);
            if case.rate.is_none() {
                case.seconds = self.seconds;
            }
        }
        run::compare(place, &[cases], self.rounds, |_| ())
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
    row("rtt-busy", "intra RTT 64 B, busy", "≥ 20 × faster than TCP loopback", relative::rtt_busy),
    row("rtt-adaptive", "intra RTT 64 B, default (adaptive) ping-pong", "≥ 12 ×", relative::rtt_adaptive),
    row("rtt-parked", "intra RTT 64 B, parked", "≥ 1.5 ×", relative::rtt_parked),
    row(
        "open-loop",
        "intra RTT 64 B, one request per ms, open loop from the scheduled send time, default mode",
        "p50 ≤ 0.7 × TCP, p99.9 ≤ TCP's, CPU of both ≤ TCP's",
        relative::open_loop,
    ),
    row("rtt-64k", "intra RTT 65,536 B", "≥ 2.5 ×", relative::rtt_large),
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
    row(
        "inter-rtt-busy",
        "inter RTT 64 B, embedded, UDP bearer, veth, both sides busy-polling (TCP too)",
        "≤ 0.85 × TCP",
        relative::inter_rtt_busy,
    ),
    row(
        "inter-rtt-blocking",
        "the same, both blocking",
        "≤ 1.0 × TCP and ≤ 1.15 × bare UDP in the same run",
        relative::inter_rtt_blocking,
    ),
    row("inter-rtt-daemon", "the same through two daemons", "≤ 1.3 × TCP", relative::inter_rtt_daemon),
    row(
        "inter-throughput",
        "inter throughput 65,536 B STREAM, UDP bearer, embedded",
        "≥ 1.2 × TCP",
        relative::inter_throughput,
    ),
    row(
        "inter-throughput-daemon",
        "the same through daemons",
        "≥ 0.8 × TCP",
        relative::inter_throughput_daemon,
    ),
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
        "stream-sizes",
        "STREAM at k × fragment size + 1 byte beside k × fragment size, k = 1 to 15",
        "≥ 0.95 ×",
        relative::stream_sizes,
    ),
    row(
        "cpu",
        "CPU, 25 Mbit/s of 1 KB messages, intra, default mode, user + sys of both processes and the daemon",
        "≤ 0.6 × TCP",
        relative::cpu,
    ),
    row("cpu-inter", "the same between nodes, embedded", "reported", relative::cpu_inter),
    row(
        "neighbours",
        "8 default-mode receivers beside one busy process on 2 cores",
        "it loses ≤ 5 % against parked receivers",
        absolute::neighbours,
    ),
    row("kill", "kill(2) returns → local peer's recv returns", "p99 ≤ 2 ms", absolute::kill),
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
    ensure!(
        options.engine != Some(Engine::Kernel),
        "the targets do not apply to the kernel (use --engine embedded or daemon)"
    );
    let engine = options.engine.unwrap_or(if has_daemon() { Engine::Daemon } else { Engine::Embedded });
    let bench =
        Bench { rounds: options.rounds, seconds: options.seconds, messages: options.messages, engine };
    println!("| row | measure | target | got | met |\n|---|---|---|---|---|");
    for row in
        ROWS.iter().filter(|row| options.row.is_empty() || options.row.iter().any(|name| name == row.name))
    {
        // A failed row does not end the others.
        let verdict = (row.run)(&bench).with_context(|| format!("row {}", row.name));
        let (got, met) = match &verdict {
            Ok(Verdict { got, met }) => {
                (got.clone(), met.map_or("-", |met| if met { "yes" } else { "**no**" }))
            }
            Err(error) => (format!("failed: {error:#}").replace('|', "/"), "**no**"),
        };
        println!("| {} | {} | {} | {got} | {met} |", row.name, row.measure, row.target);
    }
    let host = if bench.engine == Engine::Daemon { "one daemon" } else { "two embedded nodes" };
    if let Some(messages) = bench.messages {
        println!("\nWith {messages} messages per round the figures are not valid: a test of the tool only.");
    }
    println!("\nMedians of {} rounds of {} s; on this host: {host}.", options.rounds, options.seconds);
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
