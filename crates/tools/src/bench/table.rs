//! The medians for people, in the manner of TIPC's own benchmark program, beside TCP's.

use super::party::{Mode, Party, Transport};
use super::run::{Line, Name};
use super::stats::{Rtt, histogram, median, spread};

/// The runs of one case.
pub(super) struct Group<'a> {
    pub(super) lines: Vec<&'a Line>,
}

/// What tells cases apart in a table.
type Key = (u32, u32, u32, Party);

fn key(line: &Line) -> Key {
    let case = &line.case;
    (case.size, case.connections, case.servers.max(case.pairs), case.party)
}

/// The runs, gathered by case in the order in which the cases appear.
pub(super) fn groups(lines: &[Line]) -> Vec<Group<'_>> {
    let mut groups: Vec<(Key, Group<'_>)> = Vec::new();
    for line in lines {
        let own = key(line);
        match groups.iter_mut().find(|(key, _)| *key == own) {
            Some((_, group)) => group.lines.push(line),
            None => groups.push((own, Group { lines: vec![line] })),
        }
    }
    groups.sort_by_key(|((size, connections, fan, _), _)| (*size, *connections, *fan));
    groups.into_iter().map(|(_, group)| group).collect()
}

impl Group<'_> {
    pub(super) fn median(&self, value: impl Fn(&Line) -> f64) -> f64 {
        median(self.lines.iter().map(|line| value(line)))
    }

    pub(super) fn spread(&self, value: impl Fn(&Line) -> f64) -> f64 {
        spread(self.lines.iter().map(|line| value(line)))
    }
}

/// What the column "x TCP" compares: larger is better.
pub(super) fn speed(line: &Line) -> f64 {
    match line.case.name {
        Name::Latency => 1.0 / line.p50(),
        Name::Cpu => 1.0 / line.measured.cpu_s(),
        _ => line.measured.messages_per_s(),
    }
}

/// The group of TCP that `line` is compared with: blocking if there is one.
fn tcp<'a>(line: &Line, all: &'a [Group<'a>]) -> Option<&'a Group<'a>> {
    let beside = |group: &&Group<'_>| {
        group.lines.first().is_some_and(|other| {
            other.case.party.transport == Transport::Tcp && {
                let ((a, b, c, _), (x, y, z, _)) = (key(line), key(other));
                (a, b, c) == (x, y, z)
            }
        })
    };
    let blocking = |group: &&Group<'_>| group.lines.iter().all(|line| line.case.party.mode == Mode::Blocking);
    all.iter().filter(beside).find(blocking).or_else(|| all.iter().find(beside))
}

/// Whether programs translate this processor's instructions, as in the interop lab.
fn is_emulated() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("QEMU TCG CPU"))
}

/// Prints the medians of all cases.
pub(super) fn print(lines: &[Line]) {
    let Some(first) = lines.first() else { return };
    let groups = groups(lines);
    let rounds = groups.iter().map(|group| group.lines.len()).max().unwrap_or(0);
    let (name, scope, engine) = (first.case.name, first.scope.name(), first.engine.name());
    let emulated = if is_emulated() { ", emulated CPU: ratios alone count" } else { "" };
    println!("{}, {scope}-node, {engine} nodes, medians of {rounds} rounds{emulated}", caption(name));
    let mut table = Table::new(heads(name));
    for group in &groups {
        let Some(line) = group.lines.first() else { continue };
        let ratio = tcp(line, &groups).map_or(f64::NAN, |tcp| group.median(speed) / tcp.median(speed));
        let mut row = vec![line.case.size.to_string()];
        match name {
            Name::Throughput | Name::Sizes => row.push(line.case.connections.to_string()),
            Name::Multicast => row.push(line.case.servers.to_string()),
            Name::Pairs => row.push(line.case.pairs.to_string()),
            Name::Latency | Name::Cpu => {}
        }
        row.extend([line.case.party.label(), line.case.party.mode.name()]);
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
    let rtt = |part: fn(&Rtt) -> f64| {
        format!("{:.1}", group.median(|l| l.measured.rtt().as_ref().map_or(f64::NAN, part)))
    };
    let milliseconds = |value: &dyn Fn(&Line) -> f64| format!("{:.1}", 1e3 * group.median(value));
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
            let ways = |l: &Line| f64::from(l.case.connections * l.case.servers.max(l.case.pairs));
            let per_message = |cpu: fn(&Line) -> f64| {
                format!("{:.0}", 1e9 * group.median(|l| cpu(l) / l.messages() as f64))
            };
            let packets = |which: fn((f64, f64)) -> f64| {
                let value = group.median(|l| l.measured.packets_per_message().map_or(f64::NAN, which));
                if value.is_finite() { format!("{value:.3}") } else { "-".to_owned() }
            };
            vec![
                format!("{:.0}", group.median(|l| l.measured.messages_per_s())),
                format!("{:.1}", group.median(Line::mbit_per_s)),
                format!("{:.1}", group.median(|l| l.mbit_per_s() / ways(l))),
                per_message(|l| l.measured.client.cpu_s),
                per_message(|l| l.measured.server.cpu_s),
                packets(|(out, _)| out),
                packets(|(_, back)| back),
                format!("{:.0}", group.median(|l| (l.measured.client.lost + l.measured.server.lost) as f64)),
            ]
        }
    }
}

/// The distribution of all round trips of each case, as the smallest time that so many do not exceed.
pub(super) fn print_histograms(lines: &[Line]) {
    const SHARES: [f64; 9] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999];
    let mut table = Table::new(
        [["Msg Size", "[octets]"], ["Transport", ""], ["Mode", ""], ["Min", "[us]"]]
            .into_iter()
            .chain([["1%", ""], ["10%", ""], ["25%", ""], ["50%", ""], ["75%", ""], ["90%", ""], ["99%", ""]])
            .chain([["99.9%", ""], ["99.99%", ""], ["Max", ""], ["Count", ""]])
            .collect(),
    );
    for group in groups(lines) {
        let times: Vec<_> =
            group.lines.iter().flat_map(|line| line.measured.client.times.iter().copied()).collect();
        let (Some(line), Some(all)) = (group.lines.first(), histogram(&times)) else { continue };
        let us = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
        let mut row = vec![line.case.size.to_string(), line.case.party.label(), line.case.party.mode.name()];
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

/// Rows under two-line heads, in frames.
struct Table {
    heads: Vec<[&'static str; 2]>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heads: Vec<[&'static str; 2]>) -> Self {
        Self { heads, rows: Vec::new() }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn text(&self) -> String {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column)).map(String::len);
        let widths: Vec<usize> = (0..)
            .zip(&self.heads)
            .map(|(column, [a, b])| cells(column).chain([a.len(), b.len()]).max().unwrap_or(0))
            .collect();
        let frame: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
        let line = |cells: &[&str]| {
            let cell = |(text, width): (&&str, &usize)| format!("| {text:>width$} ");
            format!("{}|\n", cells.iter().zip(&widths).map(cell).collect::<String>())
        };
        let mut text = format!("{frame}+\n");
        for half in 0..2 {
            text += &line(&self.heads.iter().map(|head| head[half]).collect::<Vec<_>>());
        }
        text += &format!("{frame}+\n");
        for row in &self.rows {
            text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        text + &format!("{frame}+\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Part;
    use super::super::party::{Engine, Kind, Scope};
    use super::super::run::{Case, Measured};
    use super::*;

    fn line(party: Party, size: u32, messages: u64) -> Line {
        let server = Part { messages, ended: 1_000_000_000, ..Part::default() };
        let measured = Measured { server, ..Measured::default() };
        let case = Case::new(Name::Throughput, party, size);
        Line { case, scope: Scope::Intra, engine: Engine::Embedded, round: 0, measured }
    }

    #[test]
    fn a_case_is_compared_with_tcp_of_its_size() {
        let own = Party::new(Transport::Utipc, Mode::Busy, Kind::Rdm);
        let busy = Party::new(Transport::Tcp, Mode::Busy, Kind::Stream);
        let lines = [
            line(own, 64, 300),
            line(busy, 64, 10),
            line(Party::TCP, 64, 100),
            line(Party::TCP, 1000, 7),
            line(own, 64, 500),
            line(own, 64, 400),
        ];
        let groups = groups(&lines);
        assert_eq!(groups.len(), 4);
        let tcp = tcp(&lines[0], &groups).unwrap();
        assert_eq!(groups[0].median(speed) / tcp.median(speed), 4.0);
        assert_eq!(groups[0].spread(speed), 0.5);
    }

    #[test]
    fn frames_fit_what_is_in_them() {
        let mut table = Table::new(vec![["A", ""], ["Longer", "x"]]);
        table.row(vec!["12345".into(), "1".into()]);
        let text = table.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "+-------+--------+");
        assert_eq!(lines[1], "|     A | Longer |");
        assert_eq!(lines[4], "| 12345 |      1 |");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }
}
