//! What can be asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::place::Backbone;

/// Re-runs the tables of the RMDS 6 performance report on this machine.
///
/// T1 to T7: what an update costs its component at the report's rate (or at 0.9 of the highest, where this machine does not
/// reach it), and the highest rate without loss. T8: latency against rate. `chain`: the highest rate of publisher,
/// distributor, backbone, server and client together. `direct`: of publisher and client alone. `sdk`: the vendor's own pair,
/// alone and with p2ps between, where UTIPC_RTSDK_BIN names the folder of its ConsPerf and ProvPerf. A Markdown report goes
/// to standard output, progress to standard error. About 25 minutes for all; the machine should have nothing else to do.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "mdist-bench", version)]
pub struct Options {
    /// direct, sdk, T1 … T8, chain; none: all but direct
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
    /// What joins distributor and server; several: one after the other [default: lanes,udp]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub backbone: Vec<Backbone>,
    /// Runs of each measurement, of which the median counts [default: 3; 1 with --quick, --full]
    #[arg(long)]
    pub repeat: Option<usize>,
    /// Seconds of each measurement [default: 10; 2 with --quick, 300 with --full]
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Short measurements, to see whether everything runs
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Every rate of the report for five minutes, and as many items for each of many mounts as it may have had
    #[arg(long)]
    pub full: bool,
    /// Drive a foreign RSSL server with our client; it has data of its own, or dials our publisher (see --source)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub target: Option<String>,
    /// Where our publisher listens; a foreign server has to dial it there
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub source: Option<String>,
    /// Name of the service
    #[arg(long, default_value = "DIRECT_FEED")]
    pub service: String,
    /// Items of a single mount
    #[arg(long, default_value_t = 100_000)]
    pub items: usize,
    /// Mounts of the tests with many
    #[arg(long, default_value_t = 100)]
    pub mounts: usize,
    /// Items of its own for each of many mounts [default: 10; 100 with --full]
    #[arg(long)]
    pub own_items: Option<usize>,
    /// Rates of T8 [default: some of the report's; with --full all of them]
    #[arg(long, value_delimiter = ',')]
    pub rates: Vec<u64>,
    /// Measure T1 to T7, chain and direct at this rate alone, without searching the highest
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Settings for p2ps and src_dist, which go before those of the test
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Write everything that was measured as JSON; rewritten after each test
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where plots are written
    #[arg(long, value_name = "FOLDER", default_value = "target/mdist-bench")]
    pub plots: PathBuf,
}

/// Tests by name, in the order in which they are run.
pub(super) const TESTS: [&str; 11] =
    ["direct", "sdk", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "chain"];

impl Options {
    /// The tests that were asked for.
    pub(super) fn names(&self) -> Result<Vec<&'static str>> {
        let known = |name: &String| {
            let found = TESTS.iter().copied().find(|test| test.eq_ignore_ascii_case(name));
            found.with_context(|| format!("'{name}' is no test (use {})", TESTS.join(", ")))
        };
        let asked = self.tests.iter().map(known).collect::<Result<Vec<_>>>()?;
        Ok(TESTS
            .into_iter()
            .filter(|test| if asked.is_empty() { *test != "direct" } else { asked.contains(test) })
            .collect())
    }

    pub(super) fn backbones(&self) -> Vec<Backbone> {
        if self.backbone.is_empty() { vec![Backbone::Lanes, Backbone::Udp] } else { self.backbone.clone() }
    }

    pub(super) fn repeat(&self) -> usize {
        self.repeat.unwrap_or(if self.quick || self.full { 1 } else { 3 }).max(1)
    }

    /// How long something is measured.
    pub(super) fn window(&self) -> Duration {
        let usual = match (self.quick, self.full) {
            (true, _) => 2,
            (_, true) => 300,
            _ => 10,
        };
        Duration::from_secs(self.seconds.unwrap_or(usual).max(1))
    }

    /// How long the whole chain has to keep its rate: a minute unless measurements were made shorter.
    pub(super) fn long(&self) -> Duration {
        if self.quick || self.seconds.is_some() { self.window() } else { self.window().max(CHAIN) }
    }

    pub(super) fn own_items(&self) -> usize {
        self.own_items.unwrap_or(if self.full { 100 } else { 10 })
    }
}

/// How long the whole chain must be without loss.
const CHAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn defaults_of_the_kinds_of_runs() {
        let of = |text: &str| Options::parse_from(text.split(' '));
        let all = of("mdist-bench");
        assert_eq!((all.names().unwrap().len(), all.repeat(), all.window().as_secs()), (10, 3, 10));
        assert_eq!((all.long().as_secs(), all.backbones().len(), all.own_items()), (60, 2, 10));
        let quick = of("mdist-bench --quick t8 T1 --backbone lanes");
        assert_eq!(quick.names().unwrap(), ["T1", "T8"]);
        assert_eq!((quick.repeat(), quick.window().as_secs(), quick.long().as_secs()), (1, 2, 2));
        let full = of("mdist-bench --full --seconds 3");
        assert_eq!((full.window().as_secs(), full.long().as_secs(), full.own_items()), (3, 3, 100));
        assert!(of("mdist-bench T9").names().is_err());
    }
}
