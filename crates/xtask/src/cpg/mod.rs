//! `cargo xtask cpg`: Corosync's own test programs, built outside the tree and linked to Corosync's library, run on
//! ours.

mod compare;
mod programs;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::sys::signal::Signal;

use crate::install::link_cpg;
use crate::running::Running;
use crate::step::Tally;
use crate::workspace::{build, target, verdict};
use programs::Cluster;
use sources::Sources;

#[derive(Args)]
pub(crate) struct Options {
    /// Also run the benchmarks to their end: cpgbench and cpghum's flood, two and a half minutes
    #[arg(long)]
    bench: bool,
    /// Run a debug build of the library
    #[arg(long)]
    debug: bool,
    /// Run this utipcd instead of building one
    #[arg(long)]
    daemon: Option<PathBuf>,
    #[command(flatten)]
    compare: compare::Options,
}

/// A check, and what there is to say about it.
type Check = fn(&Cluster) -> Result<String>;

/// Checks by program.
const CHECKS: [(&str, &str, Check); 7] = [
    ("testcpg", "testcpg, two on one node and one on another", testcpg),
    ("testcpg2", "testcpg2", testcpg2),
    ("cpgverify", "cpgverify, two at once", cpgverify),
    ("cpghum", "cpghum, 4 KiB to another node", |cluster| cpghum(cluster, "4K")),
    ("cpghum", "cpghum, 200 KiB to another node", |cluster| cpghum(cluster, "200K")),
    ("stress_cpgfdget", "stress_cpgfdget", |cluster| passes(cluster, "stress_cpgfdget")),
    ("stress_cpgcontext", "stress_cpgcontext", |cluster| passes(cluster, "stress_cpgcontext")),
];

/// Those of `--bench`.
const BENCHES: [(&str, &str, Check); 2] =
    [("cpgbench", "cpgbench", cpgbench), ("cpghum", "cpghum --flood", flood)];

/// Builds and runs the programs, or compares with Corosync.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.compare.compare {
        return compare::run(&options.compare);
    }
    Ok(verdict(run_programs(options)?))
}

/// Returns whether all passed.
fn run_programs(options: &Options) -> Result<bool> {
    let sources = Sources::find().context(
        "cannot get Corosync's test programs (UTIPC_COROSYNC=DIR names a folder with its sources)",
    )?;
    let place = target().join("cpg");
    let library = link_cpg(&place.join("lib"), options.debug)?;
    let daemon = match &options.daemon {
        Some(daemon) => daemon.clone(),
        None => {
            let (option, profile) = if options.debug { ("", "debug") } else { ("--release", "release") };
            build(&format!("--package utipc-tools --bin utipcd {option}"))?;
            target().join(profile).join("utipcd")
        }
    };
    let benches: &[_] = if options.bench { &BENCHES } else { &[] };
    let checks: Vec<_> = CHECKS.iter().chain(benches).collect();
    let mut names: Vec<_> = checks.iter().map(|(program, ..)| *program).collect();
    names.dedup();
    for name in names {
        sources.compile(name, &place.join("programs"))?;
    }
    let cluster = Cluster::start(&daemon, &library, &sources, &place.join("programs"))?;
    let mut tally = Tally::new("cpg");
    tally.note("the programs find our library", finds(&cluster, &library));
    for (_, name, check) in checks {
        tally.note(name, check(&cluster));
    }
    Ok(tally.end())
}

fn finds(cluster: &Cluster, library: &Path) -> Result<String> {
    let text = cluster.output_of("ldd", &[&cluster.path("testcpg").to_string_lossy()])?;
    let line = text.lines().find(|line| line.contains("libcpg.so.4")).context("ldd names no libcpg.so.4")?;
    let own = fs::canonicalize(library).context("find the library")?;
    let found = line.split_whitespace().nth(2).map(fs::canonicalize).context("ldd names no file")??;
    ensure!(found == own, "{line}");
    ensure!(!text.contains("no version information"), "{text}");
    Ok(format!("{}, with Corosync's symbol version", own.file_name().unwrap_or_default().display()))
}

fn testcpg(cluster: &Cluster) -> Result<String> {
    let start = |node| -> Result<Running> {
        let mut program = cluster.program("testcpg", node, &["suite"])?;
        program.line_with("membership list")?;
        Ok(program)
    };
    let (mut first, mut second, mut third) = (start(7)?, start(7)?, start(8)?);
    let ids = [first.id(), second.id(), third.id()];
    for program in [&mut first, &mut second, &mut third] {
        program.line_with(&format!("/{} reason: 1", ids[2]))?;
    }
    for (at, id) in ids.iter().enumerate() {
        let all = [&mut first, &mut second, &mut third];
        all[at].tell(&format!("message of {at}"))?;
        for program in all {
            program.line_with(&format!("/{id}: 'message of {at}"))?;
        }
    }
    third.tell("EXIT")?;
    third.line_with("Finalize  result is 1")?;
    for program in [&mut first, &mut second] {
        program.line_with(&format!("left node/pid 8/{} reason: 2", ids[2]))?;
    }
    second.kill()?;
    first.line_with(&format!("left node/pid 7/{} reason: 5", ids[1]))?;
    Ok("joins, messages, a leave and a killed process arrive, with their reasons".into())
}

/// What a program that runs alone on node 7 prints.
fn printed(cluster: &Cluster, program: &str, words: &[&str], seconds: u64) -> Result<String> {
    let lines = cluster.program(program, 7, words)?.finish(Duration::from_secs(seconds))?;
    Ok(lines.join("\n"))
}

fn testcpg2(cluster: &Cluster) -> Result<String> {
    let text = printed(cluster, "testcpg2", &[], 20)?;
    ensure!(text.contains("local_get: 7") && text.contains("confchg nodeid 7"), "{text}");
    Ok("its asserts hold".into())
}

fn cpgverify(cluster: &Cluster) -> Result<String> {
    let start = |node| cluster.program("cpgverify", node, &["-i", "1000"]);
    let mut checked = 0;
    for program in [start(7)?, start(8)?] {
        let lines = program.finish(Duration::from_secs(240))?;
        ensure!(!lines.iter().any(|line| line.contains("incorrect hash")), "an incorrect hash");
        checked += lines.iter().filter(|line| line.starts_with("SIZE ")).count();
    }
    ensure!(checked >= 1000, "{checked} messages were checked");
    Ok(format!("{checked} messages of up to 100,100 bytes from two nodes have the right hash"))
}

fn cpghum(cluster: &Cluster, size: &str) -> Result<String> {
    let listener = cluster.program("cpghum", 8, &["-l", "-a", "-n", size, "-p", "1000"])?;
    // It prints nothing before its end.
    std::thread::sleep(Duration::from_secs(2));
    let words = ["-a", "-n", size, "-W", size, "-d", "1", "-r", "1", "-p", "5"];
    let sender = printed(cluster, "cpghum", &words, 60)?;
    std::thread::sleep(Duration::from_secs(1));
    listener.signal(Signal::SIGINT)?;
    let heard = listener.finish(Duration::from_secs(20))?.join("\n");
    let (sent, received) = (number(&sender, "packets sent:")?, number(&heard, "packets recvd:")?);
    for text in [&sender, &heard] {
        for errors in ["length errors:", "sequence errors:", "crc errors:"] {
            ensure!(number(text, errors)? == 0, "{text}");
        }
    }
    ensure!(sent > 0 && sent == received, "{sent} sent, {received} received\n{sender}\n{heard}");
    Ok(format!(
        "{sent} messages, none lost, out of sequence or damaged; {} retries; round trip {} us on average",
        number(&sender, "send retries:")?,
        number(&sender, "avg RTT:")?
    ))
}

/// The number behind a label.
fn number(text: &str, label: &str) -> Result<u64> {
    let rest = text.split_once(label).with_context(|| format!("no {label:?} in {text}"))?.1;
    rest.split_whitespace().next().and_then(|word| word.parse().ok()).context("no number")
}

fn passes(cluster: &Cluster, name: &str) -> Result<String> {
    let text = printed(cluster, name, &[], 240)?;
    ensure!(text.contains("PASS"), "{text}");
    Ok("PASS".into())
}

fn cpgbench(cluster: &Cluster) -> Result<String> {
    let rates = rates(&printed(cluster, "cpgbench", &[], 150)?)?;
    ensure!(rates.lines().all(|line| !line.starts_with("    0")), "{rates}");
    Ok(rates)
}

fn flood(cluster: &Cluster) -> Result<String> {
    let text = printed(cluster, "cpghum", &["-f", "-a"], 150)?;
    ensure!(number(&text, "crc errors:")? == 0, "{text}");
    rates(&text)
}

/// The seven rates that a benchmark prints.
fn rates(text: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("TP/s")).collect();
    ensure!(lines.len() == 7, "{text}");
    Ok(format!("\n{}", lines.join("\n")))
}
