//! `events`: every program of the chain is killed, stopped and restarted, the service goes down and up, its data become
//! suspect, and the dictionary changes. After each event every field and state of every item must be the publisher's.

mod chain;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::Serialize;
use utipc_bench_kit::stats::{median, quantile};
use utipc_bench_kit::table::{markdown_head, markdown_row};
use utipc_bench_kit::{group_by, interrupt, progress};

use self::chain::Chain;
use super::options::Options;
use super::place::{self, Backbone, Place};

/// Updates per second and items, unless the options name others.
const RATE: u64 = 30_000;
const ITEMS: usize = 10_000;
/// Repetitions of each event, unless the options name another number.
const REPEAT: usize = 20;
/// Time for which a program is stopped, and the same with `--quick`.
const STOP: Duration = Duration::from_secs(10);
const SHORT_STOP: Duration = Duration::from_secs(3);
/// Time for which a killed program is away.
const AWAY: Duration = Duration::from_secs(2);
/// Time for which the service is down, and for which its data are suspect.
const DOWN: Duration = Duration::from_secs(1);
/// Time between the end of an event and the next one of a pair: the chain has begun to recover.
const BETWEEN: Duration = Duration::from_millis(100);
/// Longest time for which an item may be suspect after the last event, with `--timed`.
const SUSPECT: Duration = Duration::from_secs(2);
/// Time limit of a recovery, and of the arrival of the last updates, far above what a busy machine needs.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval of looks at the consumer, and the time for which all items must stay good.
const LOOK: Duration = Duration::from_millis(20);
const STEADY: Duration = Duration::from_millis(500);

/// A program of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Provider = 0,
    Source = 1,
    Server = 2,
    Consumer = 3,
}

impl Part {
    const ALL: [Self; 4] = [Self::Provider, Self::Source, Self::Server, Self::Consumer];

    const fn name(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Source => "src_dist",
            Self::Server => "p2ps",
            Self::Consumer => "consumer",
        }
    }

    /// Index of its count of stale items, if it has one.
    const fn watchdog(self) -> Option<usize> {
        match self {
            Self::Source => Some(0),
            Self::Server => Some(1),
            Self::Provider | Self::Consumer => None,
        }
    }
}

/// An ordinary event. To add one, add it to [`Event::all`] and [`Event::perform`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The program is killed, and started again after [`AWAY`].
    Killed(Part),
    /// The program does not run for a time.
    Stopped(Part),
    /// The program ends in good order and is started again at once.
    Restarted(Part),
    /// The provider reports its service down, and up again.
    ServiceDown,
    /// The provider reports the group of all items suspect, and good again.
    GroupSuspect,
    /// The provider is started again with another version of the dictionary.
    NewDictionary,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed(part) => write!(f, "{} killed", part.name()),
            Self::Stopped(part) => write!(f, "{} stopped", part.name()),
            Self::Restarted(part) => write!(f, "{} restarted", part.name()),
            Self::ServiceDown => f.write_str("service down"),
            Self::GroupSuspect => f.write_str("group suspect"),
            Self::NewDictionary => f.write_str("new dictionary"),
        }
    }
}

impl Event {
    fn all() -> Vec<Self> {
        let of_programs = [Self::Killed, Self::Stopped, Self::Restarted];
        let of_programs = of_programs.into_iter().flat_map(|event| Part::ALL.map(event));
        of_programs.chain([Self::ServiceDown, Self::GroupSuspect, Self::NewDictionary]).collect()
    }

    /// Causes the event; returns when everything is up again.
    fn perform(self, chain: &mut Chain<'_>, stop: Duration) -> Result<()> {
        match self {
            Self::Killed(part) => {
                chain.kill(part)?;
                chain.wait(AWAY)?;
                chain.start_part(part)
            }
            Self::Stopped(part) => {
                chain.signal(part, Signal::STOP)?;
                let slept = chain.wait(stop);
                chain.signal(part, Signal::CONT)?;
                slept
            }
            Self::Restarted(part) => {
                chain.end(part)?;
                chain.start_part(part)
            }
            Self::ServiceDown => {
                chain.publisher("service down")?;
                chain.wait(DOWN)?;
                chain.publisher("service up").map(drop)
            }
            Self::GroupSuspect => {
                chain.publisher("group suspect")?;
                chain.wait(DOWN)?;
                chain.publisher("group good").map(drop)
            }
            Self::NewDictionary => {
                chain.end(Part::Provider)?;
                chain.dictionary += 1;
                chain.start_part(Part::Provider)
            }
        }
    }
}

/// One event or pair, and what it led to.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(rename = "event")]
    name: String,
    /// Time from the end of the last event until the last item was good, seconds.
    recovery_s: f64,
    /// Items that the watchdogs had to request when everything was up again.
    stale_requests: u64,
    /// Items or fields that differ, as text; empty: all are equal.
    faults: Vec<String>,
}

/// The results over one backbone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EventsTest {
    backbone: Backbone,
    items: usize,
    rate: u64,
    #[serde(rename = "each")]
    outcomes: Vec<Outcome>,
}

impl EventsTest {
    /// Performs the events that the options name. Fails if the programs do not start.
    pub(super) fn run(options: &Options) -> Result<Self> {
        let backbone = match options.backbone.first() {
            Some(backbone) => *backbone,
            None if place::no_namespaces().is_none() => Backbone::Own,
            None => Backbone::Lanes,
        };
        ensure!(backbone != Backbone::None, "it needs a backbone (use --backbone own, udp or lanes)");
        let items = options.items.min(ITEMS);
        let rate = options.rate.unwrap_or(RATE);
        let stop = match options.seconds {
            Some(seconds) => Duration::from_secs(seconds),
            None if options.quick => SHORT_STOP,
            None => STOP,
        };
        let place = Place::new(backbone)?;
        let mut test = Self { backbone, items, rate, outcomes: Vec::new() };
        let mut chain = start(&place, items, rate)?;
        for sequence in sequences(options)? {
            if interrupt::came() {
                break;
            }
            let names: Vec<String> = sequence.iter().map(ToString::to_string).collect();
            let name = names.join(", then ");
            let mut outcome = match perform(&mut chain, &sequence, stop, rate, options.timed) {
                Ok(outcome) => outcome,
                Err(why) => Outcome {
                    name: String::new(),
                    recovery_s: 0.0,
                    stale_requests: 0,
                    faults: vec![format!("{why:#}")],
                },
            };
            interrupt::check()?;
            outcome.name = name;
            progress(&outcome.line());
            if !outcome.faults.is_empty() {
                chain.log_counts();
                drop(chain);
                chain = start(&place, items, rate)?;
            }
            test.outcomes.push(outcome);
        }
        Ok(test)
    }

    /// Number of runs without a fault.
    pub(super) fn passed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.faults.is_empty()).count()
    }

    /// The faults, as text.
    pub(super) fn faults(&self) -> Vec<String> {
        self.outcomes.iter().filter(|outcome| !outcome.faults.is_empty()).map(Outcome::line).collect()
    }

    /// The report: a line for each event, pairs by their second event.
    pub(super) fn table(&self) -> String {
        let columns =
            "Event | runs | with differences | recovery: median, longest, s | requested by watchdogs";
        let mut text = markdown_head(columns);
        for (name, all) in group_by(&self.outcomes, |outcome| outcome.row()) {
            let times = || all.iter().map(|outcome| outcome.recovery_s);
            let differ = all.iter().filter(|outcome| !outcome.faults.is_empty()).count();
            let stale: u64 = all.iter().map(|outcome| outcome.stale_requests).sum();
            let times = format!("{:.2}, {:.2}", median(times()), quantile(times(), 1.0));
            text += &markdown_row([
                name,
                &all.len().to_string(),
                &differ.to_string(),
                &times,
                &stale.to_string(),
            ]);
        }
        text
    }
}

impl Outcome {
    fn line(&self) -> String {
        let result = if self.faults.is_empty() { "equal".into() } else { self.faults.join("; ") };
        let stale = match self.stale_requests {
            0 => String::new(),
            stale => format!(", {stale} items requested by the watchdogs"),
        };
        format!("{}: {result}; good after {:.2} s{stale}", self.name, self.recovery_s)
    }

    /// The row of the table that has it.
    fn row(&self) -> &str {
        self.name.split_once(", then ").map_or(&self.name, |(first, _)| &self.name[first.len() + 2..])
    }
}

/// The events to perform: each alone, as often as the options say, then each pair once.
fn sequences(options: &Options) -> Result<Vec<Vec<Event>>> {
    let all = Event::all();
    if !options.event.is_empty() {
        let one = |name: &String| {
            let known = || all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let named = |name: &str| all.iter().copied().find(|event| event.to_string() == name.trim());
            name.split('+')
                .map(|name| named(name).with_context(|| format!("unknown event '{name}' (use {})", known())))
                .collect::<Result<Vec<Event>>>()
        };
        let asked = options.event.iter().map(one).collect::<Result<Vec<_>>>()?;
        return Ok(std::iter::repeat_n(asked, options.repeat.unwrap_or(1)).flatten().collect());
    }
    let repeat = options.repeat.unwrap_or(if options.quick { 1 } else { REPEAT });
    let singles = std::iter::repeat_n(&all, repeat).flatten().map(|event| vec![*event]);
    let pairs = all.iter().flat_map(|first| all.iter().map(|second| vec![*first, *second]));
    Ok(singles.chain(pairs.filter(|_| !options.quick)).collect())
}

/// Starts the chain, and waits until all items are loaded.
fn start<'p>(place: &'p Place, items: usize, rate: u64) -> Result<Chain<'p>> {
    let mut chain = Chain::start(place, items, rate)?;
    wait_until_good(&mut chain, Instant::now())?;
    Ok(chain)
}

/// Performs the events of a sequence and checks the items.
fn perform(
    chain: &mut Chain<'_>,
    sequence: &[Event],
    stop: Duration,
    rate: u64,
    timed: bool,
) -> Result<Outcome> {
    chain.publisher(&format!("rate {rate}"))?;
    chain.wait(STEADY)?;
    for (number, event) in sequence.iter().enumerate() {
        if number > 0 {
            chain.wait(BETWEEN)?;
        }
        event.perform(chain, stop).with_context(|| format!("{event}"))?;
    }
    let since = Instant::now();
    chain.stale_requests()?;
    let recovery = wait_until_good(chain, since)?;
    let mut faults = compare(chain)?;
    let stale_requests = chain.stale_requests()?;
    if timed && recovery > SUSPECT {
        faults.push(format!("items were suspect for more than {SUSPECT:?}"));
    }
    // A provider that is stopped in the middle of a recovery keeps items suspect: the watchdogs request them in vain.
    let is_silent = sequence.contains(&Event::Stopped(Part::Provider));
    if timed && stale_requests > 0 && !is_silent {
        faults.push("items stayed suspect until the watchdogs requested them".into());
    }
    Ok(Outcome { name: String::new(), recovery_s: recovery.as_secs_f64(), stale_requests, faults })
}

/// Waits until all items have been good for [`STEADY`]; returns the time from `since` until the last one was good.
fn wait_until_good(chain: &mut Chain<'_>, since: Instant) -> Result<Duration> {
    let items = chain.items();
    let (mut good_since, mut suspects) = (None, None);
    loop {
        chain.check_alive()?;
        let seen = chain.consumer("counts")?;
        let suspect = seen["counts"]["suspect"].as_u64();
        let is_good = seen["wanted"].as_u64() == Some(items) && seen["loaded"].as_u64() == Some(items);
        if !is_good || suspect != suspects {
            (good_since, suspects) = (None, suspect);
        }
        if is_good {
            let began = *good_since.get_or_insert_with(Instant::now);
            if began.elapsed() >= STEADY {
                return Ok(began.saturating_duration_since(since));
            }
        }
        ensure!(
            since.elapsed() < LIMIT,
            "{} of {items} items are good after {LIMIT:?}: {}; {}",
            seen["loaded"],
            seen["counts"],
            seen["cut"]
        );
        interrupt::sleep(LOOK, || Ok(()))?;
    }
}

/// Stops the updates, and compares every field of every item with the publisher's, until all are equal or time is up.
fn compare(chain: &mut Chain<'_>) -> Result<Vec<String>> {
    chain.publisher("rate 0")?;
    let (file, items) = (chain.published()?, chain.items());
    let end = Instant::now() + LIMIT;
    loop {
        chain.check_alive()?;
        let published = chain.publisher(&format!("items {}", file.display()))?;
        let seen = chain.consumer(&format!("compare {}", file.display()))?;
        let (seen, published) = (&seen["compared"], published["items"].as_u64());
        let count = |name: &str| seen[name].as_u64();
        let whole = count("items") == Some(items) && published == Some(items);
        if whole && count("equal") == Some(items) && count("behind") == Some(0) && count("missing") == Some(0)
        {
            return Ok(Vec::new());
        }
        if Instant::now() >= end {
            return Ok(vec![format!("{seen}, of {published:?} items of the publisher")]);
        }
        interrupt::sleep(5 * LOOK, || Ok(()))?;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_event_is_performed_alone_and_after_every_other() {
        let of = |text: &str| sequences(&Options::parse_from(text.split_whitespace())).unwrap();
        let all = Event::all().len();
        assert_eq!((all, of("mdist-bench events --quick").len()), (15, all));
        let whole = of("mdist-bench events");
        assert_eq!(whole.len(), REPEAT * all + all * all);
        assert_eq!(whole.last(), Some(&vec![Event::NewDictionary, Event::NewDictionary]));
    }

    #[test]
    fn events_are_chosen_by_name() {
        let mut options = Options::parse_from(["mdist-bench", "events"]);
        options.event = vec!["p2ps killed+service down".into()];
        let asked = [Event::Killed(Part::Server), Event::ServiceDown];
        assert_eq!(sequences(&options).unwrap(), [asked.to_vec()]);
        options.event = vec!["earthquake".into()];
        assert!(sequences(&options).unwrap_err().to_string().contains("provider killed"));
    }
}
