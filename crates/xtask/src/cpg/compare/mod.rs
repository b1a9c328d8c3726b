//! `cargo xtask cpg --compare`: Debian's Corosync beside utipc, in turn and in one run.
//!
//! Both have two nodes in network namespaces over one veth pair. The same program measures both libraries; a
//! counterpart measures the Rust API.

mod measure;
mod report;
mod sides;
mod site;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::install::link_cpg;
use crate::process::output;
use crate::workspace::{build, root, target};
use measure::{Value, Victim};
use sides::{Side, Site};
use site::{Debian, Namespaces};

/// Exit code of a comparison that cannot run here, as test programs of automake have it.
const SKIPPED: u8 = 77;

#[derive(Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Measure beside Debian's Corosync instead, downloaded below target/cpg (root; exit code 77: skipped)
    #[arg(long)]
    pub(super) compare: bool,
    /// Rounds of a comparison
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), requires = "compare")]
    rounds: u32,
    /// Milliseconds of each rate, a fifth of them not counted
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    rate_ms: u64,
    /// Rounds in which members and nodes are killed; 0: none
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    kills: u32,
    /// Measure the release build that is there, without building
    #[arg(long, requires = "compare")]
    built: bool,
    /// Print one JSON object for each row
    #[arg(long, requires = "compare")]
    json: bool,
}

/// Compares; a comparison that cannot run here is reported as skipped.
pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let prepared = match site::obstacle() {
        Some(why) => Err(why),
        None => prepare().map_err(|error| format!("{error:#}")),
    };
    let (debian, namespaces) = match prepared {
        Ok(both) => both,
        Err(why) => {
            eprintln!("cpg --compare: skipped: {why}");
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    let version = debian.version()?;
    if !options.built {
        link_cpg(&target().join("cpg/lib"), false)?;
        build("--release --package utipc-tools --bin utipcd")?;
        build("--release --package utipc-lab --bin utipc-lab")?;
    }
    let values = measure_all(&Site::new(debian, namespaces)?, options)?;
    let commit = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root()));
    let commit = commit.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
    let rows = report::rows(&values);
    if options.json {
        rows.iter().for_each(|row| println!("{}", row.to_json(&version, &commit)));
    } else {
        println!("{version} beside utipc {commit}, {} rounds, medians (kills: longest):\n", options.rounds);
        report::print(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn prepare() -> Result<(Debian, Namespaces)> {
    let debian = Debian::unpack().context("get Corosync")?;
    Ok((debian, Namespaces::new().context("make namespaces")?))
}

fn measure_all(site: &Site, options: &Options) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    let mut corosync = site.start(Side::Corosync)?;
    let mut utipc = site.start(Side::Agreed)?;
    // Corosync's nodes find each other, and learn the MTU of the path.
    drop(corosync.members(Side::Corosync, &[0, 1])?);
    for round in 0..options.rounds {
        for side in turns(round, &Side::ALL) {
            let daemons = if side == Side::Corosync { &mut corosync } else { &mut utipc };
            values.extend(measure::traffic(daemons, side, options.rate_ms)?);
        }
        eprintln!("cpg --compare: round {} of {}", round + 1, options.rounds);
    }
    drop((corosync, utipc));
    for round in 0..options.kills {
        for victim in [Victim::Process, Victim::Node] {
            for side in turns(round, &[Side::Corosync, Side::Library, Side::Agreed]) {
                values.push(measure::kill(site, side, victim)?);
            }
        }
        eprintln!("cpg --compare: kills, round {} of {}", round + 1, options.kills);
    }
    Ok(values)
}

/// The sides in the order of a round: reversed in every second one.
fn turns(round: u32, sides: &[Side]) -> Vec<Side> {
    if round % 2 == 1 { sides.iter().rev().copied().collect() } else { sides.to_vec() }
}
