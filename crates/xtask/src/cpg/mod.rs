//! `cargo xtask cpg`: Corosync's own test programs, built outside the tree and linked to Corosync's library, run on
//! ours.

mod compare;
mod programs;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use programs::{Cluster, Program};
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

/// Numbers of passed and failed checks.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    fn check(&mut self, name: &str, result: Result<String>) {
        match result {
            Ok(about) => {
                println!("ok {name}: {about}");
                self.passed += 1;
            }
            Err(error) => {
                println!("FAILED {name}: {error:#}");
                self.failed += 1;
            }
        }
    }
}

/// Builds and runs the programs, or compares with Corosync.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.compare.compare {
        return compare::run(root, &options.compare);
    }
    Ok(crate::workspace::verdict(run_programs(root, options)?))
}

/// Returns whether all passed.
fn run_programs(root: &Path, options: &Options) -> Result<bool> {
    let sources = Sources::find(root).context(
        "cannot get Corosync's test programs (UTIPC_COROSYNC=DIR names a folder with its sources)",
    )?;
    let place = root.join("target/cpg");
    let library = crate::install_cpg::build(root, &place.join("lib"), options.debug)?;
    let daemon = match &options.daemon {
        Some(daemon) => daemon.clone(),
        None => utipcd(root, options.debug)?,
    };
    let mut names =
        vec!["testcpg", "testcpg2", "cpgverify", "cpghum", "stress_cpgfdget", "stress_cpgcontext"];
    if options.bench {
        names.push("cpgbench");
    }
    for name in &names {
        sources.compile(name, &place.join("programs"))?;
    }
    let cluster = Cluster::start(&daemon, &library, &sources, &place.join("programs"))?;
    let mut counts = Counts::default();
    counts.check("the programs find our library", finds(&cluster, &library));
    counts.check("testcpg, two on one node and one on another", testcpg(&cluster));
    counts.check("testcpg2", testcpg2(&cluster));
    counts.check("cpgverify, two at once", cpgverify(&cluster));
    counts.check("cpghum, 4 KiB to another node", cpghum(&cluster, "4K"));
    counts.check("cpghum, 200 KiB to another node", cpghum(&cluster, "200K"));
    counts.check("stress_cpgfdget", passes(&cluster, "stress_cpgfdget"));
    counts.check("stress_cpgcontext", passes(&cluster, "stress_cpgcontext"));
    if options.bench {
        counts.check("cpgbench", cpgbench(&cluster));
        counts.check("cpghum --flood", flood(&cluster));
    }
    println!("cpg: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

/// Builds `utipcd`.
fn utipcd(root: &Path, debug: bool) -> Result<PathBuf> {
    let profile: &[&str] = if debug { &[] } else { &["--release"] };
    crate::workspace::build(root, &[&["--package", "utipc-tools", "--bin", "utipcd"], profile].concat())?;
    Ok(crate::workspace::target(root).join(if debug { "debug/utipcd" } else { "release/utipcd" }))
}

fn finds(cluster: &Cluster, library: &PathBuf) -> Result<String> {
    let text = cluster.output_of("ldd", &[&cluster.path("testcpg").to_string_lossy()])?;
    let line = text.lines().find(|line| line.contains("libcpg.so.4")).context("ldd names no libcpg.so.4")?;
    let own = fs::canonicalize(library).context("find the library")?;
    let found = line.split_whitespace().nth(2).map(fs::canonicalize).context("ldd names no file")??;
    anyhow::ensure!(found == own, "{line}");
    anyhow::ensure!(!text.contains("no version information"), "{text}");
    Ok(format!("{}, with Corosync's symbol version", own.file_name().unwrap_or_default().display()))
}

fn testcpg(cluster: &Cluster) -> Result<String> {
    let mut all = Vec::new();
    for node in [7, 7, 8] {
        let mut program = Program::start(&mut cluster.command("testcpg", node, &["suite"]))?;
        program.wait_for("membership list")?;
        all.push(program);
    }
    let ids: Vec<u32> = all.iter().map(Program::id).collect();
    for (at, program) in all.iter_mut().enumerate() {
        let last = if at < 2 { ids.get(2) } else { ids.get(at) };
        program.wait_for(&format!("/{} reason: 1", last.context("three programs")?))?;
    }
    for (at, id) in ids.iter().enumerate() {
        all.get_mut(at).context("three programs")?.tell(&format!("message of {at}"))?;
        for program in &mut all {
            program.wait_for(&format!("/{id}: 'message of {at}"))?;
        }
    }
    let mut last = all.pop().context("three programs")?;
    let id = last.id();
    last.tell("EXIT")?;
    last.wait_for("Finalize  result is 1")?;
    for program in &mut all {
        program.wait_for(&format!("left node/pid 8/{id} reason: 2"))?;
    }
    let mut killed = all.pop().context("three programs")?;
    let id = killed.id();
    killed.kill()?;
    let first = all.first_mut().context("three programs")?;
    first.wait_for(&format!("left node/pid 7/{id} reason: 5"))?;
    Ok("joins, messages, a leave and a killed process arrive, with their reasons".into())
}

fn testcpg2(cluster: &Cluster) -> Result<String> {
    let text = Program::start(&mut cluster.command("testcpg2", 7, &[]))?.finish(Duration::from_secs(20))?;
    anyhow::ensure!(text.contains("local_get: 7") && text.contains("confchg nodeid 7"), "{text}");
    Ok("its asserts hold".into())
}

fn cpgverify(cluster: &Cluster) -> Result<String> {
    let start = |node| Program::start(&mut cluster.command("cpgverify", node, &["-i", "1000"]));
    let all = [start(7)?, start(8)?];
    let mut checked = 0;
    for program in all {
        let text = program.finish(Duration::from_secs(240))?;
        anyhow::ensure!(!text.contains("incorrect hash"), "an incorrect hash");
        checked += text.lines().filter(|line| line.starts_with("SIZE ")).count();
    }
    anyhow::ensure!(checked >= 1000, "{checked} messages were checked");
    Ok(format!("{checked} messages of up to 100,100 bytes from two nodes have the right hash"))
}

fn cpghum(cluster: &Cluster, size: &str) -> Result<String> {
    let mut listener =
        Program::start(&mut cluster.command("cpghum", 8, &["-l", "-a", "-n", size, "-p", "1000"]))?;
    // It prints nothing before its end.
    std::thread::sleep(Duration::from_secs(2));
    let words = ["-a", "-n", size, "-W", size, "-d", "1", "-r", "1", "-p", "5"];
    let sender =
        Program::start(&mut cluster.command("cpghum", 7, &words))?.finish(Duration::from_secs(60))?;
    std::thread::sleep(Duration::from_secs(1));
    listener.interrupt()?;
    let heard = listener.finish(Duration::from_secs(20))?;
    let (sent, received) = (number(&sender, "packets sent:")?, number(&heard, "packets recvd:")?);
    for text in [&sender, &heard] {
        for errors in ["length errors:", "sequence errors:", "crc errors:"] {
            anyhow::ensure!(number(text, errors)? == 0, "{text}");
        }
    }
    anyhow::ensure!(sent > 0 && sent == received, "{sent} sent, {received} received\n{sender}\n{heard}");
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
    let text = Program::start(&mut cluster.command(name, 7, &[]))?.finish(Duration::from_secs(240))?;
    anyhow::ensure!(text.contains("PASS"), "{text}");
    Ok("PASS".into())
}

fn cpgbench(cluster: &Cluster) -> Result<String> {
    let text = Program::start(&mut cluster.command("cpgbench", 7, &[]))?.finish(Duration::from_secs(150))?;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("TP/s")).collect();
    anyhow::ensure!(lines.len() == 7 && lines.iter().all(|line| !line.starts_with("    0")), "{text}");
    Ok(format!("\n{}", lines.join("\n")))
}

fn flood(cluster: &Cluster) -> Result<String> {
    let text =
        Program::start(&mut cluster.command("cpghum", 7, &["-f", "-a"]))?.finish(Duration::from_secs(150))?;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("TP/s")).collect();
    anyhow::ensure!(lines.len() == 7 && number(&text, "crc errors:")? == 0, "{text}");
    Ok(format!("\n{}", lines.join("\n")))
}
