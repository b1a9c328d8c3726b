//! `utipc doctor`: looks for what is wrong, and says what to do.
//!
//! `node/` checks what the node reports, `checks.rs` what `host.rs` sees of the host. To add a check: a function there,
//! its provocation in the tests next to it, and a line in `docs/operating/operate.md`.

mod checks;
mod host;
pub(crate) mod node;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use utipc_manage::{Errno, Reply, Request, replies};

use super::finding::{Finding, Level};
use super::node::{Node, Target};
use super::snapshot::Snapshot;

pub(crate) use host::Host;

/// Options of `utipc doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
    /// Show only what is wrong
    #[arg(short, long)]
    quiet: bool,
    /// The node is to use Ethernet: check what that needs
    #[arg(long)]
    ethernet: bool,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report<'a> {
    ok: bool,
    findings: &'a [Finding],
}

/// Prints all findings. The exit code is 1 if something is wrong.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let findings = match options.target.open() {
        Ok(node) => diagnose(&node, options.ethernet)?,
        Err(error) => {
            let host = Host::look();
            let mut findings = vec![unreachable(&error, &host)];
            findings.extend(checks::all(&host, None, options.ethernet));
            findings
        }
    };
    let is_ok = !findings.iter().any(|found| found.level.is_wrong());
    print(options, &findings, is_ok)?;
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All findings about a node that answers, and its host.
fn diagnose(node: &Node, ethernet: bool) -> Result<Vec<Finding>> {
    let shot = Snapshot::take(node, false)?;
    let mut findings = vec![answers(&shot), permissions(node)?];
    findings.extend(node::all(&shot));
    findings.extend(checks::all(&Host::look_at(&shot), Some(&shot), ethernet));
    Ok(findings)
}

fn answers(shot: &Snapshot) -> Finding {
    let text = match &shot.daemon {
        Some(daemon) => {
            format!("process {} answers, with {} programs attached", daemon.pid, daemon.processes)
        }
        None => "the kernel's TIPC answers; it reports less than a daemon".to_owned(),
    };
    Finding::ok("daemon", text)
}

/// The node does not answer.
pub(crate) fn unreachable(error: &utipc::Error, host: &Host) -> Finding {
    let text = error.to_string();
    // Errors end with their remedy.
    let (text, remedy) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((text, remedy)) => (text.to_owned(), remedy.to_owned()),
        None => (text, "start it: `utipcd`, or `systemctl start utipcd`".to_owned()),
    };
    let hint = if host.has_module { "; the kernel's TIPC is loaded: --engine kernel" } else { "" };
    Finding::new("daemon", Level::Error, text, format!("{remedy}{hint}"))
}

/// Whether this user may change the node.
fn permissions(node: &Node) -> Result<Finding> {
    const CHECK: &str = "permissions";
    if node.0.is_kernel() {
        return Ok(Finding::ok(CHECK, "the kernel lets root change its node"));
    }
    // It changes nothing, because no link has this name.
    let answer = node.0.ask(&Request::LinkReset { name: "-".to_owned() })?;
    let refused = replies(&answer)
        .any(|reply| matches!(reply, Ok(Reply::Refused(refusal)) if refusal.errno == Errno::NOT_PERMITTED));
    Ok(permission(refused))
}

fn permission(refused: bool) -> Finding {
    const CHECK: &str = "permissions";
    if refused {
        let text = "this user may use and inspect the node, but not change it";
        return Finding::new(CHECK, Level::Note, text, "to allow it: policy.manage in utipcd.toml");
    }
    Finding::ok(CHECK, "this user may change the node")
}

fn print(options: &Options, findings: &[Finding], is_ok: bool) -> Result<()> {
    if options.json {
        println!("{}", serde_json::to_string_pretty(&Report { ok: is_ok, findings })?);
        return Ok(());
    }
    let wrong = findings.iter().filter(|found| found.level.is_wrong()).count();
    let mut out = String::new();
    for found in findings.iter().filter(|found| !options.quiet || found.level.is_wrong()) {
        out.push_str(&found.line());
    }
    if !options.quiet {
        match wrong {
            0 => out.push_str("\nNothing is wrong.\n"),
            1 => out.push_str("\n1 thing is wrong.\n"),
            _ => out.push_str(&format!("\n{wrong} things are wrong.\n")),
        }
    }
    print!("{out}");
    Ok(())
}
