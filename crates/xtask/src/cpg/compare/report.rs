//! The result of a comparison: a row for each test, with the ratios to Corosync.

use std::fmt::Write as _;

use serde_json::{Map, json};

use super::measure::{SIZES, Sender, Test, Value, Victim};
use super::sides::Side;

/// utipc's default tolerance of a link, and what a view may take beyond it, ms.
const KILL_LIMIT_MS: f64 = 1500.0 + 100.0;

/// A row: the rounds of each side.
pub(super) struct Row {
    test: Test,
    sides: Vec<(Side, Vec<f64>)>,
}

/// The rows of all values.
pub(super) fn rows(values: &[Value]) -> Vec<Row> {
    let rates = SIZES.into_iter().flat_map(|size| Sender::BOTH.map(|sender| Test::Rate(size, sender)));
    let latency = Sender::BOTH.map(Test::Latency);
    let kills = [Victim::Process, Victim::Node].map(Test::Kill);
    let tests: Vec<Test> = rates.chain(latency).chain(kills).collect();
    let row = |test: Test| {
        let of = |side| {
            let all = values.iter().filter(|value| value.side == side && value.test == test);
            (side, all.map(|value| value.value).collect::<Vec<f64>>())
        };
        Row { test, sides: Side::ALL.map(of).into_iter().filter(|(_, rounds)| !rounds.is_empty()).collect() }
    };
    tests.into_iter().map(row).filter(|row| !row.sides.is_empty()).collect()
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) }
}

impl Row {
    fn name(&self) -> String {
        match self.test {
            Test::Rate(size, sender) => format!("messages/s of {size} B, {}", sender.name()),
            Test::Latency(sender) => format!("one at a time, {}, µs", sender.name()),
            Test::Kill(Victim::Process) => "killed process, until the view, ms".into(),
            Test::Kill(Victim::Node) => "killed node, until the view, ms".into(),
        }
    }

    /// The value of a side: the median, of kills the largest.
    fn value(&self, side: Side) -> Option<f64> {
        let (_, rounds) = self.sides.iter().find(|(other, _)| *other == side)?;
        Some(match self.test {
            Test::Kill(_) => rounds.iter().copied().fold(0.0, f64::max),
            _ => median(rounds),
        })
    }

    fn ratio(&self, side: Side) -> Option<f64> {
        Some(self.value(side)? / self.value(Side::Corosync)?)
    }

    fn target(&self) -> &'static str {
        match self.test {
            Test::Rate(..) => "agreed ≥ 2 ×, safe ≥ 1 ×",
            Test::Latency(_) => "agreed ≤ 0.5 ×",
            Test::Kill(_) => "agreed ≤ 1600 ms",
        }
    }

    /// Whether a side meets its target.
    fn is_met(&self, side: Side) -> Option<bool> {
        match (self.test, side) {
            (Test::Rate(..), Side::Agreed) => Some(self.ratio(side)? >= 2.0),
            (Test::Rate(..), Side::Safe) => Some(self.ratio(side)? >= 1.0),
            (Test::Latency(_), Side::Agreed) => Some(self.ratio(side)? <= 0.5),
            (Test::Kill(_), Side::Agreed) => Some(self.value(side)? <= KILL_LIMIT_MS),
            _ => None,
        }
    }

    fn cell(&self, side: Side) -> String {
        let Some(value) = self.value(side) else { return String::new() };
        let digits = usize::from(value < 10.0);
        let mut text = format!("{value:.digits$}");
        if side != Side::Corosync
            && let Some(ratio) = self.ratio(side)
        {
            let _ = write!(text, " ({ratio:.2} ×)");
        }
        text
    }

    fn verdict(&self) -> String {
        let of = |side: Side| {
            let word = if self.is_met(side)? { "yes".to_owned() } else { format!("**{} no**", side.name()) };
            Some(word)
        };
        let mut words: Vec<String> = [Side::Agreed, Side::Safe].into_iter().filter_map(of).collect();
        words.dedup();
        words.join(", ")
    }

    pub(super) fn to_json(&self, version: &str, commit: &str) -> String {
        let mut sides = Map::new();
        for (side, rounds) in &self.sides {
            let about = json!({
                "value": self.value(*side),
                "ratio": self.ratio(*side),
                "met": self.is_met(*side),
                "rounds": rounds,
            });
            sides.insert(side.name().into(), about);
        }
        json!({ "row": self.name(), "corosync": version, "commit": commit, "target": self.target(), "sides": sides })
            .to_string()
    }
}

/// Prints a Markdown table.
pub(super) fn print(rows: &[Row]) {
    println!("| | Corosync | `libcpg` | `ordered`, agreed | safe | embedded, agreed | Target | Met |");
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows {
        let cells: Vec<String> = Side::ALL.iter().map(|side| row.cell(*side)).collect();
        println!("| {} | {} | {} | {} |", row.name(), cells.join(" | "), row.target(), row.verdict());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(test: Test, corosync: &[f64], agreed: &[f64]) -> Row {
        let value = |side, value: &f64| Value { side, test, value: *value };
        let all: Vec<Value> = corosync
            .iter()
            .map(|v| value(Side::Corosync, v))
            .chain(agreed.iter().map(|v| value(Side::Agreed, v)))
            .collect();
        rows(&all).into_iter().next().expect("a row")
    }

    #[test]
    fn rates_and_latencies_are_judged_by_medians() {
        let rate = row(Test::Rate(64, Sender::Senior), &[10.0, 1000.0, 11.0], &[22.0, 5.0, 900.0]);
        assert_eq!(rate.is_met(Side::Agreed), Some(true));
        let rate = row(Test::Rate(64, Sender::Senior), &[10.0, 12.0], &[21.0]);
        assert_eq!(rate.verdict(), "**agreed no**");
        let latency = row(Test::Latency(Sender::Junior), &[100.0], &[51.0]);
        assert_eq!(latency.is_met(Side::Agreed), Some(false));
    }

    #[test]
    fn kills_are_judged_by_the_longest() {
        let kill = row(Test::Kill(Victim::Node), &[6000.0], &[1500.0, 1601.0, 1400.0]);
        assert_eq!((kill.value(Side::Agreed), kill.is_met(Side::Agreed)), (Some(1601.0), Some(false)));
    }
}
