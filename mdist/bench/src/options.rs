//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::place::Backbone;

/// Re-runs the tables of the RMDS 6 performance report on this machine.
///
/// T1 to T7 measure the CPU time that an update costs a component, at the report's rate or, if this machine does not
/// reach it, at 0.9 of its own highest rate; and the highest rate without loss. T8 measures latency against rate.
/// `chain` measures the highest rate of publisher, distributor, backbone, server and client together; `direct` that of
/// publisher and client alone. `stall` stops one of two servers for a second at 200,000 updates a second, and measures
/// how late the other one's updates are. `images` loads all items while the publisher sends 2,000,000 updates a second,
/// and searches the highest rate at which that takes at most 5 s. `sdk` measures the vendor's own pair, alone and with
/// our programs in between, if UTIPC_RTSDK_BIN names the folder of its ConsPerf and ProvPerf; `images` uses them too.
/// `events` kills, stops and restarts each program of the chain, alone 20 times and in the middle of the recovery from
/// each other event, and compares every field of 10,000 items with the publisher's.
/// Prints a Markdown report to standard output and progress to standard error. All tests take about 40 minutes; the
/// machine should be idle otherwise.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "mdist-bench", version)]
pub(crate) struct Options {
    /// Tests to run: direct, sdk, images, T1 … T8, chain, stall, events [default: all except direct and events]
    #[arg(value_name = "TEST")]
    pub(crate) tests: Vec<String>,
    /// The path between distributor and server; several are measured one after the other [default: lanes,udp]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) backbone: Vec<Backbone>,
    /// Repetitions of each measurement; the median counts [default: 3; 1 with --quick, --full]
    #[arg(long)]
    pub(crate) repeat: Option<usize>,
    /// Duration of each measurement in seconds [default: 10; 2 with --quick, 300 with --full]
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Short measurements, to check that everything runs
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Every rate of the report for five minutes, with 100 items of its own for each of many mounts
    #[arg(long)]
    pub(crate) full: bool,
    /// Measure a foreign RSSL server with our client; it has its own data, or connects to our publisher (see --source)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) target: Option<String>,
    /// Address of our publisher, to which the foreign server connects
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) source: Option<String>,
    /// Name of the service
    #[arg(long, default_value = "DIRECT_FEED")]
    pub(crate) service: String,
    /// Items in tests with a single mount
    #[arg(long, default_value_t = 100_000)]
    pub(crate) items: usize,
    /// Mounts in tests with many
    #[arg(long, default_value_t = 100)]
    pub(crate) mounts: usize,
    /// Items that each of many mounts alone opens [default: 10; 100 with --full]
    #[arg(long)]
    pub(crate) own_items: Option<usize>,
    /// Rates of T8 [default: some rates of the report; with --full all of them]
    #[arg(long, value_delimiter = ',')]
    pub(crate) rates: Vec<u64>,
    /// Measure T1 to T7, chain, stall, images and direct at this rate only, without a search for the highest
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Events that `events` causes, such as "provider killed" or "p2ps killed+service down" [default: all]
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Vec<String>,
    /// Let `events` fail if an item stays suspect for more than 2 s, or until a watchdog requests it
    #[arg(long)]
    pub(crate) timed: bool,
    /// Settings for p2ps and src_dist; they override those of the test
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Write all results as JSON; the file is rewritten after each test
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Folder for plots
    #[arg(long, value_name = "FOLDER", default_value = "target/mdist-bench")]
    pub(crate) plots: PathBuf,
}

/// Names of the tests, in the order in which they run.
pub(super) const TESTS: [&str; 14] =
    ["direct", "sdk", "images", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "chain", "stall", "events"];

impl Options {
    /// The tests to run.
    pub(super) fn names(&self) -> Result<Vec<&'static str>> {
        let known = |name: &String| {
            let found = TESTS.iter().copied().find(|test| test.eq_ignore_ascii_case(name));
            found.with_context(|| format!("unknown test '{name}' (use {})", TESTS.join(", ")))
        };
        let asked = self.tests.iter().map(known).collect::<Result<Vec<_>>>()?;
        Ok(TESTS
            .into_iter()
            .filter(|test| match asked.is_empty() {
                true => !matches!(*test, "direct" | "events"),
                false => asked.contains(test),
            })
            .collect())
    }

    pub(super) fn backbones(&self) -> Vec<Backbone> {
        if self.backbone.is_empty() { vec![Backbone::Lanes, Backbone::Udp] } else { self.backbone.clone() }
    }

    pub(super) fn repeat(&self) -> usize {
        self.repeat.unwrap_or(if self.quick || self.full { 1 } else { 3 }).max(1)
    }

    /// Duration of a measurement.
    pub(super) fn window(&self) -> Duration {
        let usual = match (self.quick, self.full) {
            (true, _) => 2,
            (_, true) => 300,
            _ => 10,
        };
        Duration::from_secs(self.seconds.unwrap_or(usual).max(1))
    }

    /// Time for which the whole chain has to keep its rate: a minute, unless the options make measurements
    /// shorter.
    pub(super) fn long(&self) -> Duration {
        if self.quick || self.seconds.is_some() { self.window() } else { self.window().max(CHAIN) }
    }

    pub(super) fn own_items(&self) -> usize {
        self.own_items.unwrap_or(if self.full { 100 } else { 10 })
    }
}

/// Time for which the whole chain must run without loss.
const CHAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn quick_and_full_change_the_defaults() {
        let of = |text: &str| Options::parse_from(text.split(' '));
        let all = of("mdist-bench");
        assert_eq!((all.names().unwrap().len(), all.repeat(), all.window().as_secs()), (12, 3, 10));
        assert_eq!((all.long().as_secs(), all.backbones().len(), all.own_items()), (60, 2, 10));
        let quick = of("mdist-bench --quick t8 T1 --backbone lanes");
        assert_eq!(quick.names().unwrap(), ["T1", "T8"]);
        assert_eq!((quick.repeat(), quick.window().as_secs(), quick.long().as_secs()), (1, 2, 2));
        let full = of("mdist-bench --full --seconds 3");
        assert_eq!((full.window().as_secs(), full.long().as_secs(), full.own_items()), (3, 3, 100));
        assert!(of("mdist-bench T9").names().is_err());
    }
}
