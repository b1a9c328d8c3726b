//! Tables of medians, in the form of TIPC's own benchmark program, with the ratio to TCP.

use super::run::{Name, Run};
use super::variant::{Mode, Transport, Variant};
use utipc_bench_kit::machine::is_emulated;
use utipc_bench_kit::stats::{Summary, histogram, median, spread};
use utipc_bench_kit::table::Framed;

/// The runs of a case.
pub(super) struct Group<'a> {
    pub(super) runs: Vec<&'a Run>,
}

/// Identity of a case in a table: size, connections, receivers or pairs, variant.
type Key = (u32, u32, u32, Variant);

fn key(run: &Run) -> Key {
    let case = &run.case;
    (case.size, case.connections, case.servers.max(case.pairs), case.variant)
}

/// The runs grouped by case: by size, connections and receivers, then in order of appearance.
pub(super) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<(Key, Group<'_>)> = Vec::new();
    for run in runs {
        let own = key(run);
        match groups.iter_mut().find(|(key, _)| *key == own) {
            Some((_, group)) => group.runs.push(run),
            None => groups.push((own, Group { runs: vec![run] })),
        }
    }
    groups.sort_by_key(|((size, connections, fan, _), _)| (*size, *connections, *fan));
    groups.into_iter().map(|(_, group)| group).collect()
}

impl Group<'_> {
    pub(super) fn median(&self, value: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(|run| value(run)))
    }

    pub(super) fn spread(&self, value: impl Fn(&Run) -> f64) -> f64 {
        spread(self.runs.iter().map(|run| value(run)))
    }
}

/// The value that the column "x TCP" compares; larger is better.
pub(super) fn speed(run: &Run) -> f64 {
    match run.case.name {
        Name::Latency => 1.0 / run.p50(),
        Name::Cpu => 1.0 / run.measured.cpu_s(),
        _ => run.measured.messages_per_s(),
    }
}

/// The group of TCP to compare `run` with: in blocking mode if possible.
fn tcp<'a>(run: &Run, all: &'a [Group<'a>]) -> Option<&'a Group<'a>> {
    let beside = |group: &&Group<'_>| {
        group.runs.first().is_some_and(|other| {
            other.case.variant.transport == Transport::Tcp && {
                let ((a, b, c, _), (x, y, z, _)) = (key(run), key(other));
                (a, b, c) == (x, y, z)
            }
        })
    };
    let blocking = |group: &&Group<'_>| group.runs.iter().all(|run| run.case.variant.mode == Mode::Blocking);
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
    let mut table = Framed::new(heads(name));
    for group in &groups {
        let Some(run) = group.runs.first() else { continue };
        let ratio = tcp(run, &groups).map_or(f64::NAN, |tcp| group.median(speed) / tcp.median(speed));
        let mut row = vec![run.case.size.to_string()];
        match name {
            Name::Throughput | Name::Sizes => row.push(run.case.connections.to_string()),
            Name::Multicast => row.push(run.case.servers.to_string()),
            Name::Pairs => row.push(run.case.pairs.to_string()),
            Name::Latency | Name::Cpu => {}
        }
        row.extend([run.case.variant.label(), run.case.variant.mode.name()]);
        row.extend([format!("{:.0}", group.median(|l| l.messages() as f64))]);
        row.push(format!("{:.0}", group.median(|l| l.elapsed_s() * 1e3)));
        row.extend(values(name, group));
        row.push(format!("{:.0}%", 100.0 * group.spread(speed)));
        row.push(times(ratio));
        table.row(row);
    }
    print!("{}", table.text());
    println!(
        "spread: (largest - smallest) / median. x TCP: how many times as good as tcp, above 1 is better."
    );
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

fn heads(name: Name) -> Vec<[&'static str; 2]> {
    let mut heads = vec![["Msg Size", "[octets]"]];
    match name {
        Name::Throughput | Name::Sizes => heads.push(["#", "Conns"]),
        Name::Multicast => heads.push(["#", "Receivers"]),
        Name::Pairs => heads.push(["#", "Pairs"]),
        Name::Latency | Name::Cpu => {}
    }
    heads.extend([["Transport", ""], ["Mode", ""], ["# Msgs", ""], ["Elapsed", "[ms]"]]);
    heads.extend(match name {
        Name::Latency => vec![
            ["Avg round-", "trip [us]"],
            ["p50", "[us]"],
            ["p99", "[us]"],
            ["p99.9", "[us]"],
            ["Max", "[us]"],
            ["CPU all", "[ms]"],
        ],
        Name::Cpu => {
            vec![["CPU tx", "[ms]"], ["CPU rx", "[ms]"], ["CPU daemon", "[ms]"], ["Load", "[% of a core]"]]
        }
        _ => vec![
            ["Throughput", "[Msg/s]"],
            ["Throughput", "[Mb/s]"],
            ["Per Conn", "[Mb/s]"],
            ["CPU tx", "[ns/Msg]"],
            ["CPU rx", "[ns/Msg]"],
            ["Packets", "/Msg"],
            ["Acks", "/Msg"],
            ["Lost", ""],
        ],
    });
    heads.extend([["Spread", ""], ["x TCP", ""]]);
    heads
}

fn values(name: Name, group: &Group<'_>) -> Vec<String> {
    let rtt = |part: fn(&Summary) -> f64| {
        format!("{:.1}", group.median(|l| l.measured.rtt().as_ref().map_or(f64::NAN, part)))
    };
    let milliseconds = |value: &dyn Fn(&Run) -> f64| format!("{:.1}", 1e3 * group.median(value));
    match name {
        Name::Latency => vec![
            rtt(|r| r.mean),
            rtt(|r| r.p50),
            rtt(|r| r.p99),
            rtt(|r| r.p999),
            rtt(|r| r.max),
            milliseconds(&|l| l.measured.cpu_s()),
        ],
        Name::Cpu => vec![
            milliseconds(&|l| l.measured.client.cpu_s),
            milliseconds(&|l| l.measured.server.cpu_s),
            milliseconds(&|l| l.measured.daemons_cpu_s),
            format!("{:.1}", 100.0 * group.median(|l| l.measured.cpu_s() / l.elapsed_s())),
        ],
        _ => {
            let channels = |l: &Run| f64::from(l.case.connections * l.case.servers.max(l.case.pairs));
            let per_message =
                |cpu: fn(&Run) -> f64| format!("{:.0}", 1e9 * group.median(|l| cpu(l) / l.messages() as f64));
            let packets = |which: fn((f64, f64)) -> f64| {
                let value = group.median(|l| l.measured.packets_per_message().map_or(f64::NAN, which));
                if value.is_finite() { format!("{value:.3}") } else { "-".to_owned() }
            };
            vec![
                format!("{:.0}", group.median(|l| l.measured.messages_per_s())),
                format!("{:.1}", group.median(Run::mbit_per_s)),
                format!("{:.1}", group.median(|l| l.mbit_per_s() / channels(l))),
                per_message(|l| l.measured.client.cpu_s),
                per_message(|l| l.measured.server.cpu_s),
                packets(|(out, _)| out),
                packets(|(_, back)| back),
                format!("{:.0}", group.median(|l| (l.measured.client.lost + l.measured.server.lost) as f64)),
            ]
        }
    }
}

/// Prints percentiles of all round trips of each case.
pub(super) fn print_histograms(runs: &[Run]) {
    const SHARES: [f64; 9] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999];
    let mut table = Framed::new(
        [["Msg Size", "[octets]"], ["Transport", ""], ["Mode", ""], ["Min", "[us]"]]
            .into_iter()
            .chain([["1%", ""], ["10%", ""], ["25%", ""], ["50%", ""], ["75%", ""], ["90%", ""], ["99%", ""]])
            .chain([["99.9%", ""], ["99.99%", ""], ["Max", ""], ["Count", ""]])
            .collect(),
    );
    for group in groups(runs) {
        let times: Vec<_> =
            group.runs.iter().flat_map(|run| run.measured.client.times.iter().copied()).collect();
        let (Some(run), Some(all)) = (group.runs.first(), histogram(&times)) else { continue };
        let us = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
        let mut row = vec![run.case.size.to_string(), run.case.variant.label(), run.case.variant.mode.name()];
        row.push(us(all.min()));
        row.extend(SHARES.iter().map(|share| us(all.value_at_quantile(*share))));
        row.extend([us(all.max()), all.len().to_string()]);
        table.row(row);
    }
    println!("All round trips of all rounds [us]");
    print!("{}", table.text());
}

pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::job::EndResult;
    use super::super::run::{Case, Measured};
    use super::super::variant::{Engine, Kind, Scope};
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
        let tcp = tcp(&runs[0], &groups).unwrap();
        assert_eq!(groups[0].median(speed) / tcp.median(speed), 4.0);
        assert_eq!(groups[0].spread(speed), 0.5);
    }
}
