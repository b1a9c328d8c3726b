//! Tables of medians, in the form of TIPC's own benchmark program, with the ratio to TCP.

use super::run::{Case, Name, Run};
use super::variant::{Engine, Mode, Transport};
use utipc_bench_kit::machine::is_emulated;
use utipc_bench_kit::stats::{Spread, Summary, histogram};
use utipc_bench_kit::table::Framed;
use utipc_bench_kit::{Named as _, group_by};

/// The runs of a case.
pub(super) struct Group<'a> {
    pub(super) case: &'a Case,
    pub(super) runs: Vec<&'a Run>,
}

/// Size, connections, receivers or pairs: only cases that have the same are compared.
fn load(case: &Case) -> (u32, u32, u32) {
    (case.size, case.connections, case.servers.max(case.pairs))
}

/// The runs grouped by case: by size, connections and receivers, then in order of appearance.
pub(super) fn groups<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<Group<'a>> {
    let mut groups = group_by(runs, |run| (load(&run.case), run.case.variant));
    groups.sort_by_key(|((load, _), _)| *load);
    let group = |runs: Vec<&'a Run>| Some(Group { case: &runs.first()?.case, runs });
    groups.into_iter().filter_map(|(_, runs)| group(runs)).collect()
}

impl Group<'_> {
    fn of(&self, value: impl Fn(&Run) -> f64) -> Spread {
        self.runs.iter().map(|run| value(run)).collect()
    }

    pub(super) fn median(&self, value: impl Fn(&Run) -> f64) -> f64 {
        self.of(value).median
    }

    /// The median as text; "-" of none.
    fn text(&self, decimals: usize, value: impl Fn(&Run) -> f64) -> String {
        number(self.median(value), decimals)
    }

    fn rtt(&self, part: fn(&Summary) -> f64) -> String {
        self.text(1, |run| run.measured.rtt().as_ref().map_or(f64::NAN, part))
    }
}

pub(super) fn number(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "-".to_owned() }
}

/// The value that the column "x TCP" compares; larger is better.
pub(super) fn speed(run: &Run) -> f64 {
    match run.case.name {
        Name::Latency => 1.0 / run.p50(),
        Name::Cpu => 1.0 / run.measured.cpu_s(),
        _ => run.measured.messages_per_s(),
    }
}

/// The group of TCP to compare `case` with: in blocking mode if possible.
fn tcp<'a>(case: &Case, all: &'a [Group<'a>]) -> Option<&'a Group<'a>> {
    let beside =
        |group: &&Group<'_>| group.case.variant.transport == Transport::Tcp && load(group.case) == load(case);
    let blocking = |group: &&Group<'_>| group.case.variant.mode == Mode::Blocking;
    all.iter().filter(beside).find(blocking).or_else(|| all.iter().find(beside))
}

/// Prints the medians of all cases.
pub(super) fn print(runs: &[Run]) {
    let Some(first) = runs.first() else { return };
    let groups = groups(runs);
    let rounds = groups.iter().map(|group| group.runs.len()).max().unwrap_or(0);
    let (name, scope, engine) = (first.case.name, first.scope.name(), first.engine.name());
    let emulated = if is_emulated() { ", emulated CPU: ratios alone count" } else { "" };
    println!("{}, {scope}-node, {engine} nodes, medians of {rounds} rounds{emulated}", caption(name));
    let columns = columns(name);
    let heads = columns.iter().map(|column| column.0);
    let mut table = Framed::new(heads.chain([["x TCP", ""]]).collect());
    for group in &groups {
        let ratio = tcp(group.case, &groups).map_or(f64::NAN, |tcp| group.median(speed) / tcp.median(speed));
        table.row(columns.iter().map(|column| column.1(group)).chain([number(ratio, 2)]).collect());
    }
    print!("{}", table.text());
    println!(
        "spread: (largest - smallest) / median. x TCP: how many times as good as tcp, above 1 is better."
    );
}

/// States which engine is faster in each measurement, by the ratios to TCP, which was measured together with each.
pub(super) fn print_faster_engine(runs: &[Run]) {
    let mut ratios = Vec::new();
    for ((engine, name), runs) in group_by(runs, |run| (run.engine, run.case.name)) {
        let groups = groups(runs);
        let own = groups.iter().filter(|group| group.case.variant.transport == Transport::Utipc);
        for (group, tcp) in own.filter_map(|group| Some((group, tcp(group.case, &groups)?))) {
            let ratio = group.median(speed) / tcp.median(speed);
            ratios.push(((name, load(group.case), group.case.variant), (engine, ratio)));
        }
    }
    for ((name, (size, ..), variant), ratios) in group_by(ratios, |(key, _)| *key) {
        let mut engines: Vec<_> = ratios.into_iter().map(|(_, found)| found).collect();
        engines.sort_by(|a, b| b.1.total_cmp(&a.1));
        let text = |(engine, ratio): &(Engine, f64)| format!("{} {} x TCP", engine.name(), number(*ratio, 1));
        let (name, label, mode) = (name.name(), variant.label(), variant.mode.name());
        if let [best, second, ..] = engines.as_slice() {
            println!(
                "faster engine for {name}, {label} {mode}, {size} bytes: {} ({})",
                text(best),
                text(second)
            );
        }
    }
}

fn caption(name: Name) -> &'static str {
    match name {
        Name::Latency => "Latency: one message at a time, there and back",
        Name::Throughput => "Throughput: one way, counted at the receiver",
        Name::Cpu => "CPU load: messages by schedule",
        Name::Multicast => "Multicast: deliveries to all receivers",
        Name::Pairs => "Pairs of processes, all at once",
        Name::Sizes => "Throughput against write size",
    }
}

/// A column of a table: its head, in two lines, and its cells.
type Column = ([&'static str; 2], fn(&Group<'_>) -> String);

const SIZE: Column = (["Msg Size", "[octets]"], |group| group.case.size.to_string());
const TRANSPORT: Column = (["Transport", ""], |group| group.case.variant.label());
const MODE: Column = (["Mode", ""], |group| group.case.variant.mode.name());

fn columns(name: Name) -> Vec<Column> {
    let mut columns = vec![SIZE];
    match name {
        Name::Throughput | Name::Sizes => {
            columns.push((["#", "Conns"], |group| group.case.connections.to_string()));
        }
        Name::Multicast => columns.push((["#", "Receivers"], |group| group.case.servers.to_string())),
        Name::Pairs => columns.push((["#", "Pairs"], |group| group.case.pairs.to_string())),
        Name::Latency | Name::Cpu => {}
    }
    columns.extend([TRANSPORT, MODE]);
    columns.push((["# Msgs", ""], |group| group.text(0, |run| run.messages() as f64)));
    columns.push((["Elapsed", "[ms]"], |group| group.text(0, |run| run.elapsed_s() * 1e3)));
    columns.extend(match name {
        Name::Latency => ROUND_TRIP.as_slice(),
        Name::Cpu => &LOAD,
        _ => &RATE,
    });
    columns.push((["Spread", ""], |group| format!("{:.0}%", 100.0 * group.of(speed).spread)));
    columns
}

const ROUND_TRIP: [Column; 6] = [
    (["Avg round-", "trip [us]"], |group| group.rtt(|rtt| rtt.mean)),
    (["p50", "[us]"], |group| group.rtt(|rtt| rtt.p50)),
    (["p99", "[us]"], |group| group.rtt(|rtt| rtt.p99)),
    (["p99.9", "[us]"], |group| group.rtt(|rtt| rtt.p999)),
    (["Max", "[us]"], |group| group.rtt(|rtt| rtt.max)),
    (["CPU all", "[ms]"], |group| group.text(1, |run| 1e3 * run.measured.cpu_s())),
];

const LOAD: [Column; 4] = [
    (["CPU tx", "[ms]"], |group| group.text(1, |run| 1e3 * run.measured.client.cpu_s)),
    (["CPU rx", "[ms]"], |group| group.text(1, |run| 1e3 * run.measured.server.cpu_s)),
    (["CPU daemon", "[ms]"], |group| group.text(1, |run| 1e3 * run.measured.daemons_cpu_s)),
    (["Load", "[% of a core]"], |group| group.text(1, |run| 100.0 * run.measured.cpu_s() / run.elapsed_s())),
];

const RATE: [Column; 8] = [
    (["Throughput", "[Msg/s]"], |group| group.text(0, |run| run.measured.messages_per_s())),
    (["Throughput", "[Mb/s]"], |group| group.text(1, Run::mbit_per_s)),
    (["Per Conn", "[Mb/s]"], |group| {
        let case = group.case;
        group.text(1, |run| run.mbit_per_s() / f64::from(case.connections * case.servers.max(case.pairs)))
    }),
    (["CPU tx", "[ns/Msg]"], |group| {
        group.text(0, |run| 1e9 * run.measured.client.cpu_s / run.messages() as f64)
    }),
    (["CPU rx", "[ns/Msg]"], |group| {
        group.text(0, |run| 1e9 * run.measured.server.cpu_s / run.messages() as f64)
    }),
    (["Packets", "/Msg"], |group| group.text(3, |run| run.measured.packets_per_message().0)),
    (["Acks", "/Msg"], |group| group.text(3, |run| run.measured.packets_per_message().1)),
    (["Lost", ""], |group| group.text(0, |run| run.measured.lost() as f64)),
];

/// Prints percentiles of all round trips of each case.
pub(super) fn print_histograms(runs: &[Run]) {
    const SHARES: [(&str, f64); 9] = [
        ("1%", 0.01),
        ("10%", 0.1),
        ("25%", 0.25),
        ("50%", 0.5),
        ("75%", 0.75),
        ("90%", 0.9),
        ("99%", 0.99),
        ("99.9%", 0.999),
        ("99.99%", 0.9999),
    ];
    let mut heads = vec![SIZE.0, TRANSPORT.0, MODE.0, ["Min", "[us]"]];
    heads.extend(SHARES.map(|(name, _)| [name, ""]));
    heads.extend([["Max", ""], ["Count", ""]]);
    let mut table = Framed::new(heads);
    for group in groups(runs) {
        let times: Vec<_> = group.runs.iter().flat_map(|run| run.measured.client.times.clone()).collect();
        let Some(all) = histogram(&times) else { continue };
        let us = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
        let mut row = vec![SIZE.1(&group), TRANSPORT.1(&group), MODE.1(&group), us(all.min())];
        row.extend(SHARES.map(|(_, share)| us(all.value_at_quantile(share))));
        row.extend([us(all.max()), all.len().to_string()]);
        table.row(row);
    }
    println!("All round trips of all rounds [us]");
    print!("{}", table.text());
}

#[cfg(test)]
mod tests {
    use super::super::job::EndResult;
    use super::super::run::{Case, Measured};
    use super::super::variant::{Kind, Scope, Variant};
    use super::*;

    fn run(variant: Variant, size: u32, messages: u64) -> Run {
        let server = EndResult { messages, ended: 1_000_000_000, ..EndResult::default() };
        let measured = Measured { server, ..Measured::default() };
        let case = Case::new(Name::Throughput, variant, size);
        Run { case, scope: Scope::Intra, engine: Engine::Embedded, round: 0, measured }
    }

    #[test]
    fn case_is_compared_with_blocking_tcp_of_its_size() {
        let own = Variant::new(Transport::Utipc, Mode::Busy, Kind::Rdm);
        let busy = Variant::new(Transport::Tcp, Mode::Busy, Kind::Stream);
        let runs = [
            run(own, 64, 300),
            run(busy, 64, 10),
            run(Variant::TCP, 64, 100),
            run(Variant::TCP, 1000, 7),
            run(own, 64, 500),
            run(own, 64, 400),
        ];
        let groups = groups(&runs);
        assert_eq!(groups.len(), 4);
        let tcp = tcp(&runs[0].case, &groups).unwrap();
        assert_eq!(groups[0].median(speed) / tcp.median(speed), 4.0);
        assert_eq!(groups[0].of(speed).spread, 0.5);
    }
}
