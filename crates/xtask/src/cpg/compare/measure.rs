//! The measurements: rates, latency, and what survivors see when a member is killed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::sides::{Daemons, Side, Site};
use crate::running::Running;

/// Sizes of the messages of rates, bytes.
pub(super) const SIZES: [u32; 2] = [64, 1400];
/// Messages that are timed one at a time.
const ONE_BY_ONE: u32 = 2000;
/// Message and interval of each member while one is killed.
const LOAD: &str = "load 64 500";
/// How long members send before one is killed.
const BEFORE: Duration = Duration::from_secs(1);
/// How long survivors send after their view.
const AFTER: Duration = Duration::from_millis(300);

/// The member that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The most senior member: utipc's sequencer.
    Senior,
    /// The member of the other node.
    Junior,
}

impl Sender {
    pub(super) const BOTH: [Self; 2] = [Self::Senior, Self::Junior];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Senior => "the senior member sends",
            Self::Junior => "the junior member sends",
        }
    }
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The process of the member.
    Process,
    /// The process and the daemon of its node.
    Node,
}

/// A row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Messages per second of so many bytes, at the slower one of both members.
    Rate(u32, Sender),
    /// Median time from a call to the own delivery, in µs.
    Latency(Sender),
    /// Longest time from the kill to a survivor's view, in ms.
    Kill(Victim),
}

/// One measured value.
pub(super) struct Value {
    pub(super) side: Side,
    pub(super) test: Test,
    pub(super) value: f64,
}

/// Measures rates and latency once.
pub(super) fn traffic(daemons: &mut Daemons<'_>, side: Side, rate_ms: u64) -> Result<Vec<Value>> {
    let mut members = daemons.members(side, &[0, 1])?;
    let mut values = Vec::new();
    for (at, sender) in Sender::BOTH.into_iter().enumerate() {
        for size in SIZES {
            members.get_mut(at).context("two members")?.tell(&format!("rate {size} {rate_ms}"))?;
            let mut slower = f64::INFINITY;
            for member in &mut members {
                let words = member.words_of("rate")?;
                let [messages, ns] = [number(&words, 1)?, number(&words, 2)?];
                slower = slower.min(messages as f64 * 1e9 / (ns.max(1)) as f64);
            }
            values.push(Value { side, test: Test::Rate(size, sender), value: slower });
        }
        let member = members.get_mut(at).context("two members")?;
        member.tell(&format!("latency 64 {ONE_BY_ONE}"))?;
        let ns = number(&member.words_of("latency")?, 1)?;
        values.push(Value { side, test: Test::Latency(sender), value: ns as f64 / 1e3 });
    }
    compare_histories(side, &mut members)?;
    Ok(values)
}

/// Kills the most senior of three members, which is alone on its node.
pub(super) fn kill(site: &Site, side: Side, victim: Victim) -> Result<Value> {
    let mut daemons = site.start(side)?;
    let mut members = daemons.members(side, &[1, 0, 0])?;
    for member in &mut members {
        member.tell(LOAD)?;
    }
    std::thread::sleep(BEFORE);
    let mut killed = members.remove(0);
    let at = time_of_day()?;
    if victim == Victim::Node {
        daemons.kill(1)?;
    }
    killed.kill()?;
    let mut longest = 0;
    let mut views = Vec::new();
    for member in &mut members {
        let words = member.words_of("view")?;
        ensure!(number(&words, 1)? == 2, "{}: a survivor has the view {words:?}", side.name());
        longest = longest.max(number(&words, 2)?.saturating_sub(at));
        // Members, messages and hash.
        views.push((words.get(1).cloned(), words.get(3).cloned(), words.get(4).cloned()));
    }
    ensure!(
        views.first() == views.last(),
        "{}: the histories before the view differ: {views:?}",
        side.name()
    );
    std::thread::sleep(AFTER);
    for member in &mut members {
        member.tell("stop")?;
    }
    compare_histories(side, &mut members)?;
    Ok(Value { side, test: Test::Kill(victim), value: longest as f64 / 1e6 })
}

/// Checks that all members have received the same messages and views in the same order.
fn compare_histories(side: Side, members: &mut [Running]) -> Result<()> {
    members.first_mut().context("members")?.tell("mark")?;
    let mut all = Vec::new();
    for member in members {
        all.push(member.words_of("mark")?);
    }
    ensure!(all.windows(2).all(|two| two[0] == two[1]), "{}: histories differ: {all:?}", side.name());
    Ok(())
}

fn number(words: &[String], at: usize) -> Result<u64> {
    let word = words.get(at).with_context(|| format!("{words:?} is too short"))?;
    word.parse().with_context(|| format!("{words:?} has no number there"))
}

/// The clock that members use for views, ns.
fn time_of_day() -> Result<u64> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?;
    u64::try_from(time.as_nanos()).context("read the clock")
}
